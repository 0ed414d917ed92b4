//! A policy of the lab, and the values of nodes that it reads, as agents of nodes publish them.

use std::collections::BTreeMap;

use ganglion_api::node_config::status::{NodeReading, PowerCurve};
use ganglion_api::node_config::{NodeConfig, NodeConfigSpec, NodeConfigStatus};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{CONGESTION, CONGESTION_SAMPLED_AT, USAGE_SAMPLED_AT};
use ganglion_core::power_curve::POINTS;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::node::LabNode;
use super::request::bytes;

/// Name of the policy.
pub const POLICY: &str = "lab";

/// Name of the scheduler whose pods it concerns.
pub const SCHEDULER: &str = "lab";

/// Number of pods that a node admits: in the lab, only their requests limit them.
pub const MAX_PODS: i64 = 10_000;

/// Time for which values are valid: longer than any run on a control plane, whose time is behind the clock.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24);

/// A policy with these agents, as in `spec.agents`.
pub fn policy(agents: &Value) -> Result<PlacementPolicy, serde_json::Error> {
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "sampleWindow": "15m", "maxAge": format!("{VALIDITY:#}"), "schedulerNames": [SCHEDULER], "agents": agents,
        },
    }))
}

/// Annotations with the last statistics of usage, and with the congestion. Empty before the first ones.
pub fn annotations(node: &LabNode, at: Timestamp) -> BTreeMap<&'static str, String> {
    let Some((_, usage)) = node.sampled else { return BTreeMap::new() };
    BTreeMap::from([
        ("mean-used-cpu", (usage.mean * 1000.0).to_string()),
        ("std-used-cpu", (usage.deviation * 1000.0).to_string()),
        ("mean-used-memory", bytes(node.memory_usage.mean).to_string()),
        ("std-used-memory", bytes(node.memory_usage.deviation).to_string()),
        (USAGE_SAMPLED_AT, at.to_string()),
        (CONGESTION, (100.0 * node.load().min(1.0)).to_string()),
        (CONGESTION_SAMPLED_AT, at.to_string()),
    ])
}

/// The NodeConfig of a node.
pub fn node_config(node: &str) -> NodeConfig {
    NodeConfig::new(node, NodeConfigSpec { node_name: node.into(), ..NodeConfigSpec::default() })
}

/// Its status, with the current usage, and with the power that the fleet's table predicts. `inlet`: in degrees Celsius.
pub fn node_status(node: &LabNode, inlet: f64, at: Timestamp) -> NodeConfigStatus {
    let time = Time(at);
    let reading = |value: f64| {
        Some(NodeReading { value: Some(value.to_string()), sampled_at: Some(time.clone()), ..NodeReading::default() })
    };
    let parts = (0..POINTS).map(|point| point as f64 / (POINTS - 1) as f64);
    let watts = parts.map(|part| node.server.model.watts(part).to_string()).collect();
    NodeConfigStatus {
        valid_until: Some(Time(at + VALIDITY)),
        inlet_temperature: reading(inlet),
        differential_pressure: reading(7.5),
        cpu: reading(100.0 * node.usage()),
        power: reading(node.watts()),
        power_curve: Some(PowerCurve {
            watts,
            inlet_temperature: Some(inlet.to_string()),
            differential_pressure: Some("7.5".to_owned()),
            predicted_at: Some(time.clone()),
            problem: None,
        }),
        ..NodeConfigStatus::default()
    }
}
