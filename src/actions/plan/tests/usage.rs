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
        let usage = |cpu| NodeUse { cpu: Some(cpu), memory: Some(0.1), at };
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
    let old = NodeUse { cpu: Some(0.1), memory: None, at: stage.now - SignedDuration::from_secs(151) };
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
