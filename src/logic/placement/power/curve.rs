//! The predicted power of a node over its CPU usage: what a curve is fetched for, at which points, and the watts between them.
//!
//! The pod is not known when predictions are fetched, so a curve covers all usages of a node. It is interpolated linearly: a pod
//! that is smaller than the distance of two points still adds its part of the difference. Nothing is fetched or kept here; see
//! `cache`.

use std::sync::Arc;

use super::{Increment, PowerUsage, UsageScale};

/// Number of points of a curve, from an idle node to a full one: one each 5 % of the node.
pub const POINTS: usize = 21;

/// Intervals between the points.
const INTERVALS: f64 = 20.0;

/// Inlet temperatures are rounded to this, in degrees Celsius. Sensors of servers are no more exact than 1 °C, and most tell whole
/// degrees.
pub const INLET_STEP: f64 = 0.5;

/// Differential pressures are rounded to this, in pascals. Fans work against some hundred pascals. The error is the same before
/// and after the pod, so that most of it cancels out.
pub const PRESSURE_STEP: f64 = 0.5;

/// No temperature and no pressure has more steps than this.
const MOST_STEPS: f64 = 1e6;

/// How far beyond its ends a curve is valid, in intervals: the noise of a division.
const NOISE: f64 = 1e-6;

/// No node takes more watts. Also keeps differences of points finite.
const MOST_WATTS: f64 = 1e9;

/// The unit of the usage, with the usage of the full node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Full {
    /// 100 for every node: nodes of all sizes share their curves.
    Percent,
    /// The capacity in millicores: a model in cores gives nodes of different sizes points at different usages.
    Cores(u32),
}

/// What a curve is predicted for. Nodes with the same key share a curve.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CurveKey {
    /// First, so that keys in order are in order of their models.
    model: Arc<str>,
    full: Full,
    inlet: i32,
    pascals: i32,
}

/// The input of one prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveInput {
    /// In percent of the node, or in cores: in the unit of the curve.
    pub usage: f64,
    pub inlet_celsius: f64,
    pub pascals: f64,
}

/// Watts over usage. A point without a prediction leaves a gap to both of its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The usage at the last point.
    top: f64,
    points: [Option<f64>; POINTS],
}

/// The nearest number of steps; None if there is no such number.
fn steps(value: f64, step: f64) -> Option<i32> {
    whole((value / step).round(), MOST_STEPS)
}

/// A whole number of at most this size, below `i32::MAX`.
#[expect(clippy::cast_possible_truncation, reason = "in bounds")]
fn whole(value: f64, most: f64) -> Option<i32> {
    (value.abs() <= most).then_some(value as i32)
}

impl CurveKey {
    /// The key of a node with this capacity in cores, at this temperature and pressure. `model` identifies a model on a server.
    ///
    /// None if one of the numbers is not finite or not plausible, or if the node has no CPU.
    #[must_use]
    pub fn new(model: Arc<str>, scale: UsageScale, capacity: f64, inlet_celsius: f64, pascals: f64) -> Option<Self> {
        // Rounded up, so that the curve covers the whole node; not because of noise.
        let millis = whole((1000.0 * capacity - NOISE).ceil(), f64::from(i32::MAX)).filter(|millis| *millis > 0)?;
        let full = match scale {
            UsageScale::Percent => Full::Percent,
            UsageScale::Cores => Full::Cores(millis.unsigned_abs()),
        };
        let (inlet, pascals) = (steps(inlet_celsius, INLET_STEP)?, steps(pascals, PRESSURE_STEP)?);
        Some(Self { model, full, inlet, pascals })
    }

    /// The model on a server, as the caller named it.
    #[must_use]
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The usage of the full node.
    #[must_use]
    pub fn top(&self) -> f64 {
        match self.full {
            Full::Percent => 100.0,
            Full::Cores(millis) => f64::from(millis) / 1000.0,
        }
    }

    /// The inputs of the predictions, in the order of the points: one for each of [`POINTS`].
    pub fn inputs(&self) -> impl Iterator<Item = CurveInput> + use<> {
        let top = self.top();
        let (inlet, pascals) = (f64::from(self.inlet) * INLET_STEP, f64::from(self.pascals) * PRESSURE_STEP);
        (0_u8..).take(POINTS).map(move |point| CurveInput {
            usage: top * (f64::from(point) / INTERVALS),
            inlet_celsius: inlet,
            pascals,
        })
    }
}

impl Curve {
    /// The curve of a key, from the predicted watts in the order of [`CurveKey::inputs`]. A prediction that is not finite, or that
    /// no node can have, is missing.
    ///
    /// None if there are more or fewer than [`POINTS`] predictions, or if all are missing.
    #[must_use]
    pub fn of(key: &CurveKey, watts: &[Option<f64>]) -> Option<Self> {
        let mut points: [Option<f64>; POINTS] = watts.try_into().ok()?;
        for point in &mut points {
            // Not true of NaN.
            *point = point.filter(|watts| watts.abs() <= MOST_WATTS);
        }
        points.iter().any(Option::is_some).then(|| Self { top: key.top(), points })
    }

    /// The watts at a usage in the unit of the key. None outside of the node's capacity, and next to a missing point.
    #[must_use]
    pub fn watts(&self, usage: f64) -> Option<f64> {
        let at = usage / self.top * INTERVALS;
        if !(-NOISE..=INTERVALS + NOISE).contains(&at) {
            return None;
        }
        let at = at.clamp(0.0, INTERVALS);
        let (index, part) = (whole(at.floor(), INTERVALS)?, at.fract());
        let mut points = self.points.iter().skip(usize::try_from(index).ok()?);
        let low = (*points.next()?)?;
        if part == 0.0 {
            return Some(low);
        }
        let high = (*points.next()?)?;
        // In this form, equal points give exactly their value, and rounding never leads beyond the next point.
        Some(low + (high - low) * part)
    }

    /// What a pod adds, from the usage before and after it.
    #[must_use]
    pub fn increment(&self, usage: PowerUsage) -> Increment {
        match (self.watts(usage.before), self.watts(usage.after)) {
            (Some(before), Some(after)) => Increment::between(before, after),
            _ => Increment::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
