//! A number from a Prometheus server, or from one with the same API.
//!
//! Texts of the server are not passed on: they may quote what only the server can see.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Error;
use super::web::{good, parse};
use crate::logic::closed_loop::common::kind_of_text;
use crate::logic::closed_loop::sources::document::parsed;
use crate::logic::quantity;

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// A finite number.
    pub value: String,
    /// The time of the value, by the server's clock.
    pub at: Timestamp,
}

/// The answer of `/api/v1/query`. Its result is parsed once its type is known, without a tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    warnings: Items<IgnoredAny>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// One series of a vector.
#[derive(Deserialize)]
struct Series {
    value: Option<Sample>,
}

type Sample = (f64, String);

/// The first item of a list, and how many there are.
struct Items<T> {
    first: Option<T>,
    count: usize,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { first: None, count: 0 }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Items<T>, E> {
                Ok(Items::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items<T>, A::Error> {
                let first = items.next_element()?;
                let mut count = usize::from(first.is_some());
                while items.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Items { first, count })
            }
        }
        deserializer.deserialize_any(List(std::marker::PhantomData))
    }
}

/// The URL of a query at the current time. `base` is the URL of the server, without `/api/v1`.
///
/// # Errors
/// The URL is invalid or not allowed.
pub fn query_url(base: &str, query: &str) -> Result<Url, Error> {
    let mut url = parse(base)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", "query"]);
    }
    url.query_pairs_mut().append_pair("query", query);
    Ok(url)
}

/// The result of a query.
///
/// # Errors
/// It is not exactly one number.
pub fn point(status: StatusCode, body: &[u8]) -> Result<Point, Error> {
    // A refused query is explained in the body, whatever the HTTP status.
    match (serde_json::from_slice::<Reply<'_>>(body), status) {
        (Ok(reply), status) if reply.status == "error" => Err(refused(status, &reply)),
        (Ok(reply), StatusCode::OK) if reply.status == "success" => one(&reply).map_err(Error::Answer),
        _ => {
            good(status)?;
            Err(Error::Answer(NOT_PROMETHEUS.to_owned()))
        }
    }
}

const NOT_PROMETHEUS: &str = "the answer is not a Prometheus reply";

/// The types of errors are a closed set; of others only the HTTP status is passed on.
fn refused(status: StatusCode, reply: &Reply<'_>) -> Error {
    let known =
        ["bad_data", "execution", "timeout", "canceled", "internal", "unavailable", "not_found", "not_acceptable"];
    let kind = reply.error_type.as_deref().and_then(|kind| known.into_iter().find(|known| *known == kind));
    match kind {
        Some(kind) => Error::Query(status, kind),
        None => Error::Status(status),
    }
}

fn one(reply: &Reply<'_>) -> Result<Point, String> {
    if reply.warnings.count > 0 {
        return Err("the server warns that the value may be wrong".to_owned());
    }
    let wrong = || NOT_PROMETHEUS.to_owned();
    let data = reply.data.as_ref().ok_or_else(wrong)?;
    let result = data.result.get().as_bytes();
    let (at, value) = match &*data.kind {
        "scalar" => parsed::<Sample>(result).map_err(|_| wrong())?,
        "vector" => {
            let series: Items<Series> = parsed(result).map_err(|_| wrong())?;
            match series {
                Items { first: Some(series), count: 1 } => {
                    series.value.ok_or_else(|| "the query gives a histogram, not a number".to_owned())?
                }
                Items { count: 0, .. } => {
                    return Err(
                        "the query gives no series: end it with `or vector(0)`, or set missing.then: Assume".to_owned()
                    );
                }
                Items { count, .. } => return Err(format!("the query gives {count} series, not one: aggregate them")),
            }
        }
        kind @ ("string" | "matrix") => return Err(format!("the query gives a {kind}, not a number")),
        _ => return Err(wrong()),
    };
    if quantity::number(&value).is_err() {
        return Err(match value.as_str() {
            "NaN" | "+Inf" | "-Inf" => format!("the query gives {value}, which is not a number"),
            other => format!("the query gives {}, not a number", kind_of_text(other)),
        });
    }
    // A float represents times to the microsecond for centuries.
    let at = SignedDuration::try_from_secs_f64(at).and_then(Timestamp::from_duration).map_err(|_| wrong())?;
    Ok(Point { value, at })
}
