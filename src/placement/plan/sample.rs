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

/// Whether usage measured at `sampled` does not fully include a pod that was bound at `bound`. A measurement is the
/// average over the interval before it.
pub fn is_unmeasured(bound: Timestamp, sampled: Timestamp, interval: SignedDuration) -> bool {
    bound.duration_since(sampled) > -interval
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
    #[case(39, false)]
    #[case(40, false)]
    #[case(41, true)]
    #[case(200, true)]
    fn pods_of_the_last_interval_are_not_measured(#[case] bound: i64, #[case] unmeasured: bool) {
        let second = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!(is_unmeasured(second(bound), second(100), SignedDuration::from_secs(60)), unmeasured);
    }
}
