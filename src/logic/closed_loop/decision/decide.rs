//! The second hop: alarms in, one choice out, with all that was passed over and why.
//!
//! One action for each iteration: the first in order that is alarmed, has a rung left, and is held back by nothing. A new
//! sample is an iteration, and so is the end of what held a standing alarm back. While a decision is being carried out there
//! is no other. All that later decisions need stands in the status. Must not know the
//! target, nor carry anything out.

use jiff::{SignedDuration, Timestamp};

use super::evaluate::{Pass, hold};
use super::history::past;
use super::ladder::Ladder;
use super::limits::Limits;
use super::order::{Known, Selection, order};
use super::schedule::{self, Calendar};
use super::settlement::{counter, recover, settle, withdraw};
use crate::api::closed_loop::action::{Alarm, Rung};
use crate::api::closed_loop::metric::Side;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::{LoopMode, Trace};
use crate::api::decision::{ACTS_LIMIT, Act, Chosen, DecisionSpec, DecisionStatus, Entry, Outcome, REJECTED_LIMIT};
use crate::api::execution::{Execution, ExecutionStatus};
use crate::api::monitoring::{AlarmState, MonitoringStatus};
use crate::logic::closed_loop::common::{Fault, HEARTBEAT, micros, shown, since, span};
use crate::logic::closed_loop::conditions::{self, Health, Stamp};
use crate::logic::closed_loop::monitoring::tag;
use crate::logic::closed_loop::rung;

/// How many decisions are kept where the spec does not say.
const HISTORY: i32 = 10;

/// How a loop decides, read.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) mode: LoopMode,
    trace: Trace,
    pub(super) blocked: Option<String>,
    pub(super) rank: Vec<String>,
    pub(super) selection: Selection,
    pub(super) limits: Limits,
    actions: Vec<Doing>,
    history: usize,
}

/// What is done about one alarm, read.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub(super) when: Alarm,
    pub(super) settle: SignedDuration,
    pub(super) rungs: Vec<Rung>,
    pub(super) windows: Vec<Calendar>,
}

/// The loop's Execution, as it was last seen.
#[derive(Clone, Copy, Debug)]
pub struct Executor<'a> {
    pub uid: &'a str,
    pub status: &'a ExecutionStatus,
}

impl<'a> Executor<'a> {
    /// The Execution, where its controller has seen it.
    #[must_use]
    pub fn of(execution: &'a Execution) -> Option<Self> {
        Some(Self { uid: execution.metadata.uid.as_deref()?, status: execution.status.as_ref()? })
    }
}

/// What a decision is made of.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What monitoring saw.
    pub monitoring: &'a MonitoringStatus,
    /// The next hop, where it is there and has been seen by its controller.
    pub executor: Option<Executor<'a>>,
    /// The Decision's status as it was last written.
    pub written: &'a DecisionStatus,
    /// Generation of the Decision.
    pub generation: i64,
    /// The time.
    pub now: Timestamp,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The next status.
    pub status: DecisionStatus,
    /// It is worth a write. A choice that was not written is none.
    pub write: bool,
    /// When time alone lets through what is held back.
    pub again: Option<Timestamp>,
}

impl Rules {
    /// Reads the spec.
    ///
    /// # Errors
    ///
    /// A number, duration, window or expression cannot be read.
    pub fn parse(spec: &DecisionSpec) -> Result<Self, Fault> {
        let policy = spec.policy.clone().unwrap_or_default();
        let mut actions = Vec::new();
        for action in &spec.actions {
            let field = format!("actions[{} {}]", action.when.side, action.when.metric);
            actions.push(Doing {
                when: action.when.clone(),
                settle: span(&format!("{field}.settle"), action.settle.as_ref())?,
                rungs: action.ladder.clone(),
                windows: schedule::parse(&format!("{field}.during"), action.during.as_ref())?,
            });
        }
        let history = policy.history_limit.unwrap_or(HISTORY).clamp(10, 64);
        Ok(Self {
            mode: spec.mode,
            trace: spec.trace,
            blocked: spec.blocked.clone(),
            rank: spec.rank.clone(),
            selection: Selection::parse(&policy)?,
            limits: Limits::parse(&policy)?,
            actions,
            history: usize::try_from(history).unwrap_or(10),
        })
    }

    pub(super) fn doing(&self, metric: &str, side: Side) -> Option<&Doing> {
        self.actions.iter().find(|doing| doing.when.metric == metric && doing.when.side == side)
    }

    pub(super) fn ladder(&self, metric: &str, side: Side) -> Option<Ladder> {
        let doing = self.doing(metric, side)?;
        Some(Ladder { rungs: doing.rungs.len(), settle: doing.settle, side })
    }

    pub(super) fn rung(&self, metric: &str, side: Side, rung: usize) -> Option<&Rung> {
        self.doing(metric, side)?.rungs.get(rung)
    }

    /// The next status.
    #[must_use]
    pub fn decide(&self, before: &DecisionStatus, input: Input) -> Decided {
        let mut status = before.clone();
        recover(&mut status, input.executor);
        let fresh = tag::is_after(input.monitoring.tag.as_ref(), status.tag.as_ref());
        settle(self, &mut status, input.executor, input.now);
        withdraw(self, &mut status, input.executor, fresh.then_some(input.monitoring.alarms.as_slice()));
        if self.mode == LoopMode::Paused {
            status.message = Some("Paused".into());
            status.rejected.clear();
        } else if fresh || self.released(&status, input) {
            status.tag.clone_from(&input.monitoring.tag);
            self.iterate(&mut status, input);
        } else {
            self.reword(&mut status, input);
        }
        status.limits = self.limits.state(&past(self, &status), input.now);
        status.observed_generation = Some(input.generation);
        let stamp = Stamp { generation: input.generation, now: input.now };
        status.conditions = conditions::summary(&before.conditions, &self.health(&status), stamp);
        let traced = fresh && self.trace == Trace::EverySample;
        let rested = before.heartbeat.as_ref().is_none_or(|last| since(last, input.now) >= HEARTBEAT);
        let late = rested && tally(input.written) != tally(&status);
        let write = traced || late || edges(before) != edges(&status);
        if write {
            status.heartbeat = Some(micros(input.now));
        }
        let again = self.release(&status, input);
        Decided { status, write, again }
    }

    fn health(&self, status: &DecisionStatus) -> Health {
        match self.mode {
            LoopMode::Paused => Health::Good(LoopReason::Paused, "the loop is paused".into()),
            LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve if status.seq > 0 && status.history.is_empty() => {
                let lost = "decides as samples come; what it knew of budgets, ladders and counters was lost with the Decision before";
                Health::Good(LoopReason::Running, lost.into())
            }
            LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve => {
                Health::Good(LoopReason::Running, "decides as samples come".into())
            }
        }
    }

    /// One iteration: at most one action.
    fn iterate(&self, status: &mut DecisionStatus, input: Input) {
        let alarms = &input.monitoring.alarms;
        status
            .ladders
            .retain(|state| alarms.iter().any(|alarm| alarm.metric == state.metric && alarm.side == state.side));
        status.rejected.clear();
        let counters = status.counters.clone();
        let known = self.known(&counters, input);
        let mut chosen = None;
        for candidate in order(&self.selection, alarms, known) {
            let alarm = candidate.alarm;
            if self.doing(&alarm.metric, alarm.side).is_some() {
                let counter = counter(&mut status.counters, &alarm.metric);
                counter.wanted = counter.wanted.saturating_add(1);
            }
            match self.weigh(status, candidate, chosen.is_some(), known, input) {
                Ok(rung) => chosen = Some((alarm, rung)),
                Err(pass) => reject(status, alarm, pass),
            }
        }
        status.message = Some(match chosen {
            Some((alarm, rung)) => {
                self.choose(status, alarm, rung, known, input);
                self.announcement(&alarm.metric)
            }
            None => hold(&status.rejected),
        });
    }

    fn announcement(&self, metric: &str) -> String {
        match self.mode {
            LoopMode::Auto | LoopMode::Paused => format!("React to {metric}"),
            LoopMode::DryRun => format!("Would react to {metric}"),
            LoopMode::Approve => format!("Propose to react to {metric}"),
        }
    }

    /// Records the choice, with all that later decisions need of it.
    fn choose(&self, status: &mut DecisionStatus, alarm: &AlarmState, index: usize, known: Known, input: Input) {
        let Some(action) = self.rung(&alarm.metric, alarm.side, index).cloned() else { return };
        let executor = input.executor.map(|executor| executor.uid.to_owned()).unwrap_or_default();
        let last = input.executor.and_then(|executor| executor.status.seq).unwrap_or(0);
        status.seq = status.seq.max(last).saturating_add(1);
        let at = micros(input.now);
        let dry = self.mode == LoopMode::DryRun;
        let outcome = dry.then_some(Outcome::DryRun);
        let value = known.value(&alarm.metric);
        if dry {
            let counter = counter(&mut status.counters, &alarm.metric);
            counter.served = counter.served.saturating_add(1);
            counter.last_served = Some(at.clone());
        }
        let ladder = Ladder { side: alarm.side, ..self.ladder(&alarm.metric, alarm.side).unwrap_or(NO_LADDER) };
        status.ladders.retain(|state| (&state.metric, state.side) != (&alarm.metric, alarm.side));
        status.ladders.push(ladder.acted(&alarm.metric, index, value, input.now));
        status.acts.push(Act {
            seq: status.seq,
            at: at.clone(),
            direction: rung::direction(&action),
            dimension: rung::dimension(&action),
        });
        self.limits.forget(&mut status.acts, input.now);
        keep_last(&mut status.acts, ACTS_LIMIT);
        let index = i32::try_from(index).unwrap_or(0);
        status.history.push(Entry {
            seq: status.seq,
            at: at.clone(),
            metric: alarm.metric.clone(),
            side: alarm.side,
            value: value.map(shown),
            rung: index,
            action: rung::words(&action),
            outcome,
            ended: None,
            effect: None,
        });
        keep_last(&mut status.history, self.history);
        status.reason = Some(match self.mode {
            LoopMode::DryRun => LoopReason::DryRun,
            LoopMode::Approve => LoopReason::Proposed,
            LoopMode::Auto | LoopMode::Paused => LoopReason::InFlight,
        });
        let found = input.monitoring.last_served.iter().find(|found| found.metric == alarm.metric);
        status.chosen = Some(Chosen {
            seq: status.seq,
            metric: alarm.metric.clone(),
            side: alarm.side,
            rung: index,
            action,
            at,
            executor,
            mode: self.mode,
            unknown: alarm.unknown,
            least_served: found.and_then(|found| found.least_served.clone()),
            outcome,
        });
    }
}

const NO_LADDER: Ladder = Ladder { rungs: 0, settle: SignedDuration::ZERO, side: Side::Low };

fn reject(status: &mut DecisionStatus, alarm: &AlarmState, pass: Pass) {
    if pass.limit {
        let counter = counter(&mut status.counters, &alarm.metric);
        counter.limited = counter.limited.saturating_add(1);
    }
    if status.rejected.len() < REJECTED_LIMIT {
        status.rejected.push(pass.rejects(alarm));
    }
}

fn keep_last<T>(list: &mut Vec<T>, most: usize) {
    let surplus = list.len().saturating_sub(most);
    list.drain(..surplus);
}

/// What of a status is worth a write when it changes: a decision, that it is taken back, an edge of suppression.
fn edges(status: &DecisionStatus) -> impl PartialEq + '_ {
    let rejected: Vec<(&str, Side, LoopReason)> =
        status.rejected.iter().map(|one| (one.metric.as_str(), one.side, one.reason)).collect();
    let withdrawn = status.chosen.as_ref().is_some_and(|chosen| chosen.outcome == Some(Outcome::Withdrawn));
    let idle = status.message.as_deref().is_none_or(|message| message == "No Event");
    (status.seq, withdrawn, rejected, idle, status.observed_generation)
}

/// What of a status is written with the next edge, or the heartbeat: how the last decision ended, and what is counted.
fn tally(status: &DecisionStatus) -> impl PartialEq + '_ {
    (status.chosen.as_ref().map(|chosen| chosen.outcome), &status.counters, &status.ladders)
}
