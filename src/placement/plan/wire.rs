//! Scores in the extender protocol: whole numbers from 0 to 10. Agents calculate with real numbers, which are rounded
//! once, here.

/// Best score of the extender protocol (`MaxExtenderPriority`).
pub const TOP: f64 = 10.0;

/// Rounds a score to the value that is sent: halves round up, values out of bounds are clamped, and NaN is the worst
/// score.
pub fn score(real: f64) -> u8 {
    whole(real, 10)
}

/// Rounds a score down, like the original programs that truncate fractions.
pub fn floored(real: f64) -> u8 {
    whole(real.floor(), 10)
}

/// Rounds to a whole number from 0 to `top`: halves round up, NaN gives 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds, and casts of floats saturate")]
pub fn whole(real: f64, top: u8) -> u8 {
    // `max` comes before `min` so that NaN becomes 0: `max` of NaN and a number returns the number.
    let bounded = (real + 0.5).floor().max(0.0).min(f64::from(top));
    bounded as u8
}

/// Difference between the least and the greatest value. None if it is rounding noise, which must not be stretched over
/// all scores, or if it is not finite.
pub fn span(low: f64, high: f64) -> Option<f64> {
    let span = high - low;
    (span > 1e-9 * high.abs().max(1.0) && span.is_finite()).then_some(span)
}

/// Least and greatest value; None without values.
pub fn extremes(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |bounds, value| {
        Some(bounds.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0.49, 0)]
    #[case(0.5, 1)]
    #[case(9.5, 10)]
    #[case(-3.0, 0)]
    #[case(1e300, 10)]
    #[case(f64::NAN, 0)]
    #[case(f64::INFINITY, 10)]
    #[case(f64::NEG_INFINITY, 0)]
    fn scores_are_rounded_and_in_bounds(#[case] real: f64, #[case] sent: u8) {
        assert_eq!(score(real), sent);
    }

    #[rstest]
    #[case(9.99, 9)]
    #[case(10.0, 10)]
    #[case(f64::NAN, 0)]
    fn fractions_are_cut_off_on_demand(#[case] real: f64, #[case] sent: u8) {
        assert_eq!(floored(real), sent);
    }

    #[test]
    fn noise_is_no_span() {
        assert_eq!(span(1e6, 1e6 + 1e-4), None);
        assert_eq!(span(0.0, 0.0), None);
        assert_eq!(span(1.0, 3.0), Some(2.0));
        assert_eq!(span(f64::NAN, 3.0), None);
        assert_eq!(span(f64::MIN, f64::MAX), None);
        assert_eq!(extremes([]), None);
        assert_eq!(extremes([2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
    }

    proptest! {
        #[test]
        fn a_better_score_is_never_sent_as_a_worse_one(one in any::<f64>(), other in any::<f64>()) {
            prop_assert!(score(one) <= 10);
            prop_assert!(one.partial_cmp(&other).is_none_or(|order| order.is_gt() || score(one) <= score(other)));
        }
    }
}
