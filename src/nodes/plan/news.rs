//! Decides whether a status is worth a write. Each write costs the API server milliseconds, and values are measured
//! every few seconds.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::readings::stale_at;
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::status::{NodeReading, NodeValue, PowerCurve};

/// Minimum time between two writes that change only texts: some servers return a different error at each poll.
const TEXTS: SignedDuration = SignedDuration::from_secs(30);

/// Delay before a new generation is written if nothing else changed, so that the first poll results share the write. A
/// changed template creates a new generation for every node at once.
const GENERATION: SignedDuration = SignedDuration::from_secs(5);

/// Minimum change of each value that is worth a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteRule {
    /// Deadbands: minimum difference from the written value.
    pub celsius: f64,
    pub pascals: f64,
    pub percent: f64,
    pub watts: f64,
    /// Interval at which newer samples are written although no value changed.
    pub heartbeat: SignedDuration,
}

/// Times that delay a write.
#[derive(Clone, Copy, Debug)]
pub struct StatusTimes {
    /// Time of the last write; None if unknown.
    pub written: Option<Timestamp>,
    /// Time since which sources are polled by the current spec.
    pub asked: Timestamp,
}

/// Whether and when a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    Now,
    /// At this time, if the status still differs.
    At(Timestamp),
    /// Not written: no relevant difference.
    Nothing,
}

impl WriteRule {
    fn deadband(&self, value: NodeValue) -> f64 {
        match value {
            NodeValue::InletTemperature => self.celsius,
            NodeValue::DifferentialPressure => self.pascals,
            NodeValue::Cpu | NodeValue::Memory => self.percent,
            NodeValue::Power => self.watts,
        }
    }

    /// Time until which the values of a status written now can be used. Within the heartbeat a newer sample is written;
    /// otherwise the values become stale three intervals later.
    pub fn valid_until(&self, status: &NodeConfigStatus, longest: SignedDuration, now: Timestamp) -> Option<Time> {
        status.sampled_at.as_ref()?;
        let until = now.checked_add(self.heartbeat).ok()?;
        Some(Time(stale_at(until, longest)))
    }

    /// Decides whether `new` is worth a write over `written`.
    pub fn worth(
        &self,
        written: &NodeConfigStatus,
        new: &NodeConfigStatus,
        times: StatusTimes,
        now: Timestamp,
    ) -> Worth {
        let news =
            NodeValue::ALL.into_iter().any(|value| self.is_news(value, written.reading(value), new.reading(value)));
        if news
            || self.is_new_curve(written.power_curve.as_ref(), new.power_curve.as_ref())
            || verdicts(written) != verdicts(new)
            || self.beats(written.sampled_at.as_ref(), new.sampled_at.as_ref())
        {
            return Worth::Now;
        }
        let after = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(now);
        let is_older = written.observed_generation != new.observed_generation;
        let by_generation = is_older.then(|| after(times.asked, GENERATION));
        let by_texts = (texts(written) != texts(new)).then(|| times.written.map_or(now, |at| after(at, TEXTS)));
        match by_generation.into_iter().chain(by_texts).min() {
            None => Worth::Nothing,
            Some(due) if due > now => Worth::At(due),
            Some(_) => Worth::Now,
        }
    }

    fn is_news(&self, value: NodeValue, written: Option<&NodeReading>, new: Option<&NodeReading>) -> bool {
        let (written, new) = match (written, new) {
            (None, None) => return false,
            (Some(written), Some(new)) => (written, new),
            _ => return true,
        };
        let number = |reading: &NodeReading| reading.value.as_ref().and_then(|text| text.parse::<f64>().ok());
        let moved = match (number(written), number(new)) {
            (None, None) => false,
            (Some(before), Some(after)) => {
                let by = (after - before).abs();
                // Rounded decimals have inexact differences.
                by > 0.0 && by + 1e-9 >= self.deadband(value)
            }
            _ => true,
        };
        moved
            || written.stale != new.stale
            || written.source != new.source
            || written.problem.is_some() != new.problem.is_some()
    }

    /// Whether the curve differs at any point by at least the power deadband.
    fn is_new_curve(&self, written: Option<&PowerCurve>, new: Option<&PowerCurve>) -> bool {
        let nothing = PowerCurve::default();
        let (written, new) = (written.unwrap_or(&nothing), new.unwrap_or(&nothing));
        let differs = |(written, new): (&String, &String)| match (written.parse::<f64>(), new.parse::<f64>()) {
            (Ok(written), Ok(new)) => written != new && (written - new).abs() + 1e-9 >= self.watts,
            _ => written != new,
        };
        written.watts.len() != new.watts.len()
            || written.problem.is_some() != new.problem.is_some()
            || written.watts.iter().zip(&new.watts).any(differs)
    }

    fn beats(&self, written: Option<&Time>, new: Option<&Time>) -> bool {
        match (written, new) {
            (Some(written), Some(new)) => new.0.duration_since(written.0) >= self.heartbeat,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// Type, status and reason of each condition, without messages.
fn verdicts(status: &NodeConfigStatus) -> Vec<[&str; 3]> {
    status.conditions.iter().map(|one| [one.type_.as_str(), &one.status, &one.reason]).collect()
}

/// All messages for users.
fn texts(status: &NodeConfigStatus) -> Vec<&str> {
    let messages = status.conditions.iter().map(|one| one.message.as_str());
    let problem = |value: &NodeValue| status.reading(*value)?.problem.as_deref();
    let curve = status.power_curve.as_ref().and_then(|curve| curve.problem.as_deref());
    messages.chain(NodeValue::ALL.iter().filter_map(problem)).chain(curve).collect()
}
