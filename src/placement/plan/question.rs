//! The input of the agents: the pod to place, the candidate nodes, and all other data that agents read.

use std::collections::HashMap;

use jiff::Timestamp;

use super::answered::{ExpectedLoad, OtherAnsweredPods};
use super::inventory::Inventory;
use super::learned::LearnedRewards;
use super::pigeon::LearnedDemand;
pub use super::placed_pod::{CONTROL_PLANE, PlacedPod, tolerates_control_plane};
use super::preempted::LeavingLoads;
use super::record::{NodeRecord, SampleRules};
use ganglion_core::facts::{Key, NodeName, ReplicaSetFact};
use ganglion_core::world::World;

/// The other pods of a pod's ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Siblings {
    pub replicas: u32,
    /// Annotation `wao.bitmedia.co.jp/podspread-rate` of the ReplicaSet.
    pub spread_rate: Option<String>,
    /// Number of its other active pods, by node. Terminating pods do not count.
    pub on_nodes: HashMap<NodeName, u32>,
}

impl Siblings {
    /// Siblings in the ReplicaSet that controls the pod, with those that are on their way to a node; None if no cached
    /// ReplicaSet controls the pod.
    pub fn from_world(world: &World, inventory: &Inventory, pod: &PlacedPod) -> Option<Self> {
        let owner = pod.controller.as_ref().filter(|owner| owner.kind == "ReplicaSet")?;
        let set = world
            .get::<ReplicaSetFact>(&Key::new(&pod.key.namespace, &owner.name))
            .filter(|set| set.id.uid == owner.uid)?;
        let mut on_nodes = HashMap::<NodeName, u32>::new();
        let others = world.pods_of(&owner.uid).filter(|other| other.is_active() && other.id.uid != pod.uid);
        let arriving = inventory.answered.siblings(&owner.uid, &pod.uid);
        let arriving = arriving.filter_map(|place| Some(inventory.at(place)?.node.name()));
        for node in others.filter_map(|other| other.node.clone()).chain(arriving) {
            *on_nodes.entry(node).or_default() += 1;
        }
        // The pod itself is one replica more than those on nodes. If the size does not include it, the cache still has
        // an old size, and more pods may follow.
        let placed = on_nodes.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        let size = u32::try_from(set.scale.replicas).unwrap_or(0);
        let replicas = if size > placed { size } else { placed.saturating_add(2) };
        Some(Self { replicas, spread_rate: set.spread_rate.clone(), on_nodes })
    }
}

/// Input of the agents for one pod.
#[derive(Clone, Copy)]
pub struct PlacementQuestion<'a> {
    pub pod: &'a PlacedPod,
    pub inventory: &'a Inventory,
    /// The other pods on their way to a node.
    pub arriving: OtherAnsweredPods<'a>,
    /// The candidate nodes, in the order of the answer; None for a node that is not (yet) in the cache.
    pub candidates: &'a [Option<&'a NodeRecord>],
    pub now: Timestamp,
    pub rules: SampleRules,
    /// Learned demand of the pods of the pod's scheduler, including the pod itself.
    pub learned: &'a LearnedDemand,
    pub siblings: Option<&'a Siblings>,
    /// Values that the policy learned from running and failed pods.
    pub rewards: &'a LearnedRewards,
    /// Load that does not count, since the scheduler preempts it for the pod.
    pub leaving: &'a LeavingLoads,
    /// Whether the filter leaves only so many nodes open that the scheduler's choice, which is unknown until the pod is
    /// bound, cannot conflict with pods that are answered for at the same time.
    pub narrows: bool,
    /// Whether one more pod like the pod to place counts on each node.
    pub one_more: bool,
    /// Whether pods on their way to a node count in filters.
    pub counts_arriving: bool,
}

impl PlacementQuestion<'_> {
    /// Load that counts in filters besides the node's record: a pod counts on each node on which it may be.
    pub fn possible(&self, record: &NodeRecord) -> ExpectedLoad {
        let mut load = ExpectedLoad::default();
        if self.counts_arriving {
            load = self.arriving.possible(record.place);
        }
        if let Some(leaving) = self.leaving.get(&record.place) {
            load = load - *leaving;
        }
        if self.one_more { load + ExpectedLoad::of(self.pod) } else { load }
    }

    /// Load that counts in scores besides the node's record: a pod counts on its most likely node.
    pub fn likely(&self, record: &NodeRecord) -> ExpectedLoad {
        self.arriving.likely(record.place)
    }
}

/// Rejection of a candidate; carries the reason for users. [`CompiledPolicy::filter`] adds the agent's name in front.
///
/// [`CompiledPolicy::filter`]: super::policy::CompiledPolicy::filter
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRejection(pub String);

/// Result of an agent's scoring of all candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Opinion {
    /// The agent does not score.
    FilterOnly,
    /// The agent has no data about any candidate; carries the reason.
    Abstains(String),
    /// Scores from 0 to 10, in the order of the candidates.
    Scores(Vec<f64>),
}
