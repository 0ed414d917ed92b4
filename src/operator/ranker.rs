//! Ranking of nodes by a PlacementPolicy for the planner of WorkloadActions: passes its questions on to placement,
//! which the planner does not know.

use jiff::Timestamp;

use ganglion_actions_plan::nodes::Load;
use ganglion_actions_plan::rank::{NodeRanker, NodeRanking, RankError, RankedPod};
use ganglion_core::facts::NodeName;
use ganglion_core::world::World;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::question::PlacedPod;
use ganglion_placement_plan::ranking::PolicyRanking;

/// Ranks nodes by the PlacementPolicies of the cluster.
#[derive(Clone)]
pub struct PolicyRanker(pub PlacementCache);

/// The ranking of one policy for the pods of one plan.
struct PlannedRanking(PolicyRanking);

impl NodeRanker for PolicyRanker {
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        let pod = PlacedPod::of_replica_set(pod.set, pod.template);
        let ranking = self.0.ranking(world, policy, pod, now).ok_or(RankError::Missing)?;
        let ranking = ranking.map_err(|(_, words)| RankError::Invalid(words))?;
        Ok(Box::new(PlannedRanking(ranking)))
    }
}

impl NodeRanking for PlannedRanking {
    fn add(&mut self, node: &NodeName, load: Load) {
        self.0.add(node, load.pods, load.requests, load.cores);
    }

    fn assign(&mut self, node: &NodeName) {
        self.0.assign(node);
    }

    fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>> {
        self.0.rank(nodes)
    }

    fn words(&self, node: &NodeName) -> String {
        self.0.words(node)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganglion_api::node_config::NodeConfig;
    use ganglion_api::placement_policy::PlacementPolicy;
    use ganglion_core::facts::{CONGESTION, Identity, Key, NodeFact, ReplicaSetFact, Requests, TemplateFact};
    use ganglion_core::world::Origin;
    use ganglion_runtime::store::Store;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn identity(namespace: &str, name: &str) -> Identity {
        Identity { key: Key::new(namespace, name), uid: name.into(), version: "1".to_owned() }
    }

    /// Three nodes with 8 cores, half of them used: power consumption rises least on a, which is rejected, and most on
    /// c; b is congested. Power and congestion have the same weight.
    fn store() -> Store {
        let store = Store::new(crate::operator::world::world());
        for (name, slope, factor) in [("a", 0, "0"), ("b", 1, "70"), ("c", 2, "0")] {
            let capacity = Requests { cpu: 8000, memory: 16 << 30, ..Requests::default() };
            let published = [(CONGESTION, factor.to_owned())].into();
            let id = identity("", name);
            let node = NodeFact { id, ready: true, allocatable: capacity, capacity, published, ..NodeFact::default() };
            store.apply(node, Origin::Watch);
            let watts: Vec<String> = (0..21).map(|point| (100 + 5 * point * slope).to_string()).collect();
            let config = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
                "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}, "spec": {"nodeName": name},
                "status": {
                    "validUntil": "1970-01-01T01:00:00Z", "cpu": {"value": "50"}, "power": {"value": "150"},
                    "powerCurve": {
                        "watts": watts, "inletTemperature": "22", "differentialPressure": "10",
                        "predictedAt": "1970-01-01T00:00:00Z",
                    },
                },
            });
            store.apply(serde_json::from_value::<NodeConfig>(config).unwrap(), Origin::Watch);
        }
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": "green", "uid": "green", "generation": 1, "resourceVersion": "1"},
            "spec": {"agents": [
                {"name": "power", "power": {}}, {"name": "calm", "congestion": {}},
                {"name": "only", "expression": {"filter": "node.name != 'a'"}},
            ]},
        });
        store.apply(serde_json::from_value::<PlacementPolicy>(policy).unwrap(), Origin::Watch);
        store
    }

    /// An init container requests a whole node; the container limits its CPU and requests none.
    fn template() -> TemplateFact {
        let container = |cpu: &str| json!({"name": "c", "resources": {"limits": {"cpu": cpu}}});
        let spec = json!({"initContainers": [container("8")], "containers": [container("100m")]});
        serde_json::from_str(&json!({"spec": spec}).to_string()).unwrap()
    }

    #[test]
    fn the_pod_of_a_template_is_as_the_api_server_will_make_it() {
        let (set, template) = (ReplicaSetFact { id: identity("n", "web"), ..ReplicaSetFact::default() }, template());
        let pod = PlacedPod::of_replica_set(&set, &template);
        assert_eq!((pod.requests.cpu, pod.cores, pod.scheduler.as_str()), (8000, 100, "default-scheduler"));
    }

    #[test]
    fn the_nodes_that_pass_are_compared_as_kube_scheduler_does() {
        let store = store();
        let ranker = PolicyRanker(PlacementCache::new(store.clone()));
        let (set, template) = (ReplicaSetFact { id: identity("n", "web"), ..ReplicaSetFact::default() }, template());
        let pod = RankedPod { set: &set, template: &template };
        let mut ranking = store.read(|world| ranker.begin(world, "green", pod, NOW)).expect("a ranking");
        let nodes = ["a", "b", "c"].map(NodeName::from);
        // Again after a replica was assigned: power ignores the requests of its init container.
        for _ in 0..2 {
            let ranks = ranking.rank(&nodes.each_ref());
            let [Err(why), Ok(b), Ok(c)] = &ranks[..] else { panic!("{ranks:?}") };
            assert_eq!(why, "only: node.name != 'a' is false");
            assert!((b - 6.5).abs() < 1e-6 && (c - 6.0).abs() < 1e-6, "{ranks:?}");
            ranking.assign(&nodes[1]);
        }
    }
}
