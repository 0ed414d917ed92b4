//! The next step of an execution: nothing, begin a decision, or resume a claim. To begin a decision, its absolute goal
//! is recorded as a claim.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::end::ended;
use super::recorded::{self, record};
use super::texts::{action_name, event_id, quantities_text, target_text, value_text};
use super::types::{
    EFFECT_TIMEOUT, ExecutionContext, ExecutionStep, NoPlan, ObjectVersion, RungAction, TargetState, TunedLoop,
    lookup_failure,
};
use super::{deferral, end, goal, ownership, resize, resume, undone};
use crate::common::{later, micro_time};
use crate::proposal;
use crate::rung;
use crate::tuning::effective_policy::LevelStep;
use crate::tuning::{effective_policy, last_served};
use ganglion_api::closed_loop::action::Tune;
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{Claim, ClaimedPod, ExecutionState, ExecutionStatus, Goal, Quantities};

/// Timeout of a WorkloadAction that does not end.
const ACTION_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// Content of the claim to be written.
pub struct ClaimPlan {
    goal: Goal,
    pub before: Option<String>,
    pub after: String,
    was: Option<Quantities>,
    pods: Vec<ClaimedPod>,
    thing: Option<ObjectVersion>,
    lasts: SignedDuration,
}

/// Returns the next step.
pub fn next_step(context: &ExecutionContext) -> ExecutionStep {
    let step = deferral::next_step(context).unwrap_or_else(|| deferral::waking(context, of_decision(context)));
    match step {
        ExecutionStep::Nothing | ExecutionStep::Wait(_) if recorded::is_misreported(context) => {
            record(context, context.status.clone())
        }
        step => step,
    }
}

/// Returns the next step of the claim or the decision.
fn of_decision(context: &ExecutionContext) -> ExecutionStep {
    if let Some(claim) = &context.status.claim {
        return resume::resume(context, claim);
    }
    let Some(last) = context.status.seq else {
        return match context.chosen.filter(|chosen| is_open(context, chosen) && context.status.state.is_some()) {
            Some(chosen) => lost(context, chosen.seq),
            None => end::first(context),
        };
    };
    // Without a claim, the last decision has ended.
    match context.status.state {
        Some(ExecutionState::Claimed | ExecutionState::Executing) => return lost(context, last),
        None if last > 0 => return lost(context, last),
        _ => {}
    }
    let Some(chosen) = context.chosen.filter(|chosen| is_due(context, chosen, last)) else {
        return end::still_blocked(context);
    };
    // The Decision withdraws its decision if the loop's spec has changed. Nobody else decides.
    if !context.has_rung(&chosen.action) || context.spec.paused {
        return end::still_blocked(context);
    }
    if let Some(why) = &context.spec.blocked {
        return end::blocked(context, why);
    }
    if !proposal::may_be_carried_out(chosen, &context.spec.target, context.spec.approve.as_deref()) {
        return end::still_blocked(context);
    }
    match context.seen {
        None => ExecutionStep::ReadTarget,
        Some(seen) => begin(context, chosen, seen),
    }
}

/// Ends a decision whose claim is no longer recorded: an older CRD does not have the field, or others have written the
/// status. The change is not made again, since it may have been made.
fn lost(context: &ExecutionContext, seq: i64) -> ExecutionStep {
    let message = "the record of the change is gone (was the CRD older than the operator for a time, or was the status \
        edited?); the change may have been made";
    ended(context, seq, ExecutionState::Lost, LoopReason::Lost, message)
}

/// Whether the decision has no outcome and is addressed to this Execution.
fn is_open(context: &ExecutionContext, chosen: &Chosen) -> bool {
    chosen.outcome.is_none() && chosen.executor == *context.uid
}

/// Whether the decision is open, confirmed, and not begun.
fn is_due(context: &ExecutionContext, chosen: &Chosen, last: i64) -> bool {
    context.is_confirmed && is_open(context, chosen) && chosen.seq > last
}

/// Claims the decision, or ends it if there is nothing to do.
fn begin(context: &ExecutionContext, chosen: &Chosen, seen: &TargetState) -> ExecutionStep {
    if let Some((reason, message)) = lookup_failure(seen) {
        return ended(context, chosen.seq, ExecutionState::Failed, reason, message);
    }
    let status = undone::with_reverts(context, chosen, seen);
    let context = &ExecutionContext { status: &status, ..*context };
    if let Some(why) = undone::conflict(context, &status, chosen, seen) {
        return ended(context, chosen.seq, ExecutionState::Failed, LoopReason::FieldConflict, &why);
    }
    match plan(context, chosen, seen) {
        Ok(plan) => claim(context, chosen, plan),
        Err(NoPlan::ReadTarget) => ExecutionStep::ReadTarget,
        Err(NoPlan::Overtaken(message)) => {
            ended(context, chosen.seq, ExecutionState::Overtaken, LoopReason::Overtaken, &message)
        }
        Err(NoPlan::Limited(message)) => {
            ended(context, chosen.seq, ExecutionState::Limited, LoopReason::Limited, &message)
        }
        Err(NoPlan::Failed(LoopReason::SpecInvalid, problem)) => {
            let index = usize::try_from(chosen.rung).unwrap_or(0);
            let place = rung::place(&chosen.action, index, &chosen.served());
            let message = format!("{place}: {problem}");
            ended(context, chosen.seq, ExecutionState::Failed, LoopReason::SpecInvalid, &message)
        }
        Err(NoPlan::Failed(reason, message)) => ended(context, chosen.seq, ExecutionState::Failed, reason, &message),
    }
}

fn claim(context: &ExecutionContext, chosen: &Chosen, plan: ClaimPlan) -> ExecutionStep {
    let claim = Claim {
        seq: chosen.seq,
        at: micro_time(context.now),
        deadline: micro_time(later(context.now, plan.lasts)),
        action: chosen.action.clone(),
        goal: plan.goal,
        was: plan.was,
        uid: plan.thing.as_ref().map(|thing| thing.uid.clone()),
        generation: plan.thing.as_ref().map(|thing| thing.generation),
        pods: plan.pods,
    };
    let message = match &plan.before {
        Some(before) => {
            format!("is about to change {} from {before} to {}", target_text(&context.spec.target), plan.after)
        }
        None => format!("is about to carry out: {}", plan.after),
    };
    let status = ExecutionStatus {
        seq: Some(chosen.seq),
        tag: context.tag.cloned(),
        state: Some(ExecutionState::Claimed),
        reason: Some(LoopReason::Claimed),
        message: Some(message),
        before: plan.before,
        after: Some(plan.after),
        effective: None,
        claim: Some(claim),
        ..context.status.clone()
    };
    record(context, status)
}

/// Computes the goal of the decision.
pub fn plan(context: &ExecutionContext, chosen: &Chosen, seen: &TargetState) -> Result<ClaimPlan, NoPlan> {
    if let Some((reason, message)) = ownership::refusal(&context.spec.target, &chosen.action, seen) {
        return Err(NoPlan::Failed(reason, message));
    }
    let soon = |goal, before, after, thing: Option<&ObjectVersion>| {
        Ok(ClaimPlan { goal, before, after, was: None, pods: Vec::new(), thing: thing.cloned(), lasts: EFFECT_TIMEOUT })
    };
    match (RungAction::from(&chosen.action), seen) {
        (RungAction::Scale(scale), TargetState::Scale(thing, now)) => {
            let replicas = if scale.is_tracking() {
                goal::tracked(scale, *now, chosen.replicas)?
            } else {
                goal::replicas(scale, *now, goal::no_lowering(chosen))?
            };
            let goal = Goal { replicas: Some(replicas), ..Goal::default() };
            soon(goal, Some(now.to_string()), replicas.to_string(), Some(thing))
        }
        (RungAction::Resize(resize), TargetState::Resources(seen)) => {
            let resized = resize::plan(context, resize, seen, chosen.unknown)?;
            let (before, after) = (quantities_text(&resized.was), quantities_text(&resized.goal));
            let goal = Goal { quantities: Some(resized.goal), ..Goal::default() };
            let plan = soon(goal, Some(before), after, Some(&seen.target))?;
            Ok(ClaimPlan { was: Some(resized.was), pods: resized.pods, ..plan })
        }
        (RungAction::Patch(patch), TargetState::Field(thing, now)) => {
            let value = goal::field(patch, now.as_ref(), goal::no_lowering(chosen))?.to_string();
            let before = value_text(now.as_ref());
            let goal = Goal { value: Some(value.clone()), ..Goal::default() };
            soon(goal, Some(before), value, Some(thing))
        }
        (RungAction::WorkloadAction(template), TargetState::WorkloadAction(_) | TargetState::Workload(..)) => {
            let name = action_name(context.loop_name, context.uid, chosen.seq);
            let after = format!("WorkloadAction {name}");
            let replicas = match (seen, rung::replicas_by(template)) {
                (TargetState::Workload(_, now), Some(by)) => Some(now.saturating_add(by).max(0)),
                _ => None,
            };
            let goal = Goal { workload_action: Some(name), replicas, ..Goal::default() };
            Ok(ClaimPlan { lasts: ACTION_TIMEOUT, ..soon(goal, None, after, None)? })
        }
        (RungAction::Webhook(_), TargetState::Nothing) => {
            let id = event_id(context.uid, chosen.seq);
            let after = format!("event {id}");
            soon(Goal { event: Some(id), ..Goal::default() }, None, after, None)
        }
        (RungAction::Tune(tune), TargetState::Loop(other)) => tuned(context, chosen, tune, other),
        (RungAction::Nothing, _) => Err(NoPlan::Failed(LoopReason::SpecInvalid, "the rung has no action".into())),
        (
            RungAction::Scale(_)
            | RungAction::Resize(_)
            | RungAction::Patch(_)
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
        ) => Err(NoPlan::ReadTarget),
    }
}

fn tuned(context: &ExecutionContext, chosen: &Chosen, tune: &Tune, other: &TunedLoop) -> Result<ClaimPlan, NoPlan> {
    let refuse = |what: &str| {
        let message =
            format!("{} does not let this loop change {what}: see its spec.tunable", target_text(&context.spec.target));
        NoPlan::Failed(LoopReason::NotTunable, message)
    };
    let tunable = other.tunable.as_ref().filter(|tunable| tunable.by.iter().any(|name| name == context.loop_name));
    let tunable = tunable.ok_or_else(|| refuse("anything"))?;
    let plan = |goal, before: String, after: String| ClaimPlan {
        goal,
        before: Some(before),
        after,
        was: None,
        pods: Vec::new(),
        thing: Some(ObjectVersion { uid: other.uid.clone(), ..ObjectVersion::default() }),
        lasts: EFFECT_TIMEOUT,
    };
    if let Some(threshold) = &tune.threshold {
        let path = &threshold.path;
        let bounded = effective_policy::bounds(tunable, path).is_some();
        let now = effective_policy::level(&other.metrics, path).filter(|_| bounded).ok_or_else(|| refuse(path))?;
        let step = effective_policy::stepped(tunable, &other.metrics, path, &threshold.by);
        let goal = match step.map_err(|fault| NoPlan::Failed(LoopReason::SpecInvalid, fault.to_string()))? {
            LevelStep::To(goal) => goal,
            LevelStep::Limited(_) if is_renewed(context, other, |mine| mine.level_at(path, &now)) => now.clone(),
            LevelStep::Limited(message) => return Err(NoPlan::Limited(message)),
        };
        let (before, after) = (now.0, goal.0.clone());
        return Ok(plan(Goal { threshold: Some(goal), ..Goal::default() }, before, after));
    }
    if !tunable.rank {
        return Err(refuse("its rank"));
    }
    let Some(metric) = &chosen.least_served else {
        return Err(NoPlan::Limited("no metric is behind".into()));
    };
    let rank = match last_served::raise_rank(&other.rank, metric) {
        Some(rank) => rank,
        None if is_renewed(context, other, |mine| mine.rank_at(&other.rank)) => other.rank.clone(),
        None => return Err(NoPlan::Limited(format!("{metric} has the first rank already"))),
    };
    let (before, after) = (other.rank.join(","), rank.join(","));
    Ok(plan(Goal { rank: Some(rank), ..Goal::default() }, before, after))
}

/// Whether a tuning that is at its limit is made once more: it is from this loop, it is still wanted, and half of its
/// lifetime has passed. Otherwise the tuned loop would fall back to its own policy and be tuned again step by step.
fn is_renewed(
    context: &ExecutionContext,
    other: &TunedLoop,
    changed_at: impl Fn(&Tuning) -> Option<&MicroTime>,
) -> bool {
    let ttl = other.tunable.as_ref().and_then(|tunable| effective_policy::ttl(tunable).ok());
    let mine = other.mine.as_ref().filter(|mine| mine.uid == *context.uid);
    mine.and_then(changed_at).zip(ttl).is_some_and(|(at, ttl)| later(at.0, ttl / 2) <= context.now)
}
