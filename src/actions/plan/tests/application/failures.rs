//! Results of moves that fail, and of an application that is aborted, suspended or gone.

use super::*;
use crate::effect::{Refusal, RefusalKind};
use crate::refused;
use crate::tests::troubles::refuse;

#[test]
fn a_failure_stops_what_has_not_begun() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 2, "maxParallelPerWorkload": 1})));
    let parts = stage.make_parts("go");
    let status = stage.settle_until_admitted(&parts[1]).expect("it begins");
    let mut action = stage.action(&parts[1]);
    action.status = Some(status);
    stage.put_action(action);
    stage.end_part(&parts[0], &[("api-a", DONE), ("api-c", Step::RolledBack)]);
    assert_eq!(stage.make_parts("go"), [""; 0]);
    assert_eq!(stage.ready("go").0, "Unknown", "the other is on its way");
    assert!(matches!(stage.next(&parts[1]), NextStep::Do(Effect::CreatePod(_))), "it is completed");
    stage.end_part(&parts[1], &[("web-a", DONE)]);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodeFull"));
    assert_eq!(
        message,
        format!(
            "2 of 4 replicas of 2 workloads moved, 1 could not move; ReplicaSet/api could not move (WorkloadAction {}): words of the move",
            parts[0]
        )
    );
    let failed = &stage.progress("go").moves;
    assert_eq!(
        (failed.len(), failed[0].workload.as_str(), failed[0].reason),
        (1, "ReplicaSet/api", Some(Reason::NodeFull))
    );
}

/// The second replica of the running move is not started.
#[test]
fn a_failure_stops_the_other_moves_too() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 2, "maxParallelPerWorkload": 1})));
    let parts = stage.make_parts("go");
    let mut status = stage.settle_until_admitted(&parts[1]).expect("it begins");
    status.slots[0].step = DONE;
    let mut action = stage.action(&parts[1]);
    action.status = Some(status);
    stage.put_action(action);
    assert!(stage.settle_until_admitted(&parts[1]).is_some(), "the second may begin");
    stage.end_part(&parts[0], &[("api-a", Step::RolledBack)]);
    stage.settle(&parts[1]);
    assert!(stage.action(&parts[1]).status.unwrap().finished_at.is_some());
}

#[test]
fn a_failure_lets_the_others_go_on() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"onFailure": "Continue"})));
    let first = stage.make_parts("go");
    stage.end_part(&first[0], &[("api-a", Step::RolledBack), ("api-c", DONE)]);
    let second = stage.make_parts("go");
    assert_eq!(second.iter().map(|part| stage.subject(part)).collect::<Vec<_>>(), ["web"]);
    stage.end_part(&second[0], &[("web-a", DONE), ("web-d", DONE)]);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(
        ready == "False" && message.starts_with("3 of 4 replicas of 2 workloads moved, 1 could not move"),
        "{message}"
    );
}

/// The same within one move; the replica that could not move is not chosen again.
#[test]
fn a_replica_that_could_not_move_does_not_hold_its_workload() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"onFailure": "Continue"})));
    let part = stage.make_parts("go").remove(0);
    let mut status = stage.settle_until_admitted(&part).expect("it begins");
    let gone = status.slots[0].victim.clone().unwrap().name;
    status.slots[0].step = Step::RolledBack;
    let mut action = stage.action(&part);
    action.status = Some(status);
    stage.put_action(action);
    let status = stage.settle_until_admitted(&part).expect("the next one begins");
    assert_eq!((status.slots.len(), status.replicas), (2, Some(2)));
    assert_ne!(status.slots[1].victim.clone().unwrap().name, gone);
}

/// In the opposite direction, both would move each replica again and again.
#[test]
fn a_workload_is_left_to_the_older_of_two_applications() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 10})));
    let parts = stage.make_parts("go");
    stage.act("late", off_a(json!({"from": {"nodeName": "b"}})));
    let mut late = stage.action("late");
    late.metadata.creation_timestamp = Some(Time(stage.now));
    stage.put_action(late);
    stage.put_pod("web-b", "b", |_| {});
    assert_eq!(stage.make_parts("late"), [""; 0]);
    let (ready, reason, message) = stage.ready("late");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("is left to WorkloadAction go"), "{message}");
    stage.end_part(&parts[0], &[("api-a", DONE), ("api-c", DONE)]);
    stage.end_part(&parts[1], &[("web-a", DONE), ("web-d", DONE)]);
    stage.settle("go");
    assert!(stage.action("go").status.unwrap().finished_at.is_some());
    assert!(!stage.make_parts("late").is_empty(), "{:?}", stage.ready("late"));
}

/// The replicas that are left have no node any more.
#[test]
fn a_move_whose_other_replicas_cannot_begin_ends() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"onFailure": "Continue"})));
    let part = stage.make_parts("go").remove(0);
    let mut status = stage.settle_until_admitted(&part).expect("it begins");
    (status.slots[0].step, status.slots[0].reason) = (Step::RolledBack, Some(Reason::NodeGone));
    let mut action = stage.action(&part);
    action.status = Some(status);
    stage.put_action(action);
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.now += SignedDuration::from_secs(5);
    let NextStep::Do(Effect::Record { status, .. }) = stage.next(&part) else { panic!("it ends") };
    assert!(status.finished_at.is_some(), "{status:#?}");
    let ready = status.conditions.iter().find(|one| one.type_ == "Ready").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "NodeGone"));
}

#[test]
fn a_failure_takes_all_back_to_where_they_were() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"onFailure": "Rollback", "maxParallel": 3})));
    let parts = stage.make_parts("go");
    let status = stage.settle_until_admitted(&parts[1]).expect("it begins");
    let mut action = stage.action(&parts[1]);
    action.status = Some(status);
    stage.put_action(action);
    stage.end_part(&parts[0], &[("api-a", DONE), ("api-c", Step::RolledBack)]);
    assert_eq!(stage.make_parts("go"), [""; 0], "first all that is on its way ends");
    assert_eq!(stage.ready("go").1, "RollingBack");
    stage.settle(&parts[1]);
    assert_eq!(stage.action(&parts[1]).status.unwrap().slots[0].step, Step::Aborted, "replicas in motion are undone");
    let back = stage.make_parts("go");
    assert_eq!(back.iter().map(|part| stage.subject(part)).collect::<Vec<_>>(), ["api-a-new"]);
    let to = stage.change(&back[0]).to.unwrap();
    assert_eq!(to.node_name, Some("a".into()));
    assert_eq!(to.preferences.unwrap()[0].condition.as_deref(), Some("node.name == \"a\""));
    let status = stage.settle_until_admitted(&back[0]).expect("it begins, although another failed");
    assert_eq!(status.slots[0].replacement.as_ref().unwrap().node, "a");
    stage.end_part(&back[0], &[("api-a-new", DONE)]);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodeFull"));
    assert!(message.starts_with("1 of 4 replicas of 2 workloads moved, 1 of these moved back"), "{message}");
}

#[rstest]
#[case::abort(false)]
#[case::deletion(true)]
fn an_abort_undoes_what_is_on_its_way_and_begins_nothing(#[case] deletes: bool) {
    let mut stage = shop();
    stage.act("go", off_a(json!({})));
    let part = stage.make_parts("go").remove(0);
    let status = stage.settle_until_admitted(&part).expect("it begins");
    let mut action = stage.action(&part);
    action.status = Some(status);
    stage.put_action(action);
    let mut action = stage.action("go");
    if deletes {
        action.metadata.deletion_timestamp = Some(Time(stage.now));
    } else {
        action.spec.abort = true;
    }
    stage.put_action(action);
    stage.settle("go");
    assert!(stage.action("go").status.unwrap().finished_at.is_none(), "it waits for its move");
    stage.settle(&part);
    assert_eq!(stage.action(&part).status.unwrap().slots[0].step, Step::Aborted);
    stage.settle("go");
    let status = stage.action("go").status.unwrap();
    assert!(status.finished_at.is_some());
    assert_eq!(stage.ready("go").1, "Aborted");
}

#[test]
fn suspended_it_begins_nothing_and_its_moves_stop() {
    let mut stage = shop();
    stage.act("go", off_a(json!({})));
    let part = stage.make_parts("go").remove(0);
    let mut action = stage.action("go");
    action.spec.suspend = true;
    stage.put_action(action);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Suspended");
    stage.settle(&part);
    assert!(stage.action(&part).status.unwrap().suspended_at.is_some(), "its move is suspended");
    stage.end_part(&part, &[("api-a", DONE), ("api-c", DONE)]);
    assert_eq!(stage.make_parts("go"), [""; 0]);
    let mut action = stage.action("go");
    action.spec.suspend = false;
    stage.put_action(action);
    assert_eq!(stage.make_parts("go").len(), 1);
}

/// Somebody restored it from a backup, or its application was deleted without it.
#[test]
fn a_move_without_its_application_does_nothing() {
    let mut stage = shop();
    stage.act("go", off_a(json!({})));
    let part = stage.make_parts("go").remove(0);
    let application = stage.action("go");
    stage.world.remove::<WorkloadAction>(&Identity::from(&application.metadata));
    assert!(stage.settle_until_admitted(&part).is_none());
    stage.settle(&part);
    let (_, reason, message) = stage.ready(&part);
    assert!(reason == "Aborted" && message.contains("moveApplication"), "{message}");
}

/// A quota or a webhook for WorkloadActions.
#[test]
fn moves_that_cannot_be_created_have_a_deadline() {
    let mut stage = shop();
    stage.act("go", {
        let mut spec = off_a(json!({"maxParallel": 10}));
        spec["timeouts"] = json!({"queueSeconds": 60});
        spec
    });
    let refuse = |stage: &mut Stage| {
        let NextStep::DoAll(effects) = stage.settle("go") else { panic!("creates moves") };
        let refusal = Refusal { kind: RefusalKind::Denied, message: "exceeded quota: none".into() };
        let step = refused(&Key::new(NAMESPACE, "go"), &stage.world, stage.now, &effects[0], &refusal);
        let (NextStep::Do(Effect::Record { status, .. }) | NextStep::Wait { report: Some(status), .. }) = step else {
            return;
        };
        let mut action = stage.action("go");
        action.status = Some(*status);
        stage.put_action(action);
    };
    refuse(&mut stage);
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("a move cannot be created, and it is tried again: exceeded quota"), "{message}");
    stage.now += SignedDuration::from_secs(59);
    refuse(&mut stage);
    assert_eq!(stage.ready("go").0, "Unknown");
    stage.now += SignedDuration::from_secs(2);
    refuse(&mut stage);
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "PodRefused"), "{message}");
    assert!(message.contains("a move could not be created for queueSeconds: exceeded quota"), "{message}");
    assert!(stage.action("go").status.unwrap().finished_at.is_some());
}

/// A quota, a permission or a webhook for WorkloadActionReceipts.
#[rstest]
#[case::by_a_quota(RefusalKind::Denied, "PodRefused")]
#[case::by_a_permission(RefusalKind::Forbidden, "Forbidden")]
#[case::by_a_webhook(RefusalKind::Failing, "PodRefused")]
fn a_receipt_that_cannot_be_created_has_a_deadline(#[case] kind: RefusalKind, #[case] expected: &str) {
    let (mut stage, receipt) = without_receipt();
    refuse(&mut stage, &receipt, kind, "exceeded quota: none");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert_eq!(message, "the receipt cannot be created, and it is tried again: exceeded quota: none");
    stage.now += SignedDuration::from_secs(59);
    assert!(matches!(stage.next("go"), NextStep::Do(Effect::WriteReceipt(_))), "it is tried again");
    stage.now += SignedDuration::from_secs(2);
    refuse(&mut stage, &receipt, kind, "exceeded quota: none");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", expected), "{message}");
    assert!(message.contains("the receipt could not be created for queueSeconds: exceeded quota"), "{message}");
    assert!(stage.action("go").status.unwrap().finished_at.is_some());
}

#[test]
fn a_receipt_that_was_refused_is_created_later() {
    let (mut stage, receipt) = without_receipt();
    refuse(&mut stage, &receipt, RefusalKind::Denied, "exceeded quota: none");
    assert!(stage.action("go").status.unwrap().queued_at.is_some());
    assert_eq!(stage.make_parts("go").len(), 1);
    assert_eq!(stage.action("go").status.unwrap().queued_at, None);
}

#[test]
fn an_abort_ends_although_the_receipt_is_refused() {
    let (mut stage, receipt) = without_receipt();
    refuse(&mut stage, &receipt, RefusalKind::Denied, "exceeded quota: none");
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    assert!(!matches!(stage.next("go"), NextStep::Do(Effect::WriteReceipt(_))), "the receipt is not tried again");
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Aborted"), "{message}");
    assert!(stage.action("go").status.unwrap().finished_at.is_some());
}

/// A moveApplication with 60 queueSeconds that has begun, and the effect that creates its receipt.
fn without_receipt() -> (Stage, Effect) {
    let mut stage = shop();
    let mut spec = off_a(json!({}));
    spec["timeouts"] = json!({"queueSeconds": 60});
    stage.act("go", spec);
    loop {
        let mut action = stage.action("go");
        match stage.next("go") {
            NextStep::Do(effect @ Effect::WriteReceipt(_)) => return (stage, effect),
            NextStep::Do(Effect::AddFinalizer { finalizers, .. }) => action.metadata.finalizers = Some(finalizers),
            NextStep::Do(Effect::Record { status, .. }) => action.status = Some(*status),
            other => panic!("{other:?}"),
        }
        stage.put_action(action);
    }
}

/// A move that was refused once is created later; the next refusal has its own deadline.
#[test]
fn the_deadline_of_a_refusal_ends_with_the_creation() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 10})));
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("creates moves") };
    let refusal = Refusal { kind: RefusalKind::Denied, message: "exceeded quota: none".into() };
    let step = refused(&Key::new(NAMESPACE, "go"), &stage.world, stage.now, &effects[0], &refusal);
    let NextStep::Wait { report: Some(status), .. } = step else { panic!("{step:?}") };
    assert!(status.queued_at.is_some());
    let mut action = stage.action("go");
    action.status = Some(*status);
    stage.put_action(action);
    assert_eq!(stage.make_parts("go").len(), 2);
    assert_eq!(stage.action("go").status.unwrap().queued_at, None);
}

#[test]
fn without_a_node_it_waits_as_long_as_queue_seconds_says() {
    let mut stage = shop();
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.act("go", off_a(json!({"to": null, "from": {"where": "node.name == 'a'"}})));
    for _ in 0..3 {
        stage.settle("go");
        stage.now += SignedDuration::from_secs(60);
    }
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"), "{message}");
    stage.put_node("b", |node| node.pod_capacity = 20);
    let part = stage.make_parts("go").remove(0);
    stage.put_node("b", |node| node.cordoned = true);
    for _ in 0..3 {
        stage.settle(&part);
        stage.now += SignedDuration::from_secs(60);
    }
    let (ready, reason, message) = stage.ready(&part);
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"), "{message}");
}
