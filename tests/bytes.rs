//! Input of users, senders and servers is parsed without a panic and in bounded time, whatever its bytes. Output of a
//! parser's value is parsed again to the same value.
//!
//! Each test mutates valid input and adds arbitrary input, for `GANGLION_FUZZ_SECONDS` (default: 1), with the seed
//! `GANGLION_FUZZ_SEED` (default: 0). A failing input is shrunk and shown.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use ganglion_api::closed_loop::adapter_metric::{CustomMetric, ExternalMetric, SeveralValues};
use ganglion_api::closed_loop::metric::{Aggregate, ResourceUse, UseUnit};
use ganglion_api::closed_loop::policy::Window;
use ganglion_api::decision::{Act, Entry, Rejected};
use ganglion_core::document::{self, parsed};
use ganglion_core::duration;
use ganglion_core::expression::{Expression, MeasuredView, MetricView, NodeView, PodsView, ResourceView, Score};
use ganglion_core::quantity;
use ganglion_loops_plan::monitoring::tag::{self, Delivery, MAX_SKEW};
use ganglion_loops_plan::schedule::Calendar;
use ganglion_loops_plan::sources::{self, CustomMetricList, ExternalMetricList, PodList, PodMetricsList};
use ganglion_outbound::inference::{self, InferenceModel};
use ganglion_outbound::network::{HostPattern, Network};
use ganglion_outbound::node_usage::{NodeStatistic, measured_nodes};
use ganglion_outbound::pressure::{self, PressureSensor};
use ganglion_outbound::prometheus;
use ganglion_placement_plan::labels::LabelValue;
use ganglion_placement_plan::labels::history::LabelHistory;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::Value;

/// Number of cases between two checks of the clock.
const ROUND: u32 = 32;

/// Maximum time of one case, in a debug build on a busy machine.
const SLOW: Duration = Duration::from_secs(5);

/// A word in the input that must not appear in an error.
const SECRET: &str = "hunter2";

/// Bytes that are shown as text.
struct Input(Vec<u8>);

impl Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

type Checked = Result<(), TestCaseError>;

/// A mutation of valid input.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize, usize),
    /// Inserts a part of the input with this index.
    Splice(usize, usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0_usize..400;
    let special = prop::sample::select(br#"{}[]()",:.\0129-+eE/*?!&|<>= uxTZnNIMKm"#.as_slice());
    prop_oneof![
        (at.clone(), prop_oneof![special, any::<u8>()]).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at.clone(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at.clone(), 1_usize..40).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at.clone(), 1_usize..20, 1_usize..200).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        (at, any::<usize>(), 0_usize..400).prop_map(|(at, which, from)| Mutation::Splice(at, which, from)),
    ]
}

fn mutated(seeds: &[&str], which: usize, mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = seeds[which % seeds.len()].as_bytes().to_vec();
    for mutation in mutations {
        let within = |at: usize| at.min(bytes.len());
        match mutation {
            Mutation::Set(at, byte) => bytes.iter_mut().skip(*at).take(1).for_each(|old| *old = *byte),
            Mutation::Insert(at, new) => drop(bytes.splice(within(*at)..within(*at), new.iter().copied())),
            Mutation::Remove(at, length) => drop(bytes.drain(within(*at)..within(at + length))),
            Mutation::Repeat(at, length, times) => {
                let part = bytes[within(*at)..within(at + length)].repeat(*times);
                bytes.splice(within(*at)..within(*at), part);
            }
            Mutation::Splice(at, which, from) => {
                let other = seeds[which % seeds.len()].as_bytes();
                bytes.splice(within(*at)..within(*at), other.iter().copied().skip(*from).take(40));
            }
        }
    }
    bytes
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Checks mutations of these inputs, and arbitrary input, until the time is over.
fn feed(seeds: &[&'static str], check: impl Fn(&[u8]) -> Checked) {
    let end = Instant::now() + Duration::from_secs(setting("GANGLION_FUZZ_SECONDS", 1));
    let seed = setting("GANGLION_FUZZ_SEED", 0);
    let mutated = (any::<usize>(), prop::collection::vec(mutation(), 0..6)).prop_map({
        let seeds = seeds.to_vec();
        move |(which, mutations)| mutated(&seeds, which, &mutations)
    });
    let input = prop_oneof![
        8 => mutated.boxed(),
        1 => prop::collection::vec(any::<u8>(), 0..200).boxed(),
        1 => any::<String>().prop_map(String::into_bytes).boxed(),
    ]
    .prop_map(Input);
    let mut round = 0_u64;
    while round == 0 || Instant::now() < end {
        let done = runner(seed, round).run(&input, |bytes| {
            let begun = Instant::now();
            check(&bytes.0)?;
            prop_assert!(begun.elapsed() < SLOW, "it took {:?}", begun.elapsed());
            Ok(())
        });
        if let Err(error) = done {
            panic!("{error}");
        }
        round += 1;
    }
    println!("{} cases", round * u64::from(ROUND));
}

/// A runner limits its cases over all runs, so each round uses a new one.
fn runner(seed: u64, round: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    let config = Config { cases: ROUND, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Like [`feed`], for parsers of text.
fn feed_texts(seeds: &[&'static str], check: impl Fn(&str) -> Checked) {
    feed(seeds, |bytes| check(&String::from_utf8_lossy(bytes)));
}

fn hides<T: Debug>(found: &Result<T, impl ToString>) -> Checked {
    if let Err(error) = found {
        prop_assert!(!error.to_string().contains(SECRET), "{}", error.to_string());
    }
    Ok(())
}

/// The number at a path of a parsed tree, which the reader without a tree must find as well. A path with an empty name
/// is refused.
fn in_tree(document: &Value, path: &str) -> Option<String> {
    if path.split('.').any(str::is_empty) {
        return None;
    }
    let found = path.split('.').try_fold(document, |at, part| match at {
        Value::Object(members) => members.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    });
    match found? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => quantity::number(text).ok().map(|_| text.clone()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[test]
fn documents() {
    let seeds = [
        r#"{"data": {"cpu": 1.5, "cpu": "250m"}, "items": [{"load": -3}, {"load": 1e-7, "s": "hunter2"}]}"#,
        r#"{"d\u0061ta": {"cpu": [[[[1, 2]]], null, true, "\ud83d\ude00\\\""]}, "items": {"0": 5}}"#,
        r#"[0, {"": [{"":0},{"":0}]}, 18446744073709551616, -0, 1E400]"#,
    ];
    feed(&seeds, |bytes| {
        for path in ["data.cpu", "items.1.load", "items.0", "data.cpu.0.0.0.0.1", "1..0.", "2", "", "."] {
            let found = document::number(bytes, path);
            hides(&found)?;
            if let Ok(tree) = serde_json::from_slice::<Value>(bytes) {
                prop_assert_eq!(found.ok(), in_tree(&tree, path), "{}", path);
            }
        }
        Ok(())
    });
}

#[test]
fn conditions() {
    let seeds = [
        r#"{"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Other"}, {"type": "Ready", "status": "True"}]}}"#,
        r#"{"status": {"conditions": [{"type": "Ready", "status": "False", "observedGeneration": 2, "message": "hunter2"}]}}"#,
    ];
    feed(&seeds, |bytes| {
        let found = document::condition(bytes, "Ready");
        hides(&found)?;
        prop_assert!(found.is_err() || matches!(found.as_deref(), Ok("0" | "1")), "{found:?}");
        Ok(())
    });
}

#[test]
fn prometheus_replies() {
    let seeds = [
        r#"{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "hunter2"}, "value": [1763719200.25, "0.5"]}]}}"#,
        r#"{"status": "success", "data": {"resultType": "scalar", "result": [1763719200, "hunter2"]}, "warnings": ["hunter2"]}"#,
        r#"{"status": "error", "errorType": "bad_data", "error": "hunter2"}"#,
        r#"{"data": {"result": [1, "NaN"], "resultType": "scalar"}, "status": "success"}"#,
    ];
    feed(&seeds, |bytes| {
        for status in [200, 400] {
            let found = prometheus::point(reqwest::StatusCode::from_u16(status)?, bytes);
            // A warning is the only text of a server that is passed on.
            if !matches!(found, Err(ganglion_outbound::Error::Partial(_))) {
                hides(&found)?;
            }
            if let Ok(point) = found {
                prop_assert!(quantity::number(&point.value).is_ok(), "{point:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn pressures() {
    let seeds = [
        r#"{"code": 200, "sensor": [{"pressure": 0.01, "sensorid": "101037B", "temperature": 26.02}]}"#,
        r#"{"code": "200", "sensor": [{"pressure": "hunter2!", "sensorid": "hunter2!"}, {"sensorid": 7, "pressure": null}]}"#,
        r#"{"sensor": [{"pressure": "-1e4", "sensorid": {"a": ["hunter2"]}}], "code": 404}"#,
    ];
    feed(&seeds, |bytes| {
        for asked in [PressureSensor::OfNode("a"), PressureSensor::Named("101037B")] {
            let found = pressure::reading(reqwest::StatusCode::OK, bytes, asked);
            hides_all_but_names(&found)?;
            if let Ok(found) = found {
                prop_assert!(found.pascals.abs() <= 10_000.0, "{found:?}");
            }
        }
        Ok(())
    });
}

/// Like [`hides`], for results that show names of sensors: the word followed by a punctuation mark is not a name.
fn hides_all_but_names<T: Debug>(found: &Result<T, impl ToString>) -> Checked {
    if let Err(error) = found {
        prop_assert!(!error.to_string().contains("hunter2!"), "{}", error.to_string());
    }
    Ok(())
}

#[test]
fn usage_of_nodes() {
    let seeds = [
        r#"{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"instance": "a:9100"}, "value": [1763719200.25, "12.5"]},
            {"metric": {"instance": "[fd00::5]:9100", "job": "hunter2"}, "value": [1763719200.25, "NaN"]}, {"metric": {}, "value": [1, "hunter2"]}]}}"#,
        r#"{"items": [{"metadata": {"name": "a"}, "timestamp": "2026-11-21T10:00:05Z", "window": "20s",
            "usage": {"cpu": "123456789n", "memory": "1234Ki"}}, {"metadata": {"name": "hunter2"}, "usage": {"cpu": "hunter2"}}]}"#,
    ];
    let percents = |found: Result<f64, ganglion_outbound::value::ValueError>| {
        hides(&found)?;
        prop_assert!(
            found.clone().unwrap_or_default() >= 0.0 && found.clone().unwrap_or_default() <= 100.0,
            "{found:?}"
        );
        Ok(())
    };
    feed(&seeds, |bytes| {
        let found = NodeStatistic::parse(reqwest::StatusCode::OK, bytes, "instance");
        hides(&found)?;
        if let Ok(all) = found {
            percents(all.of("a", &[]))?;
            percents(all.of("b", &["fd00::5".parse()?]))?;
        }
        let found = measured_nodes(bytes);
        hides(&found)?;
        for node in found.unwrap_or_default() {
            percents(node.cpu_percent(4000))?;
            percents(node.memory_percent(1 << 30))?;
        }
        Ok(())
    });
}

#[test]
fn predictions() {
    let seeds = [
        r#"{"model_name": "hunter2", "outputs": [{"name": "predict", "shape": [2, 1], "datatype": "FP64", "data": [94.76, 1e2]}]}"#,
        r#"{"outputs": [{"data": [[1], [[-5]]]}, {"data": "hunter2"}], "error": "hunter2"}"#,
        r#"{"outputs": [{"data": ["hunter2", null]}]}"#,
    ];
    feed(&seeds, |bytes| {
        let found = inference::watts(reqwest::StatusCode::OK, bytes, inference::ExpectedOutput { name: None, rows: 2 });
        hides(&found)?;
        for one in found.unwrap_or_default() {
            hides(&one)?;
            prop_assert!(one.unwrap_or_default().abs() <= 1e6);
        }
        Ok(())
    });
}

#[test]
fn addresses_of_models_and_sensors() {
    let seeds = ["http://s:8080/v2/models/m/versions/v0.1.0/infer", "https://[::1]/a/../v2/models/%2e%2e/infer/?q#f"];
    feed_texts(&seeds, |text| {
        if let Ok(model) = InferenceModel::parse(text) {
            prop_assert_eq!(InferenceModel::parse(model.url()), Ok(model));
        }
        if let Ok(url) = pressure::sensor_url(text, PressureSensor::Named(text)) {
            prop_assert!(url.path().contains("/api/sensor/"), "{}", url);
        }
        Ok(())
    });
}

#[test]
fn usage_of_pods() {
    let used = r#"{"items": [{"metadata": {"name": "a"}, "timestamp": "2026-11-21T10:00:05Z", "window": "15s", "containers":
        [{"name": "app", "usage": {"cpu": "250m", "memory": "64Mi"}}, {"name": "side", "usage": null}]}]}"#;
    let pods = r#"{"items": [{"metadata": {"name": "a", "deletionTimestamp": null}, "status": {"phase": "Running"}, "spec":
        {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}], "initContainers": [{"name": "i"}]}}]}"#;
    feed(&[used, pods], |bytes| {
        let good = parsed::<PodList>(pods.as_bytes()).map_err(TestCaseError::fail)?;
        let all = parsed::<PodList>(bytes).unwrap_or(good);
        let Ok(list) = parsed::<PodMetricsList>(bytes).or_else(|_| parsed::<PodMetricsList>(used.as_bytes())) else {
            return Ok(());
        };
        for (unit, of) in [(UseUnit::Usage, Aggregate::Sum), (UseUnit::Utilization, Aggregate::Mean)] {
            let source = ResourceUse { unit: Some(unit), of: Some(of), ..ResourceUse::default() };
            let _ = sources::pod_usage(&source, &list, &all, Timestamp::UNIX_EPOCH);
        }
        Ok(())
    });
}

#[test]
fn metrics_of_adapters() {
    let external = r#"{"items": [{"metricName": "", "metricLabels": {"q": "a"}, "timestamp": "2026-11-21T10:00:05Z",
        "window": 60, "value": "250m"}, {"metricLabels": null, "timestamp": null, "value": 5}]}"#;
    let custom = r#"{"items": [{"describedObject": {"kind": "Pod", "namespace": "shop", "name": "a"}, "metric": {"name": "m"},
        "timestamp": "2026-11-21T10:00:05Z", "windowSeconds": 60, "value": "250m"}, {"describedObject": null, "window": -1}]}"#;
    let pods = r#"{"items": [{"metadata": {"name": "a"}, "status": {"phase": "Running"}}]}"#;
    let selector = LabelSelector { match_labels: Some([("q".into(), "a".into())].into()), ..LabelSelector::default() };
    let queue =
        ExternalMetric { several: Some(SeveralValues::Sum), selector: Some(selector), ..ExternalMetric::default() };
    let pods = parsed::<PodList>(pods.as_bytes()).expect("pods");
    feed(&[external, custom], |bytes| {
        if let Ok(answer) = parsed::<ExternalMetricList>(bytes) {
            let _ = sources::external_value(&queue, &answer);
        }
        if let Ok(answer) = parsed::<CustomMetricList>(bytes) {
            let (metric, asked) = (CustomMetric::default(), Timestamp::UNIX_EPOCH);
            let _ = sources::pods_value(&metric, &answer, &pods, ("shop", asked));
            let _ = sources::object_value(&metric, &answer, ("shop", "a"));
        }
        Ok(())
    });
}

#[test]
fn expressions() {
    let seeds = [
        r#"node.labels["topology.kubernetes.io/zone"] == "a" && node.ready && !(node.cpu.utilization > 0.8)"#,
        "node.pods + 1 < node.podCapacity ? node.schedulable : false",
        "metric.excess / double(metric.rank) * 2.0 + (metric.side == \"Low\" ? 1.0 : -1.0)",
        "((((((((((metric.value))))))))))",
    ];
    let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "a".to_owned())]);
    let amount = ResourceView { allocatable: 4000, requested: i64::MAX };
    let pods = PodsView { count: 3, arriving: 1, capacity: 110 };
    let node = NodeView {
        name: "a",
        labels: &labels,
        taints: &[],
        ready: true,
        schedulable: true,
        pods,
        cpu: amount,
        memory: amount,
        measured: MeasuredView::default(),
    };
    let (value, excess) = (f64::MAX, f64::NAN);
    let metric = MetricView { name: "a", side: "Low", value, excess, rank: 0, wanted: i64::MAX, served: 0, limited: 1 };
    feed_texts(&seeds, |text| {
        if let Ok(expression) = Expression::parse(text) {
            let _ = expression.matches(&node);
            prop_assert_eq!(Expression::parse(expression.as_str()), Ok(expression));
        }
        if let Ok(score) = Score::parse(text) {
            prop_assert!(score.of(&metric).is_none_or(f64::is_finite));
        }
        Ok(())
    });
}

#[test]
fn durations() {
    feed_texts(&["15s", "1h30m", "0.5s", "500ms", "876600h", "1µs2ns"], |text| {
        if let Ok(found) = duration::parse(text) {
            prop_assert!(!found.is_negative() && found.as_hours() <= 24 * 36_525, "{found:?}");
            prop_assert_eq!(
                duration::parse(&format!("{}s", found.as_secs())),
                Ok(SignedDuration::from_secs(found.as_secs()))
            );
        }
        Ok(())
    });
}

#[test]
fn quantities() {
    feed_texts(&["250m", "1.5Gi", "-2e3", "+0.1n", "12E", "1e-400", "9223372036854775807Ei"], |text| {
        let Ok(number) = quantity::number(text) else {
            prop_assert!(quantity::bytes(text).is_err() && quantity::cpu_millis(text).is_err());
            return Ok(());
        };
        prop_assert!(number.is_finite());
        for whole in [quantity::bytes(text), quantity::cpu_millis(text)] {
            let whole = whole.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(quantity::bytes(&whole.to_string()), Ok(whole));
        }
        Ok(())
    });
}

#[test]
fn windows() {
    let now: Timestamp = "2026-11-21T10:00:05Z".parse().unwrap();
    feed_texts(&["0 8 * * MON-FRI", "*/5 0-23/2 L 2 *", "0 0 29 2 *", "0 0 31 2,4,6,9,11 *", "0 0 * * 5#3"], |cron| {
        for (zone, duration) in [("Europe/Berlin", "10h"), (cron, cron)] {
            let (cron, time_zone, duration) = (Some(cron.to_owned()), Some(zone.to_owned()), Some(duration.into()));
            let window = Window { cron, time_zone, duration, ..Window::default() };
            if let Ok(calendar) = Calendar::parse("windows[0]", &window) {
                let phase = calendar.phase(now);
                prop_assert!(phase.begin <= now && now < phase.end, "{phase:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn sample_times() {
    let now: Timestamp = "2026-11-21T10:00:05Z".parse().unwrap();
    let seeds = [
        "2026-11-21T10:00:00.000001Z",
        "2026-11-21T11:00:00+01:00",
        "-009999-01-01T00:00:00Z",
        "2026-12-01T00:00:00+99:99",
    ];
    feed_texts(&seeds, |text| {
        if let Ok(found) = tag::for_pushed(None, text, Delivery::Mixed, now) {
            prop_assert!(found.time.0 <= now + MAX_SKEW, "{found:?}");
            let again = tag::for_pushed(None, &found.time.0.to_string(), Delivery::Mixed, now);
            prop_assert_eq!(again.ok(), Some(found));
        }
        Ok(())
    });
}

/// A line that was parsed and formatted must be parsed and formatted to the same line again.
fn lines<T: std::str::FromStr<Err: Debug> + ToString>(line: &str) -> Checked {
    if let Ok(found) = line.parse::<T>() {
        let written = found.to_string();
        let again = written.parse::<T>().map_err(|error| TestCaseError::fail(format!("{written:?}: {error:?}")))?;
        prop_assert_eq!(again.to_string(), written);
    }
    Ok(())
}

#[test]
fn lines_of_statuses() {
    let seeds = [
        "3 2026-11-21T10:00:03.000000Z Low cpu 2 rung 0 | scale by 1 | Done 2026-11-21T10:00:04.000000Z | changed 3 to 4",
        "3 2026-11-21T10:00:03.000000Z Raise replicas",
        "Low memory Outranked: another alarm is served first",
    ];
    feed_texts(&seeds, |line| {
        lines::<Entry>(line)?;
        lines::<Act>(line)?;
        lines::<Rejected>(line)
    });
}

/// Annotations of nodes, which kubelets may change.
#[test]
fn histories_of_labels() {
    let seeds = ["12@1764364800,9@1764360000", "rejected@253402207200", "0@1", "1@8,1@7,1@6,1@5,1@4,1@3,1@2,1@1"];
    feed_texts(&seeds, |text| {
        if let Some(history) = LabelHistory::parse(text) {
            prop_assert_eq!(history.to_string(), text);
            let now = history.newest().map_or(Timestamp::UNIX_EPOCH, |entry| entry.written);
            let next = history.with(LabelValue::Rejected, now);
            prop_assert_eq!(LabelHistory::parse(&next.to_string()), Some(next));
        }
        Ok(())
    });
}

#[test]
fn networks_and_hosts() {
    feed_texts(&["10.0.0.0/8", "fd00:ec2::254/128", ".example.com", "*.a-b.example", "::ffff:10.0.0.1"], |text| {
        if let Ok(network) = text.parse::<Network>() {
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }
        if let Ok(host) = text.parse::<HostPattern>() {
            prop_assert!(!host.matches(""));
        }
        Ok(())
    });
}
