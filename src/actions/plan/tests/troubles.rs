//! New pods that do not start, do not end or cannot be created: how long an action waits, what it says, and how it
//! ends.

use super::*;
use crate::effect::{Refusal, RefusalKind};
use crate::refused;
use ganglion_core::facts::{SlotId, Trouble};

/// A move whose new pod runs on this node, with the name of that pod.
fn moving(to: serde_json::Value) -> (Stage, String) {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": to}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    let node = new.node();
    stage.put_pod(&new.key.name, node.as_str(), |pod| {
        (pod.ready_since, pod.controller, pod.generated, pod.labels) = (None, None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
    });
    (stage, new.key.name)
}

fn slot(stage: &Stage) -> Slot {
    stage.action("go").status.unwrap().slots[0].clone()
}

/// Performs the step that follows from a refusal.
fn refuse(stage: &mut Stage, effect: &Effect, kind: RefusalKind, message: &str) {
    let refusal = Refusal { kind, message: message.into() };
    let step = refused(&Key::new(NAMESPACE, "go"), &stage.world, stage.now, effect, &refusal);
    let (NextStep::Do(Effect::Record { status, .. }) | NextStep::Wait { report: Some(status), .. }) = step else {
        panic!("{step:?}")
    };
    let mut action = stage.action("go");
    action.status = Some(*status);
    stage.put_action(action);
}

#[test]
fn a_trouble_that_passes_is_waited_for() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    let trouble = Trouble { reason: Reason::ImagePullFailed, message: "the registry restarts".into() };
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "ImagePullFailed"));
    assert!(message.contains("the registry restarts"), "{message}");
    let now = stage.now;
    stage.change_pod(&pod, |pod| (pod.trouble, pod.ready_since) = (None, Some(now)));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
}

#[test]
fn a_trouble_that_stays_is_tried_on_another_node_where_the_action_allows_it() {
    let trouble = || Trouble { reason: Reason::ReplacementCrashed, message: "it crashes".into() };
    let (mut stage, pod) = moving(json!({"where": "node.name in ['b', 'd']"}));
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble()));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(300);
    let NextStep::Do(Effect::Evict { pod: left, .. }) = stage.settle("go") else { panic!("removes the first new pod") };
    assert_eq!((left.key.name, slot(&stage).attempt), (pod, 1));

    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.change_pod(&pod, |pod| pod.trouble = Some(trouble()));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(300);
    stage.settle("go");
    assert_eq!((slot(&stage).step, slot(&stage).reason), (Step::RollingBack, Some(Reason::ReplacementCrashed)));
}

#[test]
fn a_new_pod_that_ends_is_not_waited_for() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.settle("go");
    let trouble = Trouble { reason: Reason::ReplacementLost, message: "OutOfcpu: Pod was rejected".into() };
    stage.change_pod(&pod, |pod| (pod.finished, pod.trouble) = (true, Some(trouble)));
    let NextStep::Do(Effect::Evict { pod: ended, .. }) = stage.settle("go") else { panic!("removes it") };
    assert_eq!(ended.key.name, pod);
    assert_eq!((slot(&stage).step, slot(&stage).reason), (Step::RollingBack, Some(Reason::ReplacementLost)));
    assert!(slot(&stage).message.unwrap().contains("OutOfcpu: Pod was rejected"));
}

/// A `delete` that has detached its old pod, with the slot.
fn detached() -> (Stage, SlotId) {
    let mut stage = Stage::new();
    stage.act("go", json!({"delete": {"pod": {"name": "web-a"}}}));
    let NextStep::Do(Effect::ChangePod { change: PodChange::Detach { slot, .. }, .. }) = stage.settle("go") else {
        panic!("detach")
    };
    let marks = Marks { slot: Some(slot.clone()), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| (pod.labels, pod.controller, pod.marks) = (labels(false), None, marks));
    (stage, slot)
}

/// No ReplicaSet adopts a pod that has ended, so it would stay for ever.
#[test]
fn a_detached_pod_that_ends_is_removed() {
    let (mut stage, _) = detached();
    stage.change_pod("web-a", |pod| (pod.finished, pod.ready_since) = (true, None));
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("removes it") };
    assert_eq!(pod.key.name, "web-a");
}

/// Its ReplicaSet does not count it any more, and never deletes it.
#[test]
fn a_surplus_that_ends_keeps_no_mark_and_the_next_one_is_marked() {
    let (mut stage, slot) = detached();
    let now = stage.now;
    stage.put_pod("web-new", "b", |pod| {
        (pod.created, pod.ready_since, pod.finished) = (now, None, true);
        pod.marks = Marks { slot: Some(slot), role: Some(marks::ROLE_SURPLUS.into()), ..Marks::default() };
    });
    stage.put_pod("web-next", "b", |pod| (pod.created, pod.ready_since) = (now, None));
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Unmark { .. } }) = stage.settle("go") else {
        panic!("removes the mark")
    };
    assert_eq!(pod.key.name, "web-new");
    stage.change_pod("web-new", |pod| pod.marks = Marks::default());
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Mark { .. } }) = stage.settle("go") else {
        panic!("marks the next one")
    };
    assert_eq!(pod.key.name, "web-next");
}

#[test]
fn a_new_pod_that_does_not_terminate_is_named_and_the_action_ends() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    stage.settle("go");
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    stage.change_pod(&pod, |pod| (pod.terminating, pod.grace_seconds) = (true, 30));
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    stage.now += SignedDuration::from_secs(330);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Aborted"));
    assert!(message.contains(&pod) && message.contains("finalizers"), "{message}");
}

#[test]
fn a_pod_that_cannot_be_created_has_a_deadline_and_the_words_of_the_api_server() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let NextStep::Do(effect @ Effect::CreatePod(_)) = stage.settle("go") else { panic!("a new pod") };
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook \"pods.example.com\"");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "PodRefused" && message.contains("failed calling webhook"), "{reason} {message}");
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))), "it is tried again");
    stage.now += SignedDuration::from_secs(120);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(ready == "False" && message.contains("failed calling webhook"), "{ready} {message}");
}

/// A quota refuses the receipt for good, a webhook for a while.
#[rstest]
#[case::by_a_quota(RefusalKind::Denied, Step::RolledBack)]
#[case::by_a_webhook(RefusalKind::Failing, Step::Planned)]
fn an_action_whose_receipt_is_refused_says_so_and_has_no_effect(#[case] kind: RefusalKind, #[case] step: Step) {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let status = stage.settle_until_admitted("go").expect("it is admitted");
    let mut action = stage.action("go");
    action.status = Some(status);
    stage.put_action(action);
    let NextStep::Do(effect @ Effect::WriteReceipt(_)) = stage.next("go") else { panic!("the receipt is first") };
    refuse(&mut stage, &effect, kind, "no receipts now");
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "PodRefused" && message.contains("no receipts now"), "{reason} {message}");
    assert_eq!(slot(&stage).step, step);
}

#[test]
fn a_detachment_that_fails_for_long_is_given_up() {
    let (mut stage, pod) = moving(json!({"nodeName": "d"}));
    let now = stage.now;
    stage.change_pod(&pod, |pod| pod.ready_since = Some(now));
    let NextStep::Do(effect @ Effect::ChangePod { .. }) = stage.settle("go") else { panic!("detaches") };
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook");
    assert!(slot(&stage).step != Step::RollingBack);
    stage.now += SignedDuration::from_mins(30);
    refuse(&mut stage, &effect, RefusalKind::Failing, "failed calling webhook");
    assert_eq!(slot(&stage).step, Step::RollingBack);
    assert!(slot(&stage).message.unwrap().contains("failed calling webhook"));
}

/// The ReplicaSet creates a pod for one more replica, too, before it adopts the operator's.
#[test]
fn a_create_preempts_nobody_either() {
    let mut stage = Stage::new();
    stage.put_template(json!({"priorityClassName": "high", "containers": []}));
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("go", json!({"create": {"workload": workload, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    stage.put_pod(&new.key.name, "d", |pod| {
        (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
    });
    for node in ["a", "b", "c", "d"] {
        stage.put_node(node, |node| node.pod_capacity = 1);
    }
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "no node has room for one more pod");
    stage.put_node("c", |_| {});
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Scale { replicas: 4, .. })));
}

#[test]
fn a_move_without_a_target_waits_for_a_node_that_joins() {
    let mut stage = Stage::new();
    for node in ["b", "c", "d"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}}}));
    for _ in 0..3 {
        stage.settle("go");
        stage.now += SignedDuration::from_secs(60);
    }
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("goes on when a node can take it"), "{message}");
    stage.put_node("e", |_| {});
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))));
}

/// A full cluster: in between, the ReplicaSet creates a pod that would preempt others.
#[rstest]
#[case::a_replacement(false)]
#[case::a_successor(true)]
fn a_pod_with_a_priority_is_not_created_where_it_would_preempt_others(#[case] is_cordoned: bool) {
    let mut stage = Stage::new();
    stage.put_template(json!({"priorityClassName": "high", "containers": []}));
    stage.put_deployment(|deployment| deployment.max_unavailable = 1);
    let target = if is_cordoned { json!({}) } else { json!({"to": {"nodeName": "d"}}) };
    stage.put_node("a", |node| node.cordoned = is_cordoned);
    let mut change = json!({"pod": {"name": "web-a"}});
    json_patch::merge(&mut change, &target);
    stage.act("go", json!({ "move": change }));
    let fill = |stage: &mut Stage, capacity: i64| {
        for node in ["b", "c", "d"] {
            stage.put_node(node, |node| node.pod_capacity = capacity);
        }
    };
    if is_cordoned {
        let status = stage.settle_until_admitted("go").expect("it is admitted");
        let mut action = stage.action("go");
        action.status = Some(status);
        stage.put_action(action);
    } else {
        let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
        stage.put_pod(&new.key.name, "d", |pod| {
            (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
            let role = Some(marks::ROLE_REPLACEMENT.into());
            pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
        });
    }
    // In the second case, the room that the slot has reserved is gone, too.
    fill(&mut stage, i64::from(!is_cordoned));
    stage.put_node("a", |node| (node.cordoned, node.pod_capacity) = (is_cordoned, 1));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    assert!(slot(&stage).message.unwrap().contains("would preempt other pods"), "{:?}", slot(&stage));
    fill(&mut stage, 3);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
}
