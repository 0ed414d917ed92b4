//! Events of a WorkloadAction. One event is published when the action starts and one when it ends, with reason and
//! message of the Ready condition. Another event reports receivers that were given up, with reason and message of the
//! Notified condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_actions_plan::notify::NOTIFIED;
use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, EventText, condition_events};

/// Receivers were given up.
const GIVEN_UP: ConditionEvent = ConditionEvent::warning(NOTIFIED, "False", ConditionChange::Status);

/// Event for a status change in which the action started or ended.
pub fn transition_event(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<EventText> {
    let began = after.started_at.is_some() && before.is_none_or(|status| status.started_at.is_none());
    let ended = after.finished_at.is_some() && before.is_none_or(|status| status.finished_at.is_none());
    let ready: &Condition = after.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (began || ended).then(|| EventText::of(ready, ended && ready.status != "True"))
}

/// Event for the status change that ends the notifications, if a receiver was given up.
pub fn given_up_event(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<EventText> {
    let before = before.map(|status| &*status.conditions).unwrap_or_default();
    condition_events(&[GIVEN_UP], before, &after.conditions).pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn status(ready: &str, reason: &str, began: bool, ended: bool) -> WorkloadActionStatus {
        let time = Time(Timestamp::UNIX_EPOCH);
        WorkloadActionStatus {
            conditions: vec![Condition {
                type_: "Ready".into(),
                status: ready.into(),
                reason: reason.into(),
                message: "words".into(),
                observed_generation: None,
                last_transition_time: time.clone(),
            }],
            started_at: began.then(|| time.clone()),
            finished_at: ended.then_some(time),
            ..WorkloadActionStatus::default()
        }
    }

    #[test]
    fn one_event_at_the_beginning_and_one_at_the_end() {
        let queued = status("Unknown", "Queued", false, false);
        let begun = status("Unknown", "Creating", true, false);
        let further = status("Unknown", "Evicting", true, false);
        let done = status("True", "Succeeded", true, true);
        let failed = status("False", "NodeFull", false, true);
        let words = |before, after| transition_event(before, after).map(|event| (event.reason, event.warning));
        assert_eq!(words(None, &queued), None);
        assert_eq!(words(Some(&queued), &begun), Some(("Creating".into(), false)));
        assert_eq!(words(Some(&begun), &further), None);
        assert_eq!(words(Some(&further), &done), Some(("Succeeded".into(), false)));
        assert_eq!(words(Some(&done), &done), None);
        assert_eq!(words(None, &failed), Some(("NodeFull".into(), true)));
    }

    #[test]
    fn one_event_if_a_receiver_is_given_up() {
        let notified = |value: &str, reason: &str| {
            let mut status = status("True", "Succeeded", true, true);
            let mut condition = status.conditions[0].clone();
            (condition.type_, condition.status, condition.reason) = (NOTIFIED.into(), value.into(), reason.into());
            status.conditions.push(condition);
            status
        };
        let words = |before: &_, after| given_up_event(Some(before), after).map(|event| (event.reason, event.warning));
        let (begun, done) = (notified("Unknown", "Delivering"), notified("True", "Delivered"));
        let failed = notified("False", "DeliveryFailed");
        assert_eq!(words(&begun, &done), None);
        assert_eq!(words(&begun, &failed), Some(("DeliveryFailed".into(), true)));
        assert_eq!(words(&failed, &failed), None);
        assert_eq!(transition_event(Some(&begun), &failed), None, "the action ended before");
    }
}
