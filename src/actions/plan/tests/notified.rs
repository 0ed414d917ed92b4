//! Notifications of the planner's actions: they begin when an action ends, and only a deletion by ttl waits for them.

use super::*;
use crate::notify::{AttemptMade, AttemptResult, due, recorded};
use ganglion_api::workload_action::status::NotificationOutcome;

fn with(mut spec: serde_json::Value, more: serde_json::Value) -> serde_json::Value {
    let more = more.as_object().expect("an object").clone();
    spec.as_object_mut().expect("an object").extend(more);
    spec
}

fn receivers() -> serde_json::Value {
    json!({"notify": [{"url": "http://a.example"}, {"url": "http://b.example"}]})
}

/// An action that ends at once, since its node does not exist.
fn fails(more: serde_json::Value) -> Stage {
    let mut stage = Stage::new();
    stage.act("go", with(with(move_web(json!({"nodeName": "nowhere"})), receivers()), more));
    stage
}

/// All receivers respond to the due attempts in this way.
fn answer(stage: &mut Stage, result: &AttemptResult) {
    let mut action = stage.action("go");
    let made = |id| AttemptMade { id, at: stage.now, result: result.clone() };
    let made: Vec<AttemptMade> = due(&action, stage.now).into_iter().map(made).collect();
    action.status = recorded(&action, &made, stage.now, 0.0);
    stage.put_action(action);
}

fn outcomes(stage: &Stage) -> Vec<NotificationOutcome> {
    stage.action("go").status.unwrap_or_default().notifications.iter().map(|one| one.outcome).collect()
}

fn conditions(stage: &Stage) -> Vec<(String, String)> {
    let status = stage.action("go").status.unwrap_or_default();
    status.conditions.into_iter().map(|one| (one.type_, one.reason)).collect()
}

#[test]
fn the_write_that_ends_an_action_has_its_notifications() {
    let mut stage = fails(json!({}));
    assert!(outcomes(&stage).is_empty(), "it has not ended");
    assert_eq!(stage.settle("go"), NOTHING);
    assert_eq!(outcomes(&stage), [NotificationOutcome::Pending; 2]);
    let ended = ["Ready", "Stalled", "Finished"].map(|kind| (kind, "NodeNotFound"));
    let expected = [ended[0], ended[1], ended[2], ("Notified", "Delivering")];
    assert_eq!(conditions(&stage), expected.map(|(kind, reason)| (kind.to_owned(), reason.to_owned())));
}

#[test]
fn a_plan_and_an_action_that_ran_before_are_notified_too() {
    let mut stage = Stage::new();
    stage.act("go", with(with(move_web(json!({"nodeName": "d"})), receivers()), json!({"mode": "Plan"})));
    stage.settle("go");
    assert_eq!((stage.ready("go").1.as_str(), outcomes(&stage).len()), ("Planned", 2));

    let mut stage = Stage::new();
    stage.act("go", with(move_web(json!({"nodeName": "d"})), receivers()));
    let name = identity::receipt_name(&stage.action("go"));
    stage.put(|id| ReceiptFact { id, action_uid: "other".into(), executed_at: NOW, outcome: None }, &name);
    stage.settle("go");
    assert_eq!((stage.ready("go").1.as_str(), outcomes(&stage).len()), ("AlreadyExecuted", 2));
}

#[test]
fn a_running_action_has_no_notifications() {
    let mut stage = Stage::new();
    stage.act("go", with(move_web(json!({"nodeName": "d"})), receivers()));
    stage.settle("go");
    assert!(stage.action("go").status.is_some_and(|status| !status.slots.is_empty()));
    assert!(outcomes(&stage).is_empty() && conditions(&stage).iter().all(|(kind, _)| kind != "Notified"));
}

#[test]
fn a_change_after_the_end_is_observed_by_all_conditions() {
    let mut stage = fails(json!({}));
    stage.settle("go");
    let mut action = stage.action("go");
    action.metadata.generation = Some(2);
    stage.put_action(action);
    stage.settle("go");
    let status = stage.action("go").status.unwrap_or_default();
    assert_eq!(status.conditions.len(), 4);
    assert!(status.conditions.iter().all(|one| one.observed_generation == Some(2)));
    assert_eq!(outcomes(&stage).len(), 2);
}

#[test]
fn a_deletion_by_ttl_waits_for_them_and_no_longer() {
    let mut stage = fails(json!({"ttlSecondsAfterFinished": 5}));
    let ended = stage.now;
    stage.settle("go");
    stage.now += SignedDuration::from_mins(1);
    assert_eq!(stage.next("go"), NOTHING, "the end of the attempts requeues it");
    answer(&mut stage, &AttemptResult::Missed { code: None, message: "no answer".into() });
    let again = stage.now + SignedDuration::from_secs(2);
    assert_eq!(stage.next("go"), NextStep::Wait { until: Some(again), report: None });
    stage.now = again;
    answer(&mut stage, &AttemptResult::Accepted { code: 200 });
    assert_eq!(outcomes(&stage), [NotificationOutcome::Delivered; 2]);
    assert!(matches!(stage.effect("go"), Effect::DeleteAction { .. }));

    // The time counts from the end of the action.
    stage.now = ended;
    assert_eq!(stage.next("go"), NextStep::Wait { until: Some(ended + SignedDuration::from_secs(5)), report: None });
}

/// A restored status may have any time.
#[test]
fn an_end_at_the_last_time_there_is_is_read() {
    let mut stage = Stage::new();
    stage.act("go", with(move_web(json!({"nodeName": "nowhere"})), json!({"ttlSecondsAfterFinished": 86400})));
    stage.settle("go");
    let mut action = stage.action("go");
    action.status.as_mut().unwrap().finished_at = Some(Time(Timestamp::MAX));
    stage.put_action(action);
    assert_eq!(stage.next("go"), NextStep::Wait { until: Some(Timestamp::MAX), report: None });
}

#[test]
fn a_deleted_action_is_let_go_while_they_are_pending() {
    let mut stage = fails(json!({}));
    stage.settle("go");
    let mut action = stage.action("go");
    action.metadata.finalizers = Some(vec![marks::FINALIZER.to_owned()]);
    action.metadata.deletion_timestamp = Some(Time(stage.now));
    stage.put_action(action);
    assert!(matches!(stage.effect("go"), Effect::RemoveFinalizer { .. }));
    assert_eq!(stage.settle("go"), NOTHING);
}
