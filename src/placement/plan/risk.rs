//! The risk that the utilisation of a resource exceeds a threshold.
//!
//! The utilisation is assumed to have a Beta distribution with the measured mean and standard deviation.

use super::beta;

/// Smaller deviations count as 0.
const NO_DEVIATION: f64 = 1e-5;

/// Maximum variance, as a fraction of `mean * (1 - mean)`: the variance of a variable that is either 0 or 1, which no
/// utilisation with this mean exceeds.
const MAX_VARIANCE: f64 = 0.99;

/// Beyond this exponent of the tail bound, the risk is 0 or 1 with an error below 5e-18.
const CERTAIN_FROM: f64 = 40.0;

/// A Beta distribution that was fitted to a mean and a deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BetaFit {
    pub alpha: f64,
    pub beta: f64,
}

impl BetaFit {
    /// Fits a distribution to a mean, 0 < mean < 1, and a deviation. A deviation that is impossible for this mean is
    /// lowered.
    pub fn of(mean: f64, deviation: f64) -> Self {
        let largest = mean * (1.0 - mean);
        let variance = (deviation * deviation).min(MAX_VARIANCE * largest);
        let size = largest / variance - 1.0;
        Self { alpha: mean * size, beta: (1.0 - mean) * size }
    }

    /// Exponent of the tail bound. A Beta distribution is sub-Gaussian with the variance proxy 1/(4(alpha + beta + 1)).
    fn exponent(self, distance: f64) -> f64 {
        2.0 * (self.alpha + self.beta + 1.0) * distance * distance
    }

    /// Probability that the utilisation exceeds this threshold.
    fn exceeds(self, mean: f64, threshold: f64) -> f64 {
        let distance = threshold - mean;
        if self.exponent(distance) > CERTAIN_FROM {
            return if distance > 0.0 { 0.0 } else { 1.0 };
        }
        // The lower tail of the idle share: 1 minus the other tail would lose the digits of small risks.
        beta::cumulative(self.beta, self.alpha, 1.0 - threshold, mean - threshold)
    }
}

/// Probability that the utilisation exceeds a threshold, given its mean and its deviation, all as fractions of 1. If an
/// argument is NaN, the risk is 1, since nothing shows that the node is safe.
pub fn risk(mean: f64, deviation: f64, threshold: f64) -> f64 {
    certain(mean, deviation, threshold).unwrap_or_else(|| BetaFit::of(mean, deviation).exceeds(mean, threshold))
}

/// Upper bound of [`risk`] that is calculated a hundred times as fast. Enough to accept a node, which is the common
/// case.
pub fn risk_at_most(mean: f64, deviation: f64, threshold: f64) -> f64 {
    certain(mean, deviation, threshold).unwrap_or_else(|| {
        let distance = threshold - mean;
        if distance > 0.0 { (-BetaFit::of(mean, deviation).exponent(distance)).exp() } else { 1.0 }
    })
}

/// The risk if it does not depend on the distribution; None if it does.
pub(super) fn certain(mean: f64, deviation: f64, threshold: f64) -> Option<f64> {
    if mean.is_nan() || deviation.is_nan() || threshold.is_nan() {
        Some(1.0)
    } else if mean <= 0.0 || threshold >= 1.0 {
        Some(0.0)
    } else if mean >= 1.0 {
        Some(1.0)
    } else if deviation < NO_DEVIATION {
        Some(if mean <= threshold { 0.0 } else { 1.0 })
    } else {
        (threshold <= 0.0).then_some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::idle(0.0, 0.3, 0.9, 0.0)]
    #[case::everything_is_allowed(0.95, 0.3, 1.0, 0.0)]
    #[case::full(1.0, 0.1, 0.9, 1.0)]
    #[case::steady_at_the_threshold(0.9, 0.0, 0.9, 0.0)]
    #[case::steady_above_it(0.91, 9.9e-6, 0.9, 1.0)]
    #[case::nothing_is_allowed(0.1, 0.1, 0.0, 1.0)]
    #[case::unknown(f64::NAN, 0.1, 0.9, 1.0)]
    #[case::far_below(0.5, 0.01, 0.9, 0.0)]
    #[case::far_above(0.99, 0.01, 0.5, 1.0)]
    fn some_risks_are_certain(
        #[case] mean: f64,
        #[case] deviation: f64,
        #[case] threshold: f64,
        #[case] expected: f64,
    ) {
        assert_eq!(risk(mean, deviation, threshold), expected);
    }

    #[test]
    fn a_steady_node_near_the_threshold_is_no_step() {
        // Without logarithms, x^a (1-x)^b underflows here, and the distribution becomes a step.
        let value = risk(0.899, 0.005, 0.9);
        assert!((value - 0.426).abs() < 5e-4, "{value}");
    }

    #[test]
    fn a_tiny_mean_has_a_tiny_risk() {
        // Expected value with 50 digits. The function calculates the complement of this risk, which has 16 digits.
        let (value, expected) = (risk(3.3e-11, 0.05, 0.49), 3.301_050_956_3e-11);
        assert!((value / expected - 1.0).abs() < 1e-5, "{value}");
    }

    /// Means and deviations of all magnitudes, and means within a few deviations of the threshold.
    fn measured() -> impl Strategy<Value = (f64, f64, f64)> {
        let deviation = (-5.0..0.0_f64).prop_map(|exponent| 10_f64.powf(exponent));
        let threshold = prop_oneof![0.0..1.0_f64, Just(0.9)];
        (deviation, threshold, prop_oneof![(-5.0..5.0_f64).prop_map(Some), Just(None)], 0.0..1.0_f64).prop_map(
            |(deviation, threshold, distance, mean)| {
                let mean = distance.map_or(mean, |distance| (threshold + distance * deviation).clamp(0.0, 1.0));
                (mean, deviation, threshold)
            },
        )
    }

    proptest! {
        #[test]
        fn a_risk_is_a_probability(mean in any::<f64>(), deviation in any::<f64>(), threshold in any::<f64>()) {
            let value = risk(mean, deviation.abs(), threshold);
            prop_assert!((0.0..=1.0).contains(&value), "{value}");
        }

        #[test]
        fn a_higher_threshold_is_no_more_exceeded(
            (mean, deviation, threshold) in measured(),
            other in prop_oneof![0.0..1.0_f64, Just(f64::NAN)],
        ) {
            // NaN stands for a slightly higher threshold.
            let higher = if other.is_nan() { threshold + 0.01 * deviation } else { threshold.max(other) };
            let (low, high) = (risk(mean, deviation, threshold), risk(mean, deviation, higher));
            prop_assert!((0.0..=1.0).contains(&low));
            prop_assert!(high <= low + 1e-11, "{high} at {higher}, {low} at {threshold}");
        }

        #[test]
        fn a_bound_is_not_exceeded((mean, deviation, threshold) in measured()) {
            let (risk, bound) = (risk(mean, deviation, threshold), risk_at_most(mean, deviation, threshold));
            prop_assert!(risk <= bound + 1e-11, "{risk} is more than {bound}");
            prop_assert!(bound <= 1.0);
        }

        #[test]
        fn the_two_sides_add_up(mean in 0.001..0.999_f64, deviation in 1e-5..0.5_f64, threshold in 0.001..0.999_f64) {
            let sum = risk(mean, deviation, threshold) + risk(1.0 - mean, deviation, 1.0 - threshold);
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
    }
}
