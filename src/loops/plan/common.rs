//! Helpers of all stages: numbers, times and durations, read from a spec and formatted for a status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use thiserror::Error;

use ganglion_api::closed_loop::action::Alarm;
use ganglion_api::scalars::{DurationText, Number};
use ganglion_core::duration;
use ganglion_core::quantity;

/// Maximum time between two writes of a status that does not change. The writes show that the loop is alive.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);

/// Delay before a spec is parsed again that this process could not parse for a temporary reason.
pub const PARSE_AGAIN: SignedDuration = SignedDuration::from_secs(5);

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

/// Name of the field of the action on this alarm, such as `actions[Low cpu]`.
pub fn action_field(when: &Alarm) -> String {
    format!("actions[{} {}]", when.side, when.metric)
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
