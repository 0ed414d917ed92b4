//! Which replicas should run elsewhere, as a closed loop with the action `move` would decide.
//!
//! Only pods of services move: a job would lose its work. A replacement starts first and serves before the old pod is
//! evicted, so both hold their requests meanwhile.

use super::node::{LabNode, OVERLOAD};
use super::pod::{LabPod, PodDemand};

/// Maximum number of moves at a time in the cluster.
pub const MAX_MOVES: usize = 2;

/// Measurements in a row above [`OVERLOAD`] from which on a node is relieved.
const PATIENCE: u32 = 2;

/// Time in seconds after a move from a node before the next one from it.
const DWELL: i64 = 60;

/// Maximum usage of the target after the move, relative to its threads.
const TARGET_USAGE: f64 = 0.7;

/// Reasons for moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveRules {
    None,
    /// Takes a replica off a node that is overloaded for a minute.
    Relief,
    /// The same; besides, takes replicas to nodes that need less power for them, and off the emptiest nodes.
    Consolidation,
}

/// A pod that should move to one of these nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveProposal {
    pub pod: usize,
    pub from: usize,
    pub candidates: Vec<usize>,
}

/// Memory of the nodes that were overloaded, and of the last moves.
#[derive(Clone, Debug, Default)]
pub struct MoveMemory {
    /// Measurements in a row above the limit, by node.
    hot: Vec<u32>,
    /// Time of the last move from a node in seconds.
    last: Vec<Option<i64>>,
}

impl MoveMemory {
    /// Records a measurement, and proposes moves, the most urgent first.
    pub fn propose(&mut self, rules: MoveRules, nodes: &[LabNode], pods: &[LabPod], now: i64) -> Vec<MoveProposal> {
        self.hot.resize(nodes.len(), 0);
        self.last.resize(nodes.len(), None);
        for (node, hot) in nodes.iter().zip(&mut self.hot) {
            *hot = if node.usage() > OVERLOAD { *hot + 1 } else { 0 };
        }
        match rules {
            MoveRules::None => Vec::new(),
            MoveRules::Relief => self.reliefs(nodes, pods, now),
            MoveRules::Consolidation => {
                let mut proposals = self.reliefs(nodes, pods, now);
                proposals.extend(self.consolidations(nodes, pods, now));
                proposals
            }
        }
    }

    /// Records that a move from this node has begun.
    pub fn begin(&mut self, from: usize, now: i64) {
        if let Some(last) = self.last.get_mut(from) {
            *last = Some(now);
        }
    }

    fn is_calm(&self, node: usize, now: i64) -> bool {
        self.last.get(node).copied().flatten().is_none_or(|last| now - last >= DWELL)
    }

    fn reliefs(&self, nodes: &[LabNode], pods: &[LabPod], now: i64) -> Vec<MoveProposal> {
        let is_hot = |node: &usize| self.hot[*node] >= PATIENCE && self.is_calm(*node, now);
        let mut sources: Vec<usize> = (0..nodes.len()).filter(is_hot).collect();
        sources.sort_by(|one, other| nodes[*other].usage().total_cmp(&nodes[*one].usage()));
        sources.into_iter().filter_map(|from| proposal(nodes, pods, from, |_| true)).collect()
    }

    fn consolidations(&self, nodes: &[LabNode], pods: &[LabPod], now: i64) -> Vec<MoveProposal> {
        let is_source = |node: &usize| !nodes[*node].pods.is_empty() && self.is_calm(*node, now);
        let mut sources: Vec<usize> = (0..nodes.len()).filter(is_source).collect();
        let order = |node: &usize| (-watts_per_core(&nodes[*node]), requested(&nodes[*node]));
        sources.sort_by(|one, other| order(one).partial_cmp(&order(other)).unwrap_or(std::cmp::Ordering::Equal));
        let improves = |from: usize| {
            move |to: usize| {
                let saved = watts_per_core(&nodes[from]) - watts_per_core(&nodes[to]);
                saved > 1e-9 || (saved > -1e-9 && requested(&nodes[to]) > requested(&nodes[from]))
            }
        };
        sources.into_iter().filter_map(|from| proposal(nodes, pods, from, improves(from))).collect()
    }
}

/// The replica on this node that uses most CPU, if one of the other nodes has room for it.
fn proposal(nodes: &[LabNode], pods: &[LabPod], from: usize, accepts: impl Fn(usize) -> bool) -> Option<MoveProposal> {
    let movable = nodes[from].pods.iter().copied().filter(|pod| match pods[*pod].demand {
        PodDemand::Alone { .. } | PodDemand::Replica { .. } => !pods[*pod].moves,
        PodDemand::Job { .. } | PodDemand::Replacement => false,
    });
    let pod = movable.max_by(|one, other| pods[*one].used.total_cmp(&pods[*other].used))?;
    let LabPod { request, used, .. } = &pods[pod];
    let has_room = |to: &usize| {
        let node = &nodes[*to];
        *to != from
            && node.server.site == nodes[from].server.site
            && node.fits(request.cpu, request.memory)
            && node.used + used <= TARGET_USAGE * node.threads()
    };
    let candidates: Vec<usize> = (0..nodes.len()).filter(|to| has_room(to) && accepts(*to)).collect();
    (!candidates.is_empty()).then_some(MoveProposal { pod, from, candidates })
}

/// Additional watts for one more core.
fn watts_per_core(node: &LabNode) -> f64 {
    let model = &node.server.model;
    (model.full_watts - model.idle_watts) / model.threads
}

/// Requested part of the threads.
fn requested(node: &LabNode) -> f64 {
    node.requested_cpu / node.threads()
}
