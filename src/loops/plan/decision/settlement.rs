//! Outcome of the last decision: read from the Execution, counted and recorded. A decision that the Execution has not
//! begun can be withdrawn.
//!
//! An outcome is counted once. It causes no write of its own: until the next write, it can be read from the Execution
//! again. An action counts as served only if it was carried out; an action that a bound blocked counts as limited.
//! Limits and ladders count an action from the time at which it was carried out. They do not count a decision that
//! changed nothing: a withdrawn proposal, a dry run, a decision that was refused.

use jiff::Timestamp;

use super::candidate::is_met;
use super::ladder;
use super::rules::{DecisionInput, DecisionRules, Executor};
use crate::common::{later, micro_time};
use crate::monitoring::tag;
use crate::rung;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Act, Chosen, Counter, DecisionStatus, Direction, Entry, LadderState, Outcome};
use ganglion_api::execution::{CarriedOut, ExecutionState, ExecutionStatus};
use ganglion_api::monitoring::AlarmState;

/// Returns the status with the outcome of the last decision, read from the Execution. Every reader of a Decision needs
/// it, since the status is written only with the next decision or heartbeat. The function is idempotent.
pub fn with_outcome(status: &DecisionStatus, executor: Option<Executor>, now: Timestamp) -> DecisionStatus {
    let mut status = status.clone();
    record_outcome(&mut status, executor, now);
    status
}

/// Adds the outcome of the last decision to the status, for the next decisions.
pub fn apply_outcome(rules: &DecisionRules, status: &mut DecisionStatus, input: DecisionInput) {
    let Some(conclusion) = record_outcome(status, input.executor, input.now) else { return };
    rules.forget_acts(status, input.now);
    let Conclusion { chosen, outcome, carried_out, at } = conclusion;
    let Some(ladder) = rules.ladder(&chosen.served()) else { return };
    let is_raised = is_met(&chosen.served(), &input.monitoring.alarms);
    // A ladder that was changed meanwhile is not the one that failed. Its first rung waits for the effect of this one.
    let is_same = rules.has_rung(&chosen);
    let rung = usize::try_from(chosen.rung).ok().filter(|_| is_same).unwrap_or(0);
    match outcome {
        // New replicas may match at any time, but the bounds of another action stay.
        Outcome::Limited if is_same && chosen.action.workload_action.is_none() => {
            set_ladder(status, ladder.failed(rung, later(at, ladder::LIMITED_PAUSE)));
        }
        Outcome::Limited | Outcome::Failed if is_same => {
            set_ladder(status, ladder.failed(rung, later(at, ladder::FAILED_PAUSE)));
        }
        // If the alarm was cleared in the meantime, its ladder starts again.
        Outcome::Served | Outcome::Overtaken | Outcome::Lost if carried_out && is_raised => {
            let value = entry(status, chosen.seq).and_then(|entry| entry.value.clone()).filter(|_| is_same);
            set_ladder(status, ladder.acted(rung, value, at));
        }
        Outcome::Limited
        | Outcome::Failed
        | Outcome::Served
        | Outcome::Overtaken
        | Outcome::Lost
        | Outcome::DryRun
        | Outcome::Withdrawn => {}
    }
}

/// Sets the state of a ladder.
pub fn set_ladder(status: &mut DecisionStatus, state: LadderState) {
    status.ladders.retain(|old| old.when != state.when);
    status.ladders.push(state);
}

/// Returns the last decision that was carried out, or may have been. A status of an earlier version does not name it.
pub fn last_carried_out(done: &ExecutionStatus) -> Option<CarriedOut> {
    let is_done = done.state == Some(ExecutionState::Done);
    let unnamed = || Some(CarriedOut { seq: done.seq?, at: done.since.clone().filter(|_| is_done)? });
    done.carried_out.clone().or_else(unnamed)
}

/// Initializes a recreated Decision from the Execution: with the number of its last decision, the sample, and the last
/// action that was carried out.
pub fn restore_from_execution(status: &mut DecisionStatus, executor: Option<Executor>) {
    let done = executor.map(|executor| executor.status).filter(|done| done.claim.is_none());
    let Some(done) = done.filter(|_| status.seq == 0) else { return };
    status.seq = done.seq.unwrap_or(0).max(0);
    status.tag = tag::latest([status.tag.as_ref(), done.tag.as_ref()]).cloned();
    if let Some(CarriedOut { seq, at }) = last_carried_out(done) {
        let (direction, dimension) = (Direction::Neither, String::new());
        status.acts.push(Act { seq, at, dry_run: false, direction, dimension });
    }
}

/// Separator of the values before and after a change, in the effect of a decision.
pub const CHANGES_TO: &str = " -> ";

/// End of a decision.
struct Conclusion {
    chosen: Chosen,
    outcome: Outcome,
    /// The decision was carried out, or may have been.
    carried_out: bool,
    at: Timestamp,
}

/// Records how the last decision ended, unless it is running or already recorded.
fn record_outcome(status: &mut DecisionStatus, executor: Option<Executor>, now: Timestamp) -> Option<Conclusion> {
    let chosen = status.chosen.clone()?;
    match chosen.outcome {
        None => {}
        // The Execution began it while it was being withdrawn, so it counts.
        Some(Outcome::Withdrawn) if executor.is_some_and(|executor| is_taken_up(&chosen, executor)) => {
            set_outcome(status, chosen.seq, None);
        }
        Some(
            Outcome::Served
            | Outcome::DryRun
            | Outcome::Limited
            | Outcome::Failed
            | Outcome::Overtaken
            | Outcome::Lost
            | Outcome::Withdrawn,
        ) => return None,
    }
    let outcome = executor.and_then(|executor| outcome(&chosen, executor))?;
    Some(conclude(status, chosen, outcome, executor, now))
}

/// Whether the last decision is open and its Execution has not taken it up.
pub fn awaits_execution(status: &DecisionStatus, executor: Option<Executor>) -> bool {
    let open = status.chosen.as_ref().filter(|chosen| chosen.outcome.is_none());
    open.is_some_and(|chosen| !executor.is_some_and(|executor| is_taken_up(chosen, executor)))
}

/// Whether the Execution has taken up this decision.
pub fn is_taken_up(chosen: &Chosen, executor: Executor) -> bool {
    chosen.executor == *executor.uid && executor.status.seq == Some(chosen.seq)
}

/// Returns the outcome of the decision; None while it is running.
fn outcome(chosen: &Chosen, executor: Executor) -> Option<Outcome> {
    if chosen.executor != *executor.uid {
        return Some(Outcome::Lost);
    }
    match executor.status.seq {
        Some(seq) if seq > chosen.seq => Some(Outcome::Lost),
        Some(seq) if seq == chosen.seq => ended(executor.status),
        Some(_) | None => None,
    }
}

fn ended(status: &ExecutionStatus) -> Option<Outcome> {
    match status.state? {
        ExecutionState::Idle | ExecutionState::Claimed | ExecutionState::Executing => None,
        ExecutionState::Done => Some(Outcome::Served),
        ExecutionState::Limited => Some(Outcome::Limited),
        ExecutionState::Failed => Some(Outcome::Failed),
        ExecutionState::Overtaken => Some(Outcome::Overtaken),
        ExecutionState::Lost => Some(Outcome::Lost),
    }
}

fn conclude(
    status: &mut DecisionStatus,
    chosen: Chosen,
    outcome: Outcome,
    executor: Option<Executor>,
    now: Timestamp,
) -> Conclusion {
    let done = executor.filter(|executor| is_taken_up(&chosen, *executor)).map(|executor| executor.status);
    let at = done.and_then(|done| done.since.as_ref()).map_or(now, |since| since.0).max(chosen.at.0);
    let effect = done.and_then(|done| match (&done.before, &done.after) {
        (Some(before), Some(after)) => Some(format!("{before}{CHANGES_TO}{after}")),
        (None, Some(after)) => Some(after.clone()),
        (_, None) => done.message.clone(),
    });
    set_outcome(status, chosen.seq, Some(outcome));
    if let Some(entry) = entry(status, chosen.seq) {
        (entry.effect, entry.ended) = (effect, (at > entry.at.0).then(|| micro_time(at)));
    }
    match outcome {
        Outcome::Served => {
            let counter = counter(&mut status.counters, &chosen.metric);
            counter.served = counter.served.saturating_add(1);
            counter.last_served = Some(micro_time(at));
        }
        Outcome::Limited => {
            let counter = counter(&mut status.counters, &chosen.metric);
            counter.limited = counter.limited.saturating_add(1);
        }
        Outcome::Failed | Outcome::Overtaken | Outcome::Lost | Outcome::DryRun | Outcome::Withdrawn => {}
    }
    status.acts.retain(|act| act.seq != chosen.seq);
    let carried_out = is_carried_out(&chosen, outcome, done);
    if carried_out {
        let change = done.and_then(|done| Some((done.before.as_deref()?, done.after.as_deref()?)));
        let direction = rung::direction_of_change(&chosen.action, change);
        let dimension = rung::dimension(&chosen.action);
        status.acts.push(Act { seq: chosen.seq, at: micro_time(at), dry_run: false, direction, dimension });
    }
    Conclusion { chosen, outcome, carried_out, at }
}

/// Whether the decision was carried out, or may have been. `done`: status of the Execution that took it up.
fn is_carried_out(chosen: &Chosen, outcome: Outcome, done: Option<&ExecutionStatus>) -> bool {
    let is_named = |done: &ExecutionStatus| done.carried_out.as_ref().is_some_and(|last| last.seq == chosen.seq);
    match outcome {
        Outcome::Served => true,
        // The Execution was recreated, or goes on with a later decision.
        Outcome::Lost => done.is_none_or(is_named),
        Outcome::Failed | Outcome::Overtaken => done.is_some_and(is_named),
        Outcome::Limited | Outcome::DryRun | Outcome::Withdrawn => false,
    }
}

/// Records the outcome where the status shows it.
fn set_outcome(status: &mut DecisionStatus, seq: i64, outcome: Option<Outcome>) {
    if let Some(chosen) = status.chosen.as_mut().filter(|chosen| chosen.seq == seq) {
        chosen.outcome = outcome;
    }
    if let Some(entry) = entry(status, seq) {
        (entry.outcome, entry.ended, entry.effect) = (outcome, None, None);
    }
    status.reason = Some(outcome.map_or(LoopReason::InFlight, Outcome::reason));
}

fn entry(status: &mut DecisionStatus, seq: i64) -> Option<&mut Entry> {
    status.history.iter_mut().find(|entry| entry.seq == seq)
}

/// Withdraws a decision that the Execution has not begun and that is no longer wanted: its alarm was cleared, its rung
/// was removed, or the mode was changed.
pub fn withdraw_if_unwanted(
    rules: &DecisionRules,
    status: &mut DecisionStatus,
    executor: Option<Executor>,
    alarms: Option<&[AlarmState]>,
) {
    let Some(chosen) = status.chosen.clone().filter(|chosen| chosen.outcome.is_none()) else { return };
    if executor.is_some_and(|executor| is_taken_up(&chosen, executor)) {
        return;
    }
    let is_raised = alarms.is_none_or(|alarms| is_met(&chosen.served(), alarms));
    let has_mode = rules.mode == chosen.mode && rules.mode != LoopMode::Paused;
    if !(is_raised && rules.has_rung(&chosen) && has_mode) {
        withdraw(status);
    }
}

/// Withdraws the last decision. If the Execution is beginning it right now, it counts again as soon as that is known.
pub fn withdraw(status: &mut DecisionStatus) {
    let Some(seq) = status.chosen.as_ref().map(|chosen| chosen.seq) else { return };
    set_outcome(status, seq, Some(Outcome::Withdrawn));
    status.acts.retain(|act| act.seq != seq);
}

/// Returns the counter of a metric; creates it if it does not exist.
pub fn counter<'a>(counters: &'a mut Vec<Counter>, metric: &str) -> &'a mut Counter {
    let index = counters.iter().position(|counter| counter.metric == metric).unwrap_or_else(|| {
        counters.push(Counter { metric: metric.to_owned(), ..Counter::default() });
        counters.len() - 1
    });
    &mut counters[index]
}
