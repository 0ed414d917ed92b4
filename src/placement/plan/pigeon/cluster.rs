//! The statistics of all nodes, and the objective with a pod on one of them.

use super::ranks::Ranks;
use super::sums::{Distribution, Sums};
use super::variation::variation;
use super::{LearnedDemand, MAX_RESOURCES, Objective, PigeonNode, PigeonRules, Row};

/// Statistics of all schedulable nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PigeonCluster {
    rules: PigeonRules,
    allocation: Allocation,
}

/// Statistics that an objective needs.
#[derive(Clone, Debug, PartialEq)]
enum Allocation {
    /// Standard deviation of the prime resource's utilisation.
    Deviation { sums: Sums, sign: f64 },
    /// Imbalance of the prime resource's utilisation.
    Unbalance(Ranks),
    /// Variability of the utilisation of all resources.
    Variation { sums: Sums, mean_capacity: Row },
}

impl PigeonCluster {
    /// Statistics of the nodes that count. Takes some microseconds for a thousand nodes.
    pub fn of(rules: PigeonRules, nodes: impl Iterator<Item = PigeonNode> + Clone) -> Self {
        let resources = rules.resources.clamp(1, MAX_RESOURCES);
        let rules = PigeonRules { resources, prime: rules.prime.min(resources - 1), ..rules };
        let counted = nodes.filter(|node| node.counted);
        let prime = || counted.clone().filter_map(|node| utilisation(&node, rules.prime, 0.0));
        let deviation = |sign| Allocation::Deviation { sums: Sums::of(1, prime().map(alone)), sign };
        let allocation = match rules.objective {
            Objective::LoadBalance => deviation(1.0),
            Objective::ConsolidateByDeviation => deviation(-1.0),
            Objective::Consolidate => Allocation::Unbalance(Ranks::of(prime().map(bounded).collect())),
            Objective::AdaptiveBinPacking => {
                let rows = counted.clone().map(|node| utilisations(&node, &Row::default(), resources));
                Allocation::Variation { sums: Sums::of(resources, rows), mean_capacity: mean_capacity(counted) }
            }
        };
        Self { rules, allocation }
    }

    /// Prepares the placement of a pod. `learned` already includes its demand.
    pub fn place(&self, demand: Row, learned: &LearnedDemand) -> PigeonPlacement<'_> {
        let target = match &self.allocation {
            Allocation::Variation { mean_capacity, .. } => {
                let (mean, covariance) = learned.relative_to(mean_capacity, self.rules.resources);
                variation(&mean, &covariance, self.rules.resources)
            }
            Allocation::Deviation { .. } | Allocation::Unbalance(_) => 0.0,
        };
        PigeonPlacement { cluster: self, demand, target }
    }
}

/// The pod to place, with the statistics of all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PigeonPlacement<'a> {
    cluster: &'a PigeonCluster,
    demand: Row,
    /// Variability of demand that the variability of the nodes should match.
    pub target: f64,
}

impl PigeonPlacement<'_> {
    /// Objective with the pod on this node; lower is better. None if the pod does not fit.
    pub fn objective(&self, node: &PigeonNode) -> Option<f64> {
        if !node.fits(&self.demand, self.cluster.rules.resources) {
            return None;
        }
        let prime = self.cluster.rules.prime;
        let demand = self.demand.get(prime).copied().unwrap_or_default();
        let (old, new) = (utilisation(node, prime, 0.0).filter(|_| node.counted), utilisation(node, prime, demand));
        Some(match &self.cluster.allocation {
            Allocation::Deviation { sums, sign } => {
                sign * sums.replaced(old.map(alone).as_ref(), new.map(alone).as_ref()).deviation()
            }
            Allocation::Unbalance(ranks) => {
                ranks.unbalance(old.map(bounded), new.map(bounded)).map_or(0.0, |unbalance| 1.0 - unbalance)
            }
            Allocation::Variation { sums, .. } => (self.variation(node, sums) - self.target).abs(),
        })
    }

    /// Variability of all nodes with the pod on this one; None for objectives other than `AdaptiveBinPacking`.
    pub fn variability(&self, node: &PigeonNode) -> Option<f64> {
        match &self.cluster.allocation {
            Allocation::Variation { sums, .. } => Some(self.variation(node, sums)),
            Allocation::Deviation { .. } | Allocation::Unbalance(_) => None,
        }
    }

    fn variation(&self, node: &PigeonNode, sums: &Sums) -> f64 {
        let resources = self.cluster.rules.resources;
        let old = node.counted.then(|| utilisations(node, &Row::default(), resources));
        let new = utilisations(node, &self.demand, resources);
        let Distribution { mean, covariance } = sums.replaced(old.as_ref(), Some(&new));
        variation(&mean, &covariance, resources)
    }
}

/// Utilisation of a resource with an additional demand; None if the node does not have the resource.
fn utilisation(node: &PigeonNode, resource: usize, demand: f64) -> Option<f64> {
    let capacity = node.capacity.get(resource).copied().filter(|capacity| *capacity > 0.0)?;
    Some((node.requested.get(resource)? + demand) / capacity)
}

fn bounded(utilisation: f64) -> f64 {
    utilisation.clamp(0.0, 1.0)
}

/// Row with one column.
fn alone(value: f64) -> Row {
    let mut row = Row::default();
    row[0] = value;
    row
}

/// Utilisations of a node with an additional demand, from 0 to 1. A resource that the node does not have counts as full
/// if it is requested.
fn utilisations(node: &PigeonNode, demand: &Row, resources: usize) -> Row {
    let mut row = Row::default();
    for (i, value) in row.iter_mut().enumerate().take(resources) {
        let unused = node.requested[i] + demand[i] <= 0.0;
        *value = utilisation(node, i, demand[i]).map_or(if unused { 0.0 } else { 1.0 }, bounded);
    }
    row
}

/// Mean capacity per resource, over the nodes that have the resource.
fn mean_capacity(nodes: impl Iterator<Item = PigeonNode>) -> Row {
    let (mut sums, mut counts) = (Row::default(), Row::default());
    for node in nodes {
        for ((sum, count), capacity) in sums.iter_mut().zip(&mut counts).zip(&node.capacity) {
            if *capacity > 0.0 {
                *sum += capacity;
                *count += 1.0;
            }
        }
    }
    let mean = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { 0.0 };
    std::array::from_fn(|i| mean((sums[i], counts[i])))
}
