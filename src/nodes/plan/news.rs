//! Decides whether a status is worth a write. Each write costs the API server milliseconds, and values are measured
//! every few seconds.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::readings::stale_at;
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::status::{NodeReading, NodeValue, PowerCurve};
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};

/// Writes that change only messages: some servers return a different error at each poll.
const NEW_MESSAGES: StatusPolicy = StatusPolicy { details_after: SignedDuration::from_secs(30), heartbeat: None };

/// Writes that change only the generation wait after the spec changed, so that the first poll results share the write.
/// A changed template creates a new generation for every node at once.
const NEW_GENERATION: StatusPolicy = StatusPolicy { details_after: SignedDuration::from_secs(5), heartbeat: None };

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
    pub polled_since: Timestamp,
}

impl WriteRule {
    fn deadband(&self, value: NodeValue) -> f64 {
        match value {
            NodeValue::InletTemperature => self.celsius,
            NodeValue::DifferentialPressure => self.pascals,
            NodeValue::Cpu | NodeValue::Memory => self.percent,
            NodeValue::Power | NodeValue::MeasuredPower => self.watts,
        }
    }

    /// Time until which the values of a status written now can be used. Within the heartbeat a newer sample is written;
    /// otherwise the values become stale three intervals later.
    pub fn valid_until(&self, status: &NodeConfigStatus, longest: SignedDuration, now: Timestamp) -> Option<Time> {
        status.sampled_at.as_ref()?;
        let until = now.checked_add(self.heartbeat).ok()?;
        Some(Time(stale_at(until, longest)))
    }

    /// When to write `new` over `written`.
    pub fn timing(
        &self,
        written: &NodeConfigStatus,
        new: &NodeConfigStatus,
        times: StatusTimes,
        now: Timestamp,
    ) -> StatusTiming {
        if self.is_edge(written, new) {
            return StatusTiming::Now;
        }
        let is_newer = written.observed_generation != new.observed_generation;
        let by_generation = NEW_GENERATION.timing(details_if(is_newer), Some(times.polled_since), now);
        let by_messages = NEW_MESSAGES.timing(details_if(messages(written) != messages(new)), times.written, now);
        match (by_generation, by_messages) {
            (StatusTiming::Never, timing) | (timing, StatusTiming::Never) => timing,
            (StatusTiming::At(first), StatusTiming::At(second)) => StatusTiming::At(first.min(second)),
            (StatusTiming::Now, _) | (_, StatusTiming::Now) => StatusTiming::Now,
        }
    }

    /// Whether something differs that people or placement act on.
    fn is_edge(&self, written: &NodeConfigStatus, new: &NodeConfigStatus) -> bool {
        NodeValue::ALL.into_iter().any(|value| self.is_news(value, written.reading(value), new.reading(value)))
            || self.is_new_curve(written.power_curve.as_ref(), new.power_curve.as_ref())
            || written.power_accuracy.is_some() != new.power_accuracy.is_some()
            || condition_states(written) != condition_states(new)
            || self.heartbeat_due(written.sampled_at.as_ref(), new.sampled_at.as_ref())
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

    fn heartbeat_due(&self, written: Option<&Time>, new: Option<&Time>) -> bool {
        match (written, new) {
            (Some(written), Some(new)) => new.0.duration_since(written.0) >= self.heartbeat,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

fn details_if(differs: bool) -> StatusChange {
    if differs { StatusChange::Details } else { StatusChange::None }
}

/// Type, status and reason of each condition, without messages.
fn condition_states(status: &NodeConfigStatus) -> Vec<[&str; 3]> {
    status.conditions.iter().map(|one| [one.type_.as_str(), &one.status, &one.reason]).collect()
}

/// All messages for users.
fn messages(status: &NodeConfigStatus) -> Vec<&str> {
    let messages = status.conditions.iter().map(|one| one.message.as_str());
    let problem = |value: &NodeValue| status.reading(*value)?.problem.as_deref();
    let curve = status.power_curve.as_ref().and_then(|curve| curve.problem.as_deref());
    messages.chain(NodeValue::ALL.iter().filter_map(problem)).chain(curve).collect()
}
