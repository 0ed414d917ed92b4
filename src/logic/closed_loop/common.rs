//! What every stage needs of numbers, times and durations: to read them from a spec, to count with them, to write them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use thiserror::Error;

use crate::api::scalars::{DurationText, Number};
use crate::logic::closed_loop::duration;
use crate::logic::quantity;

/// How often a status is written though nothing has changed, so that one sees that the loop lives.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);

/// A field of a spec that cannot be read though the schema let it through.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Which field.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl FieldError {
    /// This is wrong with that field.
    pub fn new(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { field: field.into(), problem: problem.to_string() }
    }
}

/// Reads a number of the spec.
///
/// # Errors
///
/// It is no number.
pub fn number(field: &str, text: &Number) -> Result<f64, FieldError> {
    quantity::number(text.as_str()).map_err(|error| FieldError::new(field, error))
}

/// Reads a duration of the spec; unset is none.
///
/// # Errors
///
/// It is no duration.
pub fn duration(field: &str, text: Option<&DurationText>) -> Result<SignedDuration, FieldError> {
    text.map_or(Ok(SignedDuration::ZERO), |text| {
        duration::parse(text.as_str()).map_err(|error| FieldError::new(field, error))
    })
}

/// So much later, at most at the end of time.
#[must_use]
pub fn later(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// How long it is since then; negative where that lies ahead.
#[must_use]
pub fn elapsed(then: &MicroTime, now: Timestamp) -> SignedDuration {
    now.duration_since(then.0)
}

/// The time as it is written, so that what is remembered equals what was decided on.
#[must_use]
pub fn micro_time(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// A number as it is shown: at most three decimals, none where there are none.
#[must_use]
pub fn number_text(value: f64) -> Number {
    // As many digits as a number in a status may have.
    if value.abs() >= 1e18 {
        return Number(format!("{:.3e}", value.clamp(-9e98, 9e98)));
    }
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Number(if text == "-0" { "0".into() } else { text.into() })
}

/// A time in a message.
#[must_use]
pub fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
