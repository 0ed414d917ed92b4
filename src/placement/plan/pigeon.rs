//! The agent `pigeon`: scores each node by the distribution of requests over all nodes that results if the pod is
//! placed on it.
//!
//! Statistics of all schedulable nodes are calculated once per pod. Each candidate then costs the square of the number
//! of resources, or a binary search in a sorted list.

use serde::{Deserialize, Serialize};

use super::wire::{extremes, span};

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

const MEBI: f64 = 1_048_576.0;
const GIBI: f64 = 1_073_741_824.0;

/// A resource that the agent can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PigeonResource {
    /// In millicores.
    Cpu,
    /// In MiB.
    Memory,
    Pods,
    /// `nvidia.com/gpu`.
    Gpu,
    /// In GiB.
    EphemeralStorage,
}

impl PigeonResource {
    /// Converts an amount of a node to the unit and rounds it down. `amount` is in millicores, bytes or pieces.
    pub fn size(self, amount: f64) -> f64 {
        match self {
            Self::Cpu | Self::Pods | Self::Gpu => amount,
            Self::Memory => (amount / MEBI).floor(),
            Self::EphemeralStorage => (amount / GIBI).floor(),
        }
    }

    /// Converts a request of a pod to its demand in the unit. A pod without a request for CPU or memory counts with a
    /// small default, and each pod counts as one pod.
    pub fn demand(self, request: f64) -> f64 {
        match self {
            Self::Cpu if request <= 0.0 => 10.0,
            Self::Memory if request < MEBI => 16.0,
            Self::Pods => 1.0,
            Self::Cpu | Self::Memory | Self::Gpu | Self::EphemeralStorage => self.size(request),
        }
    }
}

/// Weight of a new demand once many have been learned.
pub const SMOOTHING: f64 = 0.01;

/// Mean and covariance of demands: of all demands at first, later smoothed exponentially.
///
/// Each pod must be learned only once, no matter how many requests the scheduler sends for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedDemand {
    /// Number of learned demands, up to the inverse of the smoothing.
    pub arrivals: u32,
    pub mean: Row,
    /// Central covariance, not the mean of products, so that it is exactly 0 for equal demands.
    pub covariance: Matrix,
}

impl LearnedDemand {
    /// Learns a demand. A demand that is not finite is ignored.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    pub fn learn(&mut self, demand: &Row, smoothing: f64) {
        if !demand.iter().all(|demand| demand.is_finite()) {
            return;
        }
        let most = smoothing.recip().floor().max(1.0) as u32;
        self.arrivals = self.arrivals.saturating_add(1).min(most);
        let weight = f64::from(self.arrivals).recip();
        let mut difference = *demand;
        for (difference, mean) in difference.iter_mut().zip(&mut self.mean) {
            *difference -= *mean;
            *mean += weight * *difference;
        }
        for (row, one) in self.covariance.iter_mut().zip(&difference) {
            for (covariance, other) in row.iter_mut().zip(&difference) {
                *covariance = (1.0 - weight) * (*covariance + weight * one * other);
            }
        }
    }

    /// Whether all numbers are possible results of learning: finite, and means not negative.
    pub fn is_sound(&self) -> bool {
        self.covariance.iter().flatten().all(|number| number.is_finite())
            && self.mean.iter().all(|mean| mean.is_finite() && *mean >= 0.0)
    }

    /// Whether both are equal except for the last digits, which may differ after saving and restoring.
    pub fn is_like(&self, other: &Self) -> bool {
        let numbers = |one: &Self| one.covariance.into_iter().flatten().chain(one.mean).collect::<Vec<f64>>();
        let is_near = |(is, was): (f64, f64)| (is - was).abs() <= 1e-12 * is.abs().max(was.abs());
        self.arrivals == other.arrivals && numbers(self).into_iter().zip(numbers(other)).all(is_near)
    }

    /// Mean and covariance as fractions of the mean capacity of a node; 0 for resources that no node has.
    pub fn relative_to(&self, mean_capacity: &Row, resources: usize) -> (Row, Matrix) {
        let part = |value: f64, capacity: f64| if capacity > 0.0 { value / capacity } else { 0.0 };
        let (mut mean, mut covariance) = (Row::default(), Matrix::default());
        for i in 0..resources.min(MAX_RESOURCES) {
            mean[i] = part(self.mean[i], mean_capacity[i]);
            for j in 0..resources.min(MAX_RESOURCES) {
                covariance[i][j] = part(part(self.covariance[i][j], mean_capacity[i]), mean_capacity[j]);
            }
        }
        (mean, covariance)
    }
}

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
    pub fn new(rules: PigeonRules, nodes: impl Iterator<Item = PigeonNode> + Clone) -> Self {
        let resources = rules.resources.clamp(1, MAX_RESOURCES);
        let rules = PigeonRules { resources, prime: rules.prime.min(resources - 1), ..rules };
        let counted = nodes.filter(|node| node.counted);
        let prime = || counted.clone().filter_map(|node| utilisation(&node, rules.prime, 0.0));
        let deviation = |sign| Allocation::Deviation { sums: Sums::new(1, prime().map(alone)), sign };
        let allocation = match rules.objective {
            Objective::LoadBalance => deviation(1.0),
            Objective::ConsolidateByDeviation => deviation(-1.0),
            Objective::Consolidate => Allocation::Unbalance(Ranks::new(prime().map(bounded).collect())),
            Objective::AdaptiveBinPacking => {
                let rows = counted.clone().map(|node| utilisations(&node, &Row::default(), resources));
                Allocation::Variation { sums: Sums::new(resources, rows), mean_capacity: mean_capacity(counted) }
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

/// Sums over rows. They are taken relative to the mean of the rows, so that variances are not lost to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    columns: usize,
    count: f64,
    center: Row,
    first: Row,
    second: Matrix,
}

/// Mean and population covariance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Distribution {
    pub mean: Row,
    pub covariance: Matrix,
}

impl Sums {
    /// Sums rows in one pass by Welford's method, since the rows are read for every pod.
    pub fn new(columns: usize, rows: impl Iterator<Item = Row>) -> Self {
        let columns = columns.clamp(1, MAX_RESOURCES);
        let mut sums =
            Self { columns, count: 0.0, center: Row::default(), first: Row::default(), second: Matrix::default() };
        for row in rows {
            sums.count += 1.0;
            let (mut before, mut after) = (row, row);
            for ((center, before), after) in sums.center.iter_mut().zip(&mut before).zip(&mut after).take(columns) {
                *before -= *center;
                *center += *before / sums.count;
                *after -= *center;
            }
            for (second, before) in sums.second.iter_mut().zip(before).take(columns) {
                for (second, after) in second.iter_mut().zip(after).take(columns) {
                    *second += before * after;
                }
            }
        }
        sums
    }

    /// Adds a row, or removes it if the sign is -1.
    fn add(&mut self, row: &Row, sign: f64) {
        self.count += sign;
        let mut relative = *row;
        relative.iter_mut().zip(&self.center).for_each(|(value, center)| *value -= center);
        for ((first, second), one) in self.first.iter_mut().zip(&mut self.second).zip(relative).take(self.columns) {
            *first += sign * one;
            for (second, other) in second.iter_mut().zip(relative).take(self.columns) {
                *second += sign * one * other;
            }
        }
    }

    /// Distribution after `new` replaces `old`.
    pub fn replaced(mut self, old: Option<&Row>, new: Option<&Row>) -> Distribution {
        old.into_iter().for_each(|row| self.add(row, -1.0));
        new.into_iter().for_each(|row| self.add(row, 1.0));
        let mut distribution = Distribution::default();
        if self.count < 0.5 {
            return distribution;
        }
        let mean = self.first.map(|sum| sum / self.count);
        for i in 0..self.columns {
            distribution.mean[i] = self.center[i] + mean[i];
            for j in 0..self.columns {
                distribution.covariance[i][j] = self.second[i][j] / self.count - mean[i] * mean[j];
            }
        }
        distribution
    }
}

impl Distribution {
    /// Standard deviation of the first column.
    pub fn deviation(&self) -> f64 {
        self.covariance[0][0].max(0.0).sqrt()
    }
}

/// Utilisations from 0 to 1 in ascending order, with prefix sums.
#[derive(Clone, Debug, PartialEq)]
struct Ranks {
    sorted: Vec<f64>,
    /// Mean utilisation. Sums are taken relative to it.
    center: f64,
    /// Prefix sums of the relative utilisations and of their squares. The first entry is the empty sum.
    sums: Vec<(f64, f64)>,
}

impl Ranks {
    pub fn new(mut utilisations: Vec<f64>) -> Self {
        utilisations.sort_unstable_by(f64::total_cmp);
        let count = utilisations.len().max(1) as f64;
        let center = utilisations.iter().sum::<f64>() / count;
        let following = utilisations.iter().scan((0.0, 0.0), |(first, second), utilisation| {
            let relative = utilisation - center;
            *first += relative;
            *second += relative * relative;
            Some((*first, *second))
        });
        let sums = std::iter::once((0.0, 0.0)).chain(following).collect();
        Self { sorted: utilisations, center, sums }
    }

    /// Distance of the nodes from their mean after `new` replaces `old`: 1 if all nodes are full or empty, 0 if all are
    /// equal. None if all are empty or all are full, since the distance is not defined then.
    pub fn unbalance(&self, old: Option<f64>, new: Option<f64>) -> Option<f64> {
        let relative = |value: Option<f64>| value.map_or(0.0, |value| value - self.center);
        let one = |value: Option<f64>| if value.is_some() { 1.0 } else { 0.0 };
        let count = self.sorted.len() as f64 - one(old) + one(new);
        let total = self.sums.last().copied().unwrap_or_default();
        let mean_shift = (total.0 - relative(old) + relative(new)) / count;
        let mean = self.center + mean_shift;
        if !(mean > 0.0 && mean < 1.0) {
            return None;
        }
        let rank = self.sorted.partition_point(|utilisation| *utilisation < mean);
        let before = self.sums.get(rank).copied().unwrap_or(total);
        // Sums of squared distances from the new mean, separately below and above it.
        let distance = |count: f64, (first, second): (f64, f64)| {
            count * mean_shift * mean_shift - 2.0 * mean_shift * first + second
        };
        let mut below = distance(rank as f64, before);
        let mut above = distance((self.sorted.len() - rank) as f64, (total.0 - before.0, total.1 - before.1));
        for (value, sign) in [(old, -1.0), (new, 1.0)] {
            let Some(value) = value else { continue };
            let side = if value < mean { &mut below } else { &mut above };
            *side += sign * (value - mean) * (value - mean);
        }
        let square = below.max(0.0) / (mean * mean) + above.max(0.0) / ((1.0 - mean) * (1.0 - mean));
        Some((square / count).sqrt())
    }
}

/// Multivariate coefficient of variation of Albert and Zhang. For one resource, it is the deviation divided by the
/// mean. 0 if the mean is 0. Only the first `resources` columns are read, since it is calculated for each node and pod.
fn variation(mean: &Row, covariance: &Matrix, resources: usize) -> f64 {
    let mean = mean.get(..resources).unwrap_or(mean);
    let square: f64 = mean.iter().map(|value| value * value).sum();
    if square <= 0.0 {
        return 0.0;
    }
    let product = |row: &Row| row.iter().zip(mean).map(|(covariance, value)| covariance * value).sum::<f64>();
    let form: f64 = covariance.iter().zip(mean).map(|(row, value)| value * product(row)).sum();
    form.max(0.0).sqrt() / square
}
