//! Numbers and times that node annotations publish as text, and the expiry of samples.

use jiff::{SignedDuration, Timestamp};

/// Parses a number; None if the text is blank, malformed or not finite. Surrounding white space is trimmed.
pub fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// Parses a time. A malformed text becomes the Unix epoch, so that the sample counts as expired.
pub fn time(text: &str) -> Timestamp {
    text.trim().parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether a sample has expired. A sample without a time never expires. Clock skew up to `max_age` is tolerated; a
/// sample farther in the future counts as expired, since it would stay valid for far too long.
pub fn is_expired(sampled: Option<Timestamp>, now: Timestamp, max_age: SignedDuration) -> bool {
    sampled.is_some_and(|sampled| now.duration_since(sampled).abs() > max_age)
}

/// Part of the usage of a pod, 0 to 1, that is missing in the usage measured at `sampled`. A measurement is the average
/// over the window before it, and the pod has used nothing until it was bound.
pub fn unmeasured_part(bound: Timestamp, sampled: Timestamp, window: SignedDuration) -> f64 {
    let age = sampled.duration_since(bound);
    if age >= window {
        0.0
    } else if age.is_positive() {
        1.0 - age.as_secs_f64() / window.as_secs_f64()
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("12.5", Some(12.5))]
    #[case(" 30\t", Some(30.0))]
    #[case("-1e3", Some(-1000.0))]
    #[case("", None)]
    #[case("  ", None)]
    #[case("abc", None)]
    #[case("1Gi", None)]
    #[case("1,5", None)]
    #[case("NaN", None)]
    #[case("-inf", None)]
    #[case("1e999", None)]
    fn only_finite_numbers_are_read(#[case] text: &str, #[case] expected: Option<f64>) {
        assert_eq!(number(text), expected);
    }

    #[rstest]
    #[case(Some(100), false)]
    #[case(Some(99), true)]
    #[case(Some(500), false)]
    #[case(Some(700), false)]
    #[case(Some(701), true)]
    #[case(None, false)]
    fn samples_expire(#[case] sampled: Option<i64>, #[case] expired: bool) {
        let second = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!(is_expired(sampled.map(second), second(400), SignedDuration::from_secs(300)), expired);
    }

    #[rstest]
    #[case(39, 60, 0.0)]
    #[case(40, 60, 0.0)]
    #[case(55, 60, 0.25)]
    #[case(85, 60, 0.75)]
    #[case(100, 60, 1.0)]
    #[case(200, 60, 1.0)]
    #[case::no_window(100, 0, 0.0)]
    #[case::later_than_a_momentary_sample(101, 0, 1.0)]
    fn pods_of_the_window_are_measured_in_part(#[case] bound: i64, #[case] window: i64, #[case] expected: f64) {
        let second = |second| Timestamp::from_second(second).expect("a time");
        let part = unmeasured_part(second(bound), second(100), SignedDuration::from_secs(window));
        assert!((part - expected).abs() < 1e-12, "{part}");
    }
}
