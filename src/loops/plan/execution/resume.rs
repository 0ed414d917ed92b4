//! Next step of a claim: the effect if it has not happened yet, or the end if it has.
//!
//! Others may write statuses, so the goal of a claim counts only if it is what the rung makes of the target, as long as
//! that can be computed again.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::Value;

use super::end::ended;
use super::recorded::record;
use super::texts::{action_name, done_text, event_id, target_text, value_text};
use super::types::{
    ClaimProgress, EFFECT_TIMEOUT, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, RungAction, Sent,
    TargetState, TunedLoop, WorkloadActionState, cannot_be_verified, lookup_failure,
};
use super::{deferral, goal, ownership, resize};
use crate::common::{later, micro_time};
use crate::proposal;
use crate::tuning::effective_policy::{self, LevelStep};
use ganglion_api::closed_loop::action::{ActionTemplate, Tune, TuneThreshold};
use ganglion_api::closed_loop::policy::{TunedThreshold, Tuning};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{Claim, ExecutionSpec, ExecutionState, ExecutionStatus};
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::{Create, Delete, Move, ReplicaCount, Timeouts, WorkloadActionSpec};

/// Interval at which pods are read until their kubelets have resized them.
const POLL: SignedDuration = SignedDuration::from_secs(1);

/// Lifetime of a WorkloadAction after its end, in seconds. At least the timeout of a claim, so that a deleted
/// WorkloadAction is never mistaken for one that was never created.
const ACTION_TTL: i32 = 3600;

/// Returns the next step of this claim.
pub fn resume(context: &ExecutionContext, claim: &Claim) -> ExecutionStep {
    let end = |state, reason, message: &str| ended(context, claim.seq, state, reason, message);
    if cannot_be_verified(&claim.action) && context.sent == Sent::Maybe {
        let message = "it may have been sent when the operator ended; it is not sent again";
        return end(ExecutionState::Lost, LoopReason::Lost, message);
    }
    let Some(seen) = context.seen else { return ExecutionStep::ReadTarget };
    if let Some((reason, message)) = lookup_failure(seen) {
        return end(ExecutionState::Failed, reason, message);
    }
    match progress(context, claim, seen) {
        ClaimProgress::ReadTarget => ExecutionStep::ReadTarget,
        ClaimProgress::Done(message) => end(ExecutionState::Done, LoopReason::Done, &message),
        ClaimProgress::Limited(message) => end(ExecutionState::Limited, LoopReason::Limited, &message),
        ClaimProgress::Overtaken(message) => end(ExecutionState::Overtaken, LoopReason::Overtaken, &message),
        ClaimProgress::Failed(message) => end(ExecutionState::Failed, LoopReason::Failed, &message),
        ClaimProgress::Lost(message) => end(ExecutionState::Lost, LoopReason::Lost, &message),
        ClaimProgress::Running(message)
            if context.now >= claim.deadline.0 || deferral::is_overdue(context, claim, seen) =>
        {
            end(ExecutionState::Failed, LoopReason::TimedOut, &format!("it timed out: {message}"))
        }
        ClaimProgress::NotStarted(effect) => carry_out(context, claim, seen, *effect),
        ClaimProgress::Running(message) => under_way(context, claim, message),
    }
}

/// Carries out the effect, unless the loop does not want it any more: since the claim, minutes and another process may
/// have passed.
fn carry_out(context: &ExecutionContext, claim: &Claim, seen: &TargetState, effect: ExecutionEffect) -> ExecutionStep {
    let sent = if effect.is_atomic() { Sent::NotYet } else { context.sent };
    let context = &ExecutionContext { sent, ..*context };
    let end = |state, reason, message: &str| ended(context, claim.seq, state, reason, message);
    if !context.has_rung(&claim.action) {
        let message = "the claimed action is not among the actions of the loop, so it is not carried out: the loop's \
                       spec has changed, or somebody else has written the claim";
        return end(ExecutionState::Lost, LoopReason::Lost, message);
    }
    if !is_wanted(context, claim) {
        let message = match sent {
            Sent::NotYet => "the decision was withdrawn before it was carried out; nothing was changed",
            Sent::Maybe => "the decision was withdrawn while it was being carried out; a part may be changed",
        };
        return end(ExecutionState::Overtaken, LoopReason::Withdrawn, message);
    }
    // A WorkloadAction may run for an hour, but does not begin long after its decision.
    if context.now >= claim.deadline.0.min(later(claim.at.0, EFFECT_TIMEOUT)) {
        return end(ExecutionState::Failed, LoopReason::TimedOut, "the effect was not accepted in time");
    }
    if let Some((reason, message)) = ownership::refusal(&context.spec.target, &claim.action, seen) {
        return end(ExecutionState::Failed, reason, &message);
    }
    ExecutionStep::Act(Box::new(effect))
}

/// Whether the claimed decision is still wanted: the decision may have been withdrawn, the mode changed, the loop
/// blocked, or the approval taken back.
fn is_wanted(context: &ExecutionContext, claim: &Claim) -> bool {
    let ExecutionSpec { target, paused, blocked, approve, .. } = context.spec;
    let stands = |chosen: &&Chosen| chosen.seq == claim.seq && chosen.outcome.is_none() && chosen.mode == context.mode;
    let stored = context.chosen.filter(stands);
    let is_allowed = stored.is_some_and(|chosen| proposal::may_be_carried_out(chosen, target, approve.as_deref()));
    is_allowed && !paused && blocked.is_none()
}

fn under_way(context: &ExecutionContext, claim: &Claim, message: String) -> ExecutionStep {
    let begun = context.status.state == Some(ExecutionState::Executing);
    // Pods are polled; the end of a WorkloadAction requeues the Execution.
    let asks = claim.action.resize.is_some();
    if begun && (!asks || context.status.message.as_ref() == Some(&message)) {
        let soon = later(context.now, POLL);
        return ExecutionStep::Wait(if asks { soon.min(claim.deadline.0) } else { claim.deadline.0 });
    }
    let status = ExecutionStatus {
        state: Some(ExecutionState::Executing),
        reason: Some(LoopReason::Executing),
        message: Some(message),
        ..context.status.clone()
    };
    record(context, status)
}

fn progress(context: &ExecutionContext, claim: &Claim, seen: &TargetState) -> ClaimProgress {
    match (RungAction::from(&claim.action), seen) {
        (RungAction::Scale(scale), TargetState::Scale(thing, now)) => {
            let Some(goal) = claim.goal.replicas else { return ClaimProgress::tampered() };
            let decided = || context.chosen.filter(|chosen| chosen.seq == claim.seq).and_then(|chosen| chosen.replicas);
            let computed = if scale.is_tracking() {
                decided().map(|change| change.to).filter(|to| goal::within_bounds(scale, *to))
            } else {
                goal::replicas(scale, *now, None).ok()
            };
            let effect = ExecutionEffect::Scale { target: thing.clone(), replicas: goal };
            let effect = (computed == Some(goal)).then_some(effect);
            by_generation(context, claim, thing, *now == goal, &now.to_string(), effect)
        }
        (RungAction::Patch(patch), TargetState::Field(thing, now)) => {
            let goal = claim.goal.value.as_deref().and_then(|goal| serde_json::from_str::<Value>(goal).ok());
            let Some(goal) = goal else { return ClaimProgress::tampered() };
            let there = value_text(now.as_ref());
            let reached = now.as_ref() == Some(&goal);
            // As text: a number may change its last digit when it is read.
            let computed = goal::field(patch, now.as_ref(), None).ok().map(|value| value.to_string());
            let effect = ExecutionEffect::Patch { target: thing.clone(), path: patch.path.clone(), value: goal };
            let effect = (computed == claim.goal.value).then_some(effect);
            by_generation(context, claim, thing, reached, &there, effect)
        }
        (RungAction::Resize(resize), TargetState::Resources(seen)) => resize::progress(context, claim, resize, seen),
        (RungAction::WorkloadAction(template), TargetState::WorkloadAction(found)) => {
            action(context, claim, template, found.as_ref())
        }
        (RungAction::Webhook(webhook), TargetState::Nothing) => {
            let id = event_id(context.uid, claim.seq);
            if claim.goal.event.as_ref() != Some(&id) {
                return ClaimProgress::tampered();
            }
            ClaimProgress::NotStarted(Box::new(ExecutionEffect::Send { id, webhook: webhook.clone() }))
        }
        (RungAction::Tune(tune), TargetState::Loop(other)) => tuned(context, claim, tune, other),
        (RungAction::Nothing, _) => ClaimProgress::tampered(),
        (
            RungAction::Scale(_)
            | RungAction::Patch(_)
            | RungAction::Resize(_)
            | RungAction::WorkloadAction(_)
            | RungAction::Webhook(_)
            | RungAction::Tune(_),
            TargetState::Scale(..)
            | TargetState::Resources(..)
            | TargetState::Field(..)
            | TargetState::Workload(..)
            | TargetState::WorkloadAction(_)
            | TargetState::Loop(_)
            | TargetState::Nothing
            | TargetState::NotFound(_)
            | TargetState::Unfit(..)
            | TargetState::Forbidden(_),
        ) => ClaimProgress::ReadTarget,
    }
}

/// Returns the progress by the generation of the target. While the generation is that of the claim, nobody has written
/// the spec since: there is an effect, unless the goal is not the rung's. A later generation is the work of this claim
/// only if the claim may have been sent.
fn by_generation(
    context: &ExecutionContext,
    claim: &Claim,
    thing: &ObjectVersion,
    reached: bool,
    there: &str,
    effect: Option<ExecutionEffect>,
) -> ClaimProgress {
    if claim.uid.as_ref() != Some(&thing.uid) {
        return ClaimProgress::Overtaken(format!("{} was recreated", target_text(&context.spec.target)));
    }
    if claim.generation == Some(thing.generation) {
        return effect.map_or_else(ClaimProgress::tampered, |effect| ClaimProgress::NotStarted(Box::new(effect)));
    }
    // If nothing was sent, others made the same change, and the decision was based on an older state.
    if reached && context.sent == Sent::Maybe {
        return ClaimProgress::Done(done_text(context));
    }
    ClaimProgress::Overtaken(format!(
        "{} was changed by somebody else; it is at {there}",
        target_text(&context.spec.target)
    ))
}

fn action(
    context: &ExecutionContext,
    claim: &Claim,
    template: &ActionTemplate,
    found: Option<&WorkloadActionState>,
) -> ClaimProgress {
    let name = action_name(context.loop_name, context.uid, claim.seq);
    if claim.goal.workload_action.as_ref() != Some(&name) {
        return ClaimProgress::tampered();
    }
    match found {
        Some(WorkloadActionState::Running(message)) => {
            ClaimProgress::Running(format!("WorkloadAction {name}: {message}"))
        }
        Some(WorkloadActionState::Succeeded(message)) => {
            ClaimProgress::Done(format!("WorkloadAction {name}: {message}"))
        }
        Some(WorkloadActionState::NothingToDo(message)) => {
            ClaimProgress::Limited(format!("WorkloadAction {name}: {message}"))
        }
        Some(WorkloadActionState::Failed(message)) => {
            ClaimProgress::Failed(format!("WorkloadAction {name}: {message}"))
        }
        None if context.status.state == Some(ExecutionState::Executing) => {
            ClaimProgress::Lost(format!("WorkloadAction {name} was deleted before its end was seen"))
        }
        None => {
            let spec = WorkloadActionSpec {
                on_replica_owner: claim.action.on_replica_owner.unwrap_or_default(),
                ..action_spec(context, template)
            };
            ClaimProgress::NotStarted(Box::new(ExecutionEffect::Create { name, spec: Box::new(spec) }))
        }
    }
}

/// Returns the spec of the WorkloadAction of a rung. It acts on the loop's target.
fn action_spec(context: &ExecutionContext, template: &ActionTemplate) -> WorkloadActionSpec {
    let target = &context.spec.target;
    let workload =
        WorkloadRef { api_version: target.api_version.clone(), kind: target.kind.clone(), name: target.name.clone() };
    WorkloadActionSpec {
        create: template.create.as_ref().map(|create| Create {
            workload: workload.clone(),
            to: create.to.clone(),
            count: create.count,
        }),
        delete: template.delete.as_ref().map(|delete| Delete {
            workload: Some(workload.clone()),
            pod: None,
            from: delete.from.clone(),
            count: delete.count.map(ReplicaCount::Number),
            up_to: None,
        }),
        // Between the decision and its turn, replicas may have left: then fewer move, or none.
        move_: template.move_.as_ref().map(|moved| Move {
            workload: Some(workload.clone()),
            pod: None,
            from: moved.from.clone(),
            to: Some(moved.to.clone()),
            count: Some(ReplicaCount::All),
            up_to: Some(moved.count.unwrap_or(1)),
        }),
        disruption: template.disruption.unwrap_or_default(),
        timeouts: template
            .queue_seconds
            .map(|seconds| Timeouts { queue_seconds: Some(seconds), ..Timeouts::default() }),
        ttl_seconds_after_finished: Some(ACTION_TTL),
        ..WorkloadActionSpec::default()
    }
}

fn tuned(context: &ExecutionContext, claim: &Claim, tune: &Tune, other: &TunedLoop) -> ClaimProgress {
    if claim.uid.as_ref() != Some(&other.uid) {
        return ClaimProgress::Overtaken(format!("{} was recreated", target_text(&context.spec.target)));
    }
    let message = tuning_text(claim, tune, context);
    match other.mine.as_ref().filter(|mine| mine.uid == *context.uid) {
        Some(mine) if mine.seq == claim.seq => return ClaimProgress::Done(message),
        Some(mine) if mine.seq > claim.seq => return ClaimProgress::Overtaken("a later decision has tuned it".into()),
        Some(_) | None => {}
    }
    if !is_next_step(context, claim, tune, other) {
        let message = format!("{} was changed in the meantime", target_text(&context.spec.target));
        return ClaimProgress::Overtaken(message);
    }
    let kept = other.mine.clone().map(|mine| unexpired(mine, other, context.now));
    let mut tuning = Tuning {
        by: context.loop_name.to_owned(),
        uid: context.uid.clone(),
        seq: claim.seq,
        // A time in the future would keep the tuning beyond its lifetime.
        at: micro_time(claim.at.0.min(context.now)),
        rank: kept.as_ref().and_then(|kept| kept.rank.clone()),
        rank_at: kept.as_ref().and_then(|kept| kept.rank_at.clone()),
        thresholds: kept.map(|kept| kept.thresholds).unwrap_or_default(),
        message: Some(message),
    };
    if let Some(rank) = &claim.goal.rank {
        (tuning.rank, tuning.rank_at) = (Some(rank.clone()), None);
    }
    if let (Some(threshold), Some(value)) = (&tune.threshold, &claim.goal.threshold) {
        tuning.thresholds.retain(|tuned| tuned.path != threshold.path);
        tuning.thresholds.push(TunedThreshold { path: threshold.path.clone(), value: value.clone(), at: None });
    }
    ClaimProgress::NotStarted(Box::new(ExecutionEffect::Tune { uid: other.uid.clone(), tuning }))
}

/// Returns the parts of a tuning that have not expired, each with its own time: only what is changed is renewed.
fn unexpired(mine: Tuning, other: &TunedLoop, now: Timestamp) -> Tuning {
    let declared = other.tunable.as_ref().and_then(|tunable| effective_policy::ttl(tunable).ok());
    let ttl = declared.unwrap_or(effective_policy::DEFAULT_TTL);
    let whole = mine.at.clone();
    let time = |at: Option<MicroTime>| Some(at.unwrap_or_else(|| whole.clone())).filter(|at| later(at.0, ttl) > now);
    let rank_at = mine.rank.as_ref().and_then(|_| time(mine.rank_at.clone()));
    let thresholds = mine.thresholds.into_iter().filter_map(|tuned| {
        let at = time(tuned.at.clone())?;
        Some(TunedThreshold { at: Some(at), ..tuned })
    });
    Tuning { rank: mine.rank.filter(|_| rank_at.is_some()), rank_at, thresholds: thresholds.collect(), ..mine }
}

/// Whether the tuned loop still allows the claimed change, and a level still leads to the claimed one.
fn is_next_step(context: &ExecutionContext, claim: &Claim, tune: &Tune, other: &TunedLoop) -> bool {
    let tunable = other.tunable.as_ref().filter(|tunable| tunable.by.iter().any(|name| name == context.loop_name));
    let Some(tunable) = tunable else { return false };
    let Some(TuneThreshold { path, by }) = &tune.threshold else { return tunable.rank };
    let step = effective_policy::stepped(tunable, &other.metrics, path, by);
    match (step, &claim.goal.threshold) {
        (Ok(LevelStep::To(level)), Some(goal)) => level == *goal,
        // A tuning that is at its limit is renewed.
        (Ok(LevelStep::Limited(_)), Some(goal)) => other.mine.as_ref().is_some_and(|mine| mine.has_level(path, goal)),
        (Ok(LevelStep::To(_) | LevelStep::Limited(_)) | Err(_), None) | (Err(_), Some(_)) => false,
    }
}

/// Message of a tuning, such as `Increase rank memory`.
fn tuning_text(claim: &Claim, tune: &Tune, context: &ExecutionContext) -> String {
    let ExecutionStatus { before, after, .. } = context.status;
    let after = after.as_deref().unwrap_or_default();
    let is_renewed = before.as_deref() == Some(after);
    match &tune.threshold {
        Some(threshold) if is_renewed => return format!("Keep {} at {after}", threshold.path),
        Some(threshold) => return format!("Change {} to {after}", threshold.path),
        None if is_renewed => return format!("Keep the rank {after}"),
        None => {}
    }
    // The raised metric is the first one whose place has changed.
    let before: Vec<&str> = context.status.before.as_deref().unwrap_or_default().split(',').collect();
    let rank = claim.goal.rank.as_deref().unwrap_or_default();
    let raised = rank.iter().zip(before).find(|(now, before)| now.as_str() != *before).map(|(now, _)| now.as_str());
    format!("Increase rank {}", raised.unwrap_or_default())
}
