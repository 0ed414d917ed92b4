//! The parsed spec of a Monitoring, and the input and output types of its stage.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::level::Levels;
use super::tag::{self, Delivery, SampleRefusal};
use crate::common::{FieldError, duration, later};
use ganglion_api::closed_loop::Trace;
use ganglion_api::monitoring::{LastServed, MonitoringSpec, MonitoringStatus};
use ganglion_api::sample::{Sample, Tag};
use ganglion_core::quantity;

/// The interval of polls if the spec has none.
const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

/// The reason of a missing value that never came and for which no source has reported an error.
pub(super) const NOT_YET: &str = "no value has been received yet";

/// The reason of a missing value that is too old and for which no source has reported an error.
pub(super) const NO_MORE: &str = "the last value is too old";

/// The parsed spec of a Monitoring.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitoringRules {
    pub(super) metrics: Vec<(String, Levels)>,
    /// Metric name and key in a pushed sample, for each pushed metric.
    keys: Vec<(String, String)>,
    pub(super) delivery: Delivery,
    /// The interval of polls.
    pub interval: SignedDuration,
    pub(super) trace: Trace,
    pub(super) paused: bool,
}

/// The result for one metric: a value, or why there is none.
pub type SourceResult = Result<SourceValue, String>;

/// A value as its source delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceValue {
    /// The value.
    pub value: String,
    /// When it was measured, if the source says so. Default: the time of the measurement.
    pub at: Option<Timestamp>,
}

impl From<String> for SourceValue {
    fn from(value: String) -> Self {
        Self { value, at: None }
    }
}

/// What was measured at one time: for each requested metric, its value or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// The sender's time, RFC 3339. None: the values were polled now.
    pub pushed: Option<String>,
    /// Results by metric. A metric that was not requested is not in the map and keeps its last value until that is too
    /// old.
    pub values: BTreeMap<String, SourceResult>,
    /// Results of the rule LastServed, for each metric with a source `loop`.
    pub last_served: Vec<(String, LastServed)>,
}

/// Why the stage is called.
#[derive(Clone, Copy, Debug)]
pub enum ObserveTrigger<'a> {
    /// Something was measured.
    Measured(&'a Measurement),
    /// Only time has passed.
    Time,
}

/// Result of the stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The next status.
    pub status: MonitoringStatus,
    /// The status is worth a write.
    pub write: bool,
    /// There is something new to decide on.
    pub fresh: bool,
}

/// What is written of the loop's hops, this one included.
#[derive(Clone, Copy, Debug)]
pub struct ObserveContext<'a> {
    /// The last tag that any later hop of the loop has seen: a hop that forgot takes up there.
    pub last: Option<&'a Tag>,
    /// The status as it is stored: what was not worth a write is not in it.
    pub written: &'a MonitoringStatus,
    /// A decision is open that this leader can only confirm on what is written in its term.
    pub awaited: bool,
    /// This leader term.
    pub term: &'a str,
    /// The time.
    pub now: Timestamp,
}

#[cfg(test)]
impl<'a> ObserveContext<'a> {
    /// What is written is of this leader term; of no sample.
    pub fn of(last: Option<&'a Tag>, now: Timestamp) -> Self {
        static WRITTEN: std::sync::LazyLock<MonitoringStatus> =
            std::sync::LazyLock::new(|| MonitoringStatus { term: Some("term".into()), ..MonitoringStatus::default() });
        Self { last, written: &WRITTEN, awaited: false, term: "term", now }
    }
}

/// The least time between two writes that only show another sample while an alarm stands. Somewhat less than a second: a
/// sender of one sample a second is early by a moment now and then, and would otherwise be held back more with each sample.
pub(super) const SAMPLE_INTERVAL: SignedDuration = SignedDuration::from_millis(900);

/// Values expire just after their last moment.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);

impl MonitoringRules {
    /// Parses the spec.
    ///
    /// # Errors
    ///
    /// A number or duration cannot be parsed.
    pub fn parse(spec: &MonitoringSpec) -> Result<Self, FieldError> {
        let interval = match &spec.interval {
            Some(interval) => duration("interval", Some(interval))?,
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
        let delivery = if keys.is_empty() || keys.len() == metrics.len() { Delivery::Uniform } else { Delivery::Mixed };
        Ok(Self { metrics, keys, delivery, interval, trace: spec.trace, paused: spec.paused })
    }

    /// The measurement of a pushed sample: it requests every pushed metric.
    #[must_use]
    pub fn pushed(&self, sample: &Sample) -> Measurement {
        let value = |key: &str| match sample.values.get(key) {
            // Senders see their own text; texts of other sources are left out where the value is stored.
            Some(value) => match quantity::number(value) {
                Ok(_) => Ok(SourceValue::from(value.clone())),
                Err(error) => Err(error.to_string()),
            },
            None => Err(format!("the sample has no {key}")),
        };
        Measurement {
            pushed: Some(sample.time.clone()),
            values: self.keys.iter().map(|(metric, key)| (metric.clone(), value(key))).collect(),
            last_served: Vec::new(),
        }
    }

    /// Whether a pushed sample may be new, compared with the stored status and the latest tag of any hop. For a process
    /// that has just started; a running process knows the sample that it handled last.
    #[must_use]
    pub fn may_be_news(&self, stored: &MonitoringStatus, sample: &Sample, context: ObserveContext) -> bool {
        let last = tag::latest([stored.tag.as_ref(), context.last]);
        match tag::for_pushed(last, &sample.time, self.delivery, context.now) {
            Ok(_) | Err(SampleRefusal::FromFuture | SampleRefusal::Unreadable) => true,
            Err(SampleRefusal::Repeated) => tag::is_after(last, stored.tag.as_ref()),
            Err(SampleRefusal::OutOfOrder) => false,
        }
    }

    /// When there is something to look at, or to write, after this time though nothing new comes.
    #[must_use]
    pub fn next_look(
        &self,
        status: &MonitoringStatus,
        written: &MonitoringStatus,
        after: Timestamp,
    ) -> Option<Timestamp> {
        let postponed = status.heartbeat.iter().filter(|_| is_postponed(status, written));
        let postponed = postponed.map(|last| later(last.0, SAMPLE_INTERVAL)).filter(|at| *at > after);
        postponed.chain(self.next_change(status, after)).min()
    }

    /// When time alone changes something, after this time: an alarm that is pending is raised, a value expires or is replaced
    /// by what is assumed.
    #[must_use]
    pub fn next_change(&self, status: &MonitoringStatus, after: Timestamp) -> Option<Timestamp> {
        let levels = |name: &str| self.metrics.iter().find(|(metric, _)| metric == name).map(|(_, levels)| levels);
        let raised =
            status.pending.iter().filter_map(|alarm| levels(&alarm.metric)?.raises_at(alarm.side, alarm.since.0));
        let expires = |metric: &str, from: &MicroTime| Some(later(later(from.0, levels(metric)?.after), MICROSECOND));
        let expired = status.values.iter().filter_map(|reading| expires(&reading.metric, &reading.at));
        let missing = status.unknown.iter().filter_map(|unknown| expires(&unknown.metric, &unknown.since));
        raised.chain(expired).chain(missing).filter(|at| *at > after).min()
    }
}

/// A sample that should be shown while an alarm stands is not written yet.
pub(super) fn is_postponed(status: &MonitoringStatus, written: &MonitoringStatus) -> bool {
    !status.alarms.is_empty() && status.tag != written.tag
}
