//! Numbers from a Prometheus server, or from one with the same API: a single number, or one number per label value.
//!
//! Texts of the server are not passed on, except its warnings: they may quote what only the server can see. `range` has
//! values of the past, for commands.

pub mod range;

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Error;
use super::partial;
use super::web::{good, parse};
use ganglion_core::document::{find, parsed};
use ganglion_core::items::Items;
use ganglion_core::quantity;
use ganglion_core::words::kind_of_text;

/// Maximum number of series in the result of a query.
pub const MAX_SERIES: usize = 20_000;

/// Result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Finite number.
    pub value: String,
    /// Time of the value by the server's clock.
    pub at: Timestamp,
}

/// Series in the result of a query that aggregates by a label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledNumber {
    /// Value of the label. None: the series does not have the label.
    pub label: Option<String>,
    /// Finite number. None: the value is NaN or infinite.
    pub number: Option<f64>,
}

/// Answer of `/api/v1/query`. The result is parsed after its type is known, without building a tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryReply<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
    #[serde(default)]
    error_type: Option<String>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// Series of a vector.
#[derive(Deserialize)]
struct Series {
    value: Option<InstantSample>,
}

/// Series of a vector, with its labels, of which one is read.
#[derive(Deserialize)]
struct LabelledSeries<'a> {
    #[serde(borrow, default)]
    metric: Option<&'a RawValue>,
    value: Option<InstantSample>,
}

type InstantSample = (f64, String);

/// URL of a query at the current time. `base` is the URL of the server, without `/api/v1`.
pub fn query_url(base: &str, query: &str) -> Result<Url, Error> {
    let mut url = api_url(base, "query")?;
    url.query_pairs_mut().append_pair("query", query);
    Ok(url)
}

/// URL of a part of the API.
fn api_url(base: &str, part: &str) -> Result<Url, Error> {
    let mut url = parse(base)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", part]);
    }
    Ok(url)
}

/// Parses the result of a query. Fails unless it is exactly one number.
pub fn point(status: StatusCode, body: &[u8]) -> Result<Point, Error> {
    result(status, body, single_point)
}

/// Parses the result of a query that aggregates by this label, in the order of the answer. Fails if there are more than
/// [`MAX_SERIES`] series.
pub fn by_label(status: StatusCode, body: &[u8], label: &str) -> Result<Vec<LabelledNumber>, Error> {
    result(status, body, |data| labelled(data, label))
}

/// Parses the answer to a query, and its data with `read`.
fn result<T>(status: StatusCode, body: &[u8], read: impl FnOnce(&Data<'_>) -> Result<T, String>) -> Result<T, Error> {
    // The body explains a rejected query, regardless of the HTTP status.
    match (serde_json::from_slice::<QueryReply<'_>>(body), status) {
        (Ok(reply), status) if reply.status == "error" => Err(refused(status, &reply)),
        (Ok(reply), StatusCode::OK) if reply.status == "success" => match partial::reason(body, &[]) {
            Some(reason) => Err(Error::Partial(reason)),
            None => reply.data.as_ref().ok_or_else(not_prometheus).and_then(read).map_err(Error::Answer),
        },
        _ => {
            good(status)?;
            Err(Error::Answer(not_prometheus()))
        }
    }
}

const NOT_PROMETHEUS: &str = "the answer is not a Prometheus reply";

/// `or vector(0)` alone would turn an outage of the exporter, or of the scrape, into a zero that lowers capacity.
/// Without the sum, a series with labels would be a second series beside the zero.
const NO_SERIES: &str = "the query gives no series: check its names and labels; if no series means 0, write \
    `sum(QUERY) or 0 * max(up{job=\"NAME\"} == 1)`, which is 0 only while that job is scraped (`or vector(0)` would \
    also count an outage as 0)";

const HISTOGRAM: &str = "the query gives a histogram, not a number";

/// The known error types are passed on. For any other type, only the HTTP status is passed on.
fn refused(status: StatusCode, reply: &QueryReply<'_>) -> Error {
    let known =
        ["bad_data", "execution", "timeout", "canceled", "internal", "unavailable", "not_found", "not_acceptable"];
    let kind = reply.error_type.as_deref().and_then(|kind| known.into_iter().find(|known| *known == kind));
    match kind {
        Some(kind) => Error::Query(status, kind),
        None => Error::Status(status),
    }
}

fn not_prometheus() -> String {
    NOT_PROMETHEUS.to_owned()
}

fn single_point(data: &Data<'_>) -> Result<Point, String> {
    let wrong = not_prometheus;
    let result = data.result.get().as_bytes();
    let (at, value) = match &*data.kind {
        "scalar" => parsed::<InstantSample>(result).map_err(|_| wrong())?,
        "vector" => {
            let mut series: Items<Series, 1> = parsed(result).map_err(|_| wrong())?;
            match (series.kept.pop(), series.count) {
                (Some(series), 1) => series.value.ok_or_else(|| HISTOGRAM.to_owned())?,
                (None, _) => return Err(NO_SERIES.to_owned()),
                (Some(_), count) => return Err(format!("the query gives {count} series, not one: aggregate them")),
            }
        }
        kind @ ("string" | "matrix") => return Err(format!("the query gives a {kind}, not a number")),
        _ => return Err(wrong()),
    };
    let value = number(value)?;
    // A float represents times to the microsecond for centuries.
    let at = SignedDuration::try_from_secs_f64(at).and_then(Timestamp::from_duration).map_err(|_| wrong())?;
    Ok(Point { value, at })
}

/// Checks that the value is a finite number.
fn number(value: String) -> Result<String, String> {
    match value.as_str() {
        text if quantity::number(text).is_ok() => Ok(value),
        "NaN" | "+Inf" | "-Inf" => Err(format!("the query gives {value}, which is not a number")),
        other => Err(format!("the query gives {}, not a number", kind_of_text(other))),
    }
}

fn labelled(data: &Data<'_>, label: &str) -> Result<Vec<LabelledNumber>, String> {
    let wrong = not_prometheus;
    match &*data.kind {
        "vector" => {}
        kind @ ("scalar" | "string" | "matrix") => {
            return Err(format!("the query gives a {kind}, not a number for each {label}"));
        }
        _ => return Err(wrong()),
    }
    let series: Items<LabelledSeries<'_>, MAX_SERIES> = parsed(data.result.get().as_bytes()).map_err(|_| wrong())?;
    if series.count > MAX_SERIES {
        return Err(format!("the query gives {} series, more than {MAX_SERIES}", series.count));
    }
    let read = |one: LabelledSeries<'_>| {
        let (_, text) = one.value.ok_or_else(|| HISTOGRAM.to_owned())?;
        let number = match text.as_str() {
            "NaN" | "+Inf" | "-Inf" => None,
            text => Some(quantity::number(text).map_err(|_| wrong())?),
        };
        let label = one.metric.and_then(|labels| find(labels.get().as_bytes(), &[label]));
        let label = label.map(|text| parsed(text.as_bytes())).transpose().map_err(|_| wrong())?;
        Ok(LabelledNumber { label, number })
    };
    series.kept.into_iter().map(read).collect()
}
