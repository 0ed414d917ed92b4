//! Lets a PlacementPolicy rank nodes for the planner of WorkloadActions, as `src/operator/ranker.rs` does.

use ganglion_actions_plan::nodes::Load;
use ganglion_actions_plan::rank::{NodeRanker, NodeRanking, RankError, RankedPod};
use ganglion_core::facts::NodeName;
use ganglion_core::world::World;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::question::PlacedPod;
use ganglion_placement_plan::ranking::PolicyRanking;
use jiff::Timestamp;

/// Ranks nodes by the policies of the lab.
pub struct LabRanker(pub PlacementCache);

struct LabRanking(PolicyRanking);

impl NodeRanker for LabRanker {
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        let pod = PlacedPod::of_replica_set(pod.set, pod.template);
        let ranking = self.0.ranking(world, policy, pod, now).ok_or(RankError::Missing)?;
        Ok(Box::new(LabRanking(ranking.map_err(|(_, words)| RankError::Invalid(words))?)))
    }
}

impl NodeRanking for LabRanking {
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
