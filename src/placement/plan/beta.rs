//! The regularised incomplete beta function, evaluated by a continued fraction.
//!
//! Owns the numerics only. The relative error is below 1e-11 for a + b up to 1e10. Near the mean, the required number
//! of terms grows with the square root of a + b, so implementations with a fixed small number of terms fail from a + b
//! of about 1e6 on.

use std::f64::consts::TAU;

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
pub(super) fn cumulative(a: f64, b: f64, x: f64, excess: f64) -> f64 {
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
