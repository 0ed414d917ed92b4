//! A value of a metric as its source delivered it. Other files of this folder share these types.

use std::sync::Arc;

use jiff::Timestamp;

use crate::track::{PodMeasure, TrackedPod};

/// Reason of a missing value that was never received, if no source has reported an error.
pub const NOT_YET: &str = "no value has been received yet";

/// Result for one metric: a value, or why there is none.
pub type SourceResult = Result<SourceValue, String>;

/// A value as its source delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceValue {
    /// The value.
    pub value: String,
    /// Time from which its age counts, see [`super::source_rule::MeasuredAt`]. Default: now.
    pub at: Option<Timestamp>,
    /// Time of the measurement, if its age counts from another time.
    pub measured: Option<Timestamp>,
    /// Range of the value if some pods are not measured.
    pub range: Option<ValueRange>,
    /// Samples of the target's own pods, if an action tracks the metric.
    pub pods: Option<Arc<PodSamples>>,
}

/// Samples of the pods of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSamples {
    pub measure: PodMeasure,
    pub pods: Vec<TrackedPod>,
}

/// Range in which a value lies, whatever the pods use that are not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueRange {
    pub least: String,
    /// None: there is no upper limit.
    pub most: Option<String>,
    /// Smallest request of the pods that are not measured: they may use more than a level above it. None: no level is
    /// too high.
    pub missing_request: Option<String>,
}

impl From<String> for SourceValue {
    fn from(value: String) -> Self {
        Self { value, at: None, measured: None, range: None, pods: None }
    }
}
