//! The agent `pigeon`: scores nodes by the distribution of requests over all nodes that a pod on them would lead to.
//!
//! | file | what |
//! |---|---|
//! | `cluster` | the statistics of all nodes, and what a pod on one node changes |
//! | `sums` | mean and covariance, with one row replaced |
//! | `ranks` | the unbalance of one resource, with one node replaced |
//! | `demand` | the demand of pods, as learned from those that arrived |
//! | `unit` | units of resources, and the demand of pods that request nothing |
//! | `variation` | variability as one number |
//!
//! Statistics are taken over all schedulable nodes, once; a candidate then costs the square of the number of resources, or a search
//! in a sorted list.

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

/// The most resources that a policy looks at.
pub const MAX_RESOURCES: usize = 5;

/// A number for each resource, in the order of the policy; what is beyond its resources is not read.
pub type Row = [f64; MAX_RESOURCES];

/// A number for each pair of resources.
pub type Matrix = [Row; MAX_RESOURCES];

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Equal utilisation of the prime resource.
    LoadBalance,
    /// Nodes full or empty of the prime resource, scaled by how far the mean is from either.
    Consolidate,
    /// A large standard deviation of the utilisation of the prime resource.
    ConsolidateByDeviation,
    /// Nodes as different as pods are: equal pods are spread, pods of mixed sizes are packed.
    AdaptiveBinPacking,
}

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PigeonRules {
    pub objective: Objective,
    /// How many resources count, 1 to [`MAX_RESOURCES`].
    pub resources: usize,
    /// The index of the prime resource.
    pub prime: usize,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PigeonNode {
    /// What is allocatable.
    pub capacity: Row,
    /// The requests of the pods bound to it.
    pub requested: Row,
    /// It is schedulable, and counts in the statistics.
    pub counted: bool,
}

impl PigeonNode {
    /// Whether a pod with this demand fits.
    #[must_use]
    pub fn fits(&self, demand: &Row, resources: usize) -> bool {
        let free = self.capacity.iter().zip(&self.requested).map(|(capacity, requested)| capacity - requested);
        demand.iter().zip(free).take(resources).all(|(demand, free)| *demand <= free)
    }
}

/// The scores of nodes, in their order, from their objectives, of which lower is better: 0 where the pod does not fit, 10 for the
/// best, 1 for the worst. If no two differ, all get 10.
///
/// The scores tell the order only: a small and a large difference are stretched alike.
#[must_use]
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
