//! Ranking of nodes by a policy for pods that an action will create: the same policies and nodes as for schedulers,
//! plus the replicas that the action assigns meanwhile.

use std::sync::Arc;

use jiff::Timestamp;

use super::inventory::Inventory;
use super::learned::LearnedRewards;
use super::pigeon::LearnedDemand;
use super::policy::{CompiledPolicy, PolicyMember};
use super::preempted::LeavingLoads;
use super::question::{NodeRejection, PlacedPod, PlacementQuestion, Siblings};
use ganglion_core::facts::{NodeName, Requests};
use ganglion_core::world::World;

/// The ranking of one policy for pods like this one.
#[derive(Debug)]
pub struct PolicyRanking {
    policy: Arc<CompiledPolicy>,
    pod: PlacedPod,
    /// Includes the replicas that were assigned so far.
    inventory: Inventory,
    learned: LearnedDemand,
    siblings: Option<Siblings>,
    rewards: Arc<LearnedRewards>,
    now: Timestamp,
}

impl PolicyRanking {
    /// `inventory`: a copy of the nodes, up to date with the world.
    pub fn new(
        world: &World,
        inventory: Inventory,
        policy: Arc<CompiledPolicy>,
        rewards: Arc<LearnedRewards>,
        pod: PlacedPod,
        now: Timestamp,
    ) -> Self {
        let learned = inventory.learned.demand_with(&pod.scheduler, pod.requests);
        let siblings = Siblings::from_world(world, &inventory, &pod);
        Self { policy, pod, inventory, learned, siblings, rewards, now }
    }

    /// Adds pods that are on their way to a node. `cores`: their CPU in millicores, as the agent `power` counts it.
    pub fn add(&mut self, node: &NodeName, pods: i64, requests: Requests, cores: i64) {
        self.inventory.add(node, pods, requests, cores, self.now);
    }

    /// Adds one of the ranked pods to a node.
    pub fn assign(&mut self, node: &NodeName) {
        self.inventory.add(node, 1, self.pod.requests, self.pod.cores, self.now);
        if let Some(siblings) = &mut self.siblings {
            *siblings.on_nodes.entry(node.to_owned()).or_default() += 1;
        }
    }

    /// For each of these nodes, the current score from 0 to 10, or why the policy rejects it.
    pub fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>> {
        let (rejections, scored) = self.evaluate(nodes, |question| self.policy.judge(question));
        let rank = |(rejection, total): (Option<_>, f64)| match rejection {
            Some(NodeRejection(reason)) => Err(reason),
            None => Ok(total),
        };
        rejections.into_iter().zip(scored.totals).map(rank).collect()
    }

    /// Describes how the score of a node was computed.
    pub fn words(&self, node: &NodeName) -> String {
        self.evaluate(&[node], |question| {
            let words = |member: &PolicyMember| {
                let words = member.agent.explain(question, 0);
                (!words.is_empty()).then(|| format!("{}: {words}", member.name))
            };
            self.policy.agents.iter().filter_map(words).collect::<Vec<_>>().join("; ")
        })
    }

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
