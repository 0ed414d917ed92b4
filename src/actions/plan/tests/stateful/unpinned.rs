//! Moves without `to` off cordoned nodes: the pod is evicted, and the scheduler chooses the node of its successor.

use super::*;

impl Stage {
    fn cordon(&mut self, node: &str) {
        self.put_node(node, |node| node.cordoned = true);
    }
}

/// The move that a drain of node b makes.
fn leave_b() -> serde_json::Value {
    json!({"move": {"workload": db(), "from": {"nodeName": "b"}, "count": "All"}, "disruption": "Allowed"})
}

fn template(spec: serde_json::Value) -> Arc<TemplateFact> {
    let template = json!({"metadata": {"labels": stateful_labels()}, "spec": spec}).to_string();
    Arc::new(serde_json::from_str(&template).expect("a pod template"))
}

#[rstest]
#[case::nothing_can_pin(Way::Neither)]
#[case::a_policy_could_pin(Way::Policy)]
#[case::a_gate_could_pin(Way::Gate)]
fn off_a_cordoned_node_no_pin_is_needed(#[case] way: Way) {
    let mut stage = Stage::stateful(way);
    stage.cordon("b");
    stage.act("go", leave_b());
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"), "{:?}", stage.ready("go"));
    assert_eq!(stage.slot("go").replacement, None, "the scheduler chooses the node");
    stage.lose_replica("db-1");
    stage.settle("go");
    assert_eq!(stage.slot("go").step, Step::Creating);
    stage.put_replica("db-1", "-2", |pod| (pod.ready_since, pod.gated) = (None, way == Way::Gate));
    stage.settle("go");
    assert_eq!(stage.slot("go").step, Step::Scheduling);
    stage.put_replica("db-1", "-2", |pod| (pod.node, pod.ready_since) = (Some("c".into()), None));
    stage.settle("go");
    assert_eq!(stage.slot("go").step, Step::Readying);
    stage.put_replica("db-1", "-2", |pod| pod.node = Some("c".into()));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
    let arrived = PodOnNode { name: "db-1".into(), uid: Some("uid-db-1-2".into()), node: "c".into() };
    assert_eq!(stage.slot("go").replacement, Some(arrived));
}

#[rstest]
#[case::open(&[], leave_b(), Reason::NodeNotCordoned, "kubectl cordon b")]
#[case::by_name(&[], json!({"move": {"pod": {"name": "db-1"}}, "disruption": "Allowed"}), Reason::NodeNotCordoned, "kubectl cordon b")]
#[case::other_source(&["b"], json!({"move": {"workload": db(), "from": {"nodeSelector": {"disk": "hdd"}}}, "disruption": "Allowed"}), Reason::NodeNotCordoned, "kubectl cordon")]
#[case::named_target(&["b"], move_db("db-1", json!({"nodeName": "d"})), Reason::PinNotInstalled, "pin-statefulsets")]
fn a_pod_that_could_come_back_is_not_evicted(
    #[case] cordoned: &[&str],
    #[case] spec: serde_json::Value,
    #[case] reason: Reason,
    #[case] words: &str,
) {
    let mut stage = Stage::stateful(Way::Neither);
    cordoned.iter().for_each(|node| stage.cordon(node));
    stage.act("go", spec);
    stage.settle("go");
    let (ready, why, message) = stage.ready("go");
    assert_eq!((ready.as_str(), why.as_str()), ("False", reason.as_str()), "{message}");
    assert!(message.contains(words), "{message}");
    assert!(stage.action("go").status.unwrap().slots.is_empty(), "a slot was recorded");
}

#[rstest]
#[case::key(json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]), false)]
#[case::everything(json!([{"operator": "Exists", "effect": "NoSchedule"}]), false)]
#[case::another(json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]), true)]
#[case::another_effect(json!([{"operator": "Exists", "effect": "NoExecute"}]), true)]
fn a_pod_that_tolerates_the_cordon_is_evicted_with_a_pin_only(
    #[case] tolerations: serde_json::Value,
    #[case] moves: bool,
) {
    for way in [Way::Neither, Way::Policy] {
        let mut stage = Stage::stateful(way);
        let pods = template(json!({"containers": [], "tolerations": tolerations}));
        stage.put_stateful(3, way, |set| set.set.template = Some(pods));
        stage.cordon("b");
        stage.act("go", leave_b());
        let next = stage.settle("go");
        if moves || way == Way::Policy {
            assert_eq!((evicts(&next), stage.slot("go").replacement.is_none()), (Some("db-1"), moves));
        } else {
            let (_, reason, message) = stage.ready("go");
            assert_eq!((evicts(&next), reason.as_str()), (None, "PinNotInstalled"), "{message}");
            assert!(message.contains("tolerate the cordon of node b"), "{message}");
        }
    }
}

#[test]
fn a_node_that_is_opened_before_the_eviction_keeps_its_pod() {
    let mut stage = Stage::stateful(Way::Neither);
    stage.cordon("b");
    stage.put(budget_of_db(0), "db");
    stage.act("go", leave_b());
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
    stage.put_node("b", |_| {});
    stage.put(budget_of_db(1), "db");
    assert_eq!(evicts(&stage.settle("go")), None);
    assert_eq!((stage.ready("go").1.as_str(), stage.slot("go").step), ("NodeNotCordoned", Step::RolledBack));
}

#[test]
fn a_pod_that_comes_back_says_so() {
    let mut stage = Stage::stateful(Way::Neither);
    stage.cordon("b");
    stage.act("go", leave_b());
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
    stage.put_node("b", |_| {});
    stage.put_replica("db-1", "-2", |pod| pod.node = Some("b".into()));
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodeNotCordoned"), "{message}");
    assert!(message.contains("pod db-1 came back to node b, which is not cordoned any more"), "{message}");
}

#[test]
fn a_pod_that_nothing_schedules_ends_the_move_with_the_words_of_the_scheduler() {
    let mut stage = Stage::stateful(Way::Neither);
    stage.cordon("b");
    stage.act("go", leave_b());
    stage.settle("go");
    let waits =
        |pod: &mut PodFact| (pod.ready_since, pod.unschedulable) = (None, Some("0/4 nodes are available".into()));
    stage.put_replica("db-1", "-2", waits);
    stage.settle("go");
    assert_eq!(stage.slot("go").reason, Some(Reason::Unschedulable));
    stage.now += SignedDuration::from_secs(121);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Unschedulable"), "{message}");
    assert!(message.contains("pod db-1: 0/4 nodes are available; the old pod is gone"), "{message}");
}

#[test]
fn a_drain_of_several_replicas_goes_on_with_the_next() {
    let mut stage = Stage::stateful(Way::Neither);
    stage.put_replica("db-2", "", |pod| pod.node = Some("b".into()));
    stage.cordon("b");
    stage.act("go", leave_b());
    for name in ["db-2", "db-1"] {
        assert_eq!(evicts(&stage.settle("go")), Some(name));
        stage.put_replica(name, "-2", |pod| pod.node = Some("d".into()));
    }
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
    assert_eq!(stage.action("go").status.unwrap().slots.len(), 2);
}
