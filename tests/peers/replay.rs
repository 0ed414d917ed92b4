//! Replays of loops on the history of real servers: values of ranges, gaps, resets of counters, refused queries.

use std::fmt::Write;
use std::process::{Command, Output};
use std::time::Duration;

use ganglion_outbound::prometheus::range::{QueryRange, RangePoint, fetch_range};
use ganglion_outbound::prometheus::{point, query_url};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::Value;
use testkit::block_on;
use testkit::operator::program;
use testkit::servers::prometheus::PrometheusProcess;
use testkit::servers::prometheus::PrometheusVersion::{self, V2_42, V2_52, V3};

use crate::client::{call, web};

/// Age of the newest sample, and length of the history, in seconds.
const AGE: i64 = 3600;
const LENGTH: i64 = 7200;

/// Begin and end of the gap in the history, in seconds after its start. Prometheus looks for a sample in the five
/// minutes before each time.
const GAP: (i64, i64) = (3000, 3900);
const LOOKBACK: i64 = 300;

/// Time of the reset of the counter, in seconds after the start.
const RESET: i64 = 5400;

/// Input for promtool: a gauge with a gap, and a counter that is reset.
fn history(start: i64) -> String {
    let times = || (0..=LENGTH).step_by(15);
    let mut text = String::from("# TYPE shop_load gauge\n");
    for after in times().filter(|after| !(GAP.0..GAP.1).contains(after)) {
        let value = if after % 3600 < 1800 { 40 } else { 90 };
        writeln!(text, "shop_load{{shop=\"a\"}} {value} {}", start + after).unwrap();
    }
    text.push_str("# TYPE shop_visits counter\n");
    for after in times() {
        let value = if after < RESET { after * 2 } else { (after - RESET) * 2 };
        writeln!(text, "shop_visits_total{{shop=\"a\"}} {value} {}", start + after).unwrap();
    }
    text + "# EOF\n"
}

/// A server, and the start of its history.
async fn with_history(version: PrometheusVersion) -> (PrometheusProcess, i64) {
    // Aligned, so that values in the middle of a step are not tested.
    let start = (Timestamp::now().as_second() - AGE - LENGTH) / 15 * 15;
    (PrometheusProcess::with_history(version, &history(start)).await.unwrap(), start)
}

fn seconds(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

async fn read(server: &PrometheusProcess, query: &str, range: QueryRange) -> Result<Vec<RangePoint>, String> {
    let points = fetch_range(&web(), &call(server.url()), query, range, &|_| ()).await;
    points.map_err(|error| error.to_string())
}

/// The value of a range at each time is that of a query at this time.
#[rstest]
fn a_range_has_the_values_of_single_queries(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let (server, start) = with_history(version).await;
        let range =
            QueryRange { start: seconds(start), end: seconds(start + LENGTH), step: SignedDuration::from_secs(15) };
        for query in ["shop_load", "rate(shop_visits_total[1m])", "shop_load / (shop_load - 40)"] {
            let points = read(&server, query, range).await.unwrap();
            for after in
                [0, 60, GAP.0 + LOOKBACK - 15, GAP.0 + LOOKBACK + 15, GAP.1, RESET - 15, RESET, RESET + 15, LENGTH]
            {
                let at = seconds(start + after);
                let url = query_url(&format!("{}/?time={}", server.url(), start + after), query).unwrap();
                let answer = web().get(&call(url)).await.unwrap();
                let single =
                    point(answer.status, answer.body()).map(|point| point.value).map_err(|error| error.to_string());
                let found = points.iter().find(|point| point.at == at).map(|point| point.value.clone());
                match (found, single) {
                    (Some(found), single) => assert_eq!(found, single, "{query} at {after}"),
                    (None, single) => {
                        let error = single.unwrap_err();
                        assert!(error.starts_with("the query gives no series"), "{query} at {after}: {error}");
                    }
                }
            }
        }
    });
}

/// Prometheus refuses more than 11,000 times in one request.
#[rstest]
fn a_long_range_is_read_in_parts(#[values(V2_42, V3)] version: PrometheusVersion) {
    block_on(async {
        let (server, start) = with_history(version).await;
        let range =
            QueryRange { start: seconds(start), end: seconds(start + 25_000), step: SignedDuration::from_secs(1) };
        let points = read(&server, "vector(time())", range).await.unwrap();
        assert_eq!(points.len(), 25_001);
        for (point, expected) in points.iter().zip(range.all()) {
            assert_eq!(point.at, expected);
            let value: f64 = point.value.as_ref().unwrap().parse().unwrap();
            assert_eq!(value as i64, expected.as_second());
        }
    });
}

#[rstest]
fn a_refusal_is_quoted(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let (server, start) = with_history(version).await;
        let range = QueryRange { start: seconds(start), end: seconds(start + 60), step: SignedDuration::from_secs(15) };
        let error = read(&server, "sum(", range).await.unwrap_err();
        let words = "the server answers 400 Bad Request (bad_data): check the query; it says \"";
        assert!(error.starts_with(words) && error.contains("parse error"), "{error}");
        let error = read(&server, "shop_load[5m]", range).await.unwrap_err();
        assert!(error.contains("invalid expression type"), "{error}");
        // A server that gives up has refused the smallest part as well.
        let url = format!("{}/?timeout=1ms", server.url());
        let (client, slow_call) = (web(), call(url));
        let slow = fetch_range(&client, &slow_call, "count_over_time(vector(time())[300d:1s])", range, &|_| ());
        let error = tokio::time::timeout(Duration::from_secs(60), slow).await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("the server answers 503 Service Unavailable (timeout)"), "{error}");
    });
}

const LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: shop}
spec:
  target: {apiVersion: apps/v1, kind: Deployment, name: shop}
  metrics:
    - {name: load, source: {prometheus: {url: 'http://prometheus', query: shop_load}}, high: {raise: '80'}, low: {raise: '50'}}
    - {name: visits, source: {prometheus: {url: 'http://prometheus', query: 'rate(shop_visits_total[1m])'}}, low: {raise: '0'}}
  policy: {dwell: 5m}
  actions:
    - {when: {metric: load, side: High}, ladder: [{scale: {by: 1, max: 6}}]}
    - {when: {metric: load, side: Low}, ladder: [{scale: {by: -1, min: 1}}]}
    - {when: {metric: visits, side: Low}, ladder: [{scale: {to: 1}}]}
";

fn replay(server: &PrometheusProcess, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("loop.yaml");
    std::fs::write(&file, LOOP).unwrap();
    let mut command = Command::new(program().unwrap());
    command.args(["replay", file.to_str().unwrap(), "--prometheus", &server.url(), "--start", "replicas=3"]);
    command.args(args).output().unwrap()
}

#[rstest]
fn a_loop_is_replayed_on_the_history_of_its_own_queries(#[values(V2_42, V3)] version: PrometheusVersion) {
    block_on(async {
        let (server, start) = with_history(version).await;
        let until = seconds(start + LENGTH).to_string();
        // The range begins two hours before the history.
        let output = replay(&server, &["--until", &until, "--since", "4h", "-o", "json"]);
        assert!(output.status.success(), "{output:?}");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let report = &shown[0];
        let limits: Vec<&str> = report["limits"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        let begins = format!("metric load: it has no value before {}", seconds(start));
        assert!(limits.iter().any(|limit| limit.starts_with(&begins)), "{limits:?}");
        let gap = report["unknown"].as_array().unwrap().iter().filter(|one| one["metric"] == "load");
        let gap: Vec<(f64, u64)> =
            gap.map(|one| (one["seconds"].as_f64().unwrap(), one["times"].as_u64().unwrap())).collect();
        // Before the history, and in the gap: a value counts for three intervals after the last one that is found.
        let expected = LENGTH as f64 + (GAP.1 - GAP.0 - LOOKBACK - 45) as f64;
        assert_eq!(gap.len(), 1, "{report:#}");
        assert!((gap[0].0 - expected).abs() <= 30.0 && gap[0].1 == 2, "{gap:?} instead of {expected}");
        let decisions = report["decisions"].as_array().unwrap();
        assert!(decisions.len() >= 6, "{report:#}");
        // The reset of the counter is no fall of the rate.
        assert!(decisions.iter().all(|decision| decision["when"] != "Low visits"), "{report:#}");
        // A decision at a bound changes nothing, so no dwell follows.
        let served = decisions.iter().filter(|decision| decision["outcome"] == "Served");
        let times: Vec<Timestamp> = served.map(|decision| decision["at"].as_str().unwrap().parse().unwrap()).collect();
        assert!(times.windows(2).all(|pair| pair[1].duration_since(pair[0]) >= SignedDuration::from_mins(5)));
        let again = replay(&server, &["--until", &until, "--since", "4h", "-o", "json"]);
        let values = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()[0]["decisions"].clone();
        assert_eq!(values(&again.stdout), values(&output.stdout));
    });
}

#[rstest]
fn a_query_that_is_refused_ends_the_replay(#[values(V2_42, V3)] version: PrometheusVersion) {
    block_on(async {
        let (server, _) = with_history(version).await;
        let output = replay(&server, &["--query", "load=sum("]);
        let error = String::from_utf8(output.stderr).unwrap();
        let words = "metric load: the server answers 400 Bad Request (bad_data): check the query; it says";
        assert!(!output.status.success() && error.contains(words), "{error}");
        let output = replay(&server, &["--query", "lode=up"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("--query lode: it is no metric of a loop: load, replicas, visits"), "{error}");
    });
}
