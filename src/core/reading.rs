//! The last value of a metric, for figures.

use jiff::Timestamp;

/// Last value of one metric of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricReading {
    pub metric: String,
    pub value: f64,
    /// Time from which its age counts.
    pub at: Timestamp,
}
