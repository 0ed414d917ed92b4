//! What a PlacementPolicy says to the planner of WorkloadActions: the same policies and nodes as for schedulers, with the replicas
//! that the plan itself assigns.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};

use super::placement::PlacementCache;
use crate::logic::facts::Owner;
use crate::logic::placement::inventory::Inventory;
use crate::logic::placement::pigeon::LearnedDemand;
use crate::logic::placement::policy::{CompiledPolicy, PolicyMember};
use crate::logic::placement::question::{NodeRejection, PlacedPod, PlacementQuestion, Siblings};
use crate::logic::placement::reward::RewardMemory;
use crate::logic::workload_action::nodes::Load;
use crate::logic::workload_action::rank::{NodeRanker, NodeRanking, RankError, RankedPod};
use crate::logic::world::World;

/// The answers of one policy for the pods of one plan.
struct PolicyRanking {
    policy: Arc<CompiledPolicy>,
    pod: PlacedPod,
    /// With what the plan has assigned so far.
    inventory: Inventory,
    learned: LearnedDemand,
    siblings: Option<Siblings>,
    rewards: Arc<RewardMemory>,
    now: Timestamp,
}

impl NodeRanker for PlacementCache {
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        let policy = self.policy_of(world, policy).ok_or(RankError::Missing)?;
        let policy = policy.map_err(|(_, words)| RankError::Invalid(words))?;
        let pod = placed(pod);
        let inventory = self.copy(world);
        let learned = inventory.learned_with(&pod.scheduler, pod.requests);
        let siblings = Siblings::of(world, &pod);
        let rewards = self.rewards(&policy.name);
        Ok(Box::new(PolicyRanking { policy, pod, inventory, learned, siblings, rewards, now }))
    }
}

/// The pod that the ReplicaSet would make.
fn placed(RankedPod { set, template }: RankedPod<'_>) -> PlacedPod {
    // It was parsed before, so it can be.
    let parsed: PodTemplateSpec = serde_json::from_str(&template.json).unwrap_or_default();
    let pod = Pod { metadata: parsed.metadata.unwrap_or_default(), spec: parsed.spec, ..Pod::default() };
    let mut placed = PlacedPod::from(&pod);
    placed.key.namespace.clone_from(&set.id.key.namespace);
    let (name, uid) = (set.id.key.name.clone(), set.id.uid.clone());
    placed.controller = Some(Owner { kind: "ReplicaSet".to_owned(), name, uid });
    placed
}

impl PolicyRanking {
    fn ask<R>(&self, nodes: &[&str], answer: impl FnOnce(&PlacementQuestion<'_>) -> R) -> R {
        let candidates: Vec<_> = nodes.iter().map(|name| self.inventory.node(name)).collect();
        answer(&PlacementQuestion {
            pod: &self.pod,
            inventory: &self.inventory,
            candidates: &candidates,
            now: self.now,
            rules: self.policy.rules,
            learned: &self.learned,
            siblings: self.siblings.as_ref(),
            rewards: &self.rewards,
        })
    }
}

impl NodeRanking for PolicyRanking {
    fn add(&mut self, node: &str, load: Load) {
        self.inventory.add(node, load.pods, load.requests, self.now);
    }

    fn assign(&mut self, node: &str) {
        self.inventory.add(node, 1, self.pod.requests, self.now);
        if let Some(siblings) = &mut self.siblings {
            *siblings.on_nodes.entry(node.to_owned()).or_default() += 1;
        }
    }

    fn rank(&self, nodes: &[&str]) -> Vec<Result<f64, String>> {
        let (rejections, scored) =
            self.ask(nodes, |question| (self.policy.filter(question), self.policy.score(question)));
        let rank = |(rejection, total): (Option<_>, f64)| match rejection {
            Some(NodeRejection { reason, .. }) => Err(reason),
            None => Ok(total),
        };
        rejections.into_iter().zip(scored.totals).map(rank).collect()
    }

    fn words(&self, node: &str) -> String {
        self.ask(&[node], |question| {
            let words = |member: &PolicyMember| {
                let words = member.agent.words(question, 0);
                (!words.is_empty()).then(|| format!("{}: {words}", member.name))
            };
            self.policy.agents.iter().filter_map(words).collect::<Vec<_>>().join("; ")
        })
    }
}
