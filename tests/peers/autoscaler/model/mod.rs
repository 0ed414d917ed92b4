//! HorizontalPodAutoscaler in floats, step by step, with a switch for each named difference. With all of them, it must
//! give what the oracle gives; with none, what the operator gives. A difference between the two is thereby explained by
//! the switches that turn the one result into the other.

mod metric;
mod pace;

use std::collections::BTreeSet;

pub use metric::MetricModel;
pub use pace::{PaceInput, PaceModel};

/// Difference by decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedDifference {
    /// T9.
    OverTargetLowers,
    /// T19.
    UnderTargetRaises,
    /// T6.
    EndedPods,
    /// T8.
    DeletedReadyPods,
    /// T13.
    ForeignPods,
    /// T18.
    StatusReplicas,
    /// T17.
    FloatRatio,
    /// T34.
    Millis,
    /// R8.
    SpecRequests,
    NoReadyPods,
    /// B1.
    WindowRaises,
    /// B8.
    PercentOfNothing,
    /// B9.
    FloatRates,
    ForgottenChanges,
    /// T23.
    ZeroNeedsMetric,
}

use NamedDifference as D;

impl NamedDifference {
    pub const METRIC: [Self; 10] = [
        D::OverTargetLowers,
        D::UnderTargetRaises,
        D::EndedPods,
        D::DeletedReadyPods,
        D::ForeignPods,
        D::StatusReplicas,
        D::FloatRatio,
        D::Millis,
        D::SpecRequests,
        D::NoReadyPods,
    ];
    pub const PACE: [Self; 5] =
        [D::WindowRaises, D::PercentOfNothing, D::FloatRates, D::ForgottenChanges, D::ZeroNeedsMetric];

    pub fn describe(self) -> &'static str {
        match self {
            D::OverTargetLowers => "T9   over the target lowers, since fewer pods exist",
            D::UnderTargetRaises => "T19  under the target raises, since more pods exist",
            D::EndedPods => "T6   ended pods count as missing, or need requests",
            D::DeletedReadyPods => "T8   deleted pods count as ready",
            D::ForeignPods => "T13  foreign pods count",
            D::StatusReplicas => "T18  pods of a surge become replicas",
            D::FloatRatio => "T17  ratios are floats",
            D::Millis => "T34  samples and means in thousandths",
            D::SpecRequests => "R8   requests of a pending resize count",
            D::NoReadyPods => "—    without ready pods, a value lowers to 0",
            D::WindowRaises => "B1   a window raises",
            D::PercentOfNothing => "B8   a percentage of nothing is nothing",
            D::FloatRates => "B9   percentages are floats",
            D::ForgottenChanges => "—    changes are forgotten by the periods of their own direction",
            D::ZeroNeedsMetric => "T23  at its own 0, min waits for a metric",
        }
    }
}

/// Differences that are switched on: HorizontalPodAutoscaler's way instead of ours.
pub type Switches = BTreeSet<NamedDifference>;
