//! Values in the status of a Monitoring: how they are stored, and the state of a metric.
//!
//! Must not know what an alarm is.

use jiff::Timestamp;

use super::level::{Levels, MetricState, RangedValue, WhenMissing};
use super::value::SourceValue;
use crate::common::{elapsed, micro_time};
use ganglion_api::monitoring::{MonitoringStatus, Reading, UnknownMetric};
use ganglion_api::scalars::Number;
use ganglion_core::quantity;
use ganglion_core::words::kind_of_text;

/// Maximum length of the reason of a missing value, in characters.
const MAX_WHY: usize = 400;

/// Converts a value to the format of a status.
pub(super) fn reading(metric: &str, value: &SourceValue, now: Timestamp) -> Result<Reading, String> {
    let most = value.range.as_ref().and_then(|range| range.most.as_deref());
    let request = value.range.as_ref().and_then(|range| range.missing_request.as_deref());
    Ok(Reading {
        metric: metric.to_owned(),
        value: stored_number(&value.value)?,
        at: micro_time(value.at.map_or(now, |at| at.min(now))),
        measured_at: value.measured.map(|at| micro_time(at.min(now))),
        at_least: value.range.as_ref().map(|range| stored_number(&range.least)).transpose()?,
        at_most: most.map(stored_number).transpose()?,
        missing_request: request.map(stored_number).transpose()?,
        assumed_operand: None,
        problem: None,
    })
}

/// Returns the value with its range. A value without a lower limit is exact, one without an upper limit may be any
/// larger one.
fn ranged(reading: &Reading) -> Option<RangedValue> {
    let number = |number: &Number| quantity::number(number.as_str()).ok();
    let value = number(&reading.value)?;
    let Some(least) = &reading.at_least else { return Some(value.into()) };
    let most = reading.at_most.as_ref().map_or(Some(f64::INFINITY), number)?;
    let missing_request = reading.missing_request.as_ref().map_or(Some(f64::INFINITY), number)?;
    Some(RangedValue { value, least: number(least)?, most, missing_request })
}

/// Returns the state of a metric's value.
pub(super) fn metric_state(status: &MonitoringStatus, metric: &str, levels: &Levels, now: Timestamp) -> MetricState {
    let reading = status.values.iter().find(|reading| reading.metric == metric);
    let lost = status.unknown.iter().find(|unknown| unknown.metric == metric);
    match (lost, reading) {
        (None, Some(reading)) => match (ranged(reading), &reading.problem) {
            (Some(value), None) if reading.assumed_operand.is_some() => MetricState::Assumed(value),
            (Some(value), None) => MetricState::Known(value),
            (Some(value), Some(_)) => MetricState::Standing(value),
            (None, _) => MetricState::Unknown,
        },
        (lost, reading) => {
            // A metric that never had a value counts as missing from the time when that was first noticed.
            let from = reading.map(|reading| &reading.at).or(lost.map(|lost| &lost.since));
            let over = from.is_some_and(|from| elapsed(from, now) > levels.after);
            match levels.then {
                WhenMissing::Assume(value) if over => MetricState::Assumed(value.into()),
                WhenMissing::Alarm if over => MetricState::Missing,
                WhenMissing::Hold | WhenMissing::Assume(_) | WhenMissing::Alarm => MetricState::Unknown,
            }
        }
    }
}

/// Converts a number to the format of a status. Error messages leave the text out, since it may be the answer of a
/// source.
fn stored_number(text: &str) -> Result<Number, String> {
    let number = quantity::number(text).map_err(|_| format!("{}, not a number", kind_of_text(text)))?;
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => (Some(digits(rest)), &rest[digits(rest)..]),
        None => (None, rest),
    };
    let fits = |digits: usize| (1..=18).contains(&digits);
    if fits(whole.len()) && fraction.is_none_or(fits) && digits(suffix.trim_start_matches(['e', 'E', '+', '-'])) <= 2 {
        return Ok(text.into());
    }
    match number.abs() {
        size if size >= 1e99 => Err("the number is too large".to_owned()),
        size if size < 1e-99 => Ok("0".into()),
        _ => Ok(Number(format!("{number:.15e}"))),
    }
}

pub(super) fn mark_unknown(status: &mut MonitoringStatus, metric: &str, why: &str, now: &Timestamp) {
    let message = shortened(why);
    match status.unknown.iter_mut().find(|unknown| unknown.metric == metric) {
        Some(unknown) => unknown.message = message,
        None => status.unknown.push(UnknownMetric {
            metric: metric.to_owned(),
            since: micro_time(*now),
            message,
            assumed: None,
        }),
    }
}

pub(super) fn shortened(why: &str) -> String {
    why.chars().take(MAX_WHY).collect()
}
