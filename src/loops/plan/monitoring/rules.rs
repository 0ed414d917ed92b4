//! The parsed spec of a Monitoring, and the input and output types of its stage.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::formula::{self, MetricFormula, REPLICAS};
use super::level::Levels;
use super::source_rule::SourceRule;
use super::tag::{self, Delivery, SampleRefusal};
use super::tracking::{PassMemory, TargetNews, TrackingRules};
use super::value::{SourceResult, SourceValue};
use super::window::WindowedMetric;
use crate::common::{FieldError, duration, later};
use crate::schedule::CronNumber;
use ganglion_api::closed_loop::Trace;
use ganglion_api::monitoring::{LastServed, MonitoringSpec, MonitoringStatus, Sample, Tag};
use ganglion_core::quantity;

/// Interval of polls if the spec does not set it.
const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

/// Reason of a missing value that is too old, if no source has reported an error.
pub(super) const NO_MORE: &str = "the last value is too old";

/// Problem of a value whose source has not answered since the operator watches it.
pub(super) const NOT_SINCE: &str = "the source has not answered since the operator was started or the source changed";

/// The parsed spec of a Monitoring.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitoringRules {
    pub(super) metrics: Vec<(String, Levels)>,
    /// Metric name and key in a pushed sample, for each pushed metric.
    pub(super) keys: Vec<(String, String)>,
    /// Metrics with a formula, each after the formulas that it uses.
    pub(super) formulas: Vec<MetricFormula>,
    /// Actions on side Target; None if there are none.
    pub tracking: Option<TrackingRules>,
    /// Metrics with values of a period of time.
    pub(super) windows: Vec<WindowedMetric>,
    pub(super) delivery: Delivery,
    /// Interval of polls.
    pub interval: SignedDuration,
    pub(super) trace: Trace,
    pub(super) paused: bool,
}

/// Values that were measured at one time: for each requested metric, its value or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Time of the sender, RFC 3339. None: the values were polled now.
    pub pushed: Option<String>,
    /// Results by metric. A metric that was not requested is not in the map and keeps its last value until that is too
    /// old.
    pub values: BTreeMap<String, SourceResult>,
    /// Results of the rule LastServed, for each metric with a source `loop`.
    pub last_served: Vec<(String, LastServed)>,
}

/// Reason for calling the stage.
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
    /// The status contains news to decide on.
    pub fresh: bool,
    /// Memories of the tracking with this pass, if there was one.
    pub memory: Option<PassMemory>,
}

/// Stored state of the loop's children, including this Monitoring.
#[derive(Clone, Copy, Debug)]
pub struct ObserveContext<'a> {
    /// Last tag that a later stage of the loop has recorded. A stage that lost its state continues from there.
    pub last: Option<&'a Tag>,
    /// Stored status. It does not contain changes that were not worth a write.
    pub written: &'a MonitoringStatus,
    /// Metrics whose source has not answered since this process, or the source in the spec, is new. A value of before
    /// leads to no decision.
    pub unanswered: &'a [String],
    /// Time since which this process has watched the values.
    pub watched_since: Timestamp,
    /// The target's number of replicas, or why it is not known.
    pub replicas: Result<i32, &'a str>,
    /// New state of the target, for actions on side Target.
    pub target: Option<TargetNews<'a>>,
    /// A decision is open, and this leader can confirm it only after this status is written in its term.
    pub awaited: bool,
    /// Current leader term.
    pub term: &'a str,
    /// Current time.
    pub now: Timestamp,
}

#[cfg(test)]
impl<'a> ObserveContext<'a> {
    /// Context with a status that was written in this leader term and has no sample.
    pub fn of(last: Option<&'a Tag>, now: Timestamp) -> Self {
        static WRITTEN: std::sync::LazyLock<MonitoringStatus> =
            std::sync::LazyLock::new(|| MonitoringStatus { term: Some("term".into()), ..MonitoringStatus::default() });
        Self {
            last,
            written: &WRITTEN,
            unanswered: &[],
            watched_since: now,
            replicas: Err("the target does not exist"),
            target: None,
            awaited: false,
            term: "term",
            now,
        }
    }
}

/// Minimum time between two writes that only show another sample while an alarm is raised. Slightly less than a second:
/// a sender of one sample per second is sometimes a moment early, and each sample would otherwise be delayed more.
pub(super) const SAMPLE_INTERVAL: SignedDuration = SignedDuration::from_millis(900);

/// A value expires this long after its maximum age.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);

impl MonitoringRules {
    /// Parses the spec.
    pub fn parse(spec: &MonitoringSpec) -> Result<Self, FieldError> {
        let interval = match &spec.interval {
            Some(interval) => duration("interval", Some(interval))?,
            None => DEFAULT_INTERVAL,
        };
        let (mut metrics, mut keys, mut windows) = (Vec::new(), Vec::new(), Vec::new());
        for metric in &spec.metrics {
            let default_age = SourceRule::of(&metric.source).default_age(interval);
            let levels = Levels::parse(metric, default_age)?;
            windows.extend(WindowedMetric::parse(metric, spec.target.as_ref(), levels.after)?);
            if let Some(cron) = &metric.source.cron {
                CronNumber::parse(&format!("metrics[{}].source.cron", metric.name), cron)?;
            }
            metrics.push((metric.name.clone(), levels));
            if let Some(push) = &metric.source.push {
                keys.push((metric.name.clone(), push.key.clone().unwrap_or_else(|| metric.name.clone())));
            }
        }
        let formulas = formula::parse(spec)?;
        let tracking = TrackingRules::parse(spec)?;
        check_needed(&metrics, &formulas, tracking.as_ref())?;
        set_default_ages(spec, &mut metrics, &formulas);
        let is_uniform = keys.is_empty() || keys.len() + formulas.len() == metrics.len();
        let delivery = if is_uniform { Delivery::Uniform } else { Delivery::Mixed };
        Ok(Self {
            metrics,
            keys,
            formulas,
            windows,
            tracking,
            delivery,
            interval,
            trace: spec.trace,
            paused: spec.paused,
        })
    }

    /// Whether a formula or an action on side Target reads the target's number of replicas.
    pub fn reads_replicas(&self) -> bool {
        if self.tracking.is_some() {
            return true;
        }
        let is_metric = self.metrics.iter().any(|(name, _)| name == REPLICAS);
        !is_metric && self.formulas.iter().any(|one| one.formula.operands().iter().any(|name| name == REPLICAS))
    }

    /// Levels of a metric; None if it is no metric of the loop.
    pub fn levels_of(&self, metric: &str) -> Option<&Levels> {
        self.metrics.iter().find(|(name, _)| name == metric).map(|(_, levels)| levels)
    }

    /// Whether an action on side Target needs the values of single pods of this metric.
    pub fn tracks_pods_of(&self, metric: &str) -> bool {
        let mut tracked = self.tracking.iter().flat_map(|tracking| &tracking.sources);
        tracked.any(|source| source.metric == metric && source.is_of_pods)
    }

    /// Returns the measurement of a pushed sample that arrived at this time. It requests every pushed metric.
    pub fn pushed(&self, sample: &Sample, arrived: Timestamp) -> Measurement {
        let value = |key: &str| match sample.values.get(key) {
            // A sender may see its own text. Texts of other sources are removed where the value is stored.
            Some(value) => match quantity::number(value) {
                Ok(_) => Ok(SourceValue { at: Some(arrived), ..SourceValue::from(value.clone()) }),
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

    /// Whether a pushed sample may be new, compared with the stored status and the latest tag of any stage. For a
    /// process that has just started; later, the process remembers the sample that it handled last.
    pub fn may_be_news(&self, stored: &MonitoringStatus, sample: &Sample, context: ObserveContext) -> bool {
        let last = tag::latest([stored.tag.as_ref(), context.last]);
        match tag::for_pushed(last, &sample.time, self.delivery, context.now) {
            Ok(_) | Err(SampleRefusal::FromFuture | SampleRefusal::Unreadable) => true,
            Err(SampleRefusal::Repeated) => tag::is_after(last, stored.tag.as_ref()),
            Err(SampleRefusal::OutOfOrder) => false,
        }
    }

    /// Returns the next time after `after` at which the levels must be evaluated, or a postponed sample written, even
    /// if nothing new arrives.
    pub fn next_evaluation(
        &self,
        status: &MonitoringStatus,
        written: &MonitoringStatus,
        after: Timestamp,
    ) -> Option<Timestamp> {
        let postponed = status.heartbeat.iter().filter(|_| is_postponed(status, written));
        let postponed = postponed.map(|last| later(last.0, SAMPLE_INTERVAL)).filter(|at| *at > after);
        postponed.chain(self.next_change(status, after)).min()
    }

    /// Returns the next time after `after` at which time alone changes something: a pending alarm is raised, or a value
    /// expires or is replaced by the assumed one.
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

/// Checks that each metric raises an alarm, or that a formula or an action on side Target uses it.
fn check_needed(
    metrics: &[(String, Levels)],
    formulas: &[MetricFormula],
    tracking: Option<&TrackingRules>,
) -> Result<(), FieldError> {
    let is_operand = |name: &String| formulas.iter().any(|one| one.formula.operands().contains(name));
    let is_used = |name: &String| is_operand(name) || tracking.is_some_and(|tracking| tracking.tracks(name));
    match metrics.iter().find(|(name, levels)| levels.sides().next().is_none() && !is_used(name)) {
        None => Ok(()),
        Some((name, _)) => Err(FieldError::new(
            format!("metrics[{name}]"),
            "it raises no alarm, and no formula or action on side Target uses it: set at least one of low, high, equal, or \
             missing with then: Alarm",
        )),
    }
}

/// Sets the maximum age of formulas that do not set one: the longest one of their operands, each of which expires by
/// its own.
fn set_default_ages(spec: &MonitoringSpec, metrics: &mut [(String, Levels)], formulas: &[MetricFormula]) {
    for formula in formulas {
        let operands = formula.formula.operands();
        let of_operands = metrics.iter().filter(|(name, _)| operands.contains(name)).map(|(_, levels)| levels.after);
        let (longest, metric) = (of_operands.max(), &formula.metric);
        let declared = spec.metrics.iter().find(|one| one.name == *metric).and_then(|one| one.missing.as_ref());
        let is_declared = declared.is_some_and(|missing| missing.after.is_some());
        if let (Some(longest), false) = (longest, is_declared) {
            metrics.iter_mut().filter(|(name, _)| name == metric).for_each(|(_, levels)| levels.after = longest);
        }
    }
}

/// Whether a sample that should be shown while an alarm is raised is not written yet.
pub(super) fn is_postponed(status: &MonitoringStatus, written: &MonitoringStatus) -> bool {
    !status.alarms.is_empty() && status.tag != written.tag
}
