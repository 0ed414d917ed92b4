//! The demand of pods, as learned from those that arrived.

use serde::{Deserialize, Serialize};

use super::{MAX_RESOURCES, Matrix, Row};

/// The weight of a new demand once many have arrived.
pub const SMOOTHING: f64 = 0.01;

/// Mean and covariance of demands: those of all at first, later smoothed exponentially.
///
/// The columns are those of the policy; when its resources change, it starts over. Each pod must be learned once, however often the
/// scheduler asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedDemand {
    /// How many demands were learned; it ends at the inverse of the smoothing.
    pub arrivals: u32,
    pub mean: Row,
    /// Central, rather than the mean of products: of equal demands it is exactly 0.
    pub covariance: Matrix,
}

impl LearnedDemand {
    /// Learns a demand. One that is not finite is ignored.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    pub fn learn(&mut self, demand: &Row, smoothing: f64) {
        if !demand.iter().all(|demand| demand.is_finite()) {
            return;
        }
        let most = smoothing.recip().floor().max(1.0) as u32;
        self.arrivals = self.arrivals.saturating_add(1).min(most);
        let weight = f64::from(self.arrivals).recip();
        let mut difference = *demand;
        for (difference, mean) in difference.iter_mut().zip(&mut self.mean) {
            *difference -= *mean;
            *mean += weight * *difference;
        }
        for (row, one) in self.covariance.iter_mut().zip(&difference) {
            for (covariance, other) in row.iter_mut().zip(&difference) {
                *covariance = (1.0 - weight) * (*covariance + weight * one * other);
            }
        }
    }

    /// Whether it can be one that was learned.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.covariance.iter().flatten().all(|number| number.is_finite())
            && self.mean.iter().all(|mean| mean.is_finite() && *mean >= 0.0)
    }

    /// Whether both are the same, but for the last digits, which may differ once they were written and read.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let numbers = |one: &Self| one.covariance.into_iter().flatten().chain(one.mean).collect::<Vec<f64>>();
        let is_near = |(is, was): (f64, f64)| (is - was).abs() <= 1e-12 * is.abs().max(was.abs());
        self.arrivals == other.arrivals && numbers(self).into_iter().zip(numbers(other)).all(is_near)
    }

    /// Mean and covariance as parts of a mean node; 0 for resources that no node has.
    #[must_use]
    pub fn relative_to(&self, mean_capacity: &Row, resources: usize) -> (Row, Matrix) {
        let part = |value: f64, capacity: f64| if capacity > 0.0 { value / capacity } else { 0.0 };
        let (mut mean, mut covariance) = (Row::default(), Matrix::default());
        for i in 0..resources.min(MAX_RESOURCES) {
            mean[i] = part(self.mean[i], mean_capacity[i]);
            for j in 0..resources.min(MAX_RESOURCES) {
                covariance[i][j] = part(part(self.covariance[i][j], mean_capacity[i]), mean_capacity[j]);
            }
        }
        (mean, covariance)
    }
}
