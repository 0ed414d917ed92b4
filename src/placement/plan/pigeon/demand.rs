//! The demand of pods, learned from created pods.

use serde::{Deserialize, Serialize};

use super::{MAX_RESOURCES, Matrix, Row};

/// Weight of a new demand once many have been learned.
pub const SMOOTHING: f64 = 0.01;

/// Mean and covariance of demands: of all demands at first, later smoothed exponentially.
///
/// Each pod must be learned only once, no matter how many requests the scheduler sends for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedDemand {
    /// Number of learned demands, up to the inverse of the smoothing.
    pub arrivals: u32,
    pub mean: Row,
    /// Central covariance, not the mean of products, so that it is exactly 0 for equal demands.
    pub covariance: Matrix,
}

impl LearnedDemand {
    /// Learns a demand. A demand that is not finite is ignored.
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

    /// Whether all numbers are possible results of learning: finite, and means not negative.
    pub fn is_sound(&self) -> bool {
        self.covariance.iter().flatten().all(|number| number.is_finite())
            && self.mean.iter().all(|mean| mean.is_finite() && *mean >= 0.0)
    }

    /// Whether both are equal except for the last digits, which may differ after saving and restoring.
    pub fn is_like(&self, other: &Self) -> bool {
        let numbers = |one: &Self| one.covariance.into_iter().flatten().chain(one.mean).collect::<Vec<f64>>();
        let is_near = |(is, was): (f64, f64)| (is - was).abs() <= 1e-12 * is.abs().max(was.abs());
        self.arrivals == other.arrivals && numbers(self).into_iter().zip(numbers(other)).all(is_near)
    }

    /// Mean and covariance as fractions of the mean capacity of a node; 0 for resources that no node has.
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
