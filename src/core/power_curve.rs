//! The predicted power of a node over its CPU usage: which curves a model is asked for, at which points, and the watts between
//! them.
//!
//! The pods that will be placed are not known when predictions are fetched, so a curve covers all usages of a node. It stands in
//! the status of the NodeConfig, from where every replica knows it. Nodes with about the same inlet temperature and pressure share
//! a prediction. Between points it is linear: a pod that is smaller than the distance of two points still adds its part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::PowerCurve;

/// Number of points of a curve, from an idle node to a full one: one each 5 % of the node.
pub const POINTS: usize = 21;

/// Intervals between the points.
const INTERVALS: f64 = 20.0;

/// When a model is asked again for a curve.
pub const REFRESH: SignedDuration = SignedDuration::from_mins(30);

/// How long a model is left alone that gave no valid curve.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// Inlet temperatures are rounded to this, in degrees Celsius. Sensors of servers are no more exact than 1 °C, and most tell whole
/// degrees.
const INLET_STEP: f64 = 0.5;

/// Differential pressures are rounded to steps of this ratio: from chassis to data hall they differ by orders of magnitude.
const PRESSURE_RATIO: f64 = 1.05;

/// Pressures below this count as none, in pascals.
const LEAST_PRESSURE: f64 = 0.01;

/// No temperature and no pressure has more steps than this.
const MOST_STEPS: f64 = 1e6;

/// How far beyond its ends a curve is valid, in intervals: the noise of a division.
const NOISE: f64 = 1e-6;

/// No node takes more watts. Also keeps differences of points finite.
const MOST_WATTS: f64 = 1e9;

/// Inlet temperature and differential pressure of a node, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Air {
    inlet: i32,
    pressure: i32,
}

/// The unit of the usage, with the usage of the full node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Full {
    /// 100 for every node: nodes of all sizes share their curves.
    Percent,
    /// The capacity in millicores.
    Cores(u32),
}

/// What a curve is predicted for. Nodes with the same key share a curve of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CurveKey {
    air: Air,
    full: Full,
}

/// What the power of a node is predicted from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerInput {
    /// Usage of the processors as the model takes it: in percent of all of them, or in cores.
    pub usage: f64,
    /// Temperature of the air that the node takes in, in degrees Celsius.
    pub inlet_celsius: f64,
    /// Differential pressure before and behind the node, in pascals.
    pub pascals: f64,
}

/// Watts over usage.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    air: Air,
    /// When it was predicted.
    pub at: Timestamp,
    watts: [f64; POINTS],
}

/// A whole number of at most this size.
#[expect(clippy::cast_possible_truncation, reason = "in bounds")]
fn whole(value: f64, most: f64) -> Option<i32> {
    (value.abs() <= most).then_some(value as i32)
}

/// A number as a status has it.
fn decimal(value: f64) -> String {
    // Adding zero turns -0 into 0.
    ((value * 100.0).round() / 100.0 + 0.0).to_string()
}

/// A pressure as a status has it: three significant digits tell each step from the next, however low it is.
fn pressure(pascals: f64) -> String {
    let rounded: f64 = format!("{pascals:.2e}").parse().unwrap_or(pascals);
    rounded.to_string()
}

impl Air {
    fn new(inlet_celsius: f64, pascals: f64) -> Option<Self> {
        let size = (pascals.abs() / LEAST_PRESSURE).max(1.0);
        let steps = whole((size.ln() / PRESSURE_RATIO.ln()).round(), MOST_STEPS)?;
        let inlet = whole((inlet_celsius / INLET_STEP).round(), MOST_STEPS)?;
        Some(Self { inlet, pressure: if pascals < 0.0 { -steps } else { steps } })
    }

    fn inlet_celsius(self) -> f64 {
        f64::from(self.inlet) * INLET_STEP
    }

    fn pascals(self) -> f64 {
        let size = LEAST_PRESSURE * PRESSURE_RATIO.powi(self.pressure.saturating_abs());
        match self.pressure.signum() {
            0 => 0.0,
            sign => f64::from(sign) * size,
        }
    }

    /// Whether they are no more than a step apart: values between two steps must not bring a request with each measurement.
    fn is_near(self, other: Self) -> bool {
        self.inlet.abs_diff(other.inlet) <= 1 && self.pressure.abs_diff(other.pressure) <= 1
    }
}

/// The usage as a model takes it, from percent of a node with this many cores; None if the model needs to know the cores and
/// the node has none.
#[must_use]
pub fn usage(format: CpuUsageFormat, percent: f64, cores: f64) -> Option<f64> {
    match format {
        CpuUsageFormat::Percent => Some(percent),
        CpuUsageFormat::Raw => (cores > 0.0).then_some(percent / 100.0 * cores),
    }
}

impl CurveKey {
    /// The key of a node with this many cores, at this temperature and pressure.
    ///
    /// None if one of the numbers is not finite or not plausible, or if the model needs to know the cores and the node has none.
    #[must_use]
    pub fn new(format: CpuUsageFormat, cores: f64, inlet_celsius: f64, pascals: f64) -> Option<Self> {
        let full = match format {
            CpuUsageFormat::Percent => Full::Percent,
            CpuUsageFormat::Raw => {
                let millis = whole((1000.0 * cores).round(), f64::from(i32::MAX)).filter(|millis| *millis > 0)?;
                Full::Cores(millis.unsigned_abs())
            }
        };
        Some(Self { air: Air::new(inlet_celsius, pascals)?, full })
    }

    /// The inputs of the predictions, in the order of the points: one for each of [`POINTS`].
    pub fn inputs(&self) -> impl Iterator<Item = PowerInput> + use<> {
        let top = match self.full {
            Full::Percent => 100.0,
            Full::Cores(millis) => f64::from(millis) / 1000.0,
        };
        let (inlet_celsius, pascals) = (self.air.inlet_celsius(), self.air.pascals());
        (0_u8..).take(POINTS).map(move |point| PowerInput {
            usage: top * (f64::from(point) / INTERVALS),
            inlet_celsius,
            pascals,
        })
    }
}

impl Curve {
    /// The curve of a key, from the predicted watts in the order of [`CurveKey::inputs`]. None if there are more or fewer than
    /// [`POINTS`], or if no node can have one of them.
    #[must_use]
    pub fn of(key: &CurveKey, watts: &[f64], at: Timestamp) -> Option<Self> {
        Self::valid(key.air, watts, at)
    }

    /// The same, at this temperature and pressure.
    #[must_use]
    pub fn at(inlet_celsius: f64, pascals: f64, watts: &[f64], at: Timestamp) -> Option<Self> {
        Self::valid(Air::new(inlet_celsius, pascals)?, watts, at)
    }

    fn valid(air: Air, watts: &[f64], at: Timestamp) -> Option<Self> {
        let watts: [f64; POINTS] = watts.try_into().ok()?;
        watts.iter().all(|watts| watts.abs() <= MOST_WATTS).then_some(Self { air, at, watts })
    }

    /// The watts at a usage, as a part of the node. None outside of 0 to 1.
    #[must_use]
    pub fn watts(&self, part: f64) -> Option<f64> {
        let at = part * INTERVALS;
        if !(-NOISE..=INTERVALS + NOISE).contains(&at) {
            return None;
        }
        let at = at.clamp(0.0, INTERVALS);
        let (index, rest) = (usize::try_from(whole(at.floor(), INTERVALS)?).ok()?, at.fract());
        let low = *self.watts.get(index)?;
        let high = *self.watts.get(index.saturating_add(1)).unwrap_or(&low);
        // In this form, equal points give exactly their value, and rounding never leads beyond the next point.
        Some(low + (high - low) * rest)
    }

    /// As a status has it.
    #[must_use]
    pub fn read(status: &PowerCurve) -> Option<Self> {
        let number = |text: &String| text.parse().ok();
        let watts: Vec<f64> = status.watts.iter().map(number).collect::<Option<_>>()?;
        let inlet = number(status.inlet_temperature.as_ref()?)?;
        Self::at(inlet, number(status.differential_pressure.as_ref()?)?, &watts, status.predicted_at.as_ref()?.0)
    }

    /// Whether it need not be predicted again for a node of this key.
    #[must_use]
    pub fn serves(&self, key: &CurveKey, now: Timestamp) -> bool {
        now.duration_since(self.at) < REFRESH && self.air.is_near(key.air)
    }
}

/// What is known of the curve of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownCurve {
    pub last: Option<Arc<Curve>>,
    /// Why the model gave no newer one, and when.
    pub problem: Option<(String, Timestamp)>,
}

impl KnownCurve {
    /// What an earlier process wrote.
    #[must_use]
    pub fn restored(status: &PowerCurve) -> Self {
        Self { last: Curve::read(status).map(Arc::new), problem: None }
    }

    /// As the status shows it; None if there is nothing to show yet.
    #[must_use]
    pub fn shown(&self) -> Option<PowerCurve> {
        let problem = self.problem.as_ref().map(|(words, _)| words.clone());
        let Some(last) = &self.last else {
            return problem.map(|problem| PowerCurve { problem: Some(problem), ..PowerCurve::default() });
        };
        Some(PowerCurve {
            watts: last.watts.iter().map(|watts| decimal(*watts)).collect(),
            inlet_temperature: Some(last.air.inlet_celsius().to_string()),
            differential_pressure: Some(pressure(last.air.pascals())),
            predicted_at: Timestamp::from_second(last.at.as_second()).ok().map(Time),
            problem,
        })
    }

    /// Takes in what the model predicted.
    pub fn take(&mut self, result: Result<Arc<Curve>, String>, now: Timestamp) {
        match result {
            Ok(curve) => *self = Self { last: Some(curve), problem: None },
            Err(problem) => self.problem = Some((problem, now)),
        }
    }

    /// Whether the model is to be asked for a node of this key.
    #[must_use]
    pub fn is_due(&self, key: &CurveKey, now: Timestamp) -> bool {
        let serves = self.last.as_ref().is_some_and(|curve| curve.serves(key, now));
        let waits = self.problem.as_ref().is_some_and(|(_, at)| now.duration_since(*at) < PAUSE);
        !serves && !waits
    }
}

/// The curves of the nodes of one model.
#[derive(Debug, Default)]
pub struct Curves(BTreeMap<CurveKey, Arc<Curve>>);

impl Curves {
    /// Those of these nodes that serve them.
    pub fn of(nodes: impl IntoIterator<Item = (CurveKey, Arc<Curve>)>, now: Timestamp) -> Self {
        Self(nodes.into_iter().filter(|(key, curve)| curve.serves(key, now)).collect())
    }

    /// What to ask the model for, at most this many curves, for nodes of these keys that are due.
    #[must_use]
    pub fn missing(&self, due: impl IntoIterator<Item = CurveKey>, most: usize) -> Vec<CurveKey> {
        let missing: BTreeSet<_> = due.into_iter().filter(|key| !self.0.contains_key(key)).collect();
        missing.into_iter().take(most).collect()
    }

    /// The curve for a node of this key.
    #[must_use]
    pub fn get(&self, key: &CurveKey) -> Option<&Arc<Curve>> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests;
