//! Predicted power of a node as a function of its CPU usage: which curves are requested from a model, their points, and
//! interpolation.
//!
//! The pods to be placed are unknown when predictions are fetched, so a curve covers all usages of a node. It is
//! published in the status of the NodeConfig, where every replica reads it. Nodes with about the same inlet temperature
//! and pressure share a prediction. Interpolation is linear: a pod that is smaller than the distance of two points
//! still adds its share of the power.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::PowerCurve;

/// Number of points of a curve, from an idle node to a fully used one: one point per 5 % of the node.
pub const POINTS: usize = 21;

/// Number of intervals between the points.
const INTERVALS: f64 = 20.0;

/// Time after which a curve is predicted again.
pub const REFRESH: SignedDuration = SignedDuration::from_mins(30);

/// Pause after a failed prediction of a curve.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// Step to which inlet temperatures are rounded, in degrees Celsius. Sensors of servers are accurate to 1 °C at best,
/// and most report whole degrees.
const INLET_STEP: f64 = 0.5;

/// Ratio between two steps of differential pressure. Steps are relative because pressures differ by orders of magnitude
/// between a chassis and a data hall.
const PRESSURE_RATIO: f64 = 1.05;

/// Pressures below this count as zero, in pascals.
const LEAST_PRESSURE: f64 = 0.01;

/// Maximum number of steps of a temperature or a pressure.
const MOST_STEPS: f64 = 1e6;

/// Tolerance at the ends of a curve, in intervals, for the rounding error of a division.
const NOISE: f64 = 1e-6;

/// Maximum power of a node in watts. Also keeps differences of points finite.
const MOST_WATTS: f64 = 1e9;

/// Inlet temperature and differential pressure of a node, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Air {
    inlet: i32,
    pressure: i32,
}

/// Unit of the usage, and the usage of a fully used node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Full {
    /// 100 for every node: nodes of all sizes share their curves.
    Percent,
    /// Capacity in millicores.
    Cores(u32),
}

/// Inputs of a curve other than the usage. Nodes with the same key share a curve of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CurveKey {
    air: Air,
    full: Full,
}

/// Inputs of one prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerInput {
    /// CPU usage in the unit of the model: percent of all cores, or cores.
    pub usage: f64,
    /// Temperature of the intake air in degrees Celsius.
    pub inlet_celsius: f64,
    /// Differential pressure between the front and the rear of the node in pascals.
    pub pascals: f64,
}

/// Power that rises evenly with the usage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLine {
    /// Watts of the idle node.
    pub idle: f64,
    /// Watts of the fully used node.
    pub full: f64,
}

impl PowerLine {
    /// Watts at a usage between 0 and 1 of the node.
    pub fn watts(&self, part: f64) -> f64 {
        self.idle + (self.full - self.idle) * part
    }
}

/// Power in watts as a function of usage.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// None: the prediction depends on the usage alone.
    air: Option<Air>,
    /// Time of the prediction.
    pub at: Timestamp,
    watts: [f64; POINTS],
}

/// Converts a number to an integer; None if its absolute value exceeds `most`.
#[expect(clippy::cast_possible_truncation, reason = "in bounds")]
fn whole(value: f64, most: f64) -> Option<i32> {
    (value.abs() <= most).then_some(value as i32)
}

/// Formats a number for the status, with two decimals.
fn decimal(value: f64) -> String {
    // Adding zero turns -0 into 0.
    ((value * 100.0).round() / 100.0 + 0.0).to_string()
}

/// Formats a pressure for the status: three significant digits distinguish neighboring steps at any size.
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

    /// Whether both differ by at most one step: a measurement that oscillates between two steps must not cause a
    /// request each time.
    fn is_near(self, other: Self) -> bool {
        self.inlet.abs_diff(other.inlet) <= 1 && self.pressure.abs_diff(other.pressure) <= 1
    }
}

/// Converts usage from percent of a node with this many cores to the unit of the model. None if the model needs the
/// number of cores and the node has none.
pub fn usage(format: CpuUsageFormat, percent: f64, cores: f64) -> Option<f64> {
    match format {
        CpuUsageFormat::Percent => Some(percent),
        CpuUsageFormat::Raw => (cores > 0.0).then_some(percent / 100.0 * cores),
    }
}

impl CurveKey {
    /// Key of a node with this many cores, at this temperature and pressure.
    ///
    /// None if one of the numbers is not finite or not plausible, or if the model needs the number of cores and the
    /// node has none.
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

    /// Inputs of the predictions, one for each of the [`POINTS`], in their order.
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
    /// Curve of a key, from the predicted watts in the order of [`CurveKey::inputs`]. None if the number of watts is
    /// not [`POINTS`] or one of them is out of range.
    pub fn of(key: &CurveKey, watts: &[f64], at: Timestamp) -> Option<Self> {
        Self::valid(Some(key.air), watts, at)
    }

    /// Same as [`Self::of`], for a temperature and a pressure.
    pub fn at(inlet_celsius: f64, pascals: f64, watts: &[f64], at: Timestamp) -> Option<Self> {
        Self::valid(Some(Air::new(inlet_celsius, pascals)?), watts, at)
    }

    /// Points on this line.
    pub fn straight(line: &PowerLine, at: Timestamp) -> Option<Self> {
        let watts: Vec<f64> = (0_u8..).take(POINTS).map(|point| line.watts(f64::from(point) / INTERVALS)).collect();
        Self::valid(None, &watts, at)
    }

    fn valid(air: Option<Air>, watts: &[f64], at: Timestamp) -> Option<Self> {
        let watts: [f64; POINTS] = watts.try_into().ok()?;
        watts.iter().all(|watts| watts.abs() <= MOST_WATTS).then_some(Self { air, at, watts })
    }

    /// Power in watts at a usage between 0 and 1 of the node; None outside of this range.
    pub fn watts(&self, part: f64) -> Option<f64> {
        let at = part * INTERVALS;
        if !(-NOISE..=INTERVALS + NOISE).contains(&at) {
            return None;
        }
        let at = at.clamp(0.0, INTERVALS);
        let (index, rest) = (usize::try_from(whole(at.floor(), INTERVALS)?).ok()?, at.fract());
        let low = *self.watts.get(index)?;
        let high = *self.watts.get(index.saturating_add(1)).unwrap_or(&low);
        // This form returns equal points exactly, and never overshoots the next point through rounding.
        Some(low + (high - low) * rest)
    }

    /// Parses a curve from a status.
    pub fn read(status: &PowerCurve) -> Option<Self> {
        let number = |text: &String| text.parse::<f64>().ok();
        let watts: Vec<f64> = status.watts.iter().map(number).collect::<Option<_>>()?;
        let air = match (&status.inlet_temperature, &status.differential_pressure) {
            (None, None) => None,
            (inlet, pressure) => Some(Air::new(number(inlet.as_ref()?)?, number(pressure.as_ref()?)?)?),
        };
        Self::valid(air, &watts, status.predicted_at.as_ref()?.0)
    }

    /// Whether both predict the same power from the same inputs.
    fn is_like(&self, other: &Self) -> bool {
        (self.air, self.watts) == (other.air, other.watts)
    }

    /// Whether the curve is recent enough and close enough to this key. A straight line is not from the model of the
    /// key.
    pub fn serves(&self, key: &CurveKey, now: Timestamp) -> bool {
        now.duration_since(self.at) < REFRESH && self.air.is_some_and(|air| air.is_near(key.air))
    }
}

/// State of the curve of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownCurve {
    pub last: Option<Arc<Curve>>,
    /// Reason and time of the last failed prediction, if it is newer than the curve.
    pub problem: Option<(String, Timestamp)>,
}

impl KnownCurve {
    /// Restores the curve that an earlier process wrote.
    pub fn restored(status: &PowerCurve) -> Self {
        Self { last: Curve::read(status).map(Arc::new), problem: None }
    }

    /// Curve for the status; None if there is neither a curve nor a problem.
    pub fn shown(&self) -> Option<PowerCurve> {
        let problem = self.problem.as_ref().map(|(words, _)| words.clone());
        let Some(last) = &self.last else {
            return problem.map(|problem| PowerCurve { problem: Some(problem), ..PowerCurve::default() });
        };
        Some(PowerCurve {
            watts: last.watts.iter().map(|watts| decimal(*watts)).collect(),
            inlet_temperature: last.air.map(|air| air.inlet_celsius().to_string()),
            differential_pressure: last.air.map(|air| pressure(air.pascals())),
            predicted_at: Timestamp::from_second(last.at.as_second()).ok().map(Time),
            problem,
        })
    }

    /// Whether this is the known curve, and no prediction has failed since.
    pub fn is_at(&self, curve: &Curve) -> bool {
        self.problem.is_none() && self.last.as_ref().is_some_and(|last| last.is_like(curve))
    }

    /// Records the result of a prediction.
    pub fn take(&mut self, result: Result<Arc<Curve>, String>, now: Timestamp) {
        match result {
            Ok(curve) => *self = Self { last: Some(curve), problem: None },
            Err(problem) => self.problem = Some((problem, now)),
        }
    }

    /// Whether a curve must be requested for a node of this key.
    pub fn is_due(&self, key: &CurveKey, now: Timestamp) -> bool {
        let serves = self.last.as_ref().is_some_and(|curve| curve.serves(key, now));
        let waits = self.problem.as_ref().is_some_and(|(_, at)| now.duration_since(*at) < PAUSE);
        !serves && !waits
    }
}

/// Curves of the nodes of one model.
#[derive(Debug, Default)]
pub struct Curves(BTreeMap<CurveKey, Arc<Curve>>);

impl Curves {
    /// Collects the curves that can still be used for their nodes.
    pub fn of(nodes: impl IntoIterator<Item = (CurveKey, Arc<Curve>)>, now: Timestamp) -> Self {
        Self(nodes.into_iter().filter(|(key, curve)| curve.serves(key, now)).collect())
    }

    /// Keys of at most `most` curves to request, for the nodes that are due.
    pub fn missing(&self, due: impl IntoIterator<Item = CurveKey>, most: usize) -> Vec<CurveKey> {
        let missing: BTreeSet<_> = due.into_iter().filter(|key| !self.0.contains_key(key)).collect();
        missing.into_iter().take(most).collect()
    }

    /// Curve for nodes of this key.
    pub fn get(&self, key: &CurveKey) -> Option<&Arc<Curve>> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests;
