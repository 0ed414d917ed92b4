//! Counts and times of a replay: what held from one event to the next.

use jiff::{SignedDuration, Timestamp};

use super::report::{
    AlarmTime, HeldTime, MetricValues, ReplayReport, ReplayTotals, ReplayedDecision, TargetChange, UnknownTime,
};
use super::rules::ReplayRules;
use super::stages::ReplayedStages;
use super::target::{REPLICAS, SimulatedTarget};
use crate::decision::limits::reversals;
use crate::rung;
use ganglion_api::closed_loop::metric::{Metric, Side};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Act, Chosen, DecisionStatus};
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::quantity;

/// Maximum number of reasons that are listed for one metric. The others are counted together.
const MAX_REASONS: usize = 12;

/// Reason of further reasons.
const OTHER_REASONS: &str = "other reasons";

/// Something that holds at times.
#[derive(Clone, Debug)]
struct ReplaySpan<T> {
    of: T,
    holds: bool,
    times: u64,
    total: SignedDuration,
}

impl<T> ReplaySpan<T> {
    fn new(of: T) -> Self {
        Self { of, holds: false, times: 0, total: SignedDuration::ZERO }
    }

    fn set(&mut self, holds: bool) {
        if holds && !self.holds {
            self.times += 1;
        }
        self.holds = holds;
    }

    fn advance(&mut self, time: SignedDuration) {
        if self.holds {
            self.total = self.total.saturating_add(time);
        }
    }

    fn seconds(&self) -> f64 {
        self.total.as_secs_f64()
    }
}

/// ReplaySpans that are found as they begin.
#[derive(Clone, Debug, Default)]
struct ReplaySpans(Vec<ReplaySpan<(String, String)>>);

impl ReplaySpans {
    /// Sets the spans that hold now, by subject and reason.
    fn set<'a>(&mut self, now: impl Iterator<Item = (String, &'a str)>) {
        let mut held = vec![false; self.0.len()];
        for (subject, reason) in now {
            let find = |reason: &str| self.0.iter().position(|span| span.of.0 == subject && span.of.1 == reason);
            let count = self.0.iter().filter(|span| span.of.0 == subject).count();
            let reason = if find(reason).is_none() && count >= MAX_REASONS { OTHER_REASONS } else { reason };
            let index = find(reason).unwrap_or(self.0.len());
            if index == self.0.len() {
                self.0.push(ReplaySpan::new((subject, reason.to_owned())));
                held.push(false);
            }
            held[index] = true;
        }
        for (span, holds) in self.0.iter_mut().zip(held) {
            span.set(holds);
        }
    }

    fn advance(&mut self, time: SignedDuration) {
        self.0.iter_mut().for_each(|span| span.advance(time));
    }
}

/// An alarm of the spec.
#[derive(Clone, Debug)]
struct TalliedAlarm {
    metric: String,
    side: Side,
    level: Option<String>,
}

/// A decision with its action, once it has one.
#[derive(Clone, Debug)]
struct TalliedDecision {
    shown: ReplayedDecision,
    metric: String,
    act: Option<Act>,
}

/// Counts and times so far.
pub struct ReplayTally<'a> {
    rules: &'a ReplayRules,
    last: Timestamp,
    evaluations: u64,
    beyond: Vec<ReplaySpan<TalliedAlarm>>,
    /// In the order of `beyond`.
    raised: Vec<ReplaySpan<()>>,
    held: ReplaySpans,
    /// Bounds that the number of replicas of actions on side Target has reached.
    bounds: ReplaySpans,
    unknown: ReplaySpans,
    decisions: Vec<TalliedDecision>,
    target: Vec<TargetChange>,
    values: Vec<MetricValues>,
}

impl<'a> ReplayTally<'a> {
    pub fn new(rules: &'a ReplayRules, stages: &ReplayedStages<SimulatedTarget>, start: Timestamp) -> Self {
        let alarms: Vec<TalliedAlarm> = rules.spec.metrics.iter().flat_map(|metric| alarms(rules, metric)).collect();
        let values = rules.spec.metrics.iter();
        let target = stages.target.values().iter().map(|(dimension, value)| {
            let (dimension, value) = (dimension.clone(), value.clone());
            TargetChange { at: start, dimension, value }
        });
        Self {
            rules,
            last: start,
            evaluations: 0,
            raised: alarms.iter().map(|_| ReplaySpan::new(())).collect(),
            beyond: alarms.into_iter().map(ReplaySpan::new).collect(),
            held: ReplaySpans::default(),
            bounds: ReplaySpans::default(),
            unknown: ReplaySpans::default(),
            decisions: Vec::new(),
            target: target.collect(),
            values: values.map(|metric| MetricValues { metric: metric.name.clone(), points: Vec::new() }).collect(),
        }
    }

    /// Adds the time since the last event to everything that holds.
    pub fn advance(&mut self, now: Timestamp) {
        let time = now.duration_since(self.last);
        self.beyond.iter_mut().for_each(|span| span.advance(time));
        self.raised.iter_mut().for_each(|span| span.advance(time));
        self.held.advance(time);
        self.bounds.advance(time);
        self.unknown.advance(time);
        self.last = now;
    }

    /// Records an evaluation of the levels.
    pub fn evaluated(&mut self, status: &MonitoringStatus, now: Timestamp) {
        self.evaluations += 1;
        for values in &mut self.values {
            values.points.push((now, value(status, &values.metric)));
        }
        for (beyond, raised) in self.beyond.iter_mut().zip(&mut self.raised) {
            let TalliedAlarm { metric, side, .. } = &beyond.of;
            let is_raised = status.alarms.iter().any(|alarm| alarm.metric == *metric && alarm.side == *side);
            let levels = self.rules.watches.levels_of(metric);
            let number = value(status, metric);
            let is_beyond = match side {
                Side::Low | Side::High | Side::Equal => {
                    levels.zip(number).is_some_and(|(levels, number)| levels.is_beyond(*side, number.into()))
                }
                Side::Missing | Side::Target => is_raised,
            };
            raised.set(is_raised);
            beyond.set(is_beyond);
        }
        self.unknown.set(status.unknown.iter().map(|unknown| (unknown.metric.clone(), unknown.message.as_str())));
        let is_bound = |reason: &&str| [LoopReason::AtMax.as_str(), LoopReason::AtMin.as_str()].contains(reason);
        let bound = status.tracking.as_ref().map(|tracking| tracking.reason.as_str()).filter(is_bound);
        self.bounds.set(bound.into_iter().map(|reason| (REPLICAS.to_owned(), reason)));
    }

    /// Records the state of the last decision.
    pub fn decided(&mut self, stages: &ReplayedStages<SimulatedTarget>, now: Timestamp) {
        let decided = stages.decided(now);
        self.held.set(decided.rejected.iter().map(|one| (one.when.to_string(), one.reason.as_str())));
        let Some(chosen) = &decided.chosen else { return };
        if self.decisions.last().is_none_or(|last| last.shown.seq != chosen.seq) {
            self.decisions.push(tallied(chosen, &decided));
        }
        let Some(last) = self.decisions.last_mut() else { return };
        last.shown.outcome = chosen.outcome;
        last.act = decided.acts.iter().find(|act| act.seq == chosen.seq).cloned();
        if stages.execution.seq == Some(chosen.seq) {
            let execution = &stages.execution;
            last.shown.before.clone_from(&execution.before);
            last.shown.after.clone_from(&execution.after);
            last.shown.message.clone_from(&execution.message);
        }
        for (dimension, value) in stages.target.values() {
            let last = self.target.iter().rev().find(|change| change.dimension == *dimension);
            if last.is_none_or(|last| last.value != *value) {
                self.target.push(TargetChange { at: now, dimension: dimension.clone(), value: value.clone() });
            }
        }
    }

    /// The report at the end. `decided`: the last status of the Decision.
    pub fn report(self, decided: &DecisionStatus, start: Timestamp, limits: Vec<String>) -> ReplayReport {
        let acts: Vec<Act> = self.decisions.iter().filter_map(|decision| decision.act.clone()).collect();
        let is_served = |metric: &str| self.decisions.iter().any(|decision| decision.metric == metric);
        let wanted = decided.counters.iter().filter(|counter| counter.wanted > 0);
        let starved = wanted.filter(|counter| !self.decisions.is_empty() && !is_served(&counter.metric));
        let starved = starved.map(|counter| counter.metric.clone()).collect();
        let decisions: Vec<ReplayedDecision> = self.decisions.into_iter().map(|decision| decision.shown).collect();
        let alarms = self.beyond.into_iter().zip(self.raised).map(|(beyond, raised)| AlarmTime {
            beyond_seconds: beyond.seconds(),
            raised_seconds: raised.seconds(),
            raised: raised.times,
            metric: beyond.of.metric,
            side: beyond.of.side,
            level: beyond.of.level,
        });
        let held = self.held.0.into_iter().chain(self.bounds.0).map(|span| {
            let (times, seconds, (when, reason)) = (span.times, span.seconds(), span.of);
            HeldTime { when, reason, times, seconds }
        });
        let unknown = self.unknown.0.into_iter().map(|span| {
            let (times, seconds, (metric, reason)) = (span.times, span.seconds(), span.of);
            UnknownTime { metric, reason, times, seconds }
        });
        ReplayReport {
            name: self.rules.name.clone(),
            start,
            end: self.last,
            effect: self.rules.effect.describe(self.rules.delay),
            evaluations: self.evaluations,
            totals: ReplayTotals {
                reversals: u64::try_from(reversals(&acts).len()).unwrap_or(u64::MAX),
                ..ReplayTotals::of(&decisions)
            },
            decisions,
            alarms: alarms.collect(),
            held: held.collect(),
            starved,
            unknown: unknown.collect(),
            target: self.target,
            limits,
            values: self.values,
        }
    }
}

/// The alarms of a metric: those of its levels, and the one of an action that tracks it.
fn alarms(rules: &ReplayRules, metric: &Metric) -> Vec<TalliedAlarm> {
    let level = |side| match side {
        Side::Low => metric.low.as_ref().map(|level| level.raise.0.clone()),
        Side::High => metric.high.as_ref().map(|level| level.raise.0.clone()),
        Side::Equal => metric.equal.as_ref().map(|equal| equal.to.0.clone()),
        Side::Missing | Side::Target => None,
    };
    let of_levels = rules.watches.levels_of(&metric.name).into_iter().flat_map(|levels| levels.sides());
    let tracked = rules.watches.tracking.as_ref().filter(|tracking| tracking.tracks(&metric.name));
    let sides = of_levels.chain(tracked.map(|_| Side::Target));
    sides.map(|side| TalliedAlarm { metric: metric.name.clone(), side, level: level(side) }).collect()
}

/// Value of a metric in the status; None if it is unknown.
fn value(status: &MonitoringStatus, metric: &str) -> Option<f64> {
    if status.unknown.iter().any(|unknown| unknown.metric == metric) {
        return None;
    }
    let reading = status.values.iter().find(|reading| reading.metric == metric)?;
    quantity::number(reading.value.as_str()).ok()
}

/// A decision that was just made.
fn tallied(chosen: &Chosen, decided: &DecisionStatus) -> TalliedDecision {
    let entry = decided.history.iter().find(|entry| entry.seq == chosen.seq);
    let shown = ReplayedDecision {
        seq: chosen.seq,
        at: chosen.at.0,
        when: chosen.served().to_string(),
        value: entry.and_then(|entry| entry.value.as_ref()).map(|value| value.0.clone()),
        rung: usize::try_from(chosen.rung).unwrap_or(0) + 1,
        action: rung::describe(&chosen.action),
        before: chosen.replicas.map(|change| change.from.to_string()),
        after: chosen.replicas.map(|change| change.to.to_string()),
        outcome: None,
        message: None,
    };
    TalliedDecision { shown, metric: chosen.metric.clone(), act: None }
}
