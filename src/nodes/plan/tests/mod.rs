//! Table and property tests of NodeConfig statuses.

mod accuracy;
mod known_sensor;
mod news;
mod node_spec;
mod report;
mod standing;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::news::WriteRule;
use super::node_plan::Standing;
use super::node_spec::ParsedNodeSpec;
use super::readings::{NodeSample, Problem, Readings};
use super::report::Situation;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::{NodeConfigSpec, NodeConfigStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::power_curve::KnownCurve;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn spec(value: Value) -> NodeConfigSpec {
    serde_json::from_value(value).unwrap()
}

/// Spec with all values, each measured every ten seconds.
fn full() -> Value {
    let term = |kind: &str, endpoint: &str| json!({"type": kind, "endpoint": endpoint, "fetchInterval": "10s"});
    json!({
        "nodeName": "worker-0",
        "metricsCollector": {
            "power": term("Redfish", "https://10.0.0.100"),
            "inletTemp": term("Redfish", "https://10.0.0.100"),
            "deltaP": term("DifferentialPressureAPI", "http://10.0.0.1:5000"),
            "usage": {"type": "MetricsServer", "fetchInterval": "10s"},
        },
        "predictor": {"powerConsumption": term("V2InferenceProtocol", "http://10.0.0.1:8080/v2/models/m/infer")},
    })
}

fn parsed() -> ParsedNodeSpec {
    ParsedNodeSpec::parse(&spec(full())).unwrap()
}

fn sample(value: f64, second: i64) -> Result<NodeSample, Problem> {
    Ok(NodeSample { value, deviation: None, at: at(second), source: "sensor".into() })
}

fn problem(reason: NodeReason, words: &str) -> Result<NodeSample, Problem> {
    Err(Problem::new(reason, words))
}

fn all(second: i64) -> Readings {
    let mut readings = Readings::default();
    for value in parsed().values() {
        readings.record(value, sample(20.0, second));
    }
    readings
}

fn status_of(
    parsed: &ParsedNodeSpec,
    standing: &Standing,
    readings: &Readings,
    old: &NodeConfigStatus,
    now: i64,
) -> NodeConfigStatus {
    let stamp = Stamp { generation: 1, now: at(now) };
    let curve = &KnownCurve::default();
    let (choice, accuracy) = (None, None);
    Situation { parsed: Ok(parsed), standing, readings, curve, accuracy, choice, old: &old.conditions, stamp }.status()
}

fn status(readings: &Readings, now: i64) -> NodeConfigStatus {
    status_of(&parsed(), &Standing::Clear, readings, &NodeConfigStatus::default(), now)
}

/// Status, reason and message of a condition.
fn condition(status: &NodeConfigStatus, kind: &str) -> Option<(String, String, String)> {
    let found = status.conditions.iter().find(|one| one.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

fn ready(status: &NodeConfigStatus) -> (String, String) {
    let (status, reason, _) = condition(status, "Ready").unwrap();
    (status, reason)
}

fn data(status: &NodeConfigStatus) -> (String, String) {
    let (status, reason, _) = condition(status, "DataAvailable").unwrap();
    (status, reason)
}

fn rule() -> WriteRule {
    WriteRule { celsius: 0.5, pascals: 0.1, percent: 2.0, watts: 1.0, heartbeat: SignedDuration::from_secs(300) }
}
