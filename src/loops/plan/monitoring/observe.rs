//! Next status of a Monitoring: accepts or refuses a sample, stores its values, and raises and clears alarms.
//!
//! Must not know what an alarm causes, nor where a value comes from.

use jiff::Timestamp;

use super::changes::alarm_states;
use super::level::{AlarmStage, Levels, MetricState, WhenMissing};
use super::rules::{Measurement, MonitoringRules, NO_MORE, NOT_YET, Observation, ObserveContext, ObserveTrigger};
use super::status_texts::{Assumption, Assumptions, health, message, summary};
use super::tag::{self, SampleRefusal};
use crate::common::{elapsed, micro_time, number_text};
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus, Reading, UnknownMetric};
use ganglion_api::sample::Tag;
use ganglion_api::scalars::Number;
use ganglion_core::conditions::Health;
use ganglion_core::quantity;
use ganglion_core::words::kind_of_text;

/// Maximum length of the reason of a missing value, in characters.
const MAX_WHY: usize = 400;

impl MonitoringRules {
    /// Applies all triggers in order. Returns the resulting status, if there are any, and whether it is worth a write.
    pub fn observe_all(
        &self,
        before: &MonitoringStatus,
        triggers: &[ObserveTrigger],
        context: ObserveContext,
    ) -> (Option<MonitoringStatus>, bool) {
        let (mut status, mut write) = (None, false);
        for trigger in triggers {
            let observation = self.observe(status.as_ref().unwrap_or(before), *trigger, context);
            write |= observation.write;
            status = Some(observation.status);
        }
        (status, write)
    }

    /// Computes the next status.
    pub fn observe(&self, before: &MonitoringStatus, trigger: ObserveTrigger, context: ObserveContext) -> Observation {
        let last = tag::latest([before.tag.as_ref(), context.last]);
        let mut status = before.clone();
        if self.paused {
            return paused(before, context);
        }
        let measured = match trigger {
            ObserveTrigger::Time => None,
            ObserveTrigger::Measured(measurement) => match &measurement.pushed {
                None => Some((measurement, tag::for_polled(last, context.now))),
                Some(time) => match tag::for_pushed(last, time, self.delivery, context.now) {
                    Ok(tag) => Some((measurement, tag)),
                    // The later stages have this tag, but the process ended before this status was written.
                    Err(SampleRefusal::Repeated) if tag::is_after(last, before.tag.as_ref()) => {
                        last.map(|last| (measurement, last.clone()))
                    }
                    Err(refusal) => {
                        count_refusal(&mut status, refusal);
                        None
                    }
                },
            },
        };
        if let Some((measurement, tag)) = &measured {
            self.store_values(&mut status, measurement, tag);
        }
        self.drop_unwatched(&mut status);
        self.expire_values(&mut status, context.now);
        self.evaluate_alarms(&mut status, context.now);
        status.message = Some(message(&status.alarms));
        status.conditions = summary(before, &health(&status, &self.assumptions(&status, context.now)), context.now);
        // A change of alarms, or an alarm that relies on an assumed or missing value, needs a decision even without a
        // sample.
        let alarms_changed = alarm_states(before) != alarm_states(&status)
            || status.alarms.iter().any(|alarm| alarm.unknown && !alarm.held);
        let fresh = measured.is_some() || alarms_changed;
        status.tag = match measured {
            Some((_, tag)) => Some(tag),
            None if alarms_changed => Some(tag::without_sample(last, context.now)),
            None => last.cloned(),
        };
        if fresh {
            status.received = Some(micro_time(context.now));
        }
        let alarmed = !status.alarms.is_empty();
        status.valid_until = self.next_change(&status, context.now).filter(|_| alarmed).map(micro_time);
        let write = self.worth_a_write(before, &status, fresh, context);
        if write {
            status.term = Some(context.term.to_owned());
            status.heartbeat = Some(micro_time(context.now));
        } else {
            // A reason that was not written must count as a change next time.
            for old in &before.unknown {
                status.unknown.iter_mut().filter(|new| new.metric == old.metric).for_each(|new| *new = old.clone());
            }
        }
        Observation { status, write, fresh }
    }

    /// Stores the values of a measurement.
    fn store_values(&self, status: &mut MonitoringStatus, measurement: &Measurement, tag: &Tag) {
        for (metric, _) in &self.metrics {
            let Some(got) = measurement.values.get(metric) else { continue };
            match got.as_ref().map_err(Clone::clone).and_then(|point| Ok((stored_number(&point.value)?, point.at))) {
                Ok((value, at)) => {
                    let at = at.map_or(tag.time.clone(), |at| micro_time(at.min(tag.time.0)));
                    status.unknown.retain(|unknown| &unknown.metric != metric);
                    status.values.retain(|reading| &reading.metric != metric);
                    status.values.push(Reading { metric: metric.clone(), value, at });
                }
                Err(why) => mark_unknown(status, metric, &why, &tag.time.0),
            }
        }
        for (metric, found) in &measurement.last_served {
            status.last_served.retain(|old| &old.metric != metric);
            status.last_served.push(found.clone());
        }
    }

    /// Removes metrics that are no longer in the spec, and sorts the others in the order of the spec.
    fn drop_unwatched(&self, status: &mut MonitoringStatus) {
        let place = |name: &str| self.metrics.iter().position(|(metric, _)| metric == name);
        status.values.retain(|reading| place(&reading.metric).is_some());
        status.values.sort_by_key(|reading| place(&reading.metric));
        status.unknown.retain(|unknown| place(&unknown.metric).is_some());
        status.last_served.retain(|found| place(&found.metric).is_some());
        status.last_served.sort_by_key(|found| place(&found.metric));
    }

    /// Marks values that are too old as missing.
    fn expire_values(&self, status: &mut MonitoringStatus, now: Timestamp) {
        for (metric, levels) in &self.metrics {
            if status.unknown.iter().any(|unknown| &unknown.metric == metric) {
                continue;
            }
            match status.values.iter().find(|reading| &reading.metric == metric) {
                None => mark_unknown(status, metric, NOT_YET, &now),
                Some(reading) if elapsed(&reading.at, now) > levels.after => {
                    mark_unknown(status, metric, NO_MORE, &now);
                }
                Some(_) => {}
            }
        }
        let place = |name: &str| self.metrics.iter().position(|(metric, _)| metric == name);
        status.unknown.sort_by_key(|unknown| place(&unknown.metric));
    }

    /// Returns the values that the spec assumes for metrics without a value.
    fn assumptions(&self, status: &MonitoringStatus, now: Timestamp) -> Assumptions<'_> {
        let watched = self.metrics.iter();
        let values = watched.map(|(metric, levels)| {
            let assumed = match (levels.then, value(status, metric, levels, now)) {
                (_, MetricState::Assumed(value)) => Assumption::Now(value),
                (WhenMissing::Assume(_), _) => Assumption::Soon,
                (WhenMissing::Hold | WhenMissing::Alarm, _) => Assumption::Never,
            };
            (metric.as_str(), assumed)
        });
        values.collect()
    }

    /// Raises and clears alarms.
    fn evaluate_alarms(&self, status: &mut MonitoringStatus, now: Timestamp) {
        let (old_alarms, old_pending) = (std::mem::take(&mut status.alarms), std::mem::take(&mut status.pending));
        let find = |list: &[AlarmState], metric: &str, side: Side| {
            list.iter().find(|alarm| alarm.metric == metric && alarm.side == side).map(|alarm| alarm.since.0)
        };
        for (metric, levels) in &self.metrics {
            let value = value(status, metric, levels, now);
            for side in levels.sides() {
                let before = match (find(&old_alarms, metric, side), find(&old_pending, metric, side)) {
                    (Some(since), _) => AlarmStage::Raised(since),
                    (None, Some(since)) => AlarmStage::Pending(since),
                    (None, None) => AlarmStage::Off,
                };
                let state = |since| AlarmState {
                    metric: metric.clone(),
                    side,
                    since: micro_time(since),
                    excess: levels.excess(side, value).map(number_text),
                    unknown: !matches!(value, MetricState::Known(_)),
                    held: side != Side::Missing && matches!(value, MetricState::Unknown | MetricState::Missing),
                };
                match levels.step(side, before, value, now) {
                    AlarmStage::Off => {}
                    AlarmStage::Pending(since) => status.pending.push(state(since)),
                    AlarmStage::Raised(since) => status.alarms.push(state(since)),
                }
            }
        }
    }
}

/// Returns the state of a metric's value.
fn value(status: &MonitoringStatus, metric: &str, levels: &Levels, now: Timestamp) -> MetricState {
    let reading = status.values.iter().find(|reading| reading.metric == metric);
    let lost = status.unknown.iter().find(|unknown| unknown.metric == metric);
    match (lost, reading) {
        (None, Some(reading)) => {
            quantity::number(reading.value.as_str()).map_or(MetricState::Unknown, MetricState::Known)
        }
        (lost, reading) => {
            // A metric that never had a value counts as missing from the time when that was first noticed.
            let from = reading.map(|reading| &reading.at).or(lost.map(|lost| &lost.since));
            let over = from.is_some_and(|from| elapsed(from, now) > levels.after);
            match levels.then {
                WhenMissing::Assume(value) if over => MetricState::Assumed(value),
                WhenMissing::Alarm if over => MetricState::Missing,
                WhenMissing::Hold | WhenMissing::Assume(_) | WhenMissing::Alarm => MetricState::Unknown,
            }
        }
    }
}

/// Converts a number to the format of a status. Error messages leave the text out, since it may be the answer of a
/// source.
fn stored_number(text: &str) -> Result<Number, String> {
    let number = quantity::number(text).map_err(|_| format!("{}, not a number", kind_of_text(text)))?;
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => (Some(digits(rest)), &rest[digits(rest)..]),
        None => (None, rest),
    };
    let fits = |digits: usize| (1..=18).contains(&digits);
    if fits(whole.len()) && fraction.is_none_or(fits) && digits(suffix.trim_start_matches(['e', 'E', '+', '-'])) <= 2 {
        return Ok(text.into());
    }
    match number.abs() {
        size if size >= 1e99 => Err("the number is too large".to_owned()),
        size if size < 1e-99 => Ok("0".into()),
        _ => Ok(Number(format!("{number:.15e}"))),
    }
}

fn mark_unknown(status: &mut MonitoringStatus, metric: &str, why: &str, now: &Timestamp) {
    let message: String = why.chars().take(MAX_WHY).collect();
    match status.unknown.iter_mut().find(|unknown| unknown.metric == metric) {
        Some(unknown) => unknown.message = message,
        None => status.unknown.push(UnknownMetric { metric: metric.to_owned(), since: micro_time(*now), message }),
    }
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

/// A paused loop has no alarms.
fn paused(before: &MonitoringStatus, context: ObserveContext) -> Observation {
    let health = Health::Good(LoopReason::Paused, "the loop is paused".into());
    let status = MonitoringStatus {
        message: Some("Paused".into()),
        alarms: Vec::new(),
        pending: Vec::new(),
        valid_until: None,
        conditions: summary(before, &health, context.now),
        ..before.clone()
    };
    let write = &status != before;
    Observation { status, write, fresh: false }
}
