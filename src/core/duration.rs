//! Durations in the format of Go: `15s`, `1h30m`, `0.5s`. Integer nanoseconds, no floats.

use jiff::SignedDuration;
use thiserror::Error;

use crate::words::quoted;

/// Maximum duration, in hours: a hundred years.
const MAX_HOURS: i128 = 24 * 36_525;

/// Reason why a text is not a duration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// Wrong format.
    #[error("{} is not a duration: write numbers with units h, m, s or ms, such as 15s or 1h30m", quoted(text))]
    Form { text: String },
    /// More than [`MAX_HOURS`].
    #[error("{} is longer than a hundred years", quoted(text))]
    TooLong { text: String },
}

/// Parses a duration of at most a hundred years.
pub fn parse(text: &str) -> Result<SignedDuration, DurationError> {
    let form = || DurationError::Form { text: text.chars().take(40).collect() };
    let too_long = || DurationError::TooLong { text: text.chars().take(40).collect() };
    if text.is_empty() {
        return Err(form());
    }
    let mut rest = text;
    let mut nanos = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(form)?;
        let (figure, tail) = rest.split_at(end);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let part = unit_nanos(unit).and_then(|unit| times(figure, unit)).ok_or_else(form)?;
        nanos = nanos.saturating_add(part);
        rest = tail;
    }
    let seconds = nanos / 1_000_000_000;
    if seconds > MAX_HOURS * 3600 {
        return Err(too_long());
    }
    let seconds = i64::try_from(seconds).map_err(|_| too_long())?;
    let rest = i32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Ok(SignedDuration::new(seconds, rest))
}

/// Renders a duration in whole seconds, rounded down: `45s`, `2m13s`, `1h`, `26h5m`. Omits the seconds from one hour
/// on.
pub fn show(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = |number: i64, unit: &str| if number > 0 { format!("{number}{unit}") } else { String::new() };
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{}", part(seconds, "s")),
        (hours, minutes) => format!("{hours}h{}", part(minutes, "m")),
    }
}

fn unit_nanos(unit: &str) -> Option<i128> {
    match unit {
        "ns" => Some(1),
        "us" | "µs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// Multiplies a decimal number of at most 18 digits by the unit. Truncates fractions of a nanosecond.
fn times(figure: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = figure.split_once('.').unwrap_or((figure, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > 18 || fraction.contains('.') {
        return None;
    }
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits.parse::<i128>().ok()?.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s")]
    #[case(-5, "0s")]
    #[case(59, "59s")]
    #[case(60, "1m")]
    #[case(133, "2m13s")]
    #[case(3600, "1h")]
    #[case(93_901, "26h5m")]
    fn is_shown_in_its_largest_units(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(show(SignedDuration::from_secs(seconds)), text);
    }

    #[rstest]
    #[case("0s", 0)]
    #[case("15s", 15_000)]
    #[case("1h30m", 5_400_000)]
    #[case("1.5h", 5_400_000)]
    #[case("500ms", 500)]
    #[case("1m0.25s", 60_250)]
    #[case(".5s", 500)]
    fn reads_what_go_writes(#[case] text: &str, #[case] millis: i64) {
        assert_eq!(parse(text), Ok(SignedDuration::from_millis(millis)));
    }

    #[rstest]
    #[case("")]
    #[case("15")]
    #[case("s")]
    #[case("1d")]
    #[case("-1s")]
    #[case("1.2.3s")]
    #[case("1 s")]
    #[case(".s")]
    #[case("1111111111111111111s")]
    fn refuses_the_rest(#[case] text: &str) {
        assert!(matches!(parse(text), Err(DurationError::Form { .. })), "{text}");
    }

    #[test]
    fn bounds_what_it_reads() {
        assert!(matches!(parse("999999h999999h"), Err(DurationError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,40}", near in "([0-9.]{0,20}(ms|s|m|h|d)?){0,5}") {
            let _ = (parse(&text), parse(&near));
        }

        #[test]
        fn adds_its_parts(hours in 0_i64..1000, minutes in 0_i64..1000, millis in 0_i64..100_000) {
            let expected = SignedDuration::from_millis((hours * 60 + minutes) * 60_000 + millis);
            prop_assert_eq!(parse(&format!("{hours}h{minutes}m{millis}ms")), Ok(expected));
        }
    }
}
