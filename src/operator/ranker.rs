//! Ranking of nodes by a PlacementPolicy for the planner of WorkloadActions: the same policies and nodes as for
//! schedulers, plus the replicas that the plan itself assigns.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};

use ganglion_actions_plan::nodes::Load;
use ganglion_actions_plan::rank::{NodeRanker, NodeRanking, RankError, RankedPod};
use ganglion_core::facts::{NodeName, Owner, default_requests};
use ganglion_core::world::World;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::inventory::Inventory;
use ganglion_placement_plan::learned::LearnedRewards;
use ganglion_placement_plan::pigeon::LearnedDemand;
use ganglion_placement_plan::policy::{CompiledPolicy, PolicyMember};
use ganglion_placement_plan::preempted::LeavingLoads;
use ganglion_placement_plan::question::{NodeRejection, PlacedPod, PlacementQuestion, Siblings};

/// The ranking of one policy for the pods of one plan.
struct PolicyRanking {
    policy: Arc<CompiledPolicy>,
    pod: PlacedPod,
    /// Includes the replicas that the plan has assigned so far.
    inventory: Inventory,
    learned: LearnedDemand,
    siblings: Option<Siblings>,
    rewards: Arc<LearnedRewards>,
    now: Timestamp,
}

/// Ranks nodes by the PlacementPolicies of the cluster.
#[derive(Clone)]
pub struct PolicyRanker(pub PlacementCache);

impl NodeRanker for PolicyRanker {
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        let policy = self.0.policy_of(world, policy).ok_or(RankError::Missing)?;
        let policy = policy.map_err(|(_, words)| RankError::Invalid(words))?;
        let pod = placed(pod);
        let inventory = self.0.copy(world, now);
        let learned = inventory.learned.demand_with(&pod.scheduler, pod.requests);
        let siblings = Siblings::from_world(world, &inventory, &pod);
        let rewards = self.0.rewards(&policy.name);
        Ok(Box::new(PolicyRanking { policy, pod, inventory, learned, siblings, rewards, now }))
    }
}

/// The pod that the ReplicaSet would create.
fn placed(RankedPod { set, template }: RankedPod<'_>) -> PlacedPod {
    // The template was parsed before, so this cannot fail.
    let parsed: PodTemplateSpec = serde_json::from_str(&template.json).unwrap_or_default();
    let mut pod = Pod { metadata: parsed.metadata.unwrap_or_default(), spec: parsed.spec, ..Pod::default() };
    pod.spec.iter_mut().for_each(default_requests);
    let mut placed = PlacedPod::from(&pod);
    placed.key.namespace.clone_from(&set.id.key.namespace);
    let (name, uid) = (set.id.key.name.clone(), set.id.uid.clone());
    placed.controller = Some(Owner { kind: "ReplicaSet".to_owned(), name, uid });
    placed
}

impl PolicyRanking {
    fn evaluate<R>(&self, nodes: &[&NodeName], answer: impl FnOnce(&PlacementQuestion<'_>) -> R) -> R {
        let candidates: Vec<_> = nodes.iter().map(|name| self.inventory.node(name.as_str())).collect();
        answer(&PlacementQuestion {
            pod: &self.pod,
            inventory: &self.inventory,
            arriving: self.inventory.answered.others(&self.pod.uid),
            candidates: &candidates,
            now: self.now,
            rules: self.policy.rules,
            learned: &self.learned,
            siblings: self.siblings.as_ref(),
            rewards: &self.rewards,
            leaving: &LeavingLoads::new(),
            narrows: false,
            one_more: false,
            counts_arriving: true,
        })
    }
}

impl NodeRanking for PolicyRanking {
    fn add(&mut self, node: &NodeName, load: Load) {
        self.inventory.add(node, load.pods, load.requests, load.cores, self.now);
    }

    fn assign(&mut self, node: &NodeName) {
        self.inventory.add(node, 1, self.pod.requests, self.pod.cores, self.now);
        if let Some(siblings) = &mut self.siblings {
            *siblings.on_nodes.entry(node.to_owned()).or_default() += 1;
        }
    }

    fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>> {
        let (rejections, scored) = self.evaluate(nodes, |question| self.policy.judge(question));
        let rank = |(rejection, total): (Option<_>, f64)| match rejection {
            Some(NodeRejection(reason)) => Err(reason),
            None => Ok(total),
        };
        rejections.into_iter().zip(scored.totals).map(rank).collect()
    }

    fn words(&self, node: &NodeName) -> String {
        self.evaluate(&[node], |question| {
            let words = |member: &PolicyMember| {
                let words = member.agent.explain(question, 0);
                (!words.is_empty()).then(|| format!("{}: {words}", member.name))
            };
            self.policy.agents.iter().filter_map(words).collect::<Vec<_>>().join("; ")
        })
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
        let pod = placed(RankedPod { set: &set, template: &template });
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
