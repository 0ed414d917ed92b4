//! The target of a replica is checked before its old pod is evicted.

use super::*;
use ganglion_core::facts::SlimPod;

/// A set whose replicas keep apart by node.
fn apart() -> Stage {
    let mut stage = Stage::stateful(Way::Policy);
    let template = json!({"metadata": {"labels": stateful_labels()}, "spec": {
        "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": stateful_labels()}, "topologyKey": "host"}]}},
    }});
    let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
    stage.put_stateful(3, Way::Policy, |set| set.set.template = Some(Arc::new(template)));
    for node in ["a", "b", "c", "d"] {
        stage.put_node(node, |fact| drop(fact.labels.insert("host".into(), node.into())));
    }
    stage
}

fn guest(stage: &mut Stage) {
    let pod = json!({
        "metadata": {"namespace": NAMESPACE, "name": "guest", "uid": "guest", "resourceVersion": "1"},
        "spec": {"nodeName": "d", "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    });
    let pod: SlimPod = serde_json::from_value(pod).expect("a pod");
    stage.world.apply(PodFact::from(pod), Origin::Watch);
}

#[rstest]
#[case::of_a_sibling("c", "required anti-affinity keeps the pod away from pod shop/db-2")]
#[case::of_another("d", "host port 80/TCP is taken by pod shop/guest")]
fn a_node_that_is_taken_is_refused_without_an_eviction(#[case] node: &str, #[case] words: &str) {
    let mut stage = apart();
    guest(&mut stage);
    stage.act("go", move_db("db-1", json!({"nodeName": node})));
    assert_eq!(evicts(&stage.settle("go")), None);
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "NodeOccupied" && message.contains(words), "{reason}: {message}");
    assert!(stage.action("go").status.unwrap().slots.is_empty(), "a slot was recorded");
}

#[test]
fn a_target_that_is_taken_before_the_eviction_is_exchanged_or_the_pod_stays() {
    for elsewhere in [false, true] {
        let mut stage = apart();
        stage.put(budget_of_db(0), "db");
        let to = if elsewhere { json!({"where": "node.name != 'a'"}) } else { json!({"nodeName": "d"}) };
        stage.act("go", move_db("db-1", to));
        assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
        assert_eq!(stage.slot("go").replacement.unwrap().node, "d");
        guest(&mut stage);
        stage.put_node("e", |fact| drop(fact.labels.insert("host".into(), "e".into())));
        stage.put(budget_of_db(1), "db");
        let next = stage.settle("go");
        if elsewhere {
            assert_eq!((evicts(&next), stage.slot("go").replacement.unwrap().node.as_str()), (Some("db-1"), "e"));
        } else {
            assert_eq!(evicts(&next), None, "nothing is gained by the eviction");
            stage.now += SignedDuration::from_secs(301);
            stage.settle("go");
            assert_eq!((stage.ready("go").1.as_str(), stage.slot("go").step), ("NodeOccupied", Step::RolledBack));
        }
    }
}

#[test]
fn without_a_target_the_pod_stays_while_no_node_takes_it() {
    let mut stage = apart();
    stage.put_node("b", |node| node.cordoned = true);
    stage.put(budget_of_db(0), "db");
    stage.act("go", json!({"move": {"pod": {"name": "db-1"}}, "disruption": "Allowed"}));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
    guest(&mut stage);
    stage.put(budget_of_db(1), "db");
    assert_eq!(evicts(&stage.settle("go")), None, "its successor would be Pending");
    stage.put_node("e", |fact| drop(fact.labels.insert("host".into(), "e".into())));
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
}

/// Zones of the same names as the nodes, of which a pod may run in each at most one more than elsewhere.
#[test]
fn a_named_target_obeys_the_spread_constraints() {
    let mut stage = Stage::stateful(Way::Policy);
    let template = json!({"metadata": {"labels": stateful_labels()}, "spec": {"containers": [],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": stateful_labels()}}]}});
    let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
    stage.put_stateful(3, Way::Policy, |set| set.set.template = Some(Arc::new(template)));
    for (node, zone) in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "b")] {
        stage.put_node(node, |fact| drop(fact.labels.insert("zone".into(), zone.into())));
    }
    stage.put(budget_of_db(0), "db");
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
    // Before the eviction, the target gets into another zone, which has a replica.
    stage.put_node("d", |fact| drop(fact.labels.insert("zone".into(), "c".into())));
    stage.put(budget_of_db(1), "db");
    assert_eq!(evicts(&stage.settle("go")), None, "the constraint allows no second replica in zone c");
}

/// A replica that became Ready a moment ago is not available: the next one stays until it is.
#[test]
fn a_sibling_that_is_not_available_yet_is_waited_for() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put_stateful(3, Way::Policy, |set| set.set.min_ready_seconds = 30);
    let again = stage.now - SignedDuration::from_secs(10);
    stage.put_replica("db-2", "", |pod| (pod.node, pod.ready_since) = (Some("c".into()), Some(again)));
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    let next = stage.settle("go");
    let NextStep::Wait { until: Some(until), .. } = next else { panic!("waits for db-2: {next:?}") };
    assert!(until <= again + SignedDuration::from_secs(30), "{until}");
    stage.now = again + SignedDuration::from_secs(30);
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
}
