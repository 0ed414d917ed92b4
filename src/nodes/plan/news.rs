//! Whether a status is worth a write. Each write costs the API server milliseconds, and values are measured every few seconds.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::readings::stale_at;
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::status::{NodeReading, NodeValue, PowerCurve};

/// Shortest time between two writes that change nothing but texts: a server whose error changes with each poll.
const TEXTS: SignedDuration = SignedDuration::from_secs(30);

/// How long a new generation that changes nothing else waits for what its polls say, to be in the same write; a changed template
/// brings one for every node at once.
const GENERATION: SignedDuration = SignedDuration::from_secs(5);

/// When a change is worth a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteRule {
    /// By how much a value must differ from the written one.
    pub celsius: f64,
    pub pascals: f64,
    pub percent: f64,
    pub watts: f64,
    /// After which time newer samples are written though no value changed.
    pub heartbeat: SignedDuration,
}

/// When the status was last written, and since when the present spec applies.
#[derive(Clone, Copy, Debug)]
pub struct StatusTimes {
    /// When it was written, if that is known.
    pub written: Option<Timestamp>,
    /// Since when machines and servers are polled by the present spec.
    pub asked: Timestamp,
}

/// Whether, and otherwise when, a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    Now,
    /// At this time, if it still differs.
    At(Timestamp),
    /// Not as it is.
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

    /// Until when the values of a status that is written now can be relied on: a newer sample is written after the heartbeat,
    /// and else they are marked stale after three intervals.
    #[must_use]
    pub fn valid_until(&self, status: &NodeConfigStatus, longest: SignedDuration, now: Timestamp) -> Option<Time> {
        status.sampled_at.as_ref()?;
        let until = now.checked_add(self.heartbeat).ok()?;
        Some(Time(stale_at(until, longest)))
    }

    /// Whether `new` is worth a write over `written`.
    #[must_use]
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
                // The numbers are rounded decimals, whose difference is not exact.
                by > 0.0 && by + 1e-9 >= self.deadband(value)
            }
            _ => true,
        };
        moved
            || written.stale != new.stale
            || written.source != new.source
            || written.problem.is_some() != new.problem.is_some()
    }

    /// Whether a curve differs at a point by as much as the power itself must.
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

/// What the conditions say, without their texts.
fn verdicts(status: &NodeConfigStatus) -> Vec<[&str; 3]> {
    status.conditions.iter().map(|one| [one.type_.as_str(), &one.status, &one.reason]).collect()
}

/// All texts for people.
fn texts(status: &NodeConfigStatus) -> Vec<&str> {
    let messages = status.conditions.iter().map(|one| one.message.as_str());
    let problem = |value: &NodeValue| status.reading(*value)?.problem.as_deref();
    let curve = status.power_curve.as_ref().and_then(|curve| curve.problem.as_deref());
    messages.chain(NodeValue::ALL.iter().filter_map(problem)).chain(curve).collect()
}
