//! A number from a Prometheus server, or from one with the same API.

use jiff::Timestamp;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;

use super::Error;
use super::web::{Answer, Call, Web, parse};
use crate::logic::quantity;

/// Longest text of a server that is passed on, in characters.
const MAX_WORDS: usize = 160;

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// A finite number.
    pub value: String,
    /// The time of the value, by the server's clock.
    pub at: Timestamp,
}

/// The answer of `/api/v1/query`.
#[derive(Deserialize)]
struct Reply {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: Value,
}

/// Evaluates a query at the current time. `call.url` is the URL of the server, without `/api/v1`.
///
/// # Errors
/// There is no answer, or it is not exactly one number.
pub async fn instant(web: &Web, call: &Call, query: &str) -> Result<Point, Error> {
    let call = Call { url: address(&call.url, query)?.into(), ..call.clone() };
    let answer = web.get(&call).await?;
    // A refused query has an error text, whatever the HTTP status.
    match (serde_json::from_slice::<Reply>(&answer.body), answer.status) {
        (Ok(reply), _) if reply.status == "error" => {
            let words = reply.error.as_deref().unwrap_or("no reason is given");
            Err(Error::Status(format!("{}: {}", answer.status.as_u16(), short(words))))
        }
        (Ok(reply), StatusCode::OK) if reply.status == "success" => one(reply),
        _ => Err(not_prometheus(answer)),
    }
}

fn not_prometheus(answer: Answer) -> Error {
    match answer.good() {
        Ok(_) => Error::Answer("the answer is not a Prometheus reply".to_owned()),
        Err(error) => error,
    }
}

fn address(base: &str, query: &str) -> Result<Url, Error> {
    let mut url = parse(base)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", "query"]);
    }
    url.query_pairs_mut().append_pair("query", query);
    Ok(url)
}

fn one(reply: Reply) -> Result<Point, Error> {
    if let Some(warning) = reply.warnings.first() {
        return Err(Error::Answer(format!("the server warns, so the value may be wrong: {}", short(warning))));
    }
    let wrong = || Error::Answer("the answer is not a Prometheus reply".to_owned());
    let data = reply.data.ok_or_else(wrong)?;
    let sample = match (data.kind.as_str(), &data.result) {
        ("scalar", sample) => sample,
        ("vector", Value::Array(series)) => match series.as_slice() {
            [] => return Err(Error::Answer("the query gives nothing".to_owned())),
            [one] => {
                one.get("value").ok_or_else(|| Error::Answer("the query gives a histogram, not a number".to_owned()))?
            }
            many => return Err(Error::Answer(format!("the query gives {} series, not one", many.len()))),
        },
        (kind, _) => return Err(Error::Answer(format!("the query gives a {}, not a number", short(kind)))),
    };
    let (at, value): (f64, String) = serde_json::from_value(sample.clone()).map_err(|_| wrong())?;
    if quantity::number(&value).is_err() {
        return Err(Error::Answer(format!("the query gives {}, which is not a number", short(&value))));
    }
    // A float represents times to the microsecond for centuries.
    let at = jiff::SignedDuration::try_from_secs_f64(at).and_then(Timestamp::from_duration).map_err(|_| wrong())?;
    Ok(Point { value, at })
}

fn short(words: &str) -> String {
    words.chars().take(MAX_WORDS).collect()
}
