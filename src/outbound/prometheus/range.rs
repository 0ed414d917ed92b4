//! Values of a query over a range of time, requested in parts that the server accepts.
//!
//! Only for commands: the user who names the server sees its texts.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result as FmtResult};

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{Data, HISTOGRAM, InstantSample, QueryReply, api_url, not_prometheus, number, result};
use crate::Error;
use crate::web::{Call, Web};
use ganglion_core::document::parsed;
use ganglion_core::items::Items;
use ganglion_core::words::{cut, quoted};

/// Maximum number of times in one request: Prometheus refuses more than 11,000 for each series.
const MOST_TIMES: i64 = 10_000;

/// Number of times in one request from which a refusal is final.
const LEAST_TIMES: i64 = 100;

/// Divisor of the number of times in one request after a refusal.
const SHORTER: i64 = 4;

/// Maximum number of series in one answer.
const MOST_SERIES: usize = 1000;

/// Maximum length of a quoted text of the server, in bytes.
const MAX_QUOTE: usize = 300;

/// Times at which a query is evaluated: `start`, and each `step` after it until `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRange {
    pub start: Timestamp,
    pub end: Timestamp,
    pub step: SignedDuration,
}

/// Result of a query at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePoint {
    pub at: Timestamp,
    /// Finite number, or why there is none.
    pub value: Result<String, String>,
}

/// Error: the values of a part of the range were not read.
#[derive(Debug, thiserror::Error)]
pub struct RangeError {
    #[source]
    error: Error,
    /// Text of the server.
    text: Option<String>,
    part: QueryRange,
}

impl Display for RangeError {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { error, text, part } = self;
        write!(f, "{error}")?;
        if let Some(text) = text {
            write!(f, "; it says {}", quoted(cut(text, MAX_QUOTE)))?;
        }
        write!(f, " (from {:.0} to {:.0})", part.start, part.end)
    }
}

/// Series of a matrix.
#[derive(Deserialize)]
struct RangeSeries {
    #[serde(default)]
    values: Vec<InstantSample>,
    #[serde(default)]
    histograms: Vec<(f64, IgnoredAny)>,
}

/// Member of a refusal.
#[derive(Deserialize)]
struct RangeRefusal {
    #[serde(default)]
    error: String,
}

impl QueryRange {
    /// Number of times.
    pub fn times(self) -> i64 {
        let step = self.step.as_millis().max(1);
        let length = self.end.duration_since(self.start).as_millis();
        i64::try_from(length / step).unwrap_or(i64::MAX).saturating_add(1).max(0)
    }

    /// The times, in order.
    pub fn all(self) -> impl Iterator<Item = Timestamp> {
        (0..self.times()).map(move |index| self.time(index))
    }

    /// Time of this index, from 0.
    fn time(self, index: i64) -> Timestamp {
        let after = i32::try_from(index).map_or(SignedDuration::MAX, |index| self.step.saturating_mul(index));
        self.start.checked_add(after).unwrap_or(Timestamp::MAX)
    }

    /// Part of at most `most` times that begins with this index.
    fn part(self, first: i64, most: i64) -> Self {
        let last = (first + most - 1).min(self.times() - 1);
        Self { start: self.time(first), end: self.time(last), step: self.step }
    }
}

/// URL of a query over a range. `base` is the URL of the server, without `/api/v1`.
pub fn range_url(base: &str, query: &str, range: QueryRange) -> Result<Url, Error> {
    let mut url = api_url(base, "query_range")?;
    let step = range.step.as_secs_f64().to_string();
    let pairs = [("query", query), ("start", &range.start.to_string()), ("end", &range.end.to_string())];
    url.query_pairs_mut().extend_pairs(pairs).append_pair("step", &step);
    Ok(url)
}

/// Parses the answer to a query over a range, in the order of time. A time without a series is not in the result; one
/// with several series, or with a value that is no number, is an error at that time.
pub fn range_points(status: StatusCode, body: &[u8]) -> Result<Vec<RangePoint>, Error> {
    result(status, body, points)
}

fn points(data: &Data<'_>) -> Result<Vec<RangePoint>, String> {
    if data.kind != "matrix" {
        return Err(not_prometheus());
    }
    let series: Items<&RawValue, MOST_SERIES> = parsed(data.result.get().as_bytes()).map_err(|_| not_prometheus())?;
    if series.count > MOST_SERIES {
        return Err(format!("the query gives {} series, not one: aggregate them", series.count));
    }
    // Values by time in milliseconds: a series may end where another begins.
    let mut times: BTreeMap<i64, Vec<Result<String, String>>> = BTreeMap::new();
    for series in series.kept {
        let series: RangeSeries = parsed(series.get().as_bytes()).map_err(|_| not_prometheus())?;
        for (at, text) in series.values {
            times.entry(milliseconds(at)?).or_default().push(number(text));
        }
        for (at, _) in series.histograms {
            times.entry(milliseconds(at)?).or_default().push(Err(HISTOGRAM.to_owned()));
        }
    }
    let point = |(millis, mut values): (i64, Vec<Result<String, String>>)| {
        let at = Timestamp::from_millisecond(millis).map_err(|_| not_prometheus())?;
        let count = values.len();
        let value = values.pop().filter(|_| count == 1);
        let several = || Err(format!("the query gives {count} series, not one: aggregate them"));
        Ok(RangePoint { at, value: value.unwrap_or_else(several) })
    };
    times.into_iter().map(point).collect()
}

/// Time of an answer, in milliseconds since 1970.
fn milliseconds(seconds: f64) -> Result<i64, String> {
    let since = SignedDuration::try_from_secs_f64((seconds * 1000.0).round() / 1000.0).map_err(|_| not_prometheus())?;
    i64::try_from(since.as_millis()).map_err(|_| not_prometheus())
}

/// Reads the values of a query. `call`: the URL of the server, without `/api/v1`, and how to reach it. A part that the
/// server refuses is requested again in smaller parts. `progress` gets the number of times that were read.
pub async fn fetch_range(
    web: &Web,
    call: &Call,
    query: &str,
    range: QueryRange,
    progress: &(dyn Fn(i64) + Send + Sync),
) -> Result<Vec<RangePoint>, RangeError> {
    let (mut points, mut next, mut most) = (Vec::new(), 0, MOST_TIMES);
    while next < range.times() {
        let part = range.part(next, most);
        match fetch_part(web, call, query, part).await {
            Ok(found) => {
                points.extend(found);
                next += part.times();
                progress(next);
            }
            Err(error) if most > LEAST_TIMES && error.may_be_too_long() => most = (most / SHORTER).max(LEAST_TIMES),
            Err(error) => return Err(error),
        }
    }
    Ok(points)
}

async fn fetch_part(web: &Web, call: &Call, query: &str, part: QueryRange) -> Result<Vec<RangePoint>, RangeError> {
    let failed = |error, text| RangeError { error, text, part };
    let url = range_url(&call.url, query, part).map_err(|error| failed(error, None))?;
    let answer = web.get(&Call { url: url.into(), ..call.clone() }).await.map_err(|error| failed(error, None))?;
    range_points(answer.status, answer.body()).map_err(|error| failed(error, refusal(answer.body())))
}

/// Text of a refusal.
fn refusal(body: &[u8]) -> Option<String> {
    let is_refusal = serde_json::from_slice::<QueryReply<'_>>(body).is_ok_and(|reply| reply.status == "error");
    let refusal: RangeRefusal = serde_json::from_slice(body).ok().filter(|_| is_refusal)?;
    Some(refusal.error).filter(|text| !text.is_empty())
}

impl RangeError {
    /// Whether a shorter part may be accepted.
    fn may_be_too_long(&self) -> bool {
        let text = self.text.as_deref().unwrap_or_default();
        let statuses =
            [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::PAYLOAD_TOO_LARGE];
        if let Error::Query(_, "bad_data") = &self.error {
            return text.contains("exceed") || text.contains("limit");
        }
        matches!(&self.error, Error::Status(status) if statuses.contains(status))
            || matches!(&self.error, Error::Query(..) | Error::TooLong(_) | Error::Timeout(_))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn range(seconds: i64, step: i64) -> QueryRange {
        let start = Timestamp::from_second(1000).unwrap();
        let end = Timestamp::from_second(1000 + seconds).unwrap();
        QueryRange { start, end, step: SignedDuration::from_secs(step) }
    }

    #[test]
    fn parts_cover_each_time_once() {
        let whole = range(604_800, 15);
        assert_eq!(whole.times(), 40_321);
        let (mut next, mut ends) = (0, Vec::new());
        while next < whole.times() {
            let part = whole.part(next, MOST_TIMES);
            assert!(part.times() <= MOST_TIMES);
            assert_eq!(part.start, whole.time(next));
            next += part.times();
            ends.push(part.end);
        }
        assert_eq!((next, ends.len(), *ends.last().unwrap()), (whole.times(), 5, whole.end));
        assert_eq!(range(10, 15).times(), 1, "the end is before the next step");
    }

    #[test]
    fn the_url_has_the_range() {
        let url = range_url("http://p:9090/base/?a=b", "up{x=\"1\"}", range(30, 15)).unwrap();
        let expected = "http://p:9090/base/api/v1/query_range?a=b&query=up%7Bx%3D%221%22%7D&start=1970-01-01T00%3A16%3A40Z&\
                        end=1970-01-01T00%3A17%3A10Z&step=15";
        assert_eq!(url.as_str(), expected);
    }

    fn read(result: &str) -> Result<Vec<RangePoint>, Error> {
        let body = format!(r#"{{"status": "success", "data": {{"resultType": "matrix", "result": {result}}}}}"#);
        range_points(StatusCode::OK, body.as_bytes())
    }

    #[test]
    fn values_are_those_of_the_only_series_at_each_time() {
        let two = r#"[{"metric": {"pod": "a"}, "values": [[10, "1"], [25, "NaN"], [40, "3"]]},
            {"metric": {"pod": "b"}, "values": [[40, "4"], [55.0001, "5e-1"]]}]"#;
        let point = |second, value: Result<&str, &str>| RangePoint {
            at: Timestamp::from_second(second).unwrap(),
            value: value.map(str::to_owned).map_err(str::to_owned),
        };
        let expected = vec![
            point(10, Ok("1")),
            point(25, Err("the query gives NaN, which is not a number")),
            point(40, Err("the query gives 2 series, not one: aggregate them")),
            point(55, Ok("5e-1")),
        ];
        assert_eq!(read(two), Ok(expected));
        assert_eq!(read("[]"), Ok(Vec::new()));
        let histogram = read(r#"[{"metric": {}, "histograms": [[10, {"count": "4"}]]}]"#);
        assert_eq!(histogram, Ok(vec![point(10, Err(HISTOGRAM))]));
        assert!(read("7").is_err());
    }

    #[rstest]
    #[case::long(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries", true)]
    #[case::syntax(400, "bad_data", "1:5: parse error: unclosed left parenthesis", false)]
    #[case::samples(422, "execution", "query processing would load too many samples into memory", true)]
    #[case::slow(503, "timeout", "query timed out in expression evaluation", true)]
    #[case::unknown_kind(401, "no", "", false)]
    fn some_refusals_may_end_with_shorter_parts(
        #[case] status: u16,
        #[case] kind: &str,
        #[case] text: &str,
        #[case] expected: bool,
    ) {
        let body = serde_json::json!({"status": "error", "errorType": kind, "error": text}).to_string();
        let error = range_points(StatusCode::from_u16(status).unwrap(), body.as_bytes()).unwrap_err();
        let error = RangeError { error, text: refusal(body.as_bytes()), part: range(30, 15) };
        assert_eq!(error.may_be_too_long(), expected, "{error}");
        assert_eq!(error.to_string().contains("; it says"), !text.is_empty());
    }
}
