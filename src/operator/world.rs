//! The world of the operator: all products follow it.

use ganglion_core::world::World;

/// An empty world. Each product follows the kinds that it depends on.
pub fn world() -> World {
    let mut world = World::default();
    ganglion_actions_plan::world::register(&mut world);
    ganglion_loops_plan::world::register(&mut world);
    ganglion_nodes_plan::world::register(&mut world);
    ganglion_placement_plan::world::register(&mut world);
    ganglion_pools_plan::world::register(&mut world);
    world
}

#[cfg(test)]
mod tests {
    use ganglion_api::closed_loop::ClosedLoop;
    use ganglion_api::decision::Decision;
    use ganglion_api::execution::Execution;
    use ganglion_api::monitoring::Monitoring;
    use ganglion_api::node_config::NodeConfig;
    use ganglion_api::node_config::NodeConfigTemplate;
    use ganglion_api::placement_policy::PlacementPolicy;
    use ganglion_api::swarm_pool::SwarmPool;
    use ganglion_api::workload_action::WorkloadAction;
    use ganglion_core::facts::{Identity, Key, NodeFact, PodFact};
    use ganglion_core::world::{Fact, Origin};
    use ganglion_placement_plan::world::PlacementWorld;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    /// Whether the controller of this kind is woken by a new object with this spec.
    fn wakes<F: Fact + DeserializeOwned>(spec: &Value) -> bool {
        let object = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": F::KIND,
            "metadata": {"namespace": "a", "name": "x", "uid": "x", "resourceVersion": "1"}, "spec": spec,
        });
        let requeue = world().apply(serde_json::from_value::<F>(object).unwrap(), Origin::Watch);
        requeue.of::<F>().any(|key| *key == Key::new("a", "x"))
    }

    #[test]
    fn each_controller_is_woken_by_a_change_of_its_kind() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let pool = json!({"workload": target, "jobs": {}, "output": {"configMap": "web"}});
        assert!(wakes::<WorkloadAction>(&json!({"delete": {"pod": {"name": "p"}}})));
        assert!(wakes::<ClosedLoop>(&json!({"target": target, "metrics": []})));
        assert!(wakes::<Monitoring>(&json!({"metrics": []})));
        assert!(wakes::<Decision>(&json!({})));
        assert!(wakes::<Execution>(&json!({"target": target})));
        assert!(wakes::<NodeConfig>(&json!({"nodeName": "n1"})));
        assert!(wakes::<NodeConfigTemplate>(&json!({"nodeSelector": {}, "template": {}})));
        assert!(wakes::<SwarmPool>(&pool));
        assert!(wakes::<PlacementPolicy>(&json!({"agents": []})));
        let id = Identity { key: Key::new("a", "x"), version: "1".into(), ..Identity::default() };
        let gated = PodFact { id, gated: true, ..PodFact::default() };
        assert_eq!(world().apply(gated, Origin::Watch).of::<PodFact>().count(), 1);
    }

    #[test]
    fn placement_logs_changes_of_nodes() {
        let mut world = world();
        let id = Identity { key: Key::new("", "n1"), version: "1".into(), ..Identity::default() };
        world.apply(NodeFact { id, ..NodeFact::default() }, Origin::Watch);
        assert_eq!(world.placement_clock(), 1);
    }
}
