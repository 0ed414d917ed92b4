//! Events about a loop that stops acting. Published only on change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_api::closed_loop::ClosedLoopStatus;
use ganglion_runtime::events::EventText;

/// Event for a loop that does not act, if this status is the first to report it.
pub fn transition_event(before: &ClosedLoopStatus, after: &ClosedLoopStatus) -> Option<EventText> {
    let new = stopping_condition(after)?;
    let reported =
        stopping_condition(before).is_some_and(|old| (&old.reason, &old.message) == (&new.reason, &new.message));
    (!reported).then(|| EventText { warning: true, reason: new.reason.clone(), note: new.message.clone(), about: None })
}

/// Returns the first condition that says why the loop does not act.
fn stopping_condition(status: &ClosedLoopStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| {
        matches!(
            (condition.type_.as_str(), condition.status.as_str()),
            ("Stalled" | "Conflict", "True") | ("Preflight", "False")
        )
    })
}
