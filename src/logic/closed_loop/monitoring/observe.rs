//! The first hop: what was measured in, alarms out.
//!
//! Decides which sample counts, what is known of each metric, which alarm stands, and when that is worth a write. Must not
//! know what is done about an alarm, nor where a value came from.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::level::{Levels, Stand, Then, Value};
use super::status_texts::{health, message, standing, summary};
use super::tag::{self, Refusal, Ways};
use crate::api::closed_loop::Trace;
use crate::api::closed_loop::metric::Side;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::monitoring::{AlarmState, LastServed, MonitoringSpec, MonitoringStatus, Reading, UnknownMetric};
use crate::api::sample::{Sample, Tag};
use crate::api::scalars::Number;
use crate::logic::closed_loop::common::{Fault, micros, shown, since, span};
use crate::logic::closed_loop::conditions::Health;
use crate::logic::quantity;

/// How often the sources are asked where the spec does not say.
const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

/// The longest reason why a value is unknown, in characters.
const MAX_WHY: usize = 400;

/// Nobody has said yet why there is no value.
pub(super) const NOT_YET: &str = "no value has come yet";

/// Values no longer come, and nobody says why.
pub(super) const NO_MORE: &str = "no value has come for too long";

/// What is watched, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    metrics: Vec<(String, Levels)>,
    /// Key in a pushed sample, by metric.
    keys: Vec<(String, String)>,
    ways: Ways,
    /// How often the sources are asked.
    pub interval: SignedDuration,
    pub(super) trace: Trace,
    paused: bool,
}

/// What came of asking for one metric: a value, or why there is none.
pub type Got = Result<Point, String>;

/// A value, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The value.
    pub value: String,
    /// When it was measured, where its source says so. Default: with the rest of the measurement.
    pub at: Option<Timestamp>,
}

impl From<String> for Point {
    fn from(value: String) -> Self {
        Self { value, at: None }
    }
}

/// What was measured at one moment: of each metric that was asked for, the value or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// When its sender measured it, RFC 3339. None: we asked for it, now.
    pub pushed: Option<String>,
    /// What came of it. A metric that was not asked for is left out, and keeps its last value for a while.
    pub values: BTreeMap<String, Got>,
    /// What the rule LastServed found, for each metric with a source `loop`.
    pub last_served: Vec<(String, LastServedFound)>,
}

/// See [`crate::logic::closed_loop::tuning::last_served`].
pub type LastServedFound = LastServed;

/// What is new.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// Something was measured.
    Measured(&'a Measurement),
    /// Only time has passed.
    Time,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The next status.
    pub status: MonitoringStatus,
    /// It is worth a write.
    pub write: bool,
    /// There is something new to decide about.
    pub fresh: bool,
}

/// Where the loop's other hops are.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The last tag that any hop of the loop has seen: a hop that forgot takes up there.
    pub last: Option<&'a Tag>,
    /// The time.
    pub now: Timestamp,
}

impl Watch {
    /// Reads the spec.
    ///
    /// # Errors
    ///
    /// A number or duration cannot be read.
    pub fn parse(spec: &MonitoringSpec) -> Result<Self, Fault> {
        let interval = match &spec.interval {
            Some(interval) => span("interval", Some(interval))?,
            None => DEFAULT_INTERVAL,
        };
        let mut metrics = Vec::new();
        let mut keys = Vec::new();
        for metric in &spec.metrics {
            metrics.push((metric.name.clone(), Levels::parse(metric, interval)?));
            if let Some(push) = &metric.source.push {
                keys.push((metric.name.clone(), push.key.clone().unwrap_or_else(|| metric.name.clone())));
            }
        }
        let ways = if keys.is_empty() || keys.len() == metrics.len() { Ways::One } else { Ways::Both };
        Ok(Self { metrics, keys, ways, interval, trace: spec.trace, paused: spec.paused })
    }

    /// What a pushed sample says: every metric that is pushed is asked for.
    #[must_use]
    pub fn pushed(&self, sample: &Sample) -> Measurement {
        let value = |key: &str| match sample.values.get(key) {
            Some(value) => Ok(Point::from(value.clone())),
            None => Err(format!("the sample has no {key}")),
        };
        Measurement {
            pushed: Some(sample.time.clone()),
            values: self.keys.iter().map(|(metric, key)| (metric.clone(), value(key))).collect(),
            last_served: Vec::new(),
        }
    }

    /// Whether a pushed sample may be news, beside the status as it is stored and the last tag that any hop has seen. For who
    /// has just started: later, each other sample is.
    #[must_use]
    pub fn may_be_news(&self, stored: &MonitoringStatus, sample: &Sample, around: Around) -> bool {
        let last = tag::latest([stored.tag.as_ref(), around.last]);
        match tag::next(last, &sample.time, self.ways, around.now) {
            Ok(_) | Err(Refusal::FromFuture | Refusal::Unreadable) => true,
            Err(Refusal::Repeated) => tag::is_after(last, stored.tag.as_ref()),
            Err(Refusal::OutOfOrder) => false,
        }
    }

    /// When time alone raises an alarm that is pending.
    #[must_use]
    pub fn ripe(&self, status: &MonitoringStatus) -> Option<Timestamp> {
        let levels = |name: &str| self.metrics.iter().find(|(metric, _)| metric == name).map(|(_, levels)| levels);
        status.pending.iter().filter_map(|alarm| levels(&alarm.metric)?.ripe(alarm.side, alarm.since.0)).min()
    }

    /// The next status.
    #[must_use]
    pub fn observe(&self, before: &MonitoringStatus, news: News, around: Around) -> Seen {
        let last = tag::latest([before.tag.as_ref(), around.last]);
        let mut status = before.clone();
        if self.paused {
            return paused(before, around);
        }
        let measured = match news {
            News::Time => None,
            News::Measured(measurement) => match &measurement.pushed {
                None => Some((measurement, tag::asked(last, around.now))),
                Some(time) => match tag::next(last, time, self.ways, around.now) {
                    Ok(tag) => Some((measurement, tag)),
                    // The later hops have gone by it, but it was not worth a write, and so was lost with the process.
                    Err(Refusal::Repeated) if tag::is_after(last, before.tag.as_ref()) => {
                        last.map(|last| (measurement, last.clone()))
                    }
                    Err(refusal) => {
                        refuse(&mut status, refusal);
                        None
                    }
                },
            },
        };
        if let Some((measurement, tag)) = &measured {
            self.take(&mut status, measurement, tag);
        }
        self.forget(&mut status);
        self.age(&mut status, around.now);
        let known = self.judge(&mut status, around.now);
        status.message = Some(message(&status.alarms));
        status.conditions = summary(before, &health(&status, known), around.now);
        // Alarms that come or go, or rest on what is missing, are news though no sample came.
        let stirred =
            standing(before) != standing(&status) || status.alarms.iter().any(|alarm| alarm.unknown && !alarm.held);
        let fresh = measured.is_some() || stirred;
        status.tag = match measured {
            Some((_, tag)) => Some(tag),
            None if stirred => Some(tag::without_sample(last, around.now)),
            None => last.cloned(),
        };
        let write = self.worth_a_write(before, &status, fresh, around.now);
        if write {
            status.heartbeat = Some(micros(around.now));
        } else {
            // What was not told is news the next time too.
            for old in &before.unknown {
                status.unknown.iter_mut().filter(|new| new.metric == old.metric).for_each(|new| *new = old.clone());
            }
        }
        Seen { status, write, fresh }
    }

    /// Takes over what was measured.
    fn take(&self, status: &mut MonitoringStatus, measurement: &Measurement, tag: &Tag) {
        for (metric, _) in &self.metrics {
            let Some(got) = measurement.values.get(metric) else { continue };
            match got.as_ref().map_err(Clone::clone).and_then(|point| Ok((kept(&point.value)?, point.at))) {
                Ok((value, at)) => {
                    let at = at.map_or(tag.time.clone(), |at| micros(at.min(tag.time.0)));
                    status.unknown.retain(|unknown| &unknown.metric != metric);
                    status.values.retain(|reading| &reading.metric != metric);
                    status.values.push(Reading { metric: metric.clone(), value, at });
                }
                Err(why) => lose(status, metric, &why, &tag.time.0),
            }
        }
        for (metric, found) in &measurement.last_served {
            status.last_served.retain(|old| &old.metric != metric);
            status.last_served.push(found.clone());
        }
    }

    /// Drops what belongs to metrics that are watched no more, and sorts the rest by their order.
    fn forget(&self, status: &mut MonitoringStatus) {
        let place = |name: &str| self.metrics.iter().position(|(metric, _)| metric == name);
        status.values.retain(|reading| place(&reading.metric).is_some());
        status.values.sort_by_key(|reading| place(&reading.metric));
        status.unknown.retain(|unknown| place(&unknown.metric).is_some());
        status.last_served.retain(|found| place(&found.metric).is_some());
        status.last_served.sort_by_key(|found| place(&found.metric));
    }

    /// Values that are too old are not known any more.
    fn age(&self, status: &mut MonitoringStatus, now: Timestamp) {
        for (metric, levels) in &self.metrics {
            if status.unknown.iter().any(|unknown| &unknown.metric == metric) {
                continue;
            }
            match status.values.iter().find(|reading| &reading.metric == metric) {
                None => lose(status, metric, NOT_YET, &now),
                Some(reading) if since(&reading.at, now) > levels.after => {
                    lose(status, metric, NO_MORE, &now);
                }
                Some(_) => {}
            }
        }
        let place = |name: &str| self.metrics.iter().position(|(metric, _)| metric == name);
        status.unknown.sort_by_key(|unknown| place(&unknown.metric));
    }

    /// Sets the alarms. Returns how many metrics are known.
    fn judge(&self, status: &mut MonitoringStatus, now: Timestamp) -> usize {
        let (old_alarms, old_pending) = (std::mem::take(&mut status.alarms), std::mem::take(&mut status.pending));
        let find = |list: &[AlarmState], metric: &str, side: Side| {
            list.iter().find(|alarm| alarm.metric == metric && alarm.side == side).map(|alarm| alarm.since.0)
        };
        let mut known = 0;
        for (metric, levels) in &self.metrics {
            let value = value(status, metric, levels, now);
            known += usize::from(matches!(value, Value::Known(_)));
            for side in levels.sides() {
                let before = match (find(&old_alarms, metric, side), find(&old_pending, metric, side)) {
                    (Some(since), _) => Stand::Standing(since),
                    (None, Some(since)) => Stand::Pending(since),
                    (None, None) => Stand::Off,
                };
                let state = |since| AlarmState {
                    metric: metric.clone(),
                    side,
                    since: micros(since),
                    excess: levels.excess(side, value).map(shown),
                    unknown: !matches!(value, Value::Known(_)),
                    held: side != Side::Missing && matches!(value, Value::Unknown | Value::Missing),
                };
                match levels.step(side, before, value, now) {
                    Stand::Off => {}
                    Stand::Pending(since) => status.pending.push(state(since)),
                    Stand::Standing(since) => status.alarms.push(state(since)),
                }
            }
        }
        known
    }
}

/// What is known of a metric.
fn value(status: &MonitoringStatus, metric: &str, levels: &Levels, now: Timestamp) -> Value {
    let reading = status.values.iter().find(|reading| reading.metric == metric);
    let lost = status.unknown.iter().find(|unknown| unknown.metric == metric);
    match (lost, reading) {
        (None, Some(reading)) => quantity::number(reading.value.as_str()).map_or(Value::Unknown, Value::Known),
        (lost, reading) => {
            // Without any value yet, the time counts from when it was first missed.
            let from = reading.map(|reading| &reading.at).or(lost.map(|lost| &lost.since));
            let over = from.is_some_and(|from| since(from, now) > levels.after);
            match levels.then {
                Then::Assume(value) if over => Value::Assumed(value),
                Then::Alarm if over => Value::Missing,
                Then::Hold | Then::Assume(_) | Then::Alarm => Value::Unknown,
            }
        }
    }
}

/// A number, in a form that a status can hold.
///
/// # Errors
///
/// The text is no number, or one beyond all measure.
fn kept(text: &str) -> Result<Number, String> {
    let number = quantity::number(text).map_err(|error| error.to_string())?;
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
        size if size >= 1e99 => Err("the value is too large to be one".to_owned()),
        size if size < 1e-99 => Ok("0".into()),
        _ => Ok(Number(format!("{number:.15e}"))),
    }
}

fn lose(status: &mut MonitoringStatus, metric: &str, why: &str, now: &Timestamp) {
    let message: String = why.chars().take(MAX_WHY).collect();
    match status.unknown.iter_mut().find(|unknown| unknown.metric == metric) {
        Some(unknown) => unknown.message = message,
        None => status.unknown.push(UnknownMetric { metric: metric.to_owned(), since: micros(*now), message }),
    }
}

fn refuse(status: &mut MonitoringStatus, refusal: Refusal) {
    let refused = status.refused.get_or_insert_default();
    let count = match refusal {
        Refusal::OutOfOrder => &mut refused.out_of_order,
        Refusal::Repeated => &mut refused.repeated,
        Refusal::FromFuture => &mut refused.from_future,
        Refusal::Unreadable => &mut refused.unreadable,
    };
    *count = count.saturating_add(1);
    refused.last = Some(refusal.reason());
}

/// A paused loop sees nothing, and so has no alarm.
fn paused(before: &MonitoringStatus, around: Around) -> Seen {
    let health = Health::Good(LoopReason::Paused, "the loop is paused".into());
    let status = MonitoringStatus {
        message: Some("Paused".into()),
        alarms: Vec::new(),
        pending: Vec::new(),
        conditions: summary(before, &health, around.now),
        ..before.clone()
    };
    let write = &status != before;
    Seen { status, write, fresh: false }
}
