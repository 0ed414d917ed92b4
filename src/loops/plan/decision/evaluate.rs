//! Chooses the rung for an alarm, or rejects the alarm.
//!
//! A time-based rejection expires without a new sample. If another rule then rejects the alarm, that rule is reported.

use jiff::Timestamp;

use super::history::action_history;
use super::ladder::{Ladder, LadderStep};
use super::order::{Candidate, OrderContext, order};
use super::rules::{DecisionInput, DecisionRules};
use super::schedule;
use super::settlement::is_taken_up;
use crate::common::{opening_text, time_text};
use crate::rung;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Chosen, DecisionStatus, Direction, LadderState, Rejected};
use ganglion_api::marks;
use ganglion_api::monitoring::AlarmState;

/// Reason why an alarm is rejected.
pub struct Rejection {
    pub reason: LoopReason,
    pub message: String,
    /// The rejection counts as limited.
    pub limit: bool,
    /// Time at which the rejection expires, if it is time-based.
    pub until: Option<Timestamp>,
}

impl Rejection {
    /// Converts the rejection for the status.
    pub fn reported(self, alarm: &AlarmState) -> Rejected {
        Rejected { metric: alarm.metric.clone(), side: alarm.side, reason: self.reason, message: self.message }
    }
}

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
        let still = |(alarm, evaluated): (&AlarmState, Result<usize, Rejection>)| {
            let rejection = evaluated.err().filter(|rejection| may_expire(rejection.reason))?;
            Some(rejection.reported(alarm))
        };
        let held: Vec<Rejected> = self.held_back(status, input).filter_map(still).collect();
        let before = hold_message(&status.rejected);
        for new in held {
            let mut rejected = status.rejected.iter_mut();
            if let Some(old) = rejected.find(|old| old.metric == new.metric && old.side == new.side) {
                *old = new;
            }
        }
        if status.message.as_ref() == Some(&before) {
            status.message = Some(hold_message(&status.rejected));
        }
    }

    /// Evaluates again the alarms that were rejected at the last iteration and may be served without a new sample.
    fn held_back<'a>(
        &'a self,
        status: &'a DecisionStatus,
        input: DecisionInput<'a>,
    ) -> impl Iterator<Item = (&'a AlarmState, Result<usize, Rejection>)> + 'a {
        // If the status was computed from another sample, its rejections do not apply.
        let same = status.tag == input.monitoring.tag && self.mode != LoopMode::Paused;
        let alarms = if same { input.monitoring.alarms.as_slice() } else { &[] };
        let known = self.order_context(&status.counters, input);
        let was_held = |alarm: &AlarmState| {
            let mut rejected = status.rejected.iter();
            rejected.any(|one| one.metric == alarm.metric && one.side == alarm.side && may_expire(one.reason))
        };
        let candidates = order(&self.selection, alarms, known).into_iter();
        candidates
            .filter(move |candidate| was_held(candidate.alarm))
            .map(move |candidate| (candidate.alarm, self.evaluate(status, candidate, false, known, input)))
    }

    /// Returns the rung to take for this alarm, or why the alarm is rejected. `taken`: another alarm was chosen in this
    /// iteration.
    pub(super) fn evaluate(
        &self,
        status: &DecisionStatus,
        candidate: Candidate,
        taken: bool,
        known: OrderContext,
        input: DecisionInput,
    ) -> Result<usize, Rejection> {
        let alarm = candidate.alarm;
        let refuse =
            |reason, message: &str| Err(Rejection { reason, message: message.to_owned(), limit: false, until: None });
        let limit = |reason, message, until| Err(Rejection { reason, message, limit: true, until });
        let Some(action) = self.action_for(&alarm.metric, alarm.side) else {
            return refuse(LoopReason::NoAction, "no action is declared for it");
        };
        if candidate.refused {
            return refuse(LoopReason::NotSelected, "the expression returns no number above 0");
        }
        if let Some(why) = &self.blocked {
            return refuse(LoopReason::Blocked, why);
        }
        if taken {
            return refuse(LoopReason::Outranked, "another alarm is served first");
        }
        if let Some(open) = status.chosen.as_ref().filter(|chosen| chosen.outcome.is_none()) {
            return Err(in_flight(open));
        }
        if let Some(claim) = input.executor.and_then(|executor| executor.status.claim.as_ref()) {
            // The claim belongs to a Decision that was deleted.
            return refuse(LoopReason::InFlight, &format!("decision {} is being carried out", claim.seq));
        }
        if let Some(seq) = without_effect(status, input) {
            return refuse(LoopReason::InFlight, &format!("it was measured before decision {seq} took effect"));
        }
        if alarm.held {
            return refuse(LoopReason::UnknownValue, "its value is unknown");
        }
        if input.executor.is_none_or(|executor| executor.status.seq.is_none()) && self.mode != LoopMode::DryRun {
            return refuse(LoopReason::NoExecutor, "the loop's Execution does not exist yet");
        }
        let phase = schedule::phase(&action.windows, input.now);
        if !phase.open {
            let message = format!("outside its window; opens {}", opening_text(phase.end, input.now));
            return limit(LoopReason::OutsideWindow, message, Some(phase.end));
        }
        let ladder = Ladder { rungs: action.rungs.len(), settle: action.settle, side: alarm.side };
        let rung = match ladder.next_step(ladder_state(status, alarm), known.value(&alarm.metric), input.now) {
            LadderStep::Climb(rung) => rung,
            LadderStep::Settling(until) => {
                let message = format!("its last action settles until {}", time_text(until));
                return Err(Rejection { reason: LoopReason::Settling, message, limit: false, until: Some(until) });
            }
            LadderStep::Exhausted(until) => {
                let message = format!("no rung of its ladder is left; again at {}", time_text(until));
                return limit(LoopReason::Exhausted, message, Some(until));
            }
        };
        let direction = action.rungs.get(rung).map(rung::direction).unwrap_or_default();
        if alarm.unknown && direction == Direction::Lower {
            return refuse(LoopReason::UnknownValue, "its value is unknown, and its action lowers capacity");
        }
        match self.limits.held(&action_history(self, status), direction, input.now) {
            Some(held) => limit(held.reason, held.message, held.until),
            None => Ok(rung),
        }
    }
}

/// Message if no alarm was chosen.
pub fn hold_message(rejected: &[Rejected]) -> String {
    rejected.first().map_or_else(|| "No Event".into(), |first| format!("Hold {}: {}", first.metric, first.message))
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

fn ladder_state<'a>(status: &'a DecisionStatus, alarm: &AlarmState) -> Option<&'a LadderState> {
    status.ladders.iter().find(|state| state.metric == alarm.metric && state.side == alarm.side)
}

fn in_flight(open: &Chosen) -> Rejection {
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
    Rejection { reason, message, limit: false, until: None }
}

/// Returns the number of the last decision if the new sample does not show its effect: the sample was received before
/// the execution ended.
fn without_effect(status: &DecisionStatus, input: DecisionInput) -> Option<i64> {
    if status.tag == input.monitoring.tag {
        // This sample was evaluated before; only the end of a time-based limit can serve an alarm now.
        return None;
    }
    let (chosen, executor) = (status.chosen.as_ref()?, input.executor?);
    let ended = executor.status.claim.is_none() && is_taken_up(chosen, executor);
    (ended && input.monitoring.received < executor.status.since).then_some(chosen.seq)
}
