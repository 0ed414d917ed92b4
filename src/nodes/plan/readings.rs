//! Values of one node: the last sample of each, and why there is no newer one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::node_spec::{ParsedNodeSpec, Question};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::node_values::STALE_AFTER;

/// A sample and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSample {
    pub value: f64,
    /// Standard deviation, if the source provides it.
    pub deviation: Option<f64>,
    pub at: Timestamp,
    /// Sensor, server or model.
    pub source: String,
}

/// Why a value is missing. The text appears in a status: it contains no secret and nothing that a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: NodeReason,
    pub words: String,
}

impl Problem {
    pub fn new(reason: NodeReason, words: impl Into<String>) -> Self {
        Self { reason, words: words.into() }
    }
}

/// State of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownValue {
    pub last: Option<NodeSample>,
    /// The last sample is from an earlier process, and its source has not answered this process yet: latest time at
    /// which the earlier process may have had a newer sample.
    pub restored: Option<Timestamp>,
    /// Why the last poll returned no value.
    pub problem: Option<Problem>,
}

impl KnownValue {
    /// Whether the last sample is from this process.
    pub fn is_own(&self) -> bool {
        self.last.is_some() && self.restored.is_none()
    }

    /// Time from which its age counts; None without a sample.
    fn measured_at(&self) -> Option<Timestamp> {
        let last = self.last.as_ref()?;
        Some(self.restored.unwrap_or(last.at))
    }
}

/// Values of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings(BTreeMap<NodeValue, KnownValue>);

/// Freshness of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// No sample.
    Missing,
    /// Not older than three intervals.
    Fresh,
    /// Older than three intervals.
    Stale,
}

impl Readings {
    /// Restores the values that an earlier process wrote. It wrote newer samples of an unchanged value only after the
    /// heartbeat, so the age counts from there, or from the start of this process if that is earlier: a restart alone
    /// makes no value stale. Values that it marked as stale stay so.
    pub fn restored(status: &NodeConfigStatus, heartbeat: SignedDuration, now: Timestamp) -> Self {
        let read = |value: NodeValue| {
            let reading = status.reading(value)?;
            let number = |text: &Option<String>| text.as_ref()?.parse().ok().filter(|number: &f64| number.is_finite());
            let last = NodeSample {
                value: number(&reading.value)?,
                deviation: number(&reading.deviation),
                at: reading.sampled_at.as_ref()?.0,
                source: reading.source.clone().unwrap_or_default(),
            };
            let until = match reading.stale {
                Some(true) => Timestamp::MIN,
                Some(false) | None => last.at.checked_add(heartbeat).unwrap_or(last.at).min(now),
            };
            Some((value, KnownValue { last: Some(last), restored: Some(until), problem: None }))
        };
        Self(NodeValue::ALL.into_iter().filter_map(read).collect())
    }

    /// State of this value.
    pub fn get(&self, value: NodeValue) -> Option<&KnownValue> {
        self.0.get(&value)
    }

    /// Records the result of a poll.
    pub fn record(&mut self, value: NodeValue, result: Result<NodeSample, Problem>) {
        let reading = self.0.entry(value).or_default();
        match result {
            Ok(sample) => *reading = KnownValue { last: Some(sample), restored: None, problem: None },
            Err(problem) => reading.problem = Some(problem),
        }
    }

    /// Removes the values of sources that `after` does not have or has at another place than `before`, and all values
    /// if the node changed.
    pub fn retain_unchanged(&mut self, before: &ParsedNodeSpec, after: &ParsedNodeSpec) {
        let source =
            |parsed: &ParsedNodeSpec, value| parsed.sources.get(&Question::about(value)).map(|one| one.source.clone());
        let same_node = before.node == after.node;
        self.0.retain(|value, _| {
            let now = source(after, *value);
            same_node && now.is_some() && source(before, *value) == now
        });
    }

    /// Freshness of this value.
    pub fn age(&self, value: NodeValue, interval: SignedDuration, now: Timestamp) -> Age {
        match self.get(value).and_then(KnownValue::measured_at) {
            None => Age::Missing,
            Some(at) if now < stale_at(at, interval) => Age::Fresh,
            Some(_) => Age::Stale,
        }
    }

    /// Last sample of this value, if it is fresh.
    pub fn fresh(&self, value: NodeValue, interval: SignedDuration, now: Timestamp) -> Option<&NodeSample> {
        let is_fresh = self.age(value, interval, now) == Age::Fresh;
        self.get(value).filter(|_| is_fresh).and_then(|reading| reading.last.as_ref())
    }

    /// Whether each requested value has a sample or a problem from this process.
    pub fn is_complete(&self, parsed: &ParsedNodeSpec) -> bool {
        let answered =
            |reading: &KnownValue| reading.problem.is_some() || (reading.last.is_some() && reading.restored.is_none());
        parsed.values().all(|value| self.get(value).is_some_and(answered))
    }

    /// Whether the last poll of a requested value failed.
    pub fn has_problem(&self, parsed: &ParsedNodeSpec) -> bool {
        parsed.values().any(|value| self.get(value).is_some_and(|known| known.problem.is_some()))
    }

    /// Time at which the first of the fresh values becomes stale.
    pub fn next_stale(&self, parsed: &ParsedNodeSpec, now: Timestamp) -> Option<Timestamp> {
        let stale = |value| Some(stale_at(self.get(value)?.measured_at()?, parsed.interval(value)));
        parsed.values().filter_map(stale).filter(|stale| now < *stale).min()
    }
}

/// Time at which a sample becomes stale.
pub fn stale_at(at: Timestamp, interval: SignedDuration) -> Timestamp {
    at.checked_add(interval * STALE_AFTER).unwrap_or(Timestamp::MAX)
}
