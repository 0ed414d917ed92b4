//! The decisions of closed loops: monitoring, decision and execution as pure stages, and what ties loops together.
//!
//! Each stage is total: its policy (parsed once, where it enters), the status that it wrote last, what is new, and the time
//! go in; the next status comes out, and whether it is worth a write. A stage keeps nothing between two calls, so that a
//! crash between any two writes is answered by asking again. What must survive one stands in status before it matters.
//!
//! | file | what it decides |
//! |---|---|
//! | `tag`, `level`, `monitoring`, `telling` | which sample counts, which alarm stands |
//! | `order`, `past`, `limits`, `ladder`, `weigh`, `decision` | which alarm is served, by which rung, and why the others are not |
//! | `goal`, `execution` | what the target is to be, and what to do next so that each decision has one effect |
//! | `last_served`, `tuning`, `chain` | how a slow loop finds what to tune, and how far it may |
//! | `conflict`, `schedule` | who else has the target; what time it is |
//! | `document`, `usage` | the number at a path of a document; what pods use, as one number |
//! | `explain` | how all of it is told to people |
//! | `names` | which names of users may become part of a request |
//! | `assessment`, `support` | what holds of the loop as a whole, and what this version cannot do yet |

pub mod assessment;
pub mod chain;
pub mod children;
pub mod conditions;
pub mod conflict;
pub mod decision;
pub mod document;
pub mod execution;
pub mod explain;
pub mod goal;
pub mod ladder;
pub mod last_served;
pub mod level;
pub mod limits;
pub mod monitoring;
pub mod names;
pub mod order;
mod past;
pub mod rung;
pub mod schedule;
pub mod settlement;
pub mod span;
pub mod support;
pub mod tag;
mod telling;
pub mod tuning;
pub mod usage;
mod weigh;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use thiserror::Error;

use crate::api::scalars::{Number, Span};
use crate::logic::quantity;

/// How often a status is written though nothing has changed, so that one sees that the loop lives.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);

/// A field of a spec that cannot be read though the schema let it through.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {problem}")]
pub struct Fault {
    /// Which field.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Fault {
    /// This is wrong with that field.
    pub fn new(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { field: field.into(), problem: problem.to_string() }
    }
}

/// Reads a number of the spec.
fn number(field: &str, text: &Number) -> Result<f64, Fault> {
    quantity::number(text.as_str()).map_err(|error| Fault::new(field, error))
}

/// Reads a duration of the spec; unset is none.
fn span(field: &str, text: Option<&Span>) -> Result<SignedDuration, Fault> {
    text.map_or(Ok(SignedDuration::ZERO), |text| span::parse(text.as_str()).map_err(|error| Fault::new(field, error)))
}

/// So much later, at most at the end of time.
fn later(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// How long it is since then; negative where that lies ahead.
fn since(then: &MicroTime, now: Timestamp) -> SignedDuration {
    now.duration_since(then.0)
}

/// The time as it is written, so that what is remembered equals what was decided on.
fn micros(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// A number as it is shown: at most three decimals, none where there are none.
fn shown(value: f64) -> Number {
    // As many digits as a number in a status may have.
    if value.abs() >= 1e18 {
        return Number(format!("{:.3e}", value.clamp(-9e98, 9e98)));
    }
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Number(if text == "-0" { "0".into() } else { text.into() })
}

/// A time in a message.
fn clock(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
