//! Helpers of all stages: numbers, times and durations, read from a spec and formatted for a status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use thiserror::Error;

use ganglion_api::closed_loop::when::When;
use ganglion_api::scalars::{DurationText, Number};
use ganglion_core::duration;
use ganglion_core::quantity;

/// Maximum time between two writes of a status that does not change. The writes show that the loop is alive.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);

/// Delay before a spec is parsed again that this process could not parse for a temporary reason.
pub const PARSE_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Condition of an Execution and its loop: how the last action ended.
pub const LAST_ACTION_SUCCEEDED: &str = "LastActionSucceeded";

/// Condition of a Monitoring and its loop: whether the number of replicas follows the metrics.
pub const TRACKING: &str = "Tracking";

/// Type of the condition that is true while somebody else undoes the changes of a loop.
pub const CHANGE_UNDONE: &str = "ChangeUndone";

/// Type of the condition of a loop that changes the requests that one of its metrics is in percent of.
pub const UTILIZATION_FEEDBACK: &str = "UtilizationFeedback";

/// Field of a spec with a value that the schema accepts and the operator cannot use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// Description of the problem, and of a valid value.
    pub problem: String,
    /// The field may be valid: this process could not read it at the moment.
    pub passing: bool,
}

impl FieldError {
    /// An error of this field.
    pub fn new(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { field: field.into(), problem: problem.to_string(), passing: false }
    }
}

/// Parses a number of the spec.
pub fn number(field: &str, text: &Number) -> Result<f64, FieldError> {
    quantity::number(text.as_str()).map_err(|error| FieldError::new(field, error))
}

/// Parses a duration of the spec. Unset is zero.
pub fn duration(field: &str, text: Option<&DurationText>) -> Result<SignedDuration, FieldError> {
    text.map_or(Ok(SignedDuration::ZERO), |text| {
        duration::parse(text.as_str()).map_err(|error| FieldError::new(field, error))
    })
}

/// Name of the field of the action for this alarm, such as `actions[Low cpu]`.
pub fn action_field(when: &When) -> String {
    format!("actions[{when}]")
}

/// Adds a duration to a time; at most `Timestamp::MAX`.
pub fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// The time since `then`; negative if `then` is in the future.
pub fn elapsed(then: &MicroTime, now: Timestamp) -> SignedDuration {
    now.duration_since(then.0)
}

/// Truncates the time to microseconds, as API objects store it. A stage that reads it back gets the same time.
pub fn micro_time(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// Significant digits of a float that are exact, and the largest number with that many digits.
const DIGITS: usize = 15;
const MAX_DIGITS: f64 = 1e15;

/// Rounds the result of a calculation to as many digits as a float holds exactly. Sums and products of numbers with few
/// digits are then those of decimal arithmetic: 50 times 0.58 is 29, and not a little less.
pub fn decimal(value: f64) -> f64 {
    if value.abs() >= MAX_DIGITS {
        return value;
    }
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

/// Formats the result of a calculation for a spec, with all its digits.
pub fn decimal_text(value: f64) -> Number {
    let value = decimal(value);
    let text = value.to_string();
    match text.split_once('.') {
        // A number of a spec has at most this many digits after the point.
        Some((_, fraction)) if fraction.len() > 18 => Number(format!("{value:.18}")),
        _ if value.abs() >= 1e18 => number_text(value),
        _ => Number(text),
    }
}

/// Formats a number for a status or a message: at most three decimals, without trailing zeros.
pub fn number_text(value: f64) -> Number {
    // A number in a status has at most this many digits.
    if value.abs() >= 1e18 {
        return Number(format!("{:.3e}", value.clamp(-9e98, 9e98)));
    }
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Number(if text == "-0" { "0".into() } else { text.into() })
}

/// Formats a time for a message.
pub fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats the time at which a window opens, for a message. Leaves out the day if the window opens within 24 hours.
pub fn opening_text(time: Timestamp, now: Timestamp) -> String {
    let soon = time.duration_since(now) <= SignedDuration::from_hours(24);
    time.strftime(if soon { "%H:%M UTC" } else { "%Y-%m-%d %H:%M UTC" }).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(50.0 * 0.58, "29")]
    #[case(100.0 * 1.1, "110")]
    #[case(0.1 + 0.2, "0.3")]
    #[case(1_000_000.1 + 0.2, "1000000.3")]
    #[case(0.0004 + 0.0001, "0.0005")]
    #[case(0.3 - 0.3, "0")]
    #[case(1e-17 / 3.0, "0.000000000000000003")]
    #[case(9_007_199_254_740_991.0, "9007199254740991")]
    #[case(1e300, "9.000e98")]
    fn results_are_those_of_decimal_arithmetic(#[case] result: f64, #[case] expected: &str) {
        assert_eq!(decimal_text(result).as_str(), expected);
    }

    proptest! {
        #[test]
        fn products_of_short_numbers_are_exact(whole in 0..10_000_000_u32, hundredths in 0..100_000_u32) {
            let product = decimal(f64::from(whole) * (f64::from(hundredths) / 100.0));
            let exact = u64::from(whole) * u64::from(hundredths);
            prop_assert_eq!(product.floor() as u64, exact / 100);
            prop_assert_eq!(product.ceil() as u64, exact.div_ceil(100));
        }
    }
}
