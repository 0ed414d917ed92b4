//! Result of a pass, and its explanation.

use std::fmt;

use jiff::Timestamp;

use super::metric::{MetricProposal, MetricReason};
use super::nanos::ONE;

/// Result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackOutcome {
    /// Number of replicas that the target should have.
    pub replicas: i32,
    pub reason: TrackReason,
    /// Proposal of all metrics and the forecast, before windows, rates and bounds; None if it is unknown or was not
    /// needed.
    pub proposal: Option<i32>,
    pub metrics: Vec<MetricProposal>,
    /// One line for each stage, in their order.
    pub lines: Vec<TrackLine>,
    /// When the result changes without a new sample, once `replicas` has been applied: at the end of a window or of a
    /// policy's period. None if it does not change before a new sample.
    pub changes_at: Option<Timestamp>,
}

impl TrackOutcome {
    /// Number of replicas at which all metrics are at their targets, not rounded: what a forecast records. It does not
    /// depend on the current number. None if a metric does not show it.
    pub fn demand(&self) -> Option<f64> {
        let mut largest = None;
        for metric in &self.metrics {
            largest = largest.max(Some(metric.demand?));
        }
        largest.map(|demand| demand.billionths() as f64 / ONE as f64)
    }
}

/// Description of the result of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackLine {
    pub stage: TrackStage,
    pub reason: TrackReason,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackStage {
    Metric,
    Proposal,
    Zero,
    Forecast,
    Window,
    Rate,
    Bounds,
    Result,
}

impl TrackStage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metric => "metric",
            Self::Proposal => "proposal",
            Self::Zero => "zero",
            Self::Forecast => "forecast",
            Self::Window => "window",
            Self::Rate => "rate",
            Self::Bounds => "bounds",
            Self::Result => "result",
        }
    }
}

/// Reason of a result or of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackReason {
    /// A metric, see its own reason.
    Metric(MetricReason),
    /// The number is right.
    AtTarget,
    Raised,
    Lowered,
    /// A metric is unknown: nothing is lowered, and if all are unknown, nothing is raised.
    MetricUnknown,
    HeldByWindow,
    LimitedByPolicy,
    /// Without rules, at most twice as many replicas in one pass.
    LimitedPerPass,
    /// `select: Disabled`.
    DirectionDisabled,
    AtMin,
    AtMax,
    /// More replicas than max: lowered at once, whatever the metrics are.
    AboveMax,
    /// Fewer replicas than min: raised at once.
    BelowMin,
    /// Somebody else scaled to 0: it stays until somebody raises it.
    StoppedAtZero,
    /// At 0, no metric is active.
    Inactive,
    /// No metric is active, and the last replica stays until the cooldown is over.
    Cooldown,
    /// A metric is active again: from 0 to the number, without windows and rates.
    Woken,
    /// The stage changed nothing.
    Unchanged,
}

impl TrackReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metric(reason) => reason.as_str(),
            Self::AtTarget => "AtTarget",
            Self::Raised => "Raised",
            Self::Lowered => "Lowered",
            Self::MetricUnknown => "MetricUnknown",
            Self::HeldByWindow => "HeldByWindow",
            Self::LimitedByPolicy => "LimitedByPolicy",
            Self::LimitedPerPass => "LimitedPerPass",
            Self::DirectionDisabled => "DirectionDisabled",
            Self::AtMin => "AtMin",
            Self::AtMax => "AtMax",
            Self::AboveMax => "AboveMax",
            Self::BelowMin => "BelowMin",
            Self::StoppedAtZero => "StoppedAtZero",
            Self::Inactive => "Inactive",
            Self::Cooldown => "Cooldown",
            Self::Woken => "Woken",
            Self::Unchanged => "Unchanged",
        }
    }
}

impl fmt::Display for TrackLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.stage.as_str(), self.text, self.reason.as_str())
    }
}
