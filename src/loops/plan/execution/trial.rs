//! Tries a rung: whether it could be carried out on the current target, and what it would change, without a decision.

use jiff::Timestamp;

use super::step::plan;
use super::types::{ExecutionContext, NoPlan, PodResources, RungAction, Sent, TargetState, lookup_failure};
use crate::common::micro_time;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{LoopMode, TargetRef};
use ganglion_api::decision::{Chosen, ReplicaChange};
use ganglion_api::execution::{ExecutionSpec, ExecutionStatus};
use ganglion_core::facts::Uid;

/// Result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The value before the change, if the rung has one, and the value after it.
    Possible { before: Option<String>, after: String },
    /// The target is at the bound of the rung, or is just being resized.
    Limited(String),
    /// Each decision on the rung would fail, for this reason.
    Impossible(LoopReason, String),
    /// The result could not be determined now.
    Unknown(String),
}

/// Plans the rung as if the loop had decided on it.
pub fn trial(loop_name: &str, target: &TargetRef, rung: &Rung, seen: &TargetState) -> Trial {
    if let Some((reason, message)) = lookup_failure(seen) {
        return Trial::Impossible(reason, message.to_owned());
    }
    let now = Timestamp::UNIX_EPOCH;
    let spec = ExecutionSpec { target: target.clone(), ..ExecutionSpec::default() };
    let status = ExecutionStatus::default();
    let context = ExecutionContext {
        spec: &spec,
        actions: &[],
        status: &status,
        uid: &Uid::default(),
        generation: 0,
        loop_name,
        mode: LoopMode::default(),
        chosen: None,
        is_confirmed: false,
        tag: None,
        seen: None,
        sent: Sent::NotYet,
        now,
    };
    let chosen = Chosen {
        seq: 0,
        metric: String::new(),
        side: Side::default(),
        when: None,
        rung: 0,
        action: rung.clone(),
        at: micro_time(now),
        tag: None,
        received: None,
        executor: Uid::default(),
        mode: LoopMode::default(),
        unknown: false,
        no_lowering: None,
        replicas: tracked_number(rung, seen),
        least_served: None,
        digest: None,
        outcome: None,
    };
    match plan(&context, &chosen, &with_template_as_pod(rung, seen)) {
        Ok(plan) => Trial::Possible { before: plan.before, after: plan.after },
        Err(NoPlan::Limited(message)) => Trial::Limited(message),
        // The rung is possible, but not now.
        Err(NoPlan::Failed(LoopReason::ResizePending, message) | NoPlan::Overtaken(message)) => Trial::Limited(message),
        Err(NoPlan::Failed(reason, message)) => Trial::Impossible(reason, message),
        Err(NoPlan::ReadTarget) => {
            Trial::Impossible(LoopReason::SpecInvalid, "the rung does not fit its target".to_owned())
        }
    }
}

/// A number of replicas that a rung that tracks may set: the current one, within its bounds.
fn tracked_number(rung: &Rung, seen: &TargetState) -> Option<ReplicaChange> {
    let scale = rung.scale.as_ref().filter(|scale| scale.is_tracking())?;
    let TargetState::Scale(_, from) = *seen else { return None };
    Some(ReplicaChange { from, to: from.min(scale.max.unwrap_or(from)).max(scale.min.unwrap_or(1)) })
}

/// Uses the template in place of a pod if the workload has no pods yet.
fn with_template_as_pod(rung: &Rung, seen: &TargetState) -> TargetState {
    let (RungAction::Resize(_), TargetState::Resources(target)) = (RungAction::from(rung), seen) else {
        return seen.clone();
    };
    let mut target = target.clone();
    if let (true, Some((index, wants))) = (target.pods.is_empty(), &target.template) {
        // A pod that does not exist uses nothing.
        let pod = PodResources { index: *index, wants: wants.clone(), usage: Some(0), ..PodResources::default() };
        target.pods = vec![pod];
    }
    TargetState::Resources(target)
}
