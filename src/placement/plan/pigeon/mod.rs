//! The agent `pigeon`: scores each node by the distribution of requests over all nodes that results if the pod is
//! placed on it.
//!
//! | file | what |
//! |---|---|
//! | `cluster` | the statistics of all nodes, and the objective with a pod on one of them |
//! | `sums` | mean and covariance, with one row replaced |
//! | `ranks` | the imbalance of one resource, with one node replaced |
//! | `demand` | the demand of pods, learned from created pods |
//! | `unit` | units of resources, and the demand of pods without requests |
//! | `variation` | the variability of several resources as one number |
//!
//! Statistics of all schedulable nodes are calculated once per pod. Each candidate then costs the square of the number
//! of resources, or a binary search in a sorted list.

pub mod cluster;
pub mod demand;
mod ranks;
mod sums;
pub mod unit;
mod variation;

use super::wire::{extremes, span};
pub use cluster::{PigeonCluster, PigeonPlacement};
pub use demand::LearnedDemand;
pub use unit::PigeonResource;

/// Maximum number of resources of a policy.
pub const MAX_RESOURCES: usize = 5;

/// One number per resource, in the order of `record::RESOURCES` or, within the agent, of the policy. Columns beyond its
/// resources are not read.
pub type Row = [f64; MAX_RESOURCES];

/// One number per pair of resources.
pub type Matrix = [Row; MAX_RESOURCES];

/// Placement goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Equal utilisation of the prime resource.
    LoadBalance,
    /// Nodes that are either full or empty of the prime resource, scaled by the distance of the mean from both.
    Consolidate,
    /// A large standard deviation of the utilisation of the prime resource.
    ConsolidateByDeviation,
    /// Nodes with the same variability as pods: equal pods are spread, pods of mixed sizes are packed.
    AdaptiveBinPacking,
}

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PigeonRules {
    pub objective: Objective,
    /// Number of resources, 1 to [`MAX_RESOURCES`].
    pub resources: usize,
    /// Index of the prime resource.
    pub prime: usize,
}

/// Requests and capacity of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PigeonNode {
    /// Allocatable amounts.
    pub capacity: Row,
    /// Requests of the pods that are bound to the node.
    pub requested: Row,
    /// Whether the node is schedulable and counts in the statistics.
    pub counted: bool,
}

impl PigeonNode {
    /// Whether a pod with this demand fits.
    pub fn fits(&self, demand: &Row, resources: usize) -> bool {
        let free = self.capacity.iter().zip(&self.requested).map(|(capacity, requested)| capacity - requested);
        demand.iter().zip(free).take(resources).all(|(demand, free)| *demand <= free)
    }
}

/// Converts objectives, of which lower is better, to scores: 0 if the pod does not fit, 10 for the best node, 1 for the
/// worst. If all objectives are equal, all score 10.
///
/// The range of the objectives is stretched to the range of the scores, no matter how large it is.
pub fn priorities(objectives: &[Option<f64>]) -> Vec<f64> {
    let feasible = |objective: &Option<f64>| objective.filter(|objective| objective.is_finite());
    let range = extremes(objectives.iter().filter_map(feasible)).and_then(|(low, high)| Some((high, span(low, high)?)));
    let score = |objective: &Option<f64>| match (feasible(objective), range) {
        (None, _) => 0.0,
        (Some(_), None) => 10.0,
        (Some(objective), Some((high, span))) => 1.0 + 9.0 * ((high - objective) / span),
    };
    objectives.iter().map(score).collect()
}
