//! The parsed spec of a Monitoring, and the input and output types of its stage.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::level::Levels;
use super::tag::{self, Delivery, SampleRefusal};
use crate::api::closed_loop::Trace;
use crate::api::monitoring::{LastServed, MonitoringSpec, MonitoringStatus};
use crate::api::sample::{Sample, Tag};
use crate::logic::closed_loop::common::{FieldError, duration};

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

/// The input of the stage besides the status and the trigger.
#[derive(Clone, Copy, Debug)]
pub struct ObserveContext<'a> {
    /// The latest tag that any hop of the loop has. A hop that lost its status continues there.
    pub last: Option<&'a Tag>,
    /// The time.
    pub now: Timestamp,
}

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
            Some(value) => Ok(SourceValue::from(value.clone())),
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

    /// When the next pending alarm is raised without a new sample.
    #[must_use]
    pub fn raises_at(&self, status: &MonitoringStatus) -> Option<Timestamp> {
        let levels = |name: &str| self.metrics.iter().find(|(metric, _)| metric == name).map(|(_, levels)| levels);
        status.pending.iter().filter_map(|alarm| levels(&alarm.metric)?.raises_at(alarm.side, alarm.since.0)).min()
    }
}
