//! Statuses as they are recorded, with their conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::types::{ExecutionContext, ExecutionStep};
use crate::common::{LAST_ACTION_SUCCEEDED, micro_time};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_core::conditions::{self, Health, Stamp};

/// Records a status with its conditions.
pub fn record(context: &ExecutionContext, mut status: ExecutionStatus) -> ExecutionStep {
    if status.state != context.status.state || status.seq != context.status.seq {
        status.since = Some(micro_time(context.now));
    }
    status.observed_generation = Some(context.generation);
    let (old, stamp) = (&context.status.conditions, Stamp { generation: context.generation, now: context.now });
    status.conditions = conditions::summary(old, &health(&status), stamp);
    status.conditions.extend(last_action(old, &status, stamp));
    ExecutionStep::Record(Box::new(status))
}

/// Whether an Execution at rest has other conditions than those of its status. They may still say that policies were
/// missing, or that the object could not be read. The end of a claim records conditions anyway.
pub fn is_misreported(context: &ExecutionContext) -> bool {
    let (status, stamp) = (context.status, Stamp { generation: context.generation, now: context.now });
    let expected = conditions::summary(&status.conditions, &health(status), stamp);
    status.claim.is_none() && status.state.is_some() && conditions::summary_differs(&expected, &status.conditions)
}

/// Health of the stage. How a decision ended has a condition of its own.
fn health(status: &ExecutionStatus) -> Health<LoopReason> {
    match status.reason {
        Some(LoopReason::Blocked) => Health::Good(LoopReason::Blocked, status.message.clone().unwrap_or_default()),
        _ => Health::Good(LoopReason::Running, "carries out decisions".to_owned()),
    }
}

/// The condition about the end of the last decision. It does not change while a decision is being carried out or is
/// blocked, so that it does not flip with each decision.
fn last_action(old: &[Condition], status: &ExecutionStatus, stamp: Stamp) -> Option<Condition> {
    let reason = status.reason.filter(|reason| *reason != LoopReason::Blocked);
    let value = match status.state? {
        ExecutionState::Idle => return None,
        ExecutionState::Claimed | ExecutionState::Executing => None,
        ExecutionState::Done | ExecutionState::Limited => Some("True"),
        ExecutionState::Failed | ExecutionState::Lost | ExecutionState::Overtaken => Some("False"),
    };
    let Some((reason, value)) = reason.zip(value) else {
        let last = conditions::find(old, LAST_ACTION_SUCCEEDED)?.clone();
        return Some(Condition { observed_generation: Some(stamp.generation), ..last });
    };
    let message = status.message.as_deref().unwrap_or_default();
    Some(conditions::condition(old, LAST_ACTION_SUCCEEDED, value, reason.as_str(), message, stamp))
}
