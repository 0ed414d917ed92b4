//! The risk that the utilisation of a resource exceeds a threshold.
//!
//! The utilisation is assumed to have a Beta distribution with the measured mean and standard deviation.
//!
//! The second half of the file is the regularised incomplete beta function, evaluated by a continued fraction. Its
//! relative error is below 1e-11 for a + b up to 1e10. Near the mean, the required number of terms grows with the
//! square root of a + b, so implementations with a fixed small number of terms fail from a + b of about 1e6 on.

use std::f64::consts::TAU;

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
    pub fn fit(mean: f64, deviation: f64) -> Self {
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
        cumulative(self.beta, self.alpha, 1.0 - threshold, mean - threshold)
    }
}

/// Probability that the utilisation exceeds a threshold, given its mean and its deviation, all as fractions of 1. If an
/// argument is NaN, the risk is 1, since nothing shows that the node is safe.
pub fn risk(mean: f64, deviation: f64, threshold: f64) -> f64 {
    certain(mean, deviation, threshold).unwrap_or_else(|| BetaFit::fit(mean, deviation).exceeds(mean, threshold))
}

/// Upper bound of [`risk`] that is calculated a hundred times as fast. Enough to accept a node, which is the common
/// case.
pub fn risk_at_most(mean: f64, deviation: f64, threshold: f64) -> f64 {
    certain(mean, deviation, threshold).unwrap_or_else(|| {
        let distance = threshold - mean;
        if distance > 0.0 { (-BetaFit::fit(mean, deviation).exponent(distance)).exp() } else { 1.0 }
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

/// Maximum number of terms of the fraction. With a + b of 1e10 and x next to the mean, it needs some thousands.
const MAX_TERMS: u32 = 10_000;

/// Relative change per term below which the fraction has converged.
const CONVERGED: f64 = 1e-15;

/// Replaces a zero divisor.
const TINY: f64 = 1e-300;

/// Smallest argument for which the series of [`stirling`] is exact to the last digits.
const SERIES_FROM: f64 = 10.0;

/// Probability that a variable with this Beta distribution is at most `x`, where 0 < x < 1 and a, b > 0.
///
/// `excess` is x minus the mean a/(a+b). Callers have it with full precision, and for large shapes the result depends
/// on the last digits.
fn cumulative(a: f64, b: f64, x: f64, excess: f64) -> f64 {
    // Above the mean, the fraction of the complement converges faster.
    let probability =
        if x > (a + 1.0) / (a + b + 2.0) { 1.0 - tail(b, a, 1.0 - x, -excess) } else { tail(a, b, x, excess) };
    probability.clamp(0.0, 1.0)
}

/// The lower tail, for x up to about the mean: the even part of the usual continued fraction, evaluated by Lentz's
/// method as modified by Thompson and Barnett.
fn tail(a: f64, b: f64, x: f64, excess: f64) -> f64 {
    let sum = a + b;
    let partial = |step: f64| {
        let (before, after) = (a + 2.0 * step - 1.0, a + 2.0 * step + 1.0);
        let odd = step * (b - step) * x / before;
        // Numerator and denominator of one step. The brackets keep the digits of a tiny shape in the first step, where
        // step - 1 is 0.
        let above = (a + (step - 1.0)) * (sum + (step - 1.0)) * x * odd / before;
        (above, step + odd + (a + step) * (1.0 - sum * excess + step * (2.0 - x)) / after)
    };
    let not_zero = |value: f64| if value == 0.0 { TINY } else { value };
    let mut fraction = not_zero(a * (1.0 - sum * excess) / (a + 1.0));
    let (mut numerator, mut denominator) = (fraction, 0.0);
    for step in 1..=MAX_TERMS {
        let (above, below) = partial(f64::from(step));
        denominator = 1.0 / not_zero(below + above * denominator);
        numerator = not_zero(below + above / numerator);
        let factor = numerator * denominator;
        fraction *= factor;
        if (factor - 1.0).abs() < CONVERGED {
            break;
        }
    }
    density(a, b, x, excess) / fraction
}

/// `x^a (1-x)^b / B(a, b)`. The logarithms are taken relative to the mean, where the large parts of the three gamma
/// functions cancel, so the summands are not much larger than the result.
fn density(a: f64, b: f64, x: f64, excess: f64) -> f64 {
    let sum = a + b;
    let (mean, rest) = (a / sum, b / sum);
    let log = a * log_ratio(x, mean, excess) + b * log_ratio(1.0 - x, rest, -excess);
    let exponent = log + stirling(sum) - stirling(a) - stirling(b);
    (a * rest / TAU).sqrt() * exponent.exp()
}

/// `ln(value / base)`, where `value = base + difference`.
fn log_ratio(value: f64, base: f64, difference: f64) -> f64 {
    let relative = difference / base;
    if relative.abs() < 0.5 { relative.ln_1p() } else { (value / base).ln() }
}

/// Remainder of Stirling's formula: `ln Γ(z) - ((z - 1/2) ln z - z + ln(2π)/2)`.
fn stirling(z: f64) -> f64 {
    if z >= SERIES_FROM {
        return stirling_series(z);
    }
    // Γ(z) = Γ(z + k) / (z (z + 1) … (z + k - 1))
    let (mut shifted, mut product) = (z, 1.0);
    while shifted < SERIES_FROM {
        product *= shifted;
        shifted += 1.0;
    }
    stirling_series(shifted) + (shifted - 0.5) * shifted.ln() - (shifted - z) - product.ln() - (z - 0.5) * z.ln()
}

fn stirling_series(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 6] =
        [-691.0 / 360_360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0];
    let square = (z * z).recip();
    COEFFICIENTS.iter().fold(0.0, |sum, coefficient| sum * square + coefficient) / z
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

    /// Expected values were calculated by quadrature with 40 digits.
    #[rstest]
    #[case(0.5, 0.5, 0.3, 0.36901011956555)]
    #[case(0.00024, 0.0098, 0.1, 0.97558451773734)]
    #[case(0.0098, 0.00024, 0.1, 0.023394999747317)]
    #[case(0.2, 40.0, 1e-6, 0.14342205000239)]
    #[case(8.0, 8.0, 1e-9, 6.43499995996e-69)]
    #[case(2.0, 3.0, 0.999999, 1.0)]
    #[case(11.4, 22.5, 0.1, 0.00012223050197339)]
    #[case(599.4, 5195.7, 0.1, 0.19624923606701)]
    #[case(599.4, 5195.7, 0.11, 0.94776151078717)]
    #[case(1e5, 9e5, 0.0999, 0.36973959235213)]
    #[case(1e5, 9e5, 0.1, 0.50035461542757)]
    #[case(5e9, 5e9, 0.499995, 0.15865525393256)]
    #[case(1e9, 9e9, 0.1, 0.50000354615434)]
    #[case(30.0, 3e7, 1e-6, 0.52428515661223)]
    fn values_are_exact_for_shapes_of_all_sizes(#[case] a: f64, #[case] b: f64, #[case] x: f64, #[case] expected: f64) {
        let value = cumulative(a, b, x, x - a / (a + b));
        assert!((value / expected - 1.0).abs() < 1e-10, "{value} is not {expected}");
    }

    proptest! {
        /// The two tails use different fractions. With whole shapes, the exact value is a sum of binomial terms.
        #[test]
        fn whole_shapes_are_sums_of_binomial_terms(a in 1_u32..12, b in 1_u32..12, x in 0.001..0.999_f64) {
            let trials = a + b - 1;
            let choose = |k: u32| (1..=k).fold(1.0, |sum, i| sum * f64::from(trials + 1 - i) / f64::from(i));
            let term = |k: u32| choose(k) * x.powi(k as i32) * (1.0 - x).powi((trials - k) as i32);
            let expected: f64 = (a..=trials).map(term).sum();
            let (a, b) = (f64::from(a), f64::from(b));
            let value = cumulative(a, b, x, x - a / (a + b));
            prop_assert!((value - expected).abs() <= 1e-13 * expected.max(1e-3), "{value} is not {expected}");
        }
    }
}
