//! Statuses of an Execution: the first one, the result of an effect, and the end of a decision.

use jiff::SignedDuration;

use super::recorded::record;
use super::texts::done_text;
use super::types::{EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, RungAction, Sent, TargetState};
use super::{deferral, resize};
use crate::common::{LAST_ACTION_SUCCEEDED, later, micro_time};
use crate::rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{CarriedOut, ExecutionState, ExecutionStatus, LAST_CHANGES_LIMIT, LastChange};
use ganglion_core::conditions;

/// Delay before an effect with an unclear result is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// Message before the first decision.
const NO_DECISION: &str = "no decision yet";

/// Returns the step after an effect of this claim.
pub fn after_effect(context: &ExecutionContext, effect: &ExecutionEffect, acted: &EffectResult) -> ExecutionStep {
    if let ExecutionEffect::TakeBack { .. } = effect {
        return deferral::after_effect(context, acted);
    }
    let seq = context.status.claim.as_ref().map(|claim| claim.seq).or(context.status.seq).unwrap_or(0);
    let context = &ExecutionContext { sent: sent_after(context, effect, acted), ..*context };
    match (acted, effect) {
        // These effects only start a change. Its end is observed on the target.
        (
            EffectResult::Done(_),
            ExecutionEffect::Create { .. } | ExecutionEffect::Resize { .. } | ExecutionEffect::Template { .. },
        ) => ExecutionStep::ReadTarget,
        (EffectResult::Done(there), effect) => {
            let message = match effect {
                ExecutionEffect::Tune { tuning, .. } => tuning.message.clone().unwrap_or_default(),
                ExecutionEffect::Scale { .. }
                | ExecutionEffect::Resize { .. }
                | ExecutionEffect::TakeBack { .. }
                | ExecutionEffect::Template { .. }
                | ExecutionEffect::Patch { .. }
                | ExecutionEffect::Create { .. }
                | ExecutionEffect::Send { .. } => done_text(context),
            };
            let mut status = end(context, seq, ExecutionState::Done, LoopReason::Done, &message);
            status.effective = there.clone().or(status.effective);
            record(context, status)
        }
        (EffectResult::Unclear(message), ExecutionEffect::Send { .. }) => ended(
            context,
            seq,
            ExecutionState::Lost,
            LoopReason::Lost,
            &format!("it may have been received: {message}"),
        ),
        (EffectResult::Conflict, _) => ExecutionStep::ReadTarget,
        (EffectResult::NotFound(message), _) => {
            ended(context, seq, ExecutionState::Failed, LoopReason::TargetNotFound, message)
        }
        (EffectResult::Forbidden(message), _) => {
            ended(context, seq, ExecutionState::Failed, LoopReason::Forbidden, message)
        }
        (EffectResult::Refused(message), _) => ended(context, seq, ExecutionState::Failed, LoopReason::Failed, message),
        (EffectResult::Unclear(_), _) => ExecutionStep::Wait(later(context.now, RETRY)),
    }
}

/// Whether something may have been changed after this effect and its result.
fn sent_after(context: &ExecutionContext, effect: &ExecutionEffect, acted: &EffectResult) -> Sent {
    match acted {
        EffectResult::Done(_) | EffectResult::Unclear(_) => Sent::Maybe,
        EffectResult::Conflict => context.sent,
        EffectResult::NotFound(_) | EffectResult::Forbidden(_) | EffectResult::Refused(_) if effect.is_atomic() => {
            Sent::NotYet
        }
        // A missing permission is missing for each pod.
        EffectResult::Forbidden(_) => context.sent,
        EffectResult::NotFound(_) | EffectResult::Refused(_) => Sent::Maybe,
    }
}

/// Records the first status of an Execution. From then on, decisions can be addressed to it.
pub fn first(context: &ExecutionContext) -> ExecutionStep {
    let status = ExecutionStatus {
        seq: Some(0),
        state: Some(ExecutionState::Idle),
        reason: Some(LoopReason::Idle),
        message: Some(NO_DECISION.to_owned()),
        since: Some(micro_time(context.now)),
        ..context.status.clone()
    };
    record(context, status)
}

/// Reports once why no decision is carried out.
pub fn blocked(context: &ExecutionContext, why: &str) -> ExecutionStep {
    if context.status.reason == Some(LoopReason::Blocked) && context.status.message.as_deref() == Some(why) {
        return ExecutionStep::Nothing;
    }
    let status =
        ExecutionStatus { reason: Some(LoopReason::Blocked), message: Some(why.to_owned()), ..context.status.clone() };
    record(context, status)
}

/// Updates the report of a block: its reason may be another one by now. If the block has ended, the end of the last
/// decision counts again.
pub fn still_blocked(context: &ExecutionContext) -> ExecutionStep {
    if context.status.reason != Some(LoopReason::Blocked) {
        return ExecutionStep::Nothing;
    }
    if let Some(why) = &context.spec.blocked {
        return blocked(context, why);
    }
    let last = conditions::find(&context.status.conditions, LAST_ACTION_SUCCEEDED);
    let (reason, message) = match last {
        Some(last) => (LoopReason::of(&last.reason), last.message.clone()),
        None => (LoopReason::Idle, NO_DECISION.to_owned()),
    };
    record(context, ExecutionStatus { reason: Some(reason), message: Some(message), ..context.status.clone() })
}

/// Records the end of the decision.
pub fn ended(
    context: &ExecutionContext,
    seq: i64,
    state: ExecutionState,
    reason: LoopReason,
    message: &str,
) -> ExecutionStep {
    record(context, end(context, seq, state, reason, message))
}

fn end(
    context: &ExecutionContext,
    seq: i64,
    state: ExecutionState,
    reason: LoopReason,
    message: &str,
) -> ExecutionStatus {
    let claimed = context.status.claim.as_ref().is_some_and(|claim| claim.seq == seq);
    let old = context.status.clone();
    // A decision that was never claimed has no before and after; those in the status belong to the decision before it.
    let (before, after) = if claimed { (old.before.clone(), old.after.clone()) } else { (None, None) };
    let tag = if claimed { old.tag.clone() } else { context.tag.cloned() };
    let effective = if state == ExecutionState::Done { after.clone() } else { None };
    // A claim of which no request was accepted has changed nothing, and neither has a WorkloadAction without replicas.
    let has_changed = claimed
        && match state {
            ExecutionState::Done => true,
            ExecutionState::Limited => false,
            ExecutionState::Idle
            | ExecutionState::Claimed
            | ExecutionState::Executing
            | ExecutionState::Failed
            | ExecutionState::Overtaken
            | ExecutionState::Lost => context.sent == Sent::Maybe,
        };
    let carried_out = has_changed.then(|| CarriedOut { seq, at: micro_time(context.now) }).or(old.carried_out.clone());
    let changed = if state == ExecutionState::Done { last_change(context) } else { None };
    let mut last_changes = old.last_changes.clone();
    if let Some(change) = changed {
        last_changes.retain(|last| last.dimension != change.dimension);
        last_changes.push(change);
        let surplus = last_changes.len().saturating_sub(LAST_CHANGES_LIMIT);
        last_changes.drain(..surplus);
    }
    let deferred = deferral::after_claim(context, !has_changed || state == ExecutionState::Done);
    ExecutionStatus {
        tag,
        seq: Some(seq),
        state: Some(state),
        reason: Some(reason),
        message: Some(message.chars().take(1024).collect()),
        since: Some(micro_time(context.now)),
        before,
        after,
        effective,
        claim: None,
        carried_out,
        last_changes,
        deferred,
        ..old
    }
}

/// Returns the values before and after the change, for fields that others may change back.
fn last_change(context: &ExecutionContext) -> Option<LastChange> {
    let claim = context.status.claim.as_ref()?;
    let (before, after) = match (RungAction::from(&claim.action), context.seen) {
        (RungAction::Scale(_) | RungAction::Patch(_), _) => {
            (context.status.before.clone()?, context.status.after.clone()?)
        }
        (RungAction::WorkloadAction(template), _) => {
            let (by, after) = (rung::replicas_by(template)?, claim.goal.replicas?);
            (after.saturating_sub(by).to_string(), after.to_string())
        }
        (RungAction::Resize(resize), _) if resize.template != Some(true) => {
            let amount = |quantities| resize::chosen(resize, quantities).map(|amount| amount.0.clone());
            (amount(claim.was.as_ref()?)?, amount(claim.goal.quantities.as_ref()?)?)
        }
        (RungAction::Resize(resize), Some(TargetState::Resources(seen))) if resize.template == Some(true) => {
            let amount = |quantities| resize::chosen(resize, quantities).map(|amount| amount.0.clone());
            let (_, template) = seen.template.as_ref()?;
            (amount(claim.was.as_ref()?)?, amount(template)?)
        }
        _ => return None,
    };
    let dimension = rung::dimension_on(&claim.action, context.seen.and_then(TargetState::replicas_path));
    let last = context.status.last_changes.iter().find(|last| last.dimension == dimension);
    let at = last.and_then(|last| last.at.clone()).or_else(|| Some(micro_time(context.now)));
    Some(LastChange { at, dimension, before, after })
}
