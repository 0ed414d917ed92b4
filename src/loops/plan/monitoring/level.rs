//! Levels of a metric: when a value raises or clears an alarm, and the behavior while the value is missing.

use jiff::{SignedDuration, Timestamp};

use crate::common::{FieldError, duration, later, number};
use ganglion_api::closed_loop::metric::{Equal, Level, Metric, MissingThen, Side};

/// For a level smaller than this, the excess is absolute and not relative to the level.
const SMALL: f64 = 1e-9;

/// Parsed levels of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    bounds: Vec<LevelBound>,
    /// Maximum age of a value.
    pub after: SignedDuration,
    /// Behavior when the value is older.
    pub then: WhenMissing,
}

/// Behavior while a value is missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhenMissing {
    /// The alarm keeps its state.
    Hold,
    /// This value is assumed.
    Assume(f64),
    /// The alarm `Missing` is raised.
    Alarm,
}

/// One level.
#[derive(Clone, Debug, PartialEq)]
struct LevelBound {
    side: Side,
    raise: f64,
    clear: f64,
    lasting: SignedDuration,
}

/// A value, and the range in which it lies whatever the pods use that are not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangedValue {
    pub value: f64,
    pub least: f64,
    pub most: f64,
    /// Smallest request of the pods that are not measured; infinite if there are none.
    pub missing_request: f64,
}

impl From<f64> for RangedValue {
    fn from(value: f64) -> Self {
        Self { value, least: value, most: value, missing_request: f64::INFINITY }
    }
}

/// State of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricState {
    /// The value is known.
    Known(RangedValue),
    /// The source has failed since; its last value stands.
    Standing(RangedValue),
    /// The value is missing; this value is assumed.
    Assumed(RangedValue),
    /// The value is missing; alarms keep their state.
    Unknown,
    /// The value is missing; the alarm `Missing` is raised.
    Missing,
}

/// Stage of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmStage {
    /// Not raised.
    Off,
    /// The value is beyond the level since this time, not yet for long enough.
    Pending(Timestamp),
    /// Raised. The value went beyond the level at this time.
    Raised(Timestamp),
}

impl Levels {
    /// Parses the levels of a metric. `default_age`: maximum age of a value if the metric does not set one.
    pub fn parse(metric: &Metric, default_age: SignedDuration) -> Result<Self, FieldError> {
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
            None => default_age,
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

    /// Returns the sides on which an alarm can be raised, in the order of the status.
    pub fn sides(&self) -> impl Iterator<Item = Side> {
        let missing = (self.then == WhenMissing::Alarm).then_some(Side::Missing);
        self.bounds.iter().map(|bound| bound.side).chain(missing)
    }

    /// Returns the next stage of the alarm on this side.
    pub fn step(&self, side: Side, before: AlarmStage, value: MetricState, now: Timestamp) -> AlarmStage {
        let bound = self.bounds.iter().find(|bound| bound.side == side);
        match (bound, value) {
            (Some(bound), MetricState::Known(value) | MetricState::Standing(value) | MetricState::Assumed(value)) => {
                bound.step(before, value, now)
            }
            // A missing value neither clears a raised alarm nor counts towards the time of a pending one.
            (Some(_), MetricState::Unknown | MetricState::Missing) => match before {
                AlarmStage::Raised(since) => AlarmStage::Raised(since),
                AlarmStage::Off | AlarmStage::Pending(_) => AlarmStage::Off,
            },
            (None, MetricState::Missing) => match before {
                AlarmStage::Raised(since) => AlarmStage::Raised(since),
                AlarmStage::Off | AlarmStage::Pending(_) => AlarmStage::Raised(now),
            },
            (
                None,
                MetricState::Known(_) | MetricState::Standing(_) | MetricState::Assumed(_) | MetricState::Unknown,
            ) => AlarmStage::Off,
        }
    }

    /// Whether the value is beyond the level on this side, whatever it is in its range.
    pub fn is_beyond(&self, side: Side, value: RangedValue) -> bool {
        self.bounds.iter().any(|bound| bound.side == side && bound.beyond(bound.decisive(value)))
    }

    /// Returns when an alarm that is pending since this time is raised.
    pub fn raises_at(&self, side: Side, since: Timestamp) -> Option<Timestamp> {
        self.bounds.iter().find(|bound| bound.side == side).map(|bound| later(since, bound.lasting))
    }

    /// Returns how far the value is beyond the level, relative to the level. None for an alarm without a measure.
    pub fn excess(&self, side: Side, value: MetricState) -> Option<f64> {
        let bound = self.bounds.iter().find(|bound| bound.side == side)?;
        let value = match value {
            MetricState::Known(value) | MetricState::Standing(value) | MetricState::Assumed(value) => value,
            MetricState::Unknown | MetricState::Missing => return None,
        };
        let value = bound.decisive(value);
        let beyond = match side {
            Side::Low => bound.raise - value,
            Side::High => value - bound.raise,
            Side::Equal | Side::Missing | Side::Target => return None,
        };
        let size = bound.raise.abs();
        Some(if size < SMALL { beyond } else { beyond / size }).filter(|excess| excess.is_finite())
    }
}

fn bound(name: &str, side: Side, level: &Level) -> Result<LevelBound, FieldError> {
    let field = format!("metrics[{name}].{}", side.as_str().to_lowercase());
    let raise = number(&format!("{field}.raise"), &level.raise)?;
    let clear = level.clear.as_ref().map_or(Ok(raise), |clear| number(&format!("{field}.clear"), clear))?;
    let crossed = match side {
        Side::Low => clear < raise,
        Side::High => clear > raise,
        Side::Equal | Side::Missing | Side::Target => false,
    };
    if crossed {
        return Err(FieldError::new(format!("{field}.clear"), "clear lies beyond raise: the alarm would never clear"));
    }
    Ok(LevelBound { side, raise, clear, lasting: duration(&format!("{field}.for"), level.for_.as_ref())? })
}

/// `equal` has no hysteresis: the alarm is raised while the value is within the tolerance.
fn equal_bound(name: &str, equal: &Equal) -> Result<LevelBound, FieldError> {
    let field = format!("metrics[{name}].equal");
    let to = number(&format!("{field}.to"), &equal.to)?;
    let within = equal.within.as_ref().map_or(Ok(0.0), |within| number(&format!("{field}.within"), within))?;
    Ok(LevelBound {
        side: Side::Equal,
        raise: to,
        clear: within.abs(),
        lasting: duration(&format!("{field}.for"), equal.for_.as_ref())?,
    })
}

impl LevelBound {
    fn step(&self, before: AlarmStage, value: RangedValue, now: Timestamp) -> AlarmStage {
        let value = self.decisive(value);
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

    /// Returns the end of the range that is farthest from the alarm: it holds whatever the other pods use, or not at
    /// all.
    fn decisive(&self, value: RangedValue) -> f64 {
        let RangedValue { value, least, most, missing_request } = value;
        match self.side {
            // A pod that is not measured counts at least as the level: then its load never fits into fewer pods.
            Side::Low if self.raise > missing_request => f64::INFINITY,
            Side::Low => most,
            Side::High => least,
            Side::Equal if most - self.raise > self.raise - least => most,
            Side::Equal => least,
            Side::Missing | Side::Target => value,
        }
    }

    fn beyond(&self, value: f64) -> bool {
        match self.side {
            Side::Low => value < self.raise,
            Side::High => value > self.raise,
            Side::Equal => (value - self.raise).abs() <= self.clear,
            Side::Missing | Side::Target => false,
        }
    }

    fn cleared(&self, value: f64) -> bool {
        match self.side {
            Side::Low => value >= self.clear,
            Side::High => value <= self.clear,
            Side::Equal => !self.beyond(value),
            Side::Missing | Side::Target => true,
        }
    }
}
