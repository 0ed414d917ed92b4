//! Which node is chosen, whose turn it is, and which actions are requeued.

use super::*;

#[test]
fn the_emptiest_node_is_chosen_and_what_is_under_way_counts() {
    let mut stage = Stage::new();
    let spread = json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "to": {"nodeSelector": {"disk": "ssd"}}, "count": 3}, "mode": "Plan"});
    stage.put_node("e", |node| {
        node.labels.insert("disk".into(), "ssd".into());
        node.pod_capacity = 1;
    });
    stage.act("plan", spread);
    stage.settle("plan");
    let plan = stage.action("plan").status.and_then(|status| status.plan).expect("a plan");
    let chosen: Vec<(&str, i32)> = plan.nodes.iter().map(|node| (node.name.as_str(), node.replicas)).collect();
    assert_eq!(chosen[0], ("d", 3), "{chosen:?}: e has no room beside, a to c are not ssd");
    assert_eq!(plan.nodes_total, 5);
    assert!(stage.action("plan").metadata.finalizers.is_none() && stage.ready("plan").1 == "Planned");
}

#[test]
fn limits_hold_and_the_rest_waits_in_order() {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(1);
    for name in ["one", "two"] {
        stage.act(name, move_web(json!({"nodeName": "d"})));
    }
    assert!(matches!(stage.settle("one"), Next::Do(Effect::CreatePod(_))));
    assert!(matches!(stage.settle("two"), Next::Wait { until: Some(_), .. }));
    let (ready, reason, message) = stage.ready("two");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("1 replicas in all"), "{message}");
    stage.now += SignedDuration::from_secs(601);
    stage.settle("two");
    assert_eq!(stage.ready("two").1, "QueueTimedOut");
}

#[test]
fn what_changes_the_number_waits_until_the_workload_is_left_alone() {
    let mut stage = Stage::new();
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("one", move_web(json!({"nodeName": "d"})));
    stage.act("more", json!({"create": {"workload": web, "to": {"nodeName": "d"}}}));
    // Also while the move is about to be recorded only.
    let begun = stage.settle_until_admitted("one").expect("nothing is in its way");
    stage.world.reserve(&Key::new(NAMESPACE, "one"), begun.slots);
    assert_eq!(stage.settle_until_admitted("more"), None);
    stage.world.release(&Key::new(NAMESPACE, "one"));
    assert!(stage.settle_until_admitted("more").is_some());
    stage.settle("one");
    assert_eq!(stage.settle_until_admitted("more"), None);
    stage.settle("more");
    let (_, reason, message) = stage.ready("more");
    assert_eq!(reason, "Queued");
    assert!(message.contains("WorkloadAction one is at work on the same workload"), "{message}");
    let mut ended = stage.action("one");
    ended.status.as_mut().expect("it has begun").slots[0].step = Step::Succeeded;
    stage.put_action(ended);
    assert!(stage.settle_until_admitted("more").is_some());
}

#[test]
fn what_is_about_to_be_recorded_takes_up_place_and_pod() {
    let mut stage = Stage::new();
    for name in ["one", "two"] {
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        stage.act(name, json!({"move": {"workload": workload, "to": {"where": "node.pods < 1"}}}));
    }
    let begins = |stage: &mut Stage, name: &str| match stage.settle_until_admitted(name) {
        Some(status) => status.slots,
        None => panic!("{name} is not admitted"),
    };
    let one = begins(&mut stage, "one");
    stage.world.reserve(&Key::new(NAMESPACE, "one"), one.clone());
    assert_eq!(stage.settle_until_admitted("two"), None, "node d has room for one, by its condition");
    stage.put_node("e", |_| {});
    let two = begins(&mut stage, "two");
    assert_eq!(two[0].replacement.as_ref().map(|pod| pod.node.as_str()), Some("e"));
    assert_ne!(two[0].victim, one[0].victim);
    stage.world.release(&Key::new(NAMESPACE, "one"));
    assert_eq!(begins(&mut stage, "two")[0].victim, one[0].victim);
}

fn as_of(pod: &PodFact, version: &str) -> PodFact {
    PodFact { id: Identity { version: version.to_owned(), ..pod.id.clone() }, ..pod.clone() }
}

#[test]
fn a_fact_that_did_not_change_requeues_nothing() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    stage.settle("go");
    let pod = stage.world.pod(&Key::new(NAMESPACE, "web-a")).expect("there").clone();
    let same = as_of(&pod, "1000000");
    assert!(stage.world.apply(same, Origin::Watch).is_empty());
    let older = as_of(&pod, "1");
    assert!(stage.world.apply(PodFact { terminating: true, ..older }, Origin::Own).is_empty(), "overtaken");
    let worse = PodFact { ready_since: None, ..as_of(&pod, "1000001") };
    assert_eq!(stage.world.apply(worse, Origin::Watch).len(), 1);
}
