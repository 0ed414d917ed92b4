//! Replicas that exchange places: together, one side first, or with the old pod of the first side evicted before its
//! new pod runs.

use super::*;
use ganglion_api::workload_action::status::PodOnNode;
use ganglion_core::facts::Trouble;

/// Replica `web-a` on a and `web-b` on b exchange places.
fn swap() -> serde_json::Value {
    json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "web-b"}}]}})
}

/// Capacity of nodes a and b, in pods.
fn with_capacity(a: i64, b: i64) -> Stage {
    let mut stage = Stage::new();
    stage.put_node("a", |node| node.pod_capacity = a);
    stage.put_node("b", |node| node.pod_capacity = b);
    stage
}

fn created(stage: &mut Stage) -> NewPod {
    match stage.settle("go") {
        NextStep::Do(Effect::CreatePod(new)) => new,
        other => panic!("no pod is created: {other:?}"),
    }
}

fn put_replacement(stage: &mut Stage, new: &NewPod, ready: bool) {
    let marks = Marks { slot: Some(new.slot.clone()), role: Some(marks::ROLE_REPLACEMENT.into()), ..Marks::default() };
    let since = ready.then_some(stage.now);
    stage.put_pod(&new.key.name.clone(), new.node().as_str(), |pod| {
        (pod.labels, pod.generated, pod.marks) = (labels(false), false, marks);
        (pod.ready_since, pod.controller) = (since, None);
    });
}

fn slots(stage: &Stage) -> Vec<Slot> {
    stage.action("go").status.expect("a status").slots
}

#[test]
fn with_room_on_both_sides_nobody_goes_before_all_are_ready() {
    let mut stage = Stage::new();
    stage.act("go", swap());
    let first = created(&mut stage);
    assert_eq!(first.node(), "b");
    put_replacement(&mut stage, &first, true);
    let second = created(&mut stage);
    assert_eq!(second.node(), "a");
    put_replacement(&mut stage, &second, false);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "one of two is Ready");
    let waits = slots(&stage)[0].message.clone().unwrap_or_default();
    assert!(waits.contains(&second.key.name) && waits.contains("before it evicts any"), "{waits}");
    let now = stage.now;
    stage.change_pod(&second.key.name, |pod| pod.ready_since = Some(now));
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Detach { .. } }) = stage.settle("go") else {
        panic!("detach")
    };
    assert_eq!(pod.key.name, "web-a");
    let summary = stage.action("go").status.and_then(|status| status.summary).unwrap();
    assert_eq!(summary.action, "Swap");
    assert_eq!(summary.workload.as_deref(), Some("Pod/web-a, Pod/web-b"));
    assert_eq!((summary.from.as_deref(), summary.to.as_deref()), (Some("a"), Some("b")));
}

#[test]
fn with_room_on_one_side_that_side_is_first() {
    let mut stage = with_capacity(1, 2);
    stage.act("go", swap());
    let first = created(&mut stage);
    assert_eq!(first.node(), "b");
    put_replacement(&mut stage, &first, true);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
    let marks = Marks { slot: Some(first.slot.clone()), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| (pod.labels, pod.controller, pod.marks) = (labels(false), None, marks));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(3);
    stage.settle("go");
    let held = &slots(&stage)[1];
    assert_eq!((held.step, held.reason), (Step::Creating, Some(Reason::NodeFull)));

    let mut stage = with_capacity(2, 1);
    stage.act("go", swap());
    assert_eq!(created(&mut stage).node(), "a", "the other side");
}

#[test]
fn without_room_it_is_refused_or_the_first_goes_before_its_new_pod_runs() {
    let mut stage = with_capacity(1, 1);
    stage.act("go", swap());
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodeFull"));
    assert!(message.contains("disruption: Allowed"), "{message}");

    let mut stage = full_with_another_workload();
    stage.act("go", swap_first());
    let first = created(&mut stage);
    assert_eq!(first.node(), "b", "though it is full");
    put_replacement(&mut stage, &first, false);
    stage.change_pod(&first.key.name, |pod| (pod.node, pod.unschedulable) = (None, Some("full".into())));
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Detach { .. } }) = stage.settle("go") else {
        panic!("detach")
    };
    assert_eq!(pod.key.name, "web-a");
    assert_eq!(slots(&stage).iter().map(|slot| slot.break_first).collect::<Vec<_>>(), [true, false]);
}

/// The two would wait for one another: an old pod does not leave its set while the new pod of the other is not Ready.
#[test]
fn replicas_of_one_workload_do_not_go_before_their_new_pods() {
    let mut stage = with_capacity(1, 1);
    let mut spec = swap();
    spec["disruption"] = json!("Allowed");
    stage.act("go", spec);
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "NodeFull");
    assert!(message.contains("replicas of one workload cannot be swapped"), "{message}");
}

/// The scheduler would give it the freed room.
#[test]
fn nobody_goes_first_while_another_pod_waits_for_room() {
    let mut stage = full_with_another_workload();
    stage.put_pod("waiting", "", |pod| {
        (pod.node, pod.ready_since, pod.controller) = (None, None, None);
        pod.unschedulable = Some("0/4 nodes are available".into());
    });
    stage.act("go", swap_first());
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(3);
    stage.settle("go");
    let (_, _, message) = stage.ready("go");
    assert!(message.contains("pod shop/waiting waits for the room"), "{message}");
}

#[test]
fn what_could_not_run_after_the_swap_either_is_refused() {
    let mut stage = Stage::new();
    stage.put_node("b", |node| node.cordoned = true);
    stage.act("go", swap());
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "NodeCordoned");
}

#[test]
fn one_that_fails_takes_the_others_back() {
    let mut stage = Stage::new();
    stage.act("go", swap());
    let first = created(&mut stage);
    put_replacement(&mut stage, &first, true);
    let second = created(&mut stage);
    put_replacement(&mut stage, &second, false);
    let trouble = Trouble { reason: Reason::ImagePullFailed, message: "no such image".into() };
    stage.change_pod(&second.key.name, |pod| pod.trouble = Some(trouble));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "it may pass");
    stage.now += SignedDuration::from_secs(300);
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("evicts a new pod") };
    let gone = stage.id(&pod.key.name);
    stage.world.remove::<PodFact>(&gone);
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("evicts the other new pod") };
    let gone = stage.id(&pod.key.name);
    stage.world.remove::<PodFact>(&gone);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "ImagePullFailed"));
    assert!(message.contains("no such image"), "{message}");
    assert!(slots(&stage).iter().all(|slot| slot.step == Step::RolledBack));
}

/// A bare ReplicaSet `api` with one pod, on b.
fn with_another_workload() -> Stage {
    let mut stage = Stage::new();
    let labels = BTreeMap::from([("app".to_owned(), "api".to_owned())]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
    let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
    let selector = Selector { labels: labels.clone(), ..Selector::default() };
    let scale = ScaleFact { replicas: 1, ..ScaleFact::default() };
    stage.put(
        |id| ReplicaSetFact { id, scale, selector, template: Some(Arc::new(template)), ..ReplicaSetFact::default() },
        "api",
    );
    stage.put_pod("api-0", "b", |pod| {
        pod.labels = labels;
        pod.controller = Some(Owner { kind: "ReplicaSet".into(), name: "api".into(), uid: "uid-api".into() });
    });
    stage
}

/// The same without further room on a and b.
fn full_with_another_workload() -> Stage {
    let mut stage = with_another_workload();
    stage.put_node("a", |node| node.pod_capacity = 1);
    stage.put_node("b", |node| node.pod_capacity = 2);
    stage
}

/// Replica `web-a` on a and `api-0` on b exchange places. The first may leave before its new pod runs.
fn swap_first() -> serde_json::Value {
    json!({
        "swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "api-0"}}]},
        "disruption": "Allowed",
    })
}

/// On one ReplicaSet, an effect changes the facts that the next effect depends on.
#[test]
fn what_concerns_different_workloads_is_done_at_once() {
    let mut stage = with_another_workload();
    stage.act("go", json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "api-0"}}]}}));
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("not at once") };
    let created = |effect: &Effect| match effect {
        Effect::CreatePod(new) => Some((new.set.name.clone(), new.node())),
        _ => None,
    };
    let created: Vec<_> = effects.iter().filter_map(created).collect();
    assert_eq!(created, [("web-h1".into(), "b".into()), ("api".into(), "a".into())]);

    let mut stage = with_another_workload();
    let with = json!([{"pod": {"name": "api-0"}}, {"pod": {"name": "web-b"}}]);
    stage.act("go", json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": with}}));
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("not at once") };
    assert_eq!(effects.len(), 2, "one for each ReplicaSet: {effects:#?}");
}

/// Until the first eviction the whole swap can go back.
#[test]
fn nobody_is_evicted_before_all_new_pods_are_adopted() {
    let mut stage = with_another_workload();
    stage.act("go", json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "api-0"}}]}}));
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("not at once") };
    let created = effects.iter().map(|effect| match effect {
        Effect::CreatePod(new) => new.clone(),
        other => panic!("no pod is created: {other:?}"),
    });
    let created: Vec<NewPod> = created.collect();
    for (new, old) in created.iter().zip(["web-a", "api-0"]) {
        put_replacement(&mut stage, new, true);
        let marks = Marks { slot: Some(new.slot.clone()), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
        stage.change_pod(old, |pod| (pod.controller, pod.marks) = (None, marks));
    }
    let adopt = |stage: &mut Stage, new: &NewPod| {
        let (kind, name) = ("ReplicaSet".to_owned(), new.set.name.clone());
        let uid = format!("uid-{name}").as_str().into();
        let owner = Some(Owner { kind, name, uid });
        stage.change_pod(&new.key.name, |pod| (pod.controller, pod.marks) = (owner, Marks::default()));
    };
    adopt(&mut stage, &created[0]);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "one of two is adopted");
    stage.now += SignedDuration::from_secs(3);
    stage.settle("go");
    let waits = &slots(&stage)[0];
    assert!(!waits.evicting);
    let message = waits.message.as_deref().unwrap_or_default();
    assert!(message.contains("until the ReplicaSet of api has adopted its new pod"), "{message}");

    adopt(&mut stage, &created[1]);
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("not at once") };
    let evicted = effects.iter().map(|effect| match effect {
        Effect::Evict { pod, .. } => pod.key.name.as_str(),
        other => panic!("no pod is evicted: {other:?}"),
    });
    assert_eq!(evicted.collect::<Vec<_>>(), ["web-a", "api-0"]);
}

/// Once one old pod is gone, an abort comes too late for the others, too.
#[test]
fn after_the_first_eviction_it_is_carried_through() {
    let mut stage = with_capacity(1, 2);
    stage.act("go", swap());
    let first = created(&mut stage);
    stage.put_pod(&first.key.name.clone(), "b", |_| {});
    let mut action = stage.action("go");
    let status = action.status.as_mut().unwrap();
    (status.slots[0].step, status.slots[0].evicting) = (Step::Evicting, true);
    action.spec.abort = true;
    stage.put_action(action);
    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    let second = created(&mut stage);
    assert_eq!(second.node(), "a");
}

/// An accepted eviction becomes visible a moment after the abort.
#[test]
fn what_an_abort_has_turned_back_too_late_goes_on() {
    let mut stage = with_another_workload();
    stage.act("go", json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "api-0"}}]}}));
    let NextStep::DoAll(effects) = stage.settle("go") else { panic!("not at once") };
    for effect in &effects {
        let Effect::CreatePod(new) = effect else { panic!("no pod is created: {effect:?}") };
        put_replacement(&mut stage, new, true);
    }
    let mut action = stage.action("go");
    let status = action.status.as_mut().unwrap();
    (status.slots[0].step, status.slots[0].evicting) = (Step::Evicting, true);
    (status.slots[1].step, status.slots[1].reason) = (Step::RollingBack, Some(Reason::Aborted));
    action.spec.abort = true;
    stage.put_action(action);
    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    stage.settle("go");
    let turned = &slots(&stage)[1];
    assert_eq!(turned.reason, None);
    assert_ne!(turned.step, Step::RollingBack);
}

#[test]
fn the_sides_meet_on_two_nodes() {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut stage = Stage::new();
    stage.put_pod("web-d", "b", |_| {});
    let with = json!([{"workload": web}, {"workload": web}]);
    let spec = json!({"swap": {"replica": {"workload": web, "from": {"nodeName": "c"}}, "with": with}});
    stage.act("go", spec);
    let status = stage.settle_until_admitted("go").expect("it begins");
    let names = |pod: fn(&Slot) -> Option<&PodOnNode>| -> Vec<String> {
        status.slots.iter().filter_map(pod).map(|pod| format!("{} {}", pod.name, pod.node)).collect()
    };
    assert_eq!(names(|slot| slot.victim.as_ref()), ["web-c c", "web-b b", "web-d b"], "two are on b only");
    assert!(status.slots.iter().all(|slot| slot.replacement.is_some()));
    let plan = status.plan.unwrap();
    let nodes: Vec<_> = plan.nodes.iter().map(|node| (node.name.as_str(), node.replicas)).collect();
    assert_eq!(nodes, [("b", 1), ("c", 2)]);

    let mut stage = Stage::new();
    let on = |node: &str| json!({"workload": web, "from": {"nodeName": node}});
    stage.act("go", json!({"swap": {"replica": on("a"), "with": [on("b"), on("c")]}}));
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "NotEnoughReplicas");
    assert!(message.contains("all others together on another"), "{message}");
}

/// All replicas of a swap are admitted at once. If there are more than a limit allows, the swap would wait forever.
#[rstest]
#[case::in_all(Limits { in_all: Some(2), ..Limits::default() }, "3 replicas at once, and the setting limits.inAll allows 2")]
#[case::namespace(Limits { per_namespace: Some(2), ..Limits::default() }, "3 replicas at once, and the setting limits.perNamespace allows 2")]
#[case::workload(Limits { per_workload: Some(2), ..Limits::default() }, "3 replicas at once, and the setting limits.perWorkload allows 2")]
#[case::source(Limits { per_source_node: Some(1), ..Limits::default() }, "2 replicas at once, and the setting limits.perSourceNode allows 1")]
#[case::target(Limits { per_target_node: Some(1), ..Limits::default() }, "2 replicas at once, and the setting limits.perTargetNode allows 1")]
fn a_swap_that_is_larger_than_a_limit_is_refused(#[case] limits: Limits, #[case] words: &str) {
    let mut stage = Stage::new();
    let pod = |name: &str| json!({"pod": {"name": name}});
    let three = json!({"swap": {"replica": pod("web-a"), "with": [pod("web-b"), pod("web-c")]}});
    stage.limits = limits;
    stage.act("go", three.clone());
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(reason, "LimitTooSmall", "{message}");
    assert!(message.contains(words), "{message}");
    stage.limits = Limits {
        in_all: Some(3),
        per_namespace: Some(3),
        per_workload: Some(3),
        per_source_node: Some(2),
        per_target_node: Some(2),
        ..Limits::default()
    };
    stage.act("again", three);
    stage.settle("again");
    assert_ne!(stage.ready("again").1, "LimitTooSmall");
}

#[test]
fn a_swap_keeps_the_replicas_spread() {
    for (max_skew, expected) in [(1, Some("NodeOccupied")), (2, None)] {
        let mut stage = with_another_workload();
        for (node, zone) in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "b")] {
            stage.put_node(node, |fact| drop(fact.labels.insert("zone".into(), zone.into())));
        }
        stage.put_template(json!({"containers": [], "topologySpreadConstraints": [{
            "maxSkew": max_skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]}));
        stage.act("go", json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "api-0"}}]}}));
        let begins = stage.settle_until_admitted("go").is_some();
        assert_eq!(begins, expected.is_none(), "maxSkew {max_skew}");
        if let Some(expected) = expected {
            stage.settle("go");
            let (_, reason, message) = stage.ready("go");
            assert!(reason == expected && message.contains("zone=b"), "{reason}: {message}");
        }
    }
}
