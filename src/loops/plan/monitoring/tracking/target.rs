//! State of the target, and the change that the loop itself has made, as a pass reads them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::forecast::ForecastMemory;
use crate::monitoring::value::SourceResult;
use crate::track::TrackMemory;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};

/// Dimension of a change of the number of replicas, see [`crate::rung::dimension`].
const REPLICAS_DIMENSION: &str = "replicas";

/// State of the target that is read once in each interval, when the sources have answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReading {
    /// `spec.replicas`; None: it is in the caches of the operator.
    pub replicas: Option<i32>,
    /// Number of ready pods; None: no metric needs it.
    pub ready_pods: Option<u32>,
}

/// A change of the number of replicas by this loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnScaling {
    /// Number of the decision.
    pub seq: i64,
    pub before: i32,
    pub after: i32,
    pub at: Timestamp,
}

impl OwnScaling {
    /// The last change of the number of replicas, if the last decision has made it.
    pub fn last_of(status: &ExecutionStatus) -> Option<Self> {
        let change = status.last_changes.iter().find(|change| change.dimension == REPLICAS_DIMENSION)?;
        let is_done = status.state == Some(ExecutionState::Done);
        let is_last = status.after.as_ref().is_none_or(|after| *after == change.after);
        let at = status.since.as_ref().filter(|_| is_done && is_last)?.0;
        let number = |text: &str| text.parse::<i32>().ok();
        Some(Self { seq: status.seq?, before: number(&change.before)?, after: number(&change.after)?, at })
    }
}

/// Memories with a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct PassMemory {
    pub track: TrackMemory,
    pub forecast: Option<ForecastMemory>,
}

/// New state of the target: the number of replicas is determined from it.
#[derive(Clone, Copy, Debug)]
pub struct TargetNews<'a> {
    /// The state, or why it is not known.
    pub reading: Result<&'a TargetReading, &'a str>,
    /// Latest results of the sources, with their samples of pods.
    pub results: &'a BTreeMap<String, SourceResult>,
    pub memory: &'a TrackMemory,
    /// Memory of the forecast, if there is one.
    pub forecast: Option<&'a ForecastMemory>,
    /// Last change by this loop.
    pub own_change: Option<OwnScaling>,
    /// The loop changes the number of replicas, or has just changed something.
    pub is_changing: bool,
}
