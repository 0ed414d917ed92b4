//! Next status of a Monitoring: accepts or refuses a sample, stores its values, and raises and clears alarms. Decides
//! whether that status is worth a write.
//!
//! Must not know what an alarm causes, nor where a value comes from.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::level::{AlarmStage, Levels, MetricState, WhenMissing};
use super::rules::{
    Measurement, MonitoringRules, NO_MORE, NOT_SINCE, Observation, ObserveContext, ObserveTrigger, SAMPLE_INTERVAL,
    is_postponed,
};
use super::stored_values::{mark_unknown, metric_state, reading, shortened};
use super::tag::{self, SampleRefusal};
use super::tracked_number::{memory_rest, tracking_health};
use super::value::NOT_YET;
use crate::common::{HEARTBEAT, TRACKING, elapsed, micro_time, number_text};
use ganglion_api::closed_loop::Trace;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus, Reading, Tag, UnknownMetric};
use ganglion_core::conditions::{self, DATA_AVAILABLE, Health, Stamp};
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};

/// Minimum time between two writes that change only the reason of a missing value. A server may return a different text
/// each time.
const REASON_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

impl MonitoringRules {
    /// Applies all triggers in order. Returns the result of them all; None if there are none.
    pub fn observe_all(
        &self,
        before: &MonitoringStatus,
        triggers: &[ObserveTrigger],
        mut context: ObserveContext,
    ) -> Option<Observation> {
        let mut all: Option<Observation> = None;
        for trigger in triggers {
            let next = self.observe(all.as_ref().map_or(before, |all| &all.status), *trigger, context);
            // One state of the target leads to one pass.
            context.target = None;
            all = Some(match all {
                None => next,
                Some(all) => Observation { write: all.write || next.write, memory: all.memory, ..next },
            });
        }
        all
    }

    /// Computes the next status.
    pub fn observe(&self, before: &MonitoringStatus, trigger: ObserveTrigger, context: ObserveContext) -> Observation {
        if self.paused {
            return paused(before, context);
        }
        let mut status = before.clone();
        let last_tag = tag::latest([before.tag.as_ref(), context.last]);
        let tagged = self.tag_sample(trigger, last_tag, before, context.now);
        let refusal = tagged.as_ref().err().copied();
        let sample_tag = tagged.unwrap_or_default();
        if let (ObserveTrigger::Measured(measurement), Some(_)) = (trigger, &sample_tag) {
            self.store_values(&mut status, measurement, context.now);
        }
        self.drop_unwatched(&mut status);
        keep_unanswered(&mut status, context);
        self.expire_values(&mut status, context.now);
        if let Some(refusal) = refusal {
            count_refusal(&mut status, refusal);
            self.explain_refusal(&mut status, refusal);
        }
        self.evaluate_formulas(&mut status, context);
        let memory = self.track(&mut status, context);
        self.evaluate_alarms(&mut status, context);
        status.message = Some(message(&status.alarms));
        let data = data(&status, &self.assumptions(&status, context.now));
        let ready = Health::Good(LoopReason::Watching, "watches its metrics".to_owned());
        let tracking = tracking_health(&status);
        status.conditions =
            conditions_of(before, &ready, &[(DATA_AVAILABLE, Some(data)), (TRACKING, tracking)], context.now);
        let fresh = sample_tag.is_some() || needs_decision(before, &status);
        status.tag = match sample_tag {
            Some(tag) => Some(tag),
            None if fresh => Some(tag::without_sample(last_tag, context.now)),
            None => last_tag.cloned(),
        };
        if fresh {
            status.received = Some(micro_time(context.now));
        }
        let is_alarmed = !status.alarms.is_empty();
        status.valid_until = self.next_change(&status, context.now).filter(|_| is_alarmed).map(micro_time);
        let write = self.is_worth_a_write(before, &status, fresh, context);
        if write {
            status.term = Some(context.term.to_owned());
            status.heartbeat = Some(micro_time(context.now));
        } else {
            restore_reasons(before, &mut status);
        }
        Observation { status, write, fresh, memory }
    }

    /// Returns the tag of the measurement, or why it is refused; None if only time has passed.
    pub(super) fn tag_sample(
        &self,
        trigger: ObserveTrigger,
        last: Option<&Tag>,
        before: &MonitoringStatus,
        now: Timestamp,
    ) -> Result<Option<Tag>, SampleRefusal> {
        let ObserveTrigger::Measured(measurement) = trigger else { return Ok(None) };
        let Some(time) = &measurement.pushed else { return Ok(Some(tag::for_polled(last, now))) };
        match tag::for_pushed(last, time, self.delivery, now) {
            Ok(tag) => Ok(Some(tag)),
            // The later stages have this tag, but the process ended before this status was written.
            Err(SampleRefusal::Repeated) if tag::is_after(last, before.tag.as_ref()) => Ok(last.cloned()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Stores the values of a measurement. If a source has no value, its last one stands until it is too old.
    fn store_values(&self, status: &mut MonitoringStatus, measurement: &Measurement, now: Timestamp) {
        for (metric, levels) in &self.metrics {
            let Some(got) = measurement.values.get(metric) else { continue };
            match got.as_ref().map_err(Clone::clone).and_then(|value| reading(metric, value, now)) {
                Ok(reading) => {
                    // The metric stays unknown since the same time if the source repeats old measurements.
                    let is_over = elapsed(&reading.at, now) > levels.after;
                    match is_over && status.unknown.iter().any(|unknown| &unknown.metric == metric) {
                        true => mark_unknown(status, metric, NO_MORE, &now),
                        false => status.unknown.retain(|unknown| &unknown.metric != metric),
                    }
                    status.values.retain(|reading| &reading.metric != metric);
                    status.values.push(reading);
                }
                Err(why) => match standing_value(status, metric) {
                    Some(reading) => reading.problem = Some(shortened(&why)),
                    None => mark_unknown(status, metric, &why, &now),
                },
            }
        }
        for (metric, found) in &measurement.last_served {
            status.last_served.retain(|old| &old.metric != metric);
            status.last_served.push(found.clone());
        }
    }

    /// Removes metrics that are no longer in the spec, and sorts the others in the order of the spec.
    fn drop_unwatched(&self, status: &mut MonitoringStatus) {
        status.values.retain(|reading| self.place(&reading.metric).is_some());
        status.values.sort_by_key(|reading| self.place(&reading.metric));
        status.unknown.retain(|unknown| self.place(&unknown.metric).is_some());
        status.last_served.retain(|last| self.place(&last.metric).is_some());
        status.last_served.sort_by_key(|last| self.place(&last.metric));
    }

    /// Marks values that are too old as missing.
    fn expire_values(&self, status: &mut MonitoringStatus, now: Timestamp) {
        for (metric, levels) in &self.metrics {
            let is_formula = self.formulas.iter().any(|formula| &formula.metric == metric);
            if is_formula || status.unknown.iter().any(|unknown| &unknown.metric == metric) {
                continue;
            }
            match status.values.iter().find(|reading| &reading.metric == metric) {
                None => mark_unknown(status, metric, NOT_YET, &now),
                Some(reading) if elapsed(&reading.at, now) > levels.after => {
                    let why = reading.problem.clone();
                    mark_unknown(status, metric, why.as_deref().unwrap_or(NO_MORE), &now);
                }
                Some(_) => {}
            }
        }
        status.unknown.sort_by_key(|unknown| self.place(&unknown.metric));
    }

    /// Notes why the pushed metrics are unknown, if they are.
    fn explain_refusal(&self, status: &mut MonitoringStatus, refusal: SampleRefusal) {
        for (metric, _) in &self.keys {
            for unknown in status.unknown.iter_mut().filter(|unknown| &unknown.metric == metric) {
                unknown.message = refusal.message().to_owned();
            }
        }
    }

    /// Position of the metric in the spec.
    pub(super) fn place(&self, metric: &str) -> Option<usize> {
        self.metrics.iter().position(|(name, _)| name == metric)
    }

    /// Returns the values that the spec assumes for metrics without a value.
    fn assumptions(&self, status: &MonitoringStatus, now: Timestamp) -> Assumptions<'_> {
        let watched = self.metrics.iter();
        let values = watched.map(|(metric, levels)| {
            let assumed = match (levels.then, metric_state(status, metric, levels, now)) {
                (_, MetricState::Assumed(value)) => Assumption::Now(value.value),
                (WhenMissing::Assume(_), _) => Assumption::Soon,
                (WhenMissing::Hold | WhenMissing::Alarm, _) => Assumption::Never,
            };
            (metric.as_str(), assumed)
        });
        values.collect()
    }

    /// Raises and clears alarms.
    fn evaluate_alarms(&self, status: &mut MonitoringStatus, context: ObserveContext) {
        let now = context.now;
        let (raised, pending) = (std::mem::take(&mut status.alarms), std::mem::take(&mut status.pending));
        for (metric, levels) in &self.metrics {
            let value = metric_state(status, metric, levels, now);
            for unknown in status.unknown.iter_mut().filter(|unknown| &unknown.metric == metric) {
                unknown.assumed = match value {
                    MetricState::Assumed(value) => Some(number_text(value.value)),
                    MetricState::Known(_) | MetricState::Standing(_) | MetricState::Unknown | MetricState::Missing => {
                        None
                    }
                };
            }
            for side in levels.sides() {
                let before = match (since(&raised, metric, side), since(&pending, metric, side)) {
                    (Some(since), _) => AlarmStage::Raised(since),
                    (None, Some(since)) => AlarmStage::Pending(since),
                    (None, None) => AlarmStage::Off,
                };
                match levels.step(side, before, value, now) {
                    AlarmStage::Off => {}
                    AlarmStage::Pending(since) => status.pending.push(alarm(metric, side, since, levels, value)),
                    AlarmStage::Raised(since) => status.alarms.push(alarm(metric, side, since, levels, value)),
                }
            }
        }
        let target = self.target_alarm(&raised, status, context);
        status.alarms.extend(target);
    }
}

/// Time since which an alarm is in the list.
fn since(alarms: &[AlarmState], metric: &str, side: Side) -> Option<Timestamp> {
    alarms.iter().find(|alarm| alarm.metric == metric && alarm.side == side).map(|alarm| alarm.since.0)
}

fn alarm(metric: &str, side: Side, since: Timestamp, levels: &Levels, value: MetricState) -> AlarmState {
    AlarmState {
        metric: metric.to_owned(),
        side,
        since: micro_time(since),
        excess: levels.excess(side, value).map(number_text),
        unknown: !matches!(value, MetricState::Known(_)),
        held: side != Side::Missing && !matches!(value, MetricState::Known(_) | MetricState::Assumed(_)),
    }
}

/// Lets the age of values whose source has not answered yet count from the start of this process: the stored time is
/// that of the last write, and the source may have answered often since. Such a value leads to no decision, and counts
/// as unknown where another metric would lower capacity.
fn keep_unanswered(status: &mut MonitoringStatus, context: ObserveContext) {
    for reading in status.values.iter_mut().filter(|reading| context.unanswered.contains(&reading.metric)) {
        reading.at = micro_time(reading.at.0.max(context.watched_since));
        reading.problem.get_or_insert_with(|| NOT_SINCE.to_owned());
    }
}

/// Returns the last value of the metric, unless it is unknown.
fn standing_value<'a>(status: &'a mut MonitoringStatus, metric: &str) -> Option<&'a mut Reading> {
    if status.unknown.iter().any(|unknown| unknown.metric == metric) {
        return None;
    }
    status.values.iter_mut().find(|reading| reading.metric == metric)
}

fn count_refusal(status: &mut MonitoringStatus, refusal: SampleRefusal) {
    let refused = status.refused.get_or_insert_default();
    let count = match refusal {
        SampleRefusal::OutOfOrder => &mut refused.out_of_order,
        SampleRefusal::Repeated => &mut refused.repeated,
        SampleRefusal::FromFuture => &mut refused.from_future,
        SampleRefusal::Unreadable => &mut refused.unreadable,
    };
    *count = count.saturating_add(1);
    refused.last = Some(refusal.reason());
}

/// Restores the stored reasons of missing values: a reason that was not written must count as a change next time.
fn restore_reasons(before: &MonitoringStatus, status: &mut MonitoringStatus) {
    for old in &before.unknown {
        for new in status.unknown.iter_mut().filter(|new| new.metric == old.metric) {
            *new = UnknownMetric { assumed: new.assumed.clone(), ..old.clone() };
        }
    }
}

/// A paused loop has no alarms.
fn paused(before: &MonitoringStatus, context: ObserveContext) -> Observation {
    let health = Health::Good(LoopReason::Paused, "the loop is paused".into());
    let status = MonitoringStatus {
        message: Some("Paused".into()),
        alarms: Vec::new(),
        pending: Vec::new(),
        valid_until: None,
        conditions: conditions_of(before, &health, &[], context.now),
        ..before.clone()
    };
    let write = &status != before;
    Observation { status, write, fresh: false, memory: None }
}

impl MonitoringRules {
    /// Whether the status is worth a write.
    fn is_worth_a_write(
        &self,
        before: &MonitoringStatus,
        after: &MonitoringStatus,
        fresh: bool,
        context: ObserveContext,
    ) -> bool {
        let edge = self.is_edge(before, after, fresh, context);
        let details_after = self.details_after(before, after, context);
        let change = match (edge, details_after) {
            (true, _) => StatusChange::Edge,
            (false, Some(_)) => StatusChange::Details,
            (false, None) => StatusChange::None,
        };
        let policy = StatusPolicy { details_after: details_after.unwrap_or(HEARTBEAT), heartbeat: Some(HEARTBEAT) };
        // A time in the future comes from before the clock was set back.
        let last = before.heartbeat.as_ref().map(|last| last.0).filter(|last| *last <= context.now);
        policy.timing(change, last, context.now) == StatusTiming::Now
    }

    /// Whether something changed that people, tools or the decision act on.
    fn is_edge(
        &self,
        before: &MonitoringStatus,
        after: &MonitoringStatus,
        fresh: bool,
        context: ObserveContext,
    ) -> bool {
        let is_traced = match self.trace {
            Trace::EverySample => fresh,
            Trace::OnChange => false,
        };
        let is_of_this_term = context.written.term.as_deref() == Some(context.term);
        is_traced
            || (!is_of_this_term && (context.awaited || !after.alarms.is_empty()))
            || context.written.valid_until.as_ref().is_some_and(|until| until.0 <= context.now)
            || edges(before) != edges(after)
            || !conditions::alike(&before.conditions, &after.conditions)
            || least_served(before) != least_served(after)
            || (reasons(before) != reasons(after) && first_reason(before, after))
    }

    /// Minimum time since the last write after which the other changes are worth one; None if nothing changed.
    fn details_after(
        &self,
        before: &MonitoringStatus,
        after: &MonitoringStatus,
        context: ObserveContext,
    ) -> Option<SignedDuration> {
        let mut rests = Vec::new();
        if is_postponed(after, context.written) {
            rests.push(SAMPLE_INTERVAL);
        }
        // Refused samples are reported at most once per interval, so that a flood of them causes no flood of writes.
        if before.refused != after.refused {
            rests.push(self.interval);
        }
        if reasons(before) != reasons(after) {
            rests.push(REASON_INTERVAL);
        }
        rests.extend(memory_rest(after, context.written, self.interval));
        rests.into_iter().min().map(|rest| rest.min(HEARTBEAT))
    }
}

/// Whether a decision is needed even without a sample: the alarms changed, or one relies on an assumed or missing
/// value.
fn needs_decision(before: &MonitoringStatus, after: &MonitoringStatus) -> bool {
    (alarm_states(before), wanted(before)) != (alarm_states(after), wanted(after))
        || after.alarms.iter().any(|alarm| alarm.unknown && !alarm.held)
}

/// Returns the part of a status that is written as soon as it changes: alarms and missing values.
fn edges(status: &MonitoringStatus) -> impl PartialEq + '_ {
    let pending: Vec<(&str, Side)> = status.pending.iter().map(|alarm| (alarm.metric.as_str(), alarm.side)).collect();
    let unknown: Vec<&str> = status.unknown.iter().map(|unknown| unknown.metric.as_str()).collect();
    (alarm_states(status), wanted(status), pending, unknown, status.message.as_deref())
}

/// Returns the reason of each missing value.
fn reasons(status: &MonitoringStatus) -> Vec<&str> {
    status.unknown.iter().map(|unknown| unknown.message.as_str()).collect()
}

/// Whether a source now reports why a value is missing and none did before.
fn first_reason(before: &MonitoringStatus, after: &MonitoringStatus) -> bool {
    before.unknown.iter().filter(|old| !has_reason(old)).any(|old| {
        let mut unknown = after.unknown.iter();
        unknown.any(|new| new.metric == old.metric && has_reason(new))
    })
}

/// Whether a source has reported why the value is missing.
fn has_reason(unknown: &UnknownMetric) -> bool {
    unknown.message != NOT_YET && unknown.message != NO_MORE
}

/// Returns the part of a status that a decision depends on.
fn alarm_states(status: &MonitoringStatus) -> Vec<(&str, Side, bool, bool)> {
    let alarms = status.alarms.iter();
    alarms.map(|alarm| (alarm.metric.as_str(), alarm.side, alarm.unknown, alarm.held)).collect()
}

/// Returns the change that an alarm on side Target asks for.
fn wanted(status: &MonitoringStatus) -> Option<(i32, i32)> {
    let is_raised = status.alarms.iter().any(|alarm| alarm.side == Side::Target);
    status.tracking.as_ref().filter(|_| is_raised).map(|state| (state.replicas, state.wants))
}

fn least_served(status: &MonitoringStatus) -> Vec<(&str, Option<&str>, &[String])> {
    status
        .last_served
        .iter()
        .map(|last| (last.metric.as_str(), last.least_served.as_deref(), last.rank.as_slice()))
        .collect()
}

/// Message that lists the alarms, such as `Low cpu,Low memory`, or `No Event`.
fn message(alarms: &[AlarmState]) -> String {
    if alarms.is_empty() {
        return "No Event".into();
    }
    let words: Vec<String> = alarms.iter().map(|alarm| format!("{} {}", alarm.side, alarm.metric)).collect();
    words.join(",")
}

/// Value that the spec assumes for a metric without a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Assumption {
    Never,
    /// A value, once the last one is too old.
    Soon,
    /// This value.
    Now(f64),
}

/// Assumption for each metric, in the order of the spec.
type Assumptions<'a> = Vec<(&'a str, Assumption)>;

/// State of a condition, such as whether the metrics have values: status, reason and message.
type DataState = (&'static str, LoopReason, String);

/// Returns whether the metrics have values. A missing value is no problem if the spec assumes one: as soon as the
/// assumption is in effect, or before that if the metric once had a value.
fn data(status: &MonitoringStatus, assumptions: &Assumptions) -> DataState {
    let (mut lost, mut assumed) = (Vec::new(), Vec::new());
    for unknown in &status.unknown {
        let (metric, why) = (&unknown.metric, &unknown.message);
        let has_value = || status.values.iter().any(|reading| &reading.metric == metric);
        match assumptions.iter().find(|(name, _)| name == metric).map(|(_, assumption)| *assumption) {
            Some(Assumption::Now(value)) => assumed.push(format!("{metric} is {} ({why})", number_text(value).0)),
            Some(Assumption::Soon) if has_value() => assumed.push(format!("{metric}, soon ({why})")),
            Some(Assumption::Soon | Assumption::Never) | None => lost.push(format!("{metric} ({why})")),
        }
    }
    // Sources that have not answered yet are no fault: a slow one is awaited while others have answered.
    let all_awaited = status.unknown.iter().all(|unknown| unknown.message == NOT_YET);
    let all = assumptions.len();
    let known = all.saturating_sub(status.unknown.len());
    match (lost.is_empty(), assumed.is_empty()) {
        (true, true) => ("True", LoopReason::AllKnown, format!("{known} of {all} metrics have a value")),
        (true, false) => {
            let message = format!("{known} of {all} metrics have a value; assumed: {}", assumed.join(", "));
            ("True", LoopReason::AllKnown, message)
        }
        (false, _) if status.values.is_empty() || all_awaited => {
            ("Unknown", LoopReason::NoSample, format!("no value yet: {}", lost.join(", ")))
        }
        (false, _) => ("False", LoopReason::SomeUnknown, format!("unknown: {}", lost.join(", "))),
    }
}

/// Returns the conditions, without a generation: see [`MonitoringStatus`].
fn conditions_of(
    before: &MonitoringStatus,
    ready: &Health<LoopReason>,
    states: &[(&str, Option<DataState>)],
    now: Timestamp,
) -> Vec<Condition> {
    let (old, stamp) = (&before.conditions, Stamp { generation: 0, now });
    let mut all = conditions::summary(old, ready, stamp);
    for (kind, state) in states {
        let Some((status, reason, message)) = state else { continue };
        all.push(conditions::condition(old, kind, status, reason.as_str(), message, stamp));
    }
    for condition in &mut all {
        condition.observed_generation = None;
    }
    all
}
