//! The protocol: the effects for each state of the world, in this order.

use super::*;
use ganglion_core::conditions::{self, Stamp};

/// The ledger and the peers are among the texts that are not kept: without them, a change could be made twice.
#[rstest]
#[case::the_set(|stage: &mut Stage, reduced| {
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
    (set.id.version, set.reduced) = (stage.id("web-h1").version, reduced);
    stage.world.apply(set, Origin::Watch);
})]
#[case::the_victim(|stage: &mut Stage, reduced| stage.change_pod("web-a", |pod| pod.reduced = reduced))]
fn a_slot_waits_while_texts_of_its_objects_are_not_kept(#[case] set_reduced: fn(&mut Stage, bool)) {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))));
    set_reduced(&mut stage, true);
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    let slot = stage.action("go").status.unwrap().slots.remove(0);
    let message = slot.message.unwrap();
    assert_eq!(slot.reason, Some(Reason::NotSupported), "{message}");
    assert!(message.contains("objects.maxBytesPerNamespace") && !message.contains("new action"), "{message}");
    set_reduced(&mut stage, false);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))));
}

#[test]
fn a_slot_that_somebody_changed_ends() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    stage.settle("go");
    let mut action = stage.action("go");
    action.status.as_mut().unwrap().slots[0].replacement = None;
    stage.put_action(action);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NotSupported"), "{message}");
    assert!(message.contains("delete the action and apply it again"), "{message}");
}

/// The protocol: the effects for each state of the world, in this order.
#[test]
fn a_move_goes_step_by_step() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    assert_eq!((new.node().as_str(), new.label.as_str()), ("d", marks::POD_TEMPLATE_HASH));
    let (replacement, slot) = (new.key.name.clone(), new.slot.clone());
    let mark = |role: &str| Marks { slot: Some(slot.clone()), role: Some(role.into()), ..Marks::default() };

    stage.put_pod(&replacement, "d", |pod| {
        (pod.node, pod.ready_since, pod.controller) = (None, None, None);
        (pod.labels, pod.generated, pod.marks) = (labels(false), false, mark(marks::ROLE_REPLACEMENT));
    });
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    assert_eq!(stage.ready("go").1, "Scheduling");
    stage.change_pod(&replacement, |pod| pod.node = Some("d".into()));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    assert_eq!(stage.ready("go").1, "Readying");

    let now = stage.now;
    stage.change_pod(&replacement, |pod| pod.ready_since = Some(now));
    let Effect::ChangePod { pod, change: PodChange::Detach { peers, .. } } = stage.effect("go") else {
        panic!("detach")
    };
    assert_eq!((pod.key.name.as_str(), peers.as_str()), ("web-a", ""), "no pod of the set is young");
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.controller, pod.marks) = (labels(false), None, mark(marks::ROLE_VICTIM));
    });
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "waits for the set's substitute");

    stage.put_pod("web-new", "b", |pod| (pod.created, pod.ready_since) = (now, None));
    let Effect::ChangePod { pod, change: PodChange::Mark { .. } } = stage.effect("go") else { panic!("mark") };
    assert_eq!(pod.key.name, "web-new");
    stage.change_pod("web-new", |pod| pod.marks = mark(marks::ROLE_SURPLUS));
    let Effect::ChangePod { pod, change: PodChange::Attach { .. } } = stage.effect("go") else { panic!("attach") };
    assert_eq!(pod.key.name, replacement);
    stage.change_pod(&replacement, |pod| {
        (pod.labels, pod.marks) = (labels(true), Marks::default());
        pod.controller = Some(Owner { kind: "ReplicaSet".into(), name: "web-h1".into(), uid: "uid-web-h1".into() });
    });

    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "waits until the surplus goes");
    assert!(stage.action("go").status.is_some_and(|status| status.slots[0].evicting), "recorded before it is sent");
    let gone = stage.id("web-new");
    stage.world.remove::<PodFact>(&gone);
    stage.put(budget(1, 5), "budget");
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }), "four pods serve, five are counted");
    stage.put(budget(1, 4), "budget");
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("evict") };
    assert_eq!(pod.key.name, "web-a");
    stage.put(budget(1, 5), "budget");
    stage.now += SignedDuration::from_secs(3);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })), "does not wait for ever");
    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    assert_eq!(stage.settle("go"), NextStep::Wait { until: None, report: None });
    assert_eq!(stage.ready("go").1, "Succeeded");
    assert_eq!(stage.action("go").metadata.finalizers, Some(vec![]));
}

/// A move whose old pod is about to be evicted.
fn evicting(grace: Option<u32>) -> Stage {
    let mut stage = Stage::new();
    let change = json!({"pod": {"name": "web-a"}, "to": {"nodeName": "d"}});
    stage.act("go", json!({"move": change, "gracePeriodSeconds": grace}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    stage.put_pod(&new.key.name, "d", |_| {});
    let marks = Marks { slot: Some(new.slot), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| (pod.labels, pod.controller, pod.marks) = (labels(false), None, marks));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
    stage
}

/// The API server counts an eviction in the budget before it deletes the pod. A failure in between leaves the pod
/// running.
#[test]
fn an_eviction_that_was_granted_and_not_carried_out_is_completed() {
    let mut stage = evicting(None);
    let granted =
        |at: Timestamp| move |id| BudgetFact { granted: [("web-a".to_owned(), at)].into(), ..budget(0, 3)(id) };
    let now = stage.now;
    stage.put(granted(now), "budget");
    let NextStep::Do(Effect::DeletePod { pod, .. }) = stage.settle("go") else {
        panic!("deletes the pod that was granted")
    };
    assert_eq!((pod.key.name.as_str(), pod.uid), ("web-a", stage.id("web-a").uid));

    let before = now - SignedDuration::from_hours(1);
    stage.put(granted(before), "budget");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the grant has expired");

    stage.change_pod("web-a", |pod| pod.created = now + SignedDuration::from_secs(1));
    stage.put(granted(now), "budget");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the grant was for an earlier pod of this name");
}

#[test]
fn pods_get_the_grace_period_of_the_action() {
    let mut stage = evicting(Some(7));
    let NextStep::Do(Effect::Evict { grace_seconds, .. }) = stage.settle("go") else { panic!("evicts") };
    assert_eq!(grace_seconds, Some(7));
    let now = stage.now;
    stage.put(|id| BudgetFact { granted: [("web-a".to_owned(), now)].into(), ..budget(0, 3)(id) }, "budget");
    let NextStep::Do(Effect::DeletePod { grace_seconds, .. }) = stage.settle("go") else { panic!("deletes") };
    assert_eq!(grace_seconds, Some(7));

    stage.change_pod("web-a", |pod| (pod.terminating, pod.grace_seconds) = (true, 600));
    let NextStep::Wait { until, .. } = stage.settle("go") else { panic!("waits") };
    assert_eq!(until, Some(now + SignedDuration::from_secs(307)), "drainSeconds after the grace period of the action");
}

#[test]
fn the_grant_for_another_pod_is_waited_for_by_name_and_time() {
    let mut stage = evicting(None);
    let now = stage.now;
    stage.put(|id| BudgetFact { granted: [("web-b".to_owned(), now)].into(), ..budget(0, 3)(id) }, "budget");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(3);
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "BudgetBlocked");
    let until = now + SignedDuration::from_mins(2);
    assert!(message.contains("web-b") && message.contains(&until.to_string()), "{message}");
}

/// The ReplicaSet controller receives the lower number and the mark by different watches. After an outage the number
/// may arrive first, and the controller would choose the pod by itself.
#[test]
fn a_number_is_not_lowered_just_after_the_watches_broke_off() {
    let mut stage = Stage::new();
    stage.act("less", json!({"delete": {"pod": {"name": "web-a"}}, "timeouts": {"drainSeconds": 60}}));
    let NextStep::Do(Effect::ChangePod { change: PodChange::Detach { slot, .. }, .. }) = stage.settle("less") else {
        panic!("detach")
    };
    let mark = |role: &str| Marks { slot: Some(slot.clone()), role: Some(role.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.controller, pod.marks) = (labels(false), None, mark(marks::ROLE_VICTIM));
    });
    stage.put_pod("web-new", "b", |pod| (pod.marks, pod.ready_since) = (mark(marks::ROLE_SURPLUS), None));
    stage.settle("less");
    let broke = stage.now;
    stage.world.watch_broke::<PodFact>(broke);
    let NextStep::Wait { until, .. } = stage.settle("less") else { panic!("waits") };
    assert_eq!(until, Some(broke + SignedDuration::from_secs(15)));
    assert_eq!(stage.ready("less").1, "WatchesBroken");
    stage.now += SignedDuration::from_secs(10);
    stage.world.watch_broke::<PodFact>(stage.now);
    stage.now += SignedDuration::from_secs(10);
    assert!(matches!(stage.settle("less"), NextStep::Wait { .. }), "they broke again meanwhile");
    stage.now += SignedDuration::from_secs(5);
    assert!(matches!(stage.settle("less"), NextStep::Do(Effect::Scale { replicas: 2, .. })));
    stage.world.watch_broke::<PodFact>(stage.now);
    stage.now += SignedDuration::from_secs(50);
    stage.world.watch_broke::<PodFact>(stage.now);
    assert!(matches!(stage.settle("less"), NextStep::Do(Effect::Scale { .. })), "not for ever");
}

/// As above, in a cluster whose watches work: the mark is a moment late. A surplus that is not Ready is deleted first
/// without it.
#[rstest]
#[case::ready(true)]
#[case::not_ready(false)]
fn a_number_is_not_lowered_before_the_mark_on_a_ready_surplus_arrives(#[case] is_ready: bool) {
    let mut stage = Stage::new();
    stage.act("less", json!({"delete": {"pod": {"name": "web-a"}}}));
    let NextStep::Do(Effect::ChangePod { change: PodChange::Detach { slot, .. }, .. }) = stage.settle("less") else {
        panic!("detach")
    };
    let mark = |role: &str| Marks { slot: Some(slot.clone()), role: Some(role.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.controller, pod.marks) = (labels(false), None, mark(marks::ROLE_VICTIM));
    });
    let ready = Some(stage.now).filter(|_| is_ready);
    stage.put_pod("web-new", "b", |pod| (pod.marks, pod.ready_since) = (mark(marks::ROLE_SURPLUS), ready));
    if is_ready {
        let NextStep::Wait { until, .. } = stage.settle("less") else { panic!("waits") };
        assert_eq!(until, Some(stage.now + SignedDuration::from_secs(2)));
        stage.now += SignedDuration::from_secs(2);
    }
    assert!(matches!(stage.settle("less"), NextStep::Do(Effect::Scale { replicas: 2, .. })));
}

#[test]
fn a_budget_without_room_holds_the_old_pod_back() {
    let mut stage = Stage::new();
    stage.act("less", json!({"delete": {"pod": {"name": "web-a"}}, "timeouts": {"drainSeconds": 5}}));
    stage.put(budget(0, 3), "budget");
    assert!(matches!(stage.settle("less"), NextStep::Wait { until: Some(_), .. }));
    assert_eq!(stage.ready("less").1, "Planned", "not worth a word yet");
    stage.now += SignedDuration::from_secs(2);
    assert!(matches!(stage.settle("less"), NextStep::Wait { until: Some(_), .. }));
    assert_eq!(stage.ready("less").1, "BudgetBlocked");
    stage.put(budget(1, 3), "budget");
    assert!(matches!(stage.settle("less"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
    stage.put(budget(0, 3), "budget");
    stage.now += SignedDuration::from_secs(6);
    let NextStep::Do(Effect::DeleteReceipt { receipt }) = stage.settle("less") else {
        panic!("nothing ran: no receipt stays")
    };
    stage.world.remove::<ReceiptFact>(&receipt);
    stage.settle("less");
    let (ready, reason, message) = stage.ready("less");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "BudgetBlocked"), "{message}");
}

#[test]
fn a_suspended_action_replaces_conditions_that_others_have_written() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}, "suspend": true}));
    stage.settle("go");
    let mut action = stage.action("go");
    let status = action.status.as_mut().expect("a status");
    let stamp = Stamp { generation: 1, now: stage.now };
    status.conditions = conditions::stalled(&status.conditions, "AdmissionPolicyMissing", "missing".to_owned(), stamp);
    stage.put_action(action);
    assert_eq!(stage.ready("go").1, "AdmissionPolicyMissing");
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Suspended");
}

/// An action that another version has ended, and that could not be read for a time.
#[test]
fn an_ended_action_says_its_result_again() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}, "mode": "Plan"}));
    stage.settle("go");
    let mut action = stage.action("go");
    let result = action.status.clone().expect("a status");
    let status = action.status.as_mut().expect("a status");
    let stamp = Stamp { generation: 1, now: stage.now };
    status.conditions = conditions::unread(&status.conditions, "InvalidObject", "error", "advice", stamp);
    stage.put_action(action);
    assert_eq!(stage.ready("go").1, "InvalidObject");
    stage.settle("go");
    assert_eq!(stage.action("go").status, Some(result));
}

#[test]
fn suspended_clocks_stand_still() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}, "suspend": true}));
    assert_eq!(stage.settle("go"), NextStep::Wait { until: None, report: None });
    assert_eq!(stage.ready("go").1, "Suspended");
    stage.now += SignedDuration::from_hours(2);
    let mut action = stage.action("go");
    action.spec.suspend = false;
    stage.put_action(action);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::CreatePod(_))));
}
