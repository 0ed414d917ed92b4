//! The first step of an execution: the decision becomes an absolute goal, and that is recorded.

use jiff::SignedDuration;

use super::end::{ended, record};
use super::identity::{action_name, event_id};
use super::texts::{quantity_words, words};
use super::types::{Do, Job, LoopSeen, Next, Seen, Stop, Thing, unseen};
use super::{goal, resize, undone};
use crate::api::closed_loop::action::Tune;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::decision::Chosen;
use crate::api::execution::{Claim, ClaimedPod, ExecutionState, ExecutionStatus, Goal, Quantities};
use crate::api::scalars::Number;
use crate::logic::closed_loop::common::{later, micros};
use crate::logic::closed_loop::tuning::{effective_policy, last_served};

/// How long an effect may take to be accepted.
const SOON: SignedDuration = SignedDuration::from_mins(2);

/// How long a WorkloadAction may take.
const LONG: SignedDuration = SignedDuration::from_hours(1);

/// What will be done.
struct Plan {
    goal: Goal,
    before: Option<String>,
    after: String,
    was: Option<Quantities>,
    pods: Vec<ClaimedPod>,
    thing: Option<Thing>,
    lasts: SignedDuration,
}

/// Claims the decision, or ends it at once where nothing can be done.
pub fn begin(job: &Job, chosen: &Chosen, seen: &Seen) -> Next {
    if let Some((reason, message)) = unseen(seen) {
        return ended(job, chosen.seq, ExecutionState::Failed, reason, message);
    }
    let status = undone::noticed(job, chosen, seen);
    let job = &Job { status: &status, ..*job };
    if let Some(why) = undone::conflict(&status, &words(&job.spec.target)) {
        return ended(job, chosen.seq, ExecutionState::Failed, LoopReason::FieldConflict, &why);
    }
    match plan(job, chosen, seen) {
        Ok(plan) => claim(job, chosen, plan),
        Err(Stop::Look) => Next::Look,
        Err(Stop::Limited(message)) => ended(job, chosen.seq, ExecutionState::Limited, LoopReason::Limited, &message),
        Err(Stop::Failed(reason, message)) => ended(job, chosen.seq, ExecutionState::Failed, reason, &message),
    }
}

fn claim(job: &Job, chosen: &Chosen, plan: Plan) -> Next {
    let claim = Claim {
        seq: chosen.seq,
        at: micros(job.now),
        deadline: micros(later(job.now, plan.lasts)),
        action: chosen.action.clone(),
        goal: plan.goal,
        was: plan.was,
        uid: plan.thing.as_ref().map(|thing| thing.uid.clone()),
        generation: plan.thing.as_ref().map(|thing| thing.generation),
        pods: plan.pods,
    };
    let message = match &plan.before {
        Some(before) => format!("is about to change {} from {before} to {}", words(&job.spec.target), plan.after),
        None => format!("is about to do: {}", plan.after),
    };
    let status = ExecutionStatus {
        seq: Some(chosen.seq),
        tag: job.tag.cloned(),
        state: Some(ExecutionState::Claimed),
        reason: Some(LoopReason::Claimed),
        message: Some(message),
        before: plan.before,
        after: Some(plan.after),
        effective: None,
        claim: Some(claim),
        ..job.status.clone()
    };
    record(job, status)
}

fn plan(job: &Job, chosen: &Chosen, seen: &Seen) -> Result<Plan, Stop> {
    let soon = |goal, before, after, thing: Option<&Thing>| {
        Ok(Plan { goal, before, after, was: None, pods: Vec::new(), thing: thing.cloned(), lasts: SOON })
    };
    match (Do::from(&chosen.action), seen) {
        (Do::Scale(scale), Seen::Scale(thing, now)) => {
            let replicas = goal::replicas(scale, *now, chosen.unknown)?;
            let goal = Goal { replicas: Some(replicas), ..Goal::default() };
            soon(goal, Some(now.to_string()), replicas.to_string(), Some(thing))
        }
        (Do::Resize(resize), Seen::Resources(seen)) => {
            let aim = resize::aim(job, resize, seen, chosen.unknown)?;
            let (before, after) = (quantity_words(&aim.was), quantity_words(&aim.goal));
            let goal = Goal { quantities: Some(aim.goal), ..Goal::default() };
            let plan = soon(goal, Some(before), after, Some(&seen.target))?;
            Ok(Plan { was: Some(aim.was), pods: aim.pods, ..plan })
        }
        (Do::Patch(patch), Seen::Field(thing, now)) => {
            let value = goal::field(patch, now.as_ref(), chosen.unknown)?.to_string();
            let before = now.as_ref().map_or_else(|| "unset".into(), ToString::to_string);
            let goal = Goal { value: Some(value.clone()), ..Goal::default() };
            soon(goal, Some(before), value, Some(thing))
        }
        (Do::Action(_), Seen::WorkloadAction(_)) => {
            let name = action_name(job.loop_name, job.uid, chosen.seq);
            let after = format!("WorkloadAction {name}");
            let goal = Goal { workload_action: Some(name), ..Goal::default() };
            Ok(Plan { lasts: LONG, ..soon(goal, None, after, None)? })
        }
        (Do::Webhook(_), Seen::Nothing) => {
            let id = event_id(job.uid, chosen.seq);
            let after = format!("event {id}");
            soon(Goal { event: Some(id), ..Goal::default() }, None, after, None)
        }
        (Do::Tune(tune), Seen::Loop(other)) => tuned(job, chosen, tune, other),
        (Do::Nothing, _) => Err(Stop::Failed(LoopReason::SpecInvalid, "the rung says nothing to do".into())),
        (
            Do::Scale(_) | Do::Resize(_) | Do::Patch(_) | Do::Action(_) | Do::Webhook(_) | Do::Tune(_),
            Seen::Scale(..)
            | Seen::Resources(..)
            | Seen::Field(..)
            | Seen::WorkloadAction(_)
            | Seen::Loop(_)
            | Seen::Nothing
            | Seen::NotFound(_)
            | Seen::Unfit(..)
            | Seen::Forbidden(_),
        ) => Err(Stop::Look),
    }
}

fn tuned(job: &Job, chosen: &Chosen, tune: &Tune, other: &LoopSeen) -> Result<Plan, Stop> {
    let refuse = |what: &str| {
        let message = format!("{} does not let this loop change {what}: see its spec.tunable", words(&job.spec.target));
        Stop::Failed(LoopReason::NotTunable, message)
    };
    let tunable = other.tunable.as_ref().filter(|tunable| tunable.by.iter().any(|name| name == job.loop_name));
    let tunable = tunable.ok_or_else(|| refuse("anything"))?;
    let plan = |goal, before: String, after: String| Plan {
        goal,
        before: Some(before),
        after,
        was: None,
        pods: Vec::new(),
        thing: Some(Thing { uid: other.uid.clone(), ..Thing::default() }),
        lasts: SOON,
    };
    if let Some(threshold) = &tune.threshold {
        let path = &threshold.path;
        let bounded = effective_policy::bounds(tunable, path).is_some();
        let now = effective_policy::level(&other.metrics, path).filter(|_| bounded).ok_or_else(|| refuse(path))?;
        let goal = effective_policy::stepped(tunable, path, &now, &threshold.by)
            .map_err(|fault| Stop::Failed(LoopReason::SpecInvalid, fault.to_string()))?;
        if same(&goal, &now) {
            return Err(Stop::Limited(format!("{path} is at {}, as far as it may go", now.as_str())));
        }
        let (before, after) = (now.0, goal.0.clone());
        return Ok(plan(Goal { threshold: Some(goal), ..Goal::default() }, before, after));
    }
    if !tunable.rank {
        return Err(refuse("its rank"));
    }
    let Some(metric) = &chosen.least_served else {
        return Err(Stop::Limited("no metric is behind".into()));
    };
    let rank = last_served::raised(&other.rank, metric)
        .ok_or_else(|| Stop::Limited(format!("{metric} has the first rank already")))?;
    let (before, after) = (other.rank.join(","), rank.join(","));
    Ok(plan(Goal { rank: Some(rank), ..Goal::default() }, before, after))
}

fn same(a: &Number, b: &Number) -> bool {
    use crate::logic::quantity::number;
    matches!((number(a.as_str()), number(b.as_str())), (Ok(a), Ok(b)) if (a - b).abs() < 1e-9)
}
