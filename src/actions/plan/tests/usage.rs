//! Expressions that read the usage of nodes.

use std::collections::HashMap;

use super::*;
use crate::world::NodeUse;
use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::NodeName;

fn calm() -> serde_json::Value {
    move_web(json!({"where": "node.cpu.utilization < 0.5 && node.pods < 3"}))
}

impl Stage {
    /// Puts the CPU usage of each node.
    fn measure(&mut self, nodes: &[(&str, f64)]) {
        let at = self.now;
        let usage = |cpu| NodeUse { cpu: Some(cpu), memory: Some(0.1), at, since: at };
        let all: HashMap<_, _> = nodes.iter().map(|(node, cpu)| (NodeName::from(*node), usage(*cpu))).collect();
        self.world.put_usage(all, at);
    }

    fn put_config(&mut self, node: &str, cpu: &str) {
        self.version += 1;
        let until = self.now + SignedDuration::from_mins(5);
        let config = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {
                "namespace": "infra", "name": node, "uid": format!("config-{node}"), "resourceVersion": self.version.to_string(),
            },
            "spec": {"nodeName": node},
            "status": {"validUntil": until.to_string(), "cpu": {"value": cpu}, "memory": {"value": "10"}},
        });
        let config: NodeConfig = serde_json::from_value(config).expect("a NodeConfig");
        self.world.apply(config, Origin::Watch);
    }

    fn cause(&self, name: &str) -> String {
        let conditions = self.action(name).status.unwrap_or_default().conditions;
        conditions.iter().find(|one| one.type_ == "Reconciling").map(|one| one.reason.clone()).unwrap_or_default()
    }

    fn target(&mut self, name: &str) -> Option<NodeName> {
        let status = self.settle_until_admitted(name)?;
        status.slots[0].replacement.as_ref().map(|pod| pod.node.clone())
    }
}

#[test]
fn an_action_waits_until_the_usage_is_read_and_again_when_it_is_too_old() {
    let mut stage = Stage::new();
    assert!(!stage.world.wants_usage());
    stage.act("go", calm());
    assert!(stage.world.wants_usage(), "it must be read");
    stage.settle("go");
    assert_eq!(stage.cause("go"), "UsageUnknown");
    assert!(stage.ready("go").2.contains("metrics.k8s.io has not been read yet"), "{:?}", stage.ready("go"));
    stage.measure(&[("a", 0.9), ("b", 0.9), ("c", 0.3), ("d", 0.9)]);
    assert_eq!(stage.target("go"), Some("c".into()), "d is emptier, and busy");
    stage.now += SignedDuration::from_secs(151);
    assert_eq!(stage.target("go"), None);
    stage.measure(&[("a", 0.9), ("b", 0.9), ("c", 0.9), ("d", 0.3)]);
    assert_eq!(stage.target("go"), Some("d".into()));
    // A measurement that is too old does not count, even if it was read just now.
    let at = stage.now - SignedDuration::from_secs(151);
    let old = NodeUse { cpu: Some(0.1), memory: None, at, since: at };
    stage.world.put_usage(HashMap::from([("d".into(), old)]), stage.now);
    assert_eq!(stage.target("go"), None);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "NoCandidateNode");
    assert!(!stage.world.wants_usage(), "nobody needs it any more");
}

#[test]
fn where_it_is_not_served_the_action_says_so_and_one_that_tests_for_it_goes_on() {
    let mut stage = Stage::new();
    stage.world.usage_failed("the cluster does not serve the API metrics.k8s.io".into());
    stage.act("go", calm());
    stage.settle("go");
    assert_eq!(stage.cause("go"), "UsageUnknown");
    let message = stage.ready("go").2;
    assert!(message.contains("does not serve the API metrics.k8s.io; NodeConfigs measure it, too"), "{message}");
    let either = "(!has(node.cpu.utilization) || node.cpu.utilization < 0.5) && node.name == 'd'";
    stage.act("either", move_web(json!({"where": either})));
    assert!(stage.target("either").is_some());
    // A source and a preference read it, too.
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("from", json!({"delete": {"workload": web, "from": {"where": "node.memory.utilization > 0.9"}}}));
    stage.settle("from");
    assert_eq!(stage.cause("from"), "UsageUnknown");
    let preferences = json!([{"where": "node.cpu.utilization < 0.5"}]);
    stage.act("prefers", json!({"move": {"workload": web, "to": {"preferences": preferences}}}));
    stage.settle("prefers");
    assert_eq!(stage.cause("prefers"), "UsageUnknown");
    stage.now += SignedDuration::from_secs(601);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "QueueTimedOut");
}

#[test]
fn what_a_node_config_measures_comes_first_and_is_enough() {
    let mut stage = Stage::new();
    for (node, cpu) in [("a", "90"), ("b", "90"), ("c", "90")] {
        stage.put_config(node, cpu);
    }
    stage.act("go", calm());
    assert_eq!(stage.target("go"), None, "d is not measured");
    stage.put_config("d", "20");
    assert_eq!(stage.target("go"), Some("d".into()));
    stage.measure(&[("a", 0.1), ("b", 0.1), ("c", 0.1), ("d", 0.1)]);
    assert_eq!(stage.target("go"), Some("d".into()), "the others are busy by their NodeConfigs");
}

/// Moves one replica of `web` from a busy node to a calm one.
fn relieve() -> serde_json::Value {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let (busy, calm) = ("node.cpu.utilization > 0.9", "node.cpu.utilization < 0.5");
    json!({"move": {"workload": web, "from": {"where": busy}, "to": {"where": calm}}})
}

const ONE_BUSY_NODE: [(&str, f64); 4] = [("a", 0.95), ("b", 0.6), ("c", 0.6), ("d", 0.1)];

impl Stage {
    /// Two replicas on node a, which is busy. The action `one` moves one of them to node d.
    fn relieved() -> Self {
        let mut stage = Self::new();
        stage.put_pod("web-a2", "a", |_| {});
        stage.measure(&ONE_BUSY_NODE);
        stage.act("one", relieve());
        stage.settle("one");
        assert_eq!(stage.action("one").status.unwrap().slots.len(), 1);
        stage.act("two", relieve());
        stage
    }

    /// Ends the move of the action `one`.
    fn end_one(&mut self) {
        let mut ended = self.action("one");
        let status = ended.status.as_mut().expect("it has begun");
        (status.slots[0].step, status.slots[0].since) = (Step::Succeeded, Time(self.now));
        status.finished_at = Some(Time(self.now));
        self.put_action(ended);
    }

    fn assert_waits_for_measurement(&mut self, name: &str, message: &str) {
        self.settle(name);
        assert_eq!((self.cause(name).as_str(), self.ready(name).2.as_str()), ("UsageOutdated", message));
    }
}

#[test]
fn a_node_is_measured_again_before_a_second_action_relieves_it() {
    let mut stage = Stage::relieved();
    stage.assert_waits_for_measurement("two", "waiting: another action is moving a replica from or to node a");
    // A measurement in between does not count either.
    stage.now += SignedDuration::from_secs(30);
    stage.measure(&ONE_BUSY_NODE);
    stage.assert_waits_for_measurement("two", "waiting: another action is moving a replica from or to node a");
    stage.end_one();
    stage.now += SignedDuration::from_secs(10);
    let before = "waiting: node a has not been measured since another action moved a replica from or to it";
    stage.assert_waits_for_measurement("two", before);
    // A mean from before the end of the first move has the replica.
    let (at, since) = (stage.now, stage.now - SignedDuration::from_secs(15));
    let usage = |cpu| NodeUse { cpu: Some(cpu), memory: Some(0.1), at, since };
    stage.world.put_usage(ONE_BUSY_NODE.map(|(node, cpu)| (node.into(), usage(cpu))).into(), at);
    stage.assert_waits_for_measurement("two", before);
    stage.now += SignedDuration::from_secs(10);
    stage.measure(&[("a", 0.5), ("b", 0.6), ("c", 0.6), ("d", 0.4)]);
    stage.settle("two");
    assert_eq!(stage.ready("two").1, "NotEnoughReplicas", "the reason is gone");
}

/// Node a is not measured after the first move, and the replica on node b is enough.
#[test]
fn at_most_one_of_all_does_not_wait_for_other_nodes() {
    let mut stage = Stage::new();
    stage.measure(&[("a", 0.95), ("b", 0.95), ("c", 0.3), ("d", 0.1)]);
    let mut up_to_one = relieve();
    up_to_one["move"]["count"] = json!("All");
    up_to_one["move"]["upTo"] = json!(1);
    for name in ["one", "two"] {
        stage.act(name, up_to_one.clone());
        stage.settle(name);
        assert_eq!(stage.action(name).status.unwrap().slots.len(), 1, "{name}: {:?}", stage.ready(name));
    }
    // Nothing is left but the replica on node c, which is not busy.
    stage.act("three", up_to_one);
    stage.assert_waits_for_measurement("three", "waiting: another action is moving a replica from or to node a");
}

#[test]
fn a_node_that_is_still_busy_is_relieved_again() {
    let mut stage = Stage::relieved();
    stage.end_one();
    stage.now += SignedDuration::from_secs(1);
    stage.measure(&ONE_BUSY_NODE);
    assert_eq!(stage.target("two"), Some("d".into()));
}

#[test]
fn a_target_is_measured_again_and_another_one_is_used_at_once() {
    let mut stage = Stage::relieved();
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let calm = json!({"where": "node.cpu.utilization < 0.5"});
    stage.act("to-calm", json!({"move": {"workload": web, "from": {"nodeName": "b"}, "to": calm}}));
    // Node a may be calm without its replica, too.
    stage.assert_waits_for_measurement("to-calm", "waiting: another action is moving a replica from or to node a");
    stage.put_node("e", |_| {});
    let with_e = [&ONE_BUSY_NODE[..], &[("e", 0.2)]].concat();
    stage.measure(&with_e);
    assert_eq!(stage.target("to-calm"), Some("e".into()));
    // An expression that reads no measured value does not wait.
    stage.act("anywhere", json!({"move": {"workload": web, "from": {"nodeName": "c"}, "to": {"nodeName": "d"}}}));
    assert_eq!(stage.target("anywhere"), Some("d".into()));
}

/// Without a target, replicas move to any node that does not match `from`. It is not known of node a whether it does.
#[test]
fn a_node_that_may_match_the_source_is_no_target() {
    let mut stage = Stage::relieved();
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let busy = json!({"where": "node.cpu.utilization > (node.name == 'a' ? 0.99 : 0.5)"});
    for node in ["b", "c"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.act("off", json!({"move": {"workload": web, "from": busy}}));
    stage.assert_waits_for_measurement("off", "waiting: another action is moving a replica from or to node a");
}

/// The values of a NodeConfig are means over a time, and are not written while they do not change.
#[test]
fn a_mean_of_a_node_config_counts_when_all_of_it_is_new() {
    let mut stage = Stage::new();
    stage.put_pod("web-a2", "a", |_| {});
    let put_all = |stage: &mut Stage, busy: &str| {
        for (node, cpu) in [("a", busy), ("b", "60"), ("c", "60"), ("d", "10")] {
            stage.put_config(node, cpu);
        }
    };
    put_all(&mut stage, "95");
    stage.act("one", relieve());
    stage.settle("one");
    stage.act("two", relieve());
    stage.end_one();
    stage.now += SignedDuration::from_secs(30);
    put_all(&mut stage, "95");
    stage.assert_waits_for_measurement(
        "two",
        "waiting: node a has not been measured since another action moved a replica from or to it",
    );
    // 60 s for metrics-server, and three intervals, within which an unchanged value is not written.
    stage.now += SignedDuration::from_secs(76);
    put_all(&mut stage, "95");
    assert_eq!(stage.target("two"), Some("d".into()));
}

/// The nodes of a moveApplication are chosen together, and its own moves do not delay each other.
#[test]
fn moves_of_one_application_do_not_wait_for_each_other() {
    let mut stage = Stage::new();
    stage.put_pod("web-a2", "a", |_| {});
    stage.measure(&ONE_BUSY_NODE);
    let part = |stage: &mut Stage, name: &str| {
        stage.act(name, relieve());
        let mut action = stage.action(name);
        let owner = json!([{"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "all",
            "uid": "uid-all", "controller": true}]);
        action.metadata.owner_references = serde_json::from_value(owner).unwrap();
        stage.put_action(action);
    };
    let application = json!({"moveApplication": {
        "selector": {"app": "web"}, "from": {"where": "node.cpu.utilization > 0.9"}, "maxParallel": 4,
    }});
    stage.act("all", application);
    part(&mut stage, "one");
    stage.settle("one");
    part(&mut stage, "two");
    assert!(stage.settle_until_admitted("two").is_some());
    stage.act("other", relieve());
    stage.assert_waits_for_measurement("other", "waiting: another action is moving a replica from or to node a");
}

/// Node d gets a replica, so it is not known whether it is still calm: its replicas are not taken off it either.
#[rstest]
#[case::condition(json!({"where": "node.cpu.utilization < 0.5"}))]
#[case::preference(json!({"preferences": [{"where": "node.cpu.utilization < 0.5"}]}))]
fn a_replica_on_a_node_that_may_be_a_target_stays(#[case] to: serde_json::Value) {
    let mut stage = Stage::relieved();
    for pod in ["web-a", "web-a2", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.node = Some("d".into()));
    }
    stage.act("improve", move_web(to));
    stage.assert_waits_for_measurement("improve", "waiting: another action is moving a replica from or to node d");
}

/// Node d gets a replica, but it is no target, whatever its usage is.
#[test]
fn a_replica_on_a_node_that_cannot_be_a_target_moves() {
    let mut stage = Stage::relieved();
    for pod in ["web-a", "web-a2", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.node = Some("d".into()));
    }
    stage.act("away", move_web(json!({"where": "node.cpu.utilization < 0.95 && node.name == 'b'"})));
    assert_eq!(stage.target("away"), Some("b".into()));
}

/// An action of another namespace that has moved a replica off node a just now.
fn foreign_move(stage: &mut Stage) {
    let mut foreign = stage.action("one");
    foreign.metadata.namespace = Some("hostile".into());
    foreign.metadata.uid = Some(format!("hostile-{}", stage.now));
    let status = foreign.status.as_mut().expect("it has begun");
    (status.slots[0].step, status.slots[0].since) = (Step::Succeeded, Time(stage.now));
    status.finished_at = Some(Time(stage.now));
    stage.put_action(foreign);
}

/// A namespace that moves replicas all the time does not keep the actions of others from beginning. Actions of the same
/// namespace wait to the end.
#[test]
fn other_namespaces_delay_an_action_for_a_part_of_its_time() {
    let mut stage = Stage::relieved();
    stage.end_one();
    let begun = stage.now;
    while stage.now < begun + SignedDuration::from_secs(450) {
        stage.measure(&ONE_BUSY_NODE);
        foreign_move(&mut stage);
        stage.assert_waits_for_measurement(
            "two",
            "waiting: node a has not been measured since another action moved a replica from or to it",
        );
        stage.now += SignedDuration::from_secs(30);
    }
    stage.measure(&ONE_BUSY_NODE);
    foreign_move(&mut stage);
    assert_eq!(stage.target("two"), Some("d".into()));
    stage.end_one();
    assert_eq!(stage.target("two"), None);
}
