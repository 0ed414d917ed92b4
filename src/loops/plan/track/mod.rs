//! Number of replicas that keeps metrics at their targets, as HorizontalPodAutoscaler determines it.
//!
//! Follows `autoscaling/v2` of Kubernetes 1.37, with named differences (`tests/peers/autoscaler` compares both, step by
//! step). Owns the arithmetic, the windows, the rates and their memory. Reads no object, and writes none: the caller
//! passes the target's own pods, samples that are young enough, and the current time.

mod changes;
mod decide;
mod explain;
mod memory;
mod metric;
mod nanos;
mod outcome;
mod pace;
mod pods;
mod proposals;
mod propose;
mod ratio;
mod rules;
mod zero;

#[cfg(test)]
mod tests;

pub use changes::{OwnChange, OwnChanges};
pub use decide::{TrackPass, ZeroOrigin, decide};
pub use memory::{TrackMemory, TrackMemoryError};
pub use metric::{MetricProposal, MetricReason, Restraint, TrackInput, TrackTarget, TrackedMetric};
pub use nanos::Nanos;
pub use outcome::{TrackLine, TrackOutcome, TrackReason, TrackStage};
pub use pods::{PodMeasure, PodPhase, PodReady, PodSample, TrackedPod, ready_pods};
pub use proposals::{Proposals, RawProposal};
pub use rules::{
    MAX_PERIOD, MAX_POLICIES, MAX_WINDOW, PolicySelect, RateChange, RatePolicy, ScalePace, ScaleRules, Tolerances,
    TrackRuleError, TrackRules,
};
pub use zero::ZeroMemory;
