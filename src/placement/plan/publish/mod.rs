//! The usage statistics of all nodes, from Prometheus to annotations on the nodes: for other tools, and for the replicas of the
//! operator that do not ask Prometheus themselves.
//!
//! | file | what |
//! |---|---|
//! | `queries` | what Prometheus is asked |
//! | `annotations` | what is written on a node, and when |
//! | `publication` | which policy publishes, and its options |
//! | `plan` | which nodes are annotated now |
//! | `report` | the condition of the policy |
//!
//! This file owns what is between them: the usage of one node. Which series is of which node is not decided here; see
//! `clients::node_usage`. Nothing is fetched or written here.

pub mod annotations;
pub mod plan;
pub mod publication;
pub mod queries;
pub mod report;

use jiff::Timestamp;

pub use queries::Statistic;

use super::safe::PerResource;

/// Minimum number of samples: fewer say nothing of a mean and a deviation.
pub const LEAST_SAMPLES: u64 = 10;

/// Amounts above this are errors: more millicores or bytes than any machine has. Below it, floats are exact to a tenth or so.
const MOST: f64 = 1e15;

/// The usage of one resource: CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceUsage {
    mean: f64,
    deviation: Option<f64>,
    forecast: Option<f64>,
}

/// The usage of a node over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUsage {
    /// None: not known. At least one is known.
    resources: PerResource<Option<ResourceUsage>>,
    samples: u64,
    sampled_at: Timestamp,
}

/// The size of one resource of a node: CPU in millicores, memory in bytes. Sizes that are not positive count as unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSize {
    /// `status.allocatable`.
    pub allocatable: f64,
    /// `status.capacity`.
    pub capacity: f64,
}

impl ResourceUsage {
    /// None without a valid mean. What is below 0 by rounding is 0; a deviation or a forecast that is no number is left out.
    #[must_use]
    pub fn new(mean: f64, deviation: Option<f64>, forecast: Option<f64>) -> Option<Self> {
        let amount = |value: f64| (value.abs() <= MOST).then(|| value.max(0.0));
        // A line through the last hour may well cross 0.
        let forecast = forecast.filter(|value| value.is_finite()).map(|value| value.clamp(0.0, MOST));
        Some(Self { mean: amount(mean)?, deviation: deviation.and_then(amount), forecast })
    }
}

impl NodeUsage {
    /// The usage from the numbers of one node. `sampled_at` is when Prometheus was asked.
    ///
    /// None if there are fewer than [`LEAST_SAMPLES`], or if neither resource has a valid mean.
    #[must_use]
    pub fn of(number: impl Fn(Statistic) -> Option<f64>, sampled_at: Timestamp) -> Option<Self> {
        let samples = count(number(Statistic::Samples)?).filter(|samples| *samples >= LEAST_SAMPLES)?;
        let usage = |mean, deviation, forecast| ResourceUsage::new(number(mean)?, number(deviation), number(forecast));
        let resources = PerResource {
            cpu: usage(Statistic::CpuMean, Statistic::CpuDeviation, Statistic::CpuForecast),
            memory: usage(Statistic::MemoryMean, Statistic::MemoryDeviation, Statistic::MemoryForecast),
        };
        let is_known = resources.cpu.is_some() || resources.memory.is_some();
        is_known.then_some(Self { resources, samples, sampled_at })
    }

    /// When Prometheus was asked.
    #[must_use]
    pub fn sampled_at(&self) -> Timestamp {
        self.sampled_at
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
fn count(number: f64) -> Option<u64> {
    (0.0..=MOST).contains(&number).then_some(number as u64)
}
