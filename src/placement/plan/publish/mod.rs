//! The usage statistics of all nodes, published from Prometheus as node annotations. Other tools read the annotations,
//! and so do the replicas of the operator that do not query Prometheus themselves.
//!
//! | file | what |
//! |---|---|
//! | `queries` | the queries for Prometheus |
//! | `annotations` | the annotations of one node, and whether they must be written |
//! | `publication` | the policy that publishes, and its options |
//! | `plan` | the nodes to annotate now |
//! | `report` | the condition of the policy |
//!
//! This file owns the data that they share: the usage of one node. Series are matched with nodes by
//! `ganglion_outbound::node_usage`.
//! Nothing is fetched or written here.

pub mod annotations;
pub mod plan;
pub mod publication;
pub mod queries;
pub mod report;

use jiff::Timestamp;

pub use queries::Statistic;

use super::safe::PerResource;

/// Minimum number of samples for a meaningful mean and deviation.
pub const LEAST_SAMPLES: u64 = 10;

/// Maximum amount in millicores or bytes. No machine has more, so larger amounts are errors. Below it, floats are exact
/// to about a tenth.
const MOST: f64 = 1e15;

/// Usage of one resource: CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceUsage {
    mean: f64,
    deviation: Option<f64>,
    forecast: Option<f64>,
}

/// Usage of a node over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUsage {
    /// Usage per resource; None if unknown. At least one is known.
    resources: PerResource<Option<ResourceUsage>>,
    samples: u64,
    sampled_at: Timestamp,
}

/// Size of one resource of a node: CPU in millicores, memory in bytes. Sizes that are not positive count as unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSize {
    /// `status.allocatable`.
    pub allocatable: f64,
    /// `status.capacity`.
    pub capacity: f64,
}

impl ResourceUsage {
    /// None without a valid mean. Values below 0 become 0. An invalid deviation or forecast is left out.
    pub fn new(mean: f64, deviation: Option<f64>, forecast: Option<f64>) -> Option<Self> {
        let amount = |value: f64| (value.abs() <= MOST).then(|| value.max(0.0));
        // A linear forecast may be below 0.
        let forecast = forecast.filter(|value| value.is_finite()).map(|value| value.clamp(0.0, MOST));
        Some(Self { mean: amount(mean)?, deviation: deviation.and_then(amount), forecast })
    }
}

impl NodeUsage {
    /// Builds the usage from the statistics of one node. `sampled_at` is the time of the query.
    ///
    /// None if there are fewer than [`LEAST_SAMPLES`] samples, or if neither resource has a valid mean.
    pub fn new(number: impl Fn(Statistic) -> Option<f64>, sampled_at: Timestamp) -> Option<Self> {
        let samples = count(number(Statistic::Samples)?).filter(|samples| *samples >= LEAST_SAMPLES)?;
        let usage = |mean, deviation, forecast| ResourceUsage::new(number(mean)?, number(deviation), number(forecast));
        let resources = PerResource {
            cpu: usage(Statistic::CpuMean, Statistic::CpuDeviation, Statistic::CpuForecast),
            memory: usage(Statistic::MemoryMean, Statistic::MemoryDeviation, Statistic::MemoryForecast),
        };
        let is_known = resources.cpu.is_some() || resources.memory.is_some();
        is_known.then_some(Self { resources, samples, sampled_at })
    }

    /// Time of the query.
    pub fn sampled_at(&self) -> Timestamp {
        self.sampled_at
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
fn count(number: f64) -> Option<u64> {
    (0.0..=MOST).contains(&number).then_some(number as u64)
}
