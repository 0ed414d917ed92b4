//! Events about the end of each decision. Published only on change.

use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{DeferralState, DeferredResize, ExecutionState, ExecutionStatus};
use ganglion_loops_plan::acted;
use ganglion_runtime::events::EventText;

/// Event for a finished decision, if this status is the first to report it. There is none for a target at its bound, or
/// for a repeated failure. `done` describes the change and its cause.
pub fn transition_event(
    before: &ExecutionStatus,
    after: &ExecutionStatus,
    done: impl FnOnce() -> Option<String>,
) -> Option<EventText> {
    if let Some(event) = taken_back_event(before, after) {
        return Some(event);
    }
    let same = (before.state, before.reason, &before.message) == (after.state, after.reason, &after.message);
    if after.claim.is_some() || (same && before.claim.is_none()) {
        return None;
    }
    let warning = match after.state? {
        ExecutionState::Done => false,
        ExecutionState::Failed | ExecutionState::Overtaken | ExecutionState::Lost => true,
        ExecutionState::Idle | ExecutionState::Claimed | ExecutionState::Executing | ExecutionState::Limited => {
            return None;
        }
    };
    let changed = before.claim.as_ref().filter(|_| !warning).map(|claim| acted::event_reason(&claim.action));
    let reason = changed.or(after.reason)?.as_str();
    let note = if warning { None } else { done() };
    let note = note.or_else(|| after.message.clone()).unwrap_or_default();
    Some(EventText { warning, ..EventText::normal(reason, note) })
}

/// Event for a resize that was taken back, also if its decision is not the last one any more.
fn taken_back_event(before: &ExecutionStatus, after: &ExecutionStatus) -> Option<EventText> {
    let is_taken_back = |one: &&DeferredResize| one.state == DeferralState::TakenBack;
    let new = after.deferred.iter().filter(is_taken_back).find(|one| !before.deferred.contains(one))?;
    let note = new.message.clone().unwrap_or_default();
    Some(EventText { warning: true, ..EventText::normal(LoopReason::ResizeTakenBack.as_str(), note) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn transition_event(before: Value, after: Value) -> Option<(String, bool)> {
        let status = |value| serde_json::from_value(value).unwrap();
        super::transition_event(&status(before), &status(after), || None).map(|event| (event.reason, event.warning))
    }

    #[test]
    fn each_end_is_told_once_and_the_same_failure_once() {
        let idle = || json!({"seq": 0, "state": "Idle", "reason": "Idle"});
        let done = |seq: i64| json!({"seq": seq, "state": "Done", "reason": "Done", "message": "changed"});
        let failed = |seq: i64| json!({"seq": seq, "state": "Failed", "reason": "Forbidden", "message": "grant it"});
        let mut claimed = json!({"seq": 2, "state": "Claimed", "reason": "Claimed"});
        claimed["claim"] = json!({"seq": 2, "at": "2026-11-18T08:26:40.000000Z", "goal": {}, "do": {"scale": {"by": 1}},
            "deadline": "2026-11-18T08:26:40.000000Z"});
        assert_eq!(transition_event(idle(), claimed.clone()), None);
        assert_eq!(transition_event(claimed, done(2)), Some(("Scaled".into(), false)));
        assert_eq!(transition_event(idle(), failed(1)), Some(("Forbidden".into(), true)));
        assert_eq!(transition_event(failed(1), failed(2)), None);
        assert_eq!(transition_event(done(2), json!({"seq": 3, "state": "Limited", "reason": "Limited"})), None);
    }

    #[test]
    fn a_resize_that_is_taken_back_is_told_once_also_after_another_decision() {
        let status = |state: &str| {
            let deferred = json!({"seq": 1, "state": state, "at": "2026-11-18T08:26:40.000000Z", "goal": {}, "pods": [],
                "resize": {"container": "app", "resource": "cpu", "factor": "2"}, "message": "took back"});
            json!({"seq": 3, "state": "Done", "reason": "Done", "message": "changed", "deferred": [deferred]})
        };
        let event = Some(("ResizeTakenBack".into(), true));
        assert_eq!(transition_event(status("TakingBack"), status("TakenBack")), event);
        assert_eq!(transition_event(status("TakenBack"), status("TakenBack")), None);
        assert_eq!(transition_event(status("Waiting"), status("TakingBack")), None);
    }
}
