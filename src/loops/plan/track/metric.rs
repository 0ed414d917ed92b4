//! Metrics with a target, and what they propose.

use super::nanos::Nanos;
use super::pods::{PodMeasure, TrackedPod};
use super::ratio::Ratio;
use super::rules::{Tolerances, TrackRuleError};

/// Metric with a target.
#[derive(Clone, Debug)]
pub struct TrackedMetric {
    pub name: String,
    pub target: TrackTarget,
    /// Deviations from the target that change nothing.
    pub tolerances: Tolerances,
    /// The metric is active while its value is above this.
    pub activation: Nanos,
    /// Why the metric must not lower or raise the number now.
    pub restraint: Restraint,
    pub input: TrackInput,
}

/// Directions in which the value of a metric says nothing, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restraint {
    /// Such as an assumed value.
    pub down: Option<String>,
    /// Such as a value from before the last change.
    pub up: Option<String>,
}

impl TrackedMetric {
    /// Metric with the defaults of everything else.
    pub fn new(name: &str, target: TrackTarget, input: TrackInput) -> Self {
        let (tolerances, activation) = (Tolerances::default(), Nanos::ZERO);
        Self { name: name.to_owned(), target, tolerances, activation, restraint: Restraint::default(), input }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackTarget {
    /// Mean usage, in percent of the resources of the pods.
    Utilization { percent: u32 },
    /// Mean over the pods; of a total: total by replicas.
    AverageValue(Nanos),
    /// A total, whatever the number of replicas.
    Value(Nanos),
}

impl TrackTarget {
    pub fn utilization(percent: i64) -> Result<Self, TrackRuleError> {
        let valid = i32::try_from(percent).ok().filter(|percent| *percent > 0);
        let percent = valid.ok_or(TrackRuleError::Percent { percent })?.unsigned_abs();
        Ok(Self::Utilization { percent })
    }

    pub fn average_value(target: Nanos) -> Result<Self, TrackRuleError> {
        if target.is_positive() { Ok(Self::AverageValue(target)) } else { Err(TrackRuleError::Target { target }) }
    }

    pub fn value(target: Nanos) -> Result<Self, TrackRuleError> {
        if target.is_positive() { Ok(Self::Value(target)) } else { Err(TrackRuleError::Target { target }) }
    }
}

/// Current value of a metric.
#[derive(Clone, Debug)]
pub enum TrackInput {
    /// Samples of the target's pods.
    Pods { measure: PodMeasure, pods: Vec<TrackedPod> },
    /// One number for all pods. `ready_pods`: see [`super::ready_pods`].
    Total { value: Nanos, ready_pods: u32 },
    /// No usable value, with the reason.
    Unknown(String),
    /// The metric asks for no replicas now, with the reason.
    Idle(String),
}

/// Proposal of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricProposal {
    pub name: String,
    /// Number of replicas; None if the metric is unknown.
    pub replicas: Option<i32>,
    /// Number of replicas at which the metric is at its target, not rounded, whatever the current number is; None if
    /// the metric does not show it.
    pub demand: Option<Nanos>,
    pub reason: MetricReason,
    /// Description of the proposal, one line.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricReason {
    WithinTolerance,
    OverTarget,
    UnderTarget,
    /// The value is over the target and fewer replicas would follow, or the other way round: no change.
    DirectionHeld,
    /// No pod is ready, so that a value under the target says nothing about a single pod: no change.
    NoReadyPods,
    /// The value says nothing about this direction: no change.
    Restrained,
    /// The metric asks for no replicas now.
    Idle,
    Unknown,
}

impl MetricReason {
    /// Whether the value says how many replicas are needed.
    pub(super) fn shows_demand(self) -> bool {
        matches!(self, Self::WithinTolerance | Self::OverTarget | Self::UnderTarget)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::WithinTolerance => "WithinTolerance",
            Self::OverTarget => "OverTarget",
            Self::UnderTarget => "UnderTarget",
            Self::DirectionHeld => "DirectionHeld",
            Self::NoReadyPods => "NoReadyPods",
            Self::Restrained => "Restrained",
            Self::Idle => "Idle",
            Self::Unknown => "MetricUnknown",
        }
    }
}

/// Result of the calculation, before it is described.
pub(super) struct Calculation {
    pub replicas: i32,
    pub reason: MetricReason,
    /// Number of replicas at which the metric is at its target.
    pub demand: Nanos,
    pub ratio: Ratio,
    /// Measured value, such as `75 %`.
    pub shown: String,
    /// Number by which the ratio was multiplied.
    pub base: u32,
    /// Numbers of pods that were counted although they have no sample of load.
    pub missing: usize,
    pub unready: usize,
}

/// Combined proposal of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combined {
    Known(i32),
    /// A metric is unknown, and the others ask for fewer replicas, or all are unknown.
    Unknown,
}

/// The largest proposal. An unknown metric could ask for more: then nothing is lowered.
pub(super) fn combine(metrics: &[MetricProposal], replicas: i32) -> Combined {
    let Some(largest) = metrics.iter().filter_map(|metric| metric.replicas).max() else { return Combined::Unknown };
    let are_known = metrics.iter().all(|metric| metric.replicas.is_some());
    if are_known || largest >= replicas { Combined::Known(largest) } else { Combined::Unknown }
}
