//! Queries of loops to real servers of three versions of Prometheus: values, missing values, errors, warnings about
//! values, and notes on the style of a query.

use std::fmt::Write;
use std::time::Duration;

use ganglion_outbound::Error;
use ganglion_outbound::prometheus::{Point, by_label, point, query_url};
use ganglion_outbound::web::Answer;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::servers::prometheus::PrometheusProcess;
use testkit::servers::prometheus::PrometheusVersion::{self, V2_42, V2_52, V3};
use testkit::{TIMEOUT, block_on};

use crate::client::{call, web};

/// Age of the newest sample in the history. It is above the five minutes in which Prometheus looks for a sample.
const AGE: i64 = 3600;

/// Number of metrics whose names are not those of counters, and the maximum number of notes that Prometheus lists.
const NOTES: usize = 12;
const LISTED: usize = 10;

/// A note of each version that has notes.
const NOT_A_COUNTER: &str = "PromQL info: metric might not be a counter";

/// Input for promtool: two hours of samples, one every 15 seconds.
fn history(now: i64) -> String {
    let times = || (now - AGE - 7200..=now - AGE).step_by(15);
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, series: &[(&str, i64)]| {
        writeln!(text, "# TYPE {name} {kind}").unwrap();
        for (labels, per_sample) in series {
            for (index, time) in (1..).zip(times()) {
                writeln!(text, "{name}{labels} {} {time}", per_sample * index).unwrap();
            }
        }
    };
    metric("shop_visits", "gauge", &[("{shop=\"a\"}", 30)]);
    metric("shop_pairs", "gauge", &[("{half=\"a\"}", 1), ("{half=\"b\"}", 1)]);
    // Buckets of a histogram that do not grow as they must.
    metric("shop_seconds_bucket", "gauge", &[("{le=\"1\"}", 5), ("{le=\"2\"}", 3), ("{le=\"+Inf\"}", 8)]);
    for index in 0..NOTES {
        metric(&format!("shop_note_{index}"), "gauge", &[("", 15)]);
    }
    text + "# EOF\n"
}

async fn with_history(version: PrometheusVersion) -> PrometheusProcess {
    PrometheusProcess::with_history(version, &history(Timestamp::now().as_second())).await.unwrap()
}

async fn fetch(base: &str, query: &str) -> Answer {
    web().get(&call(query_url(base, query).unwrap())).await.unwrap()
}

async fn asked(server: &PrometheusProcess, query: &str) -> Result<Point, Error> {
    let answer = fetch(&server.url(), query).await;
    point(answer.status, answer.body())
}

/// Value of a query, or the message why there is none.
async fn value(server: &PrometheusProcess, query: &str) -> Result<String, String> {
    asked(server, query).await.map(|point| point.value).map_err(|error| error.to_string())
}

/// Waits until the query has this value, or no value for this reason.
async fn until(server: &PrometheusProcess, query: &str, expected: Result<&str, &str>) {
    let is_expected = |found: &Result<String, String>| match (found, expected) {
        (Ok(value), Ok(expected)) => value == expected,
        (Err(words), Err(expected)) => words.contains(expected),
        _ => false,
    };
    let mut last = None;
    let look = async {
        while !last.as_ref().is_some_and(is_expected) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            last = Some(value(server, query).await);
        }
    };
    let is_late = tokio::time::timeout(TIMEOUT, look).await.is_err();
    assert!(!is_late, "{query} gives {last:?} instead of {expected:?}");
}

/// Texts in one of the lists of an answer beside its data.
fn listed(answer: &Answer, list: &str) -> Vec<String> {
    let document: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(document["status"], "success", "{document}");
    let texts = document[list].as_array().map(Vec::as_slice).unwrap_or_default();
    texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[rstest]
fn a_value_is_of_the_time_of_its_query_whatever_its_samples_are_of(
    #[values(V2_42, V2_52, V3)] version: PrometheusVersion,
) {
    block_on(async {
        let server = with_history(version).await;
        let before = Timestamp::now();
        let first = before.as_second() - AGE - 7200 + 60;
        for (query, expected) in [
            ("42".to_owned(), "42"),
            ("vector(0.5)".to_owned(), "0.5"),
            ("0 * max(shop_visits offset 2h) + 1e-7".to_owned(), "1e-07"),
            ("time() - timestamp(shop_visits offset 2h) > bool 3600".to_owned(), "1"),
            (format!("0 * shop_visits @ {first}"), "0"),
            ("count(shop_visits @ end() offset 2h)".to_owned(), "1"),
            ("count_over_time(last_over_time(shop_visits[1d])[1m:1m])".to_owned(), "1"),
            ("absent(shop_visits)".to_owned(), "1"),
        ] {
            let point = asked(&server, &query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
            assert_eq!(point.value, expected, "{query}");
            let (age, most) = (before.duration_since(point.at), SignedDuration::from_secs(60));
            assert!(age.abs() < most, "{query}: the value is of {}", point.at);
        }
    });
}

#[rstest]
fn no_series_is_no_value_and_an_outage_is_not_a_zero(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    const NO_SERIES: &str = "the query gives no series";
    // The query of the advice in the message about a query without series.
    let or_zero = "sum(web_load) or 0 * max(up{job=\"node\"} == 1)";
    block_on(async {
        let mut server = PrometheusProcess::start(version).await.unwrap();
        server.set("web_load", "3").unwrap();
        until(&server, "web_load", Ok("3")).await;
        assert_eq!(value(&server, or_zero).await.as_deref(), Ok("3"));
        // The series ends with the next scrape, not five minutes later.
        server.export("web_load", "").unwrap();
        until(&server, "web_load", Err(NO_SERIES)).await;
        assert_eq!(value(&server, or_zero).await.as_deref(), Ok("0"));
        server.end_exporter();
        until(&server, or_zero, Err(NO_SERIES)).await;
    });
}

#[rstest]
fn a_query_that_gives_no_number_has_words(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let server = with_history(version).await;
        for (query, words) in [
            ("shop_visits", "the query gives no series: check its names and labels"),
            ("vector(0) / 0", "the query gives NaN, which is not a number"),
            ("1 / 0", "the query gives +Inf, which is not a number"),
            ("shop_pairs offset 2h", "the query gives 2 series, not one: aggregate them"),
            ("\"five\"", "the query gives a string, not a number"),
            ("shop_visits[5m] offset 2h", "the query gives a matrix, not a number"),
            ("sum(", "the server answers 400 Bad Request (bad_data): check the query"),
            (
                "shop_visits offset 2h + on () shop_pairs offset 2h",
                "the server answers 422 Unprocessable Entity (execution): check the query",
            ),
        ] {
            let found = value(&server, query).await;
            assert!(found.as_ref().is_err_and(|error| error.starts_with(words)), "{query}: {found:?}");
        }
        // A server gives up on this query, which would take seconds.
        let url = format!("{}/?timeout=500ms", server.url());
        let late = fetch(&url, "count_over_time(vector(time())[300d:1s])").await;
        let words = point(late.status, late.body()).map_err(|error| error.to_string());
        assert_eq!(words, Err("the server answers 503 Service Unavailable (timeout): check the query".to_owned()));
    });
}

#[rstest]
#[case::not_a_counter("round(rate(shop_visits[10m] offset 2h))", "2", NOT_A_COUNTER)]
#[case::fixed_buckets(
    "histogram_quantile(0.5, shop_seconds_bucket offset 2h)",
    "0.8",
    "PromQL info: input to histogram_quantile needed to be fixed for monotonicity"
)]
fn a_note_on_the_style_of_a_query_leaves_its_value(
    #[values(V2_42, V2_52, V3)] version: PrometheusVersion,
    #[case] query: &str,
    #[case] expected: &str,
    #[case] note: &str,
) {
    block_on(async {
        let server = with_history(version).await;
        let answer = fetch(&server.url(), query).await;
        let notes = ["warnings", "infos"].map(|list| listed(&answer, list));
        let expected_notes = match version {
            V2_42 => [0, 0],
            V2_52 => [1, 0],
            V3 => [0, 1],
        };
        assert_eq!(notes.each_ref().map(Vec::len), expected_notes, "{notes:?}");
        assert!(notes.iter().flatten().all(|text| text.starts_with(note)), "{notes:?}");
        assert_eq!(point(answer.status, answer.body()).map(|point| point.value).as_deref(), Ok(expected));
        let number = expected.parse().ok();
        let series = by_label(answer.status, answer.body(), "shop").unwrap();
        assert_eq!(series.iter().map(|one| one.number).collect::<Vec<_>>(), [number]);
    });
}

/// Prometheus 2.48 to 2.53 list at most ten warnings and notes in an arbitrary order. If they leave some out, these may
/// be warnings, so the value is not used.
#[rstest]
fn notes_that_hide_warnings_make_a_value_unknown(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let server = with_history(version).await;
        let rates: Vec<String> = (0..NOTES).map(|index| format!("rate(shop_note_{index}[10m] offset 2h)")).collect();
        let query = format!("round({})", rates.join(" + "));
        let found = value(&server, &query).await;
        let omitted = NOTES - LISTED;
        let expected = match version {
            V2_42 | V3 => Ok(NOTES.to_string()),
            V2_52 => Err(format!("the answer is partial: the server warns \"{omitted} more annotations omitted\"")),
        };
        assert_eq!(found, expected);
        if version == V3 {
            let infos = listed(&fetch(&server.url(), &query).await, "infos");
            assert_eq!(infos.last(), Some(&format!("{omitted} more info annotations omitted")));
        }
    });
}

#[rstest]
fn a_warning_about_a_value_makes_it_unknown_and_is_quoted(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    let query = "clamp_max(quantile(2, shop_visits offset 2h), 5)";
    let warning = "the answer is partial: the server warns \"PromQL warning: quantile value should be between 0 and 1";
    block_on(async {
        let server = with_history(version).await;
        let found = value(&server, query).await;
        let is_expected = match version {
            V2_42 => found.as_deref() == Ok("5"),
            V2_52 | V3 => found.as_ref().is_err_and(|error| error.starts_with(warning)),
        };
        assert!(is_expected, "{found:?}");
    });
}

/// A storage that does not answer is the way in which all versions warn that a part of the series may be missing.
#[rstest]
fn a_value_without_the_series_of_a_storage_is_partial(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let samples = history(Timestamp::now().as_second());
        let server = PrometheusProcess::without_its_storage(version, &samples).await.unwrap();
        for query in [
            "count(shop_visits offset 2h)",
            "round(rate(shop_visits[10m] offset 2h))",
            // Both a note and the warning.
            "histogram_quantile(0.5, shop_seconds_bucket offset 2h)",
        ] {
            let answer = fetch(&server.url(), query).await;
            let single = point(answer.status, answer.body()).map(drop);
            let by_shop = by_label(answer.status, answer.body(), "shop").map(drop);
            for found in [single, by_shop] {
                let words = found.map_err(|error| error.to_string()).unwrap_err();
                let is_quoted = words.contains("the server warns \"") && words.contains("connection refused");
                assert!(is_quoted && words.starts_with("the answer is partial"), "{query}: {words}");
            }
        }
        // A query that needs no series has its value.
        assert_eq!(value(&server, "42").await.as_deref(), Ok("42"));
    });
}

/// A metric with one histogram in the OTLP format: four observations, three of them between 2 and 4.
fn histogram(now: Timestamp) -> Vec<u8> {
    let point = json!({
        "timeUnixNano": now.as_nanosecond().to_string(), "count": "4", "sum": 10.5, "scale": 0, "zeroCount": "0",
        "positive": {"offset": 0, "bucketCounts": ["1", "3"]},
    });
    let histogram = json!({"aggregationTemporality": 2, "dataPoints": [point]});
    let metrics = json!([{"name": "shop_sizes", "exponentialHistogram": histogram}]);
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).to_string().into_bytes()
}

#[rstest]
fn a_histogram_is_no_number(#[values(V2_52, V3)] version: PrometheusVersion) {
    let words = "the query gives a histogram, not a number";
    block_on(async {
        let server = PrometheusProcess::receiving(version).await.unwrap();
        let push = call(format!("{}/api/v1/otlp/v1/metrics", server.url()));
        web().ask(&push, "application/json", histogram(Timestamp::now())).await.unwrap().good().unwrap();
        until(&server, "shop_sizes", Err(words)).await;
        assert_eq!(value(&server, "histogram_count(shop_sizes)").await.as_deref(), Ok("4"));
        let answer = fetch(&server.url(), "shop_sizes").await;
        let by_shop = by_label(answer.status, answer.body(), "shop").map_err(|error| error.to_string());
        assert_eq!(by_shop, Err(words.to_owned()));
    });
}
