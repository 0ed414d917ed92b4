//! Chooses the rung for an alarm, or rejects the alarm.
//!
//! A time-based rejection expires without a new sample. If another rule then rejects the alarm, that rule is reported.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::alarm_action::AlarmAction;
use super::candidate::{AlarmCandidate, candidates, is_of};
use super::ladder::LadderStep;
use super::limits::AlarmRejection;
use super::order::{OrderContext, RankedCandidate, order};
use super::rules::{DecisionInput, DecisionRules};
use super::settlement::{CHANGES_TO, last_carried_out};
use crate::common::{opening_text, time_text};
use crate::rung;
use crate::schedule;
use crate::track::TrackReason;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::policy::Lowering;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::{Alarm, When};
use ganglion_api::decision::{Act, Chosen, DecisionStatus, Direction, Entry, Outcome, Rejected};
use ganglion_api::marks;
use ganglion_api::monitoring::AlarmState;

impl DecisionRules {
    /// Whether an alarm that was rejected would be served now, without a new sample.
    pub(super) fn released(&self, status: &DecisionStatus, input: DecisionInput) -> bool {
        self.held_back(status, input).any(|(_, evaluated)| evaluated.is_ok())
    }

    /// Returns when the next time-based rejection expires.
    pub(super) fn next_release(&self, status: &DecisionStatus, input: DecisionInput) -> Option<Timestamp> {
        self.held_back(status, input).filter_map(|(_, evaluated)| evaluated.err()?.until).min()
    }

    /// Updates the reasons of rejected alarms: the first reason may have expired while another one applies. Counts
    /// nothing and chooses nothing. An alarm that was served waits for the next sample.
    pub(super) fn update_reasons(&self, status: &mut DecisionStatus, input: DecisionInput) {
        let mut updates = Vec::new();
        for (candidate, evaluated) in self.held_back(status, input) {
            if let Err(rejection) = evaluated
                && may_expire(rejection.reason)
            {
                updates.push(rejection.reported(candidate.when()));
            }
        }
        let message_before = hold_message(&status.rejected);
        for update in updates {
            let mut rejected = status.rejected.iter_mut();
            if let Some(old) = rejected.find(|old| old.when == update.when) {
                *old = update;
            }
        }
        if status.message.as_ref() == Some(&message_before) {
            status.message = Some(hold_message(&status.rejected));
        }
    }

    /// Evaluates again the alarms that were rejected at the last iteration and may be served without a new sample.
    fn held_back<'a>(
        &'a self,
        status: &'a DecisionStatus,
        input: DecisionInput<'a>,
    ) -> impl Iterator<Item = (AlarmCandidate<'a>, Result<usize, AlarmRejection>)> + 'a {
        // If the status was computed from another sample, its rejections do not apply.
        let is_same_sample = status.tag == input.monitoring.tag && self.mode != LoopMode::Paused;
        let alarms = if is_same_sample { input.monitoring.alarms.as_slice() } else { &[] };
        let context = self.order_context(&status.counters, input);
        let ranked = order(&self.selection, candidates(&self.actions, alarms), context).into_iter();
        ranked.filter(move |ranked| was_held_back(status, &ranked.candidate)).map(move |ranked| {
            let evaluated = self.evaluate(status, &ranked, false, context, input);
            (ranked.candidate, evaluated)
        })
    }

    /// Returns the rung to take for this candidate, or why it is rejected. `taken`: another one was chosen in this
    /// iteration.
    pub(super) fn evaluate(
        &self,
        status: &DecisionStatus,
        ranked: &RankedCandidate,
        taken: bool,
        context: OrderContext,
        input: DecisionInput,
    ) -> Result<usize, AlarmRejection> {
        let candidate = &ranked.candidate;
        let Some(action) = candidate.action else {
            return Err(AlarmRejection::new(LoopReason::NoAction, "no action is declared for it"));
        };
        if ranked.refused {
            return Err(AlarmRejection::new(LoopReason::NotSelected, "the expression returns no number above 0"));
        }
        if let Some(why) = &self.blocked {
            return Err(AlarmRejection::new(LoopReason::Blocked, why));
        }
        if taken {
            return Err(AlarmRejection::new(LoopReason::Outranked, "another alarm is served first"));
        }
        check_in_flight(status, input)?;
        if candidate.alarms.iter().any(|alarm| alarm.held) {
            let message = format!("{} is unknown", candidate.values(|alarm| alarm.held));
            return Err(AlarmRejection::new(LoopReason::UnknownValue, message));
        }
        if input.executor.is_none_or(|executor| executor.status.seq.is_none()) && self.mode != LoopMode::DryRun {
            return Err(AlarmRejection::new(LoopReason::NoExecutor, "the loop's Execution does not exist yet"));
        }
        let phase = schedule::phase(&action.windows, input.now);
        // On side Target, the windows say when the metric counts: outside, it asks for no replicas.
        if !phase.open && !candidate.is_target() {
            let message = format!("outside its window; opens {}", opening_text(phase.end, input.now));
            return Err(AlarmRejection::limited(LoopReason::OutsideWindow, message, Some(phase.end)));
        }
        let rung = next_rung(action, status, context, input.now)?;
        let direction = direction(action.rungs.get(rung), candidate, input);
        if candidate.is_unknown() && direction == Direction::Lower {
            let value = candidate.values(|alarm| alarm.unknown);
            let message = format!("{value} is unknown, and its action lowers capacity");
            return Err(AlarmRejection::new(LoopReason::UnknownValue, message));
        }
        if candidate.alarms.iter().all(|alarm| alarm.unknown && was_served(status, candidate, alarm, input)) {
            let value = candidate.values(|alarm| alarm.unknown);
            let message = format!("{value} is missing, and an action was taken for that: the next one needs a value");
            return Err(AlarmRejection::new(LoopReason::UnknownValue, message));
        }
        let is_above_max = candidate.is_target() && is_above_max(input);
        if let Some(metric) =
            self.unknown_beside(candidate, input).filter(|_| direction == Direction::Lower && !is_above_max)
        {
            let message = format!("{}: capacity is not lowered (policy.lowering)", beside_message(metric));
            return Err(AlarmRejection::new(LoopReason::UnknownValue, message));
        }
        match self.limits.rejection(&action_history(self, status), direction, input.now) {
            Some(rejection) => Err(rejection),
            None => check_measured(candidate, input).map(|()| rung),
        }
    }
}

/// Direction of the change that the rung makes for this candidate.
fn direction(rung: Option<&Rung>, candidate: &AlarmCandidate, input: DecisionInput) -> Direction {
    match input.monitoring.tracking.as_ref().filter(|_| candidate.is_target()) {
        Some(state) => rung::sign(f64::from(state.wants) - f64::from(state.replicas)),
        None => rung.map(rung::direction).unwrap_or_default(),
    }
}

/// Whether the target has more replicas than the bounds allow: lowering them needs no metric.
fn is_above_max(input: DecisionInput) -> bool {
    input.monitoring.tracking.as_ref().is_some_and(|state| state.reason == TrackReason::AboveMax.as_str())
}

fn beside_message(metric: &str) -> String {
    format!("{metric} is unknown and could ask for more")
}

impl DecisionRules {
    /// Returns why an action that sets a number must not lower capacity. Only the Execution sees whether it would.
    pub(super) fn no_lowering(
        &self,
        status: &DecisionStatus,
        candidate: &AlarmCandidate,
        action: &Rung,
        input: DecisionInput,
    ) -> Option<String> {
        // The direction of an action that tracks is known.
        if !rung::sets_number(action) || candidate.is_target() {
            return None;
        }
        let beside = self.unknown_beside(candidate, input).map(beside_message);
        let limit = || self.limits.rejection(&action_history(self, status), Direction::Lower, input.now);
        beside.or_else(|| limit().map(|rejection| rejection.message))
    }

    /// Returns another metric that is unknown and has an action that raises, unless the policy does not mind.
    fn unknown_beside<'a>(&'a self, candidate: &AlarmCandidate, input: DecisionInput) -> Option<&'a str> {
        if self.lowering == Lowering::Always {
            return None;
        }
        // An action that tracks has its own rule for all tracked metrics.
        let others = self.actions.iter().filter(|action| !(candidate.is_target() && action.when.is_target()));
        let mut raising = others.filter(|action| action.rungs.iter().any(rung::may_raise));
        raising.find_map(|action| {
            let is_beside = |alarm: &&Alarm| !candidate.is_about(&alarm.metric) && is_unknown(&alarm.metric, input);
            let found = action.when.alarms().iter().find(is_beside)?;
            could_be_met(&action.when, input).then_some(found.metric.as_str())
        })
    }
}

/// Whether the condition could be met by the values that are unknown.
fn could_be_met(when: &When, input: DecisionInput) -> bool {
    let is_active = |alarm: &Alarm| input.monitoring.alarms.iter().any(|state| is_of(state, alarm));
    when.is_met(|alarm| is_active(alarm) || is_unknown(&alarm.metric, input))
}

/// Whether the metric has no current value, or its source has failed since: the last value may be too low by now.
fn is_unknown(metric: &str, input: DecisionInput) -> bool {
    let (unknown, values) = (&input.monitoring.unknown, &input.monitoring.values);
    match unknown.iter().find(|unknown| unknown.metric == metric) {
        Some(unknown) => unknown.assumed.is_none(),
        None => values.iter().any(|reading| reading.metric == metric && reading.problem.is_some()),
    }
}

/// Whether the alarm was served since its value is missing. However long it is missing, that is one measurement. A
/// formula with an assumed operand has a new value when another operand has one.
fn was_served(status: &DecisionStatus, candidate: &AlarmCandidate, alarm: &AlarmState, input: DecisionInput) -> bool {
    let unknown = input.monitoring.unknown.iter().find(|unknown| unknown.metric == alarm.metric);
    let mut values = input.monitoring.values.iter();
    let assumed = values.find(|reading| reading.metric == alarm.metric && reading.assumed_operand.is_some());
    let of_formula = assumed.map(|reading| reading.measured_at.as_ref().unwrap_or(&reading.at));
    let Some(since) = unknown.map(|unknown| &unknown.since).or(of_formula) else { return false };
    let counter = status.counters.iter().find(|counter| counter.metric == candidate.lead.metric);
    let served = counter.and_then(|counter| counter.last_served.as_ref());
    let mut dry_runs = status.history.iter().filter(|entry| entry.outcome == Some(Outcome::DryRun));
    served.is_some_and(|at| at >= since)
        || dry_runs.any(|entry| entry.when.is_about(&alarm.metric) && entry.at >= *since)
}

/// Rejects every alarm while the effect of a decision is awaited.
fn check_in_flight(status: &DecisionStatus, input: DecisionInput) -> Result<(), AlarmRejection> {
    if let Some(open) = status.chosen.as_ref().filter(|chosen| chosen.outcome.is_none()) {
        return Err(in_flight(open));
    }
    if let Some(claim) = input.executor.and_then(|executor| executor.status.claim.as_ref()) {
        // The claim belongs to a Decision that was deleted.
        let message = format!("decision {} is being carried out", claim.seq);
        return Err(AlarmRejection::new(LoopReason::InFlight, message));
    }
    Ok(())
}

/// Returns the next rung of the alarm's ladder.
fn next_rung(
    action: &AlarmAction,
    status: &DecisionStatus,
    context: OrderContext,
    now: Timestamp,
) -> Result<usize, AlarmRejection> {
    let value = action.when.one().and_then(|alarm| context.value(&alarm.metric));
    let state = status.ladders.iter().find(|state| state.when == action.when);
    match action.ladder().next_step(state, value, now) {
        LadderStep::Climb(rung) => Ok(rung),
        LadderStep::Settling(until) => {
            let message = format!("its last action settles until {}", time_text(until));
            Err(AlarmRejection { until: Some(until), ..AlarmRejection::new(LoopReason::Settling, message) })
        }
        LadderStep::Exhausted(until) => {
            let message = format!("no rung of its ladder is left; again at {}", time_text(until));
            Err(AlarmRejection::limited(LoopReason::Exhausted, message, Some(until)))
        }
    }
}

/// Returns the past actions as the limits count them, the oldest first. A Decision stores only the actions that its
/// limits need. If a changed policy needs more of them, they are taken from the history of decisions. Decisions that
/// changed nothing do not count; those of mode DryRun count only in that mode.
pub fn action_history(rules: &DecisionRules, status: &DecisionStatus) -> Vec<Act> {
    let mut actions = status.acts.clone();
    for entry in &status.history {
        let is_listed = status.acts.iter().any(|act| act.seq == entry.seq);
        let counts = match entry.outcome {
            Some(Outcome::Served | Outcome::Lost) => true,
            Some(Outcome::DryRun) => rules.mode == LoopMode::DryRun,
            Some(Outcome::Limited | Outcome::Failed | Outcome::Overtaken | Outcome::Withdrawn) | None => false,
        };
        if counts && !is_listed {
            actions.push(past_action(rules, entry));
        }
    }
    // A stored action that patched the replicas may be older than the knowledge of their path.
    if let Some(replicas_path) = &rules.replicas_path {
        for action in actions.iter_mut().filter(|action| !action.dimension.contains('/')) {
            action.dimension = rung::path_dimension(&action.dimension, Some(replicas_path));
        }
    }
    actions.sort_by_key(|act| act.seq);
    actions
}

/// Returns the action of a history entry. If its rung was removed from the spec, direction and dimension are unknown.
fn past_action(rules: &DecisionRules, entry: &Entry) -> Act {
    let change = entry.effect.as_deref().and_then(|effect| effect.split_once(CHANGES_TO));
    let rung = usize::try_from(entry.rung).ok().and_then(|index| rules.rung(&entry.when, index));
    Act {
        seq: entry.seq,
        at: entry.ended.as_ref().unwrap_or(&entry.at).clone(),
        dry_run: entry.outcome == Some(Outcome::DryRun),
        direction: rung.map(|rung| rung::direction_of_change(rung, change)).unwrap_or_default(),
        dimension: rung.map(rung::dimension).unwrap_or_default(),
    }
}

/// Whether the alarm was rejected at the last iteration for a reason that can end without a new sample.
fn was_held_back(status: &DecisionStatus, candidate: &AlarmCandidate) -> bool {
    status.rejected.iter().any(|one| candidate.is(&one.when) && may_expire(one.reason))
}

/// Message if no alarm was chosen.
pub fn hold_message(rejected: &[Rejected]) -> String {
    let hold = |first: &Rejected| format!("Hold {}: {}", first.when.subject(), first.message);
    rejected.first().map_or_else(|| "No Event".into(), hold)
}

/// Whether a rejection with this reason can end without a new sample. An alarm that was outranked, or that came while a
/// decision was being carried out, waits for the next sample, which shows the effect.
fn may_expire(reason: LoopReason) -> bool {
    matches!(
        reason,
        LoopReason::Dwell
            | LoopReason::Budget
            | LoopReason::Damped
            | LoopReason::Frozen
            | LoopReason::Settling
            | LoopReason::Exhausted
            | LoopReason::OutsideWindow
            | LoopReason::NoExecutor
            | LoopReason::Blocked
    )
}

/// Rejection while this decision is open.
fn in_flight(open: &Chosen) -> AlarmRejection {
    let (reason, message) = match open.mode {
        LoopMode::Approve => (
            LoopReason::AwaitsApproval,
            format!(
                "decision {} is a proposal; approve it with the annotation {}={}, see `ganglion approve`",
                open.seq,
                marks::APPROVE,
                open.digest.as_deref().unwrap_or_default()
            ),
        ),
        LoopMode::Auto | LoopMode::DryRun | LoopMode::Paused => {
            (LoopReason::InFlight, format!("decision {} is being carried out", open.seq))
        }
    };
    AlarmRejection::new(reason, message)
}

/// Rejects an alarm whose value does not show the effect of the last action: it was measured before. One measurement
/// leads to one action, however often it is evaluated. For several alarms together, each value must be newer.
fn check_measured(candidate: &AlarmCandidate, input: DecisionInput) -> Result<(), AlarmRejection> {
    let Some(last) = input.executor.and_then(|executor| last_carried_out(executor.status)) else { return Ok(()) };
    // The number of an action that tracks is absolute: it is right for an older sample, too, if the replicas were read
    // after the last change.
    let tracked = input.monitoring.tracking.as_ref().filter(|_| candidate.is_target());
    if let Some(state) = tracked {
        return match state.at > last.at {
            true => Ok(()),
            false => {
                let message = format!("the replicas were read before decision {} took effect", last.seq);
                Err(AlarmRejection::new(LoopReason::InFlight, message))
            }
        };
    }
    let newer =
        candidate.alarms.iter().filter(|alarm| measured_at(alarm, input).is_some_and(|at| *at > last.at)).count();
    let needed = if candidate.is_any() { 1 } else { candidate.alarms.len() };
    if newer < needed {
        let message = format!("it was measured before decision {} took effect", last.seq);
        return Err(AlarmRejection::new(LoopReason::InFlight, message));
    }
    Ok(())
}

/// Returns when the value of the alarm was measured. An assumed or missing value is as new as the evaluation: see
/// [`was_served`].
fn measured_at<'a>(alarm: &AlarmState, input: DecisionInput<'a>) -> Option<&'a MicroTime> {
    let mut values = input.monitoring.values.iter();
    match values.find(|reading| reading.metric == alarm.metric) {
        Some(reading) if !alarm.unknown => Some(reading.measured_at.as_ref().unwrap_or(&reading.at)),
        Some(_) | None => input.monitoring.received.as_ref(),
    }
}
