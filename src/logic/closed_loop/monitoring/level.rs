//! Which alarm a value raises: levels with hysteresis and patience, and what holds while the value is unknown.

use jiff::{SignedDuration, Timestamp};

use crate::api::closed_loop::metric::{Equal, Level, Metric, MissingThen, Side};
use crate::logic::closed_loop::common::{FieldError, duration, later, number};

/// Levels under this count as 0 where a share of the level is taken.
const SMALL: f64 = 1e-9;

/// The levels of one metric, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    bounds: Vec<Bound>,
    /// How old the last value may be.
    pub after: SignedDuration,
    /// What holds then.
    pub then: WhenMissing,
}

/// What holds without a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhenMissing {
    /// The alarm stays as it is.
    Hold,
    /// This value.
    Assume(f64),
    /// The alarm `Missing`.
    Alarm,
}

/// One level.
#[derive(Clone, Debug, PartialEq)]
struct Bound {
    side: Side,
    raise: f64,
    clear: f64,
    lasting: SignedDuration,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricState {
    /// It was read.
    Known(f64),
    /// It is missing, and this is taken instead.
    Assumed(f64),
    /// It is missing: nothing changes.
    Unknown,
    /// It is missing, and that itself is the alarm.
    Missing,
}

/// How an alarm stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmStage {
    /// There is none.
    Off,
    /// The value is beyond the level since then, not long enough.
    Pending(Timestamp),
    /// The alarm stands; the value went beyond the level then.
    Raised(Timestamp),
}

impl Levels {
    /// Reads the levels of a metric; `interval` is the loop's.
    ///
    /// # Errors
    ///
    /// A number or duration cannot be read.
    pub fn parse(metric: &Metric, interval: SignedDuration) -> Result<Self, FieldError> {
        let name = &metric.name;
        let mut bounds = Vec::new();
        for (side, level) in [(Side::Low, &metric.low), (Side::High, &metric.high)] {
            if let Some(level) = level {
                bounds.push(bound(name, side, level)?);
            }
        }
        if let Some(equal) = &metric.equal {
            bounds.push(equal_bound(name, equal)?);
        }
        let missing = metric.missing.clone().unwrap_or_default();
        let after = match &missing.after {
            Some(after) => duration(&format!("metrics[{name}].missing.after"), Some(after))?,
            None => interval.saturating_mul(3),
        };
        let then = match (missing.then.unwrap_or_default(), &missing.value) {
            (MissingThen::Hold, _) => WhenMissing::Hold,
            (MissingThen::Alarm, _) => WhenMissing::Alarm,
            (MissingThen::Assume, Some(value)) => {
                WhenMissing::Assume(number(&format!("metrics[{name}].missing.value"), value)?)
            }
            (MissingThen::Assume, None) => {
                return Err(FieldError::new(format!("metrics[{name}].missing.value"), "then: Assume needs a value"));
            }
        };
        Ok(Self { bounds, after, then })
    }

    /// The sides on which there can be an alarm, in the order in which they are named.
    pub fn sides(&self) -> impl Iterator<Item = Side> {
        let missing = (self.then == WhenMissing::Alarm).then_some(Side::Missing);
        self.bounds.iter().map(|bound| bound.side).chain(missing)
    }

    /// How the alarm of this side stands next.
    #[must_use]
    pub fn step(&self, side: Side, before: AlarmStage, value: MetricState, now: Timestamp) -> AlarmStage {
        let bound = self.bounds.iter().find(|bound| bound.side == side);
        match (bound, value) {
            (Some(bound), MetricState::Known(value) | MetricState::Assumed(value)) => bound.step(before, value, now),
            // What is not known is no evidence: neither that the alarm is over, nor that it has lasted.
            (Some(_), MetricState::Unknown | MetricState::Missing) => match before {
                AlarmStage::Raised(since) => AlarmStage::Raised(since),
                AlarmStage::Off | AlarmStage::Pending(_) => AlarmStage::Off,
            },
            (None, MetricState::Missing) => match before {
                AlarmStage::Raised(since) => AlarmStage::Raised(since),
                AlarmStage::Off | AlarmStage::Pending(_) => AlarmStage::Raised(now),
            },
            (None, MetricState::Known(_) | MetricState::Assumed(_) | MetricState::Unknown) => AlarmStage::Off,
        }
    }

    /// When a value that stays beyond the level since then has done so for long enough.
    #[must_use]
    pub fn raises_at(&self, side: Side, since: Timestamp) -> Option<Timestamp> {
        self.bounds.iter().find(|bound| bound.side == side).map(|bound| later(since, bound.lasting))
    }

    /// How far the value is beyond the level, as a share of the level; nothing for an alarm without a measure.
    #[must_use]
    pub fn excess(&self, side: Side, value: MetricState) -> Option<f64> {
        let bound = self.bounds.iter().find(|bound| bound.side == side)?;
        let value = match value {
            MetricState::Known(value) | MetricState::Assumed(value) => value,
            MetricState::Unknown | MetricState::Missing => return None,
        };
        let beyond = match side {
            Side::Low => bound.raise - value,
            Side::High => value - bound.raise,
            Side::Equal | Side::Missing => return None,
        };
        let size = bound.raise.abs();
        Some(if size < SMALL { beyond } else { beyond / size }).filter(|excess| excess.is_finite())
    }
}

fn bound(name: &str, side: Side, level: &Level) -> Result<Bound, FieldError> {
    let field = format!("metrics[{name}].{}", side.as_str().to_lowercase());
    let raise = number(&format!("{field}.raise"), &level.raise)?;
    let clear = level.clear.as_ref().map_or(Ok(raise), |clear| number(&format!("{field}.clear"), clear))?;
    let crossed = match side {
        Side::Low => clear < raise,
        Side::High => clear > raise,
        Side::Equal | Side::Missing => false,
    };
    if crossed {
        return Err(FieldError::new(
            format!("{field}.clear"),
            "it lies beyond raise, so that the alarm would never end",
        ));
    }
    Ok(Bound { side, raise, clear, lasting: duration(&format!("{field}.for"), level.for_.as_ref())? })
}

/// Equal is a level of its own: beyond it is what lies within, and there is no hysteresis.
fn equal_bound(name: &str, equal: &Equal) -> Result<Bound, FieldError> {
    let field = format!("metrics[{name}].equal");
    let to = number(&format!("{field}.to"), &equal.to)?;
    let within = equal.within.as_ref().map_or(Ok(0.0), |within| number(&format!("{field}.within"), within))?;
    Ok(Bound {
        side: Side::Equal,
        raise: to,
        clear: within.abs(),
        lasting: duration(&format!("{field}.for"), equal.for_.as_ref())?,
    })
}

impl Bound {
    fn step(&self, before: AlarmStage, value: f64, now: Timestamp) -> AlarmStage {
        match before {
            AlarmStage::Raised(since) if !self.cleared(value) => AlarmStage::Raised(since),
            AlarmStage::Raised(_) => AlarmStage::Off,
            AlarmStage::Off | AlarmStage::Pending(_) if !self.beyond(value) => AlarmStage::Off,
            AlarmStage::Off => self.stage_since(now, now),
            AlarmStage::Pending(since) => self.stage_since(since, now),
        }
    }

    fn stage_since(&self, since: Timestamp, now: Timestamp) -> AlarmStage {
        if now.duration_since(since) >= self.lasting { AlarmStage::Raised(since) } else { AlarmStage::Pending(since) }
    }

    fn beyond(&self, value: f64) -> bool {
        match self.side {
            Side::Low => value < self.raise,
            Side::High => value > self.raise,
            Side::Equal => (value - self.raise).abs() <= self.clear,
            Side::Missing => false,
        }
    }

    fn cleared(&self, value: f64) -> bool {
        match self.side {
            Side::Low => value >= self.clear,
            Side::High => value <= self.clear,
            Side::Equal => !self.beyond(value),
            Side::Missing => true,
        }
    }
}
