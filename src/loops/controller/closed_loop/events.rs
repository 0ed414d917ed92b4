//! Events about a loop that stops acting. Published only on change.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;

use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use ganglion_runtime::events::{EventText, reference};

/// Reference to the loop, for events.
pub fn subject(parent: &ClosedLoop) -> ObjectReference {
    reference::<ClosedLoop>(&parent.meta().into())
}

/// Event for a loop that does not act, if this status is the first to report it.
pub fn transition_event(before: &ClosedLoopStatus, after: &ClosedLoopStatus) -> Option<EventText> {
    let found = |status: &ClosedLoopStatus| {
        let stops = |one: &&Condition| {
            matches!(
                (one.type_.as_str(), one.status.as_str()),
                ("Stalled" | "Conflict", "True") | ("Preflight", "False")
            )
        };
        status.conditions.iter().find(stops).cloned()
    };
    let new = found(after)?;
    let known = found(before).is_some_and(|old| (old.reason, old.message) == (new.reason.clone(), new.message.clone()));
    (!known).then_some(EventText { warning: true, reason: new.reason, note: new.message, about: None })
}
