//! Values in the status of a NodeConfig for decisions, without stale ones, and the nodes that a source `nodeConfig`
//! selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::duration;
use crate::expression::MeasuredView;
use crate::facts::NodeName;
use crate::quantity;
use ganglion_api::closed_loop::metric::NodeConfigField;
use ganglion_api::node_config::source::EndpointTerm;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_api::scalars::DurationText;

/// Interval of a source without `fetchInterval`.
pub const INTERVAL: SignedDuration = SignedDuration::from_secs(15);

/// Window of a Prometheus source without `window`.
pub const WINDOW: SignedDuration = SignedDuration::from_secs(300);

/// Minimum window of a rate. A rate needs two samples, and Prometheus takes one a minute by default. A shorter window
/// is extended to this.
pub const SHORTEST_WINDOW: SignedDuration = SignedDuration::from_secs(120);

/// Number of intervals after which a value without a newer one is stale.
pub const STALE_AFTER: i32 = 3;

/// Window of metrics.k8s.io if an answer does not state it: the longest usual interval of metrics-server.
pub const METRICS_SERVER_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// The value, if it is available and fresh; otherwise the reason why it is not.
pub fn fresh(status: Option<&NodeConfigStatus>, value: NodeValue, now: Timestamp) -> Result<f64, String> {
    let reading = status.and_then(|status| Some((status, status.reading(value)?)));
    let Some((status, reading)) = reading else { return Err("it is not measured".to_owned()) };
    let Some(text) = &reading.value else {
        return Err(reading.problem.clone().unwrap_or_else(|| "there is no value yet".to_owned()));
    };
    if reading.stale == Some(true) {
        return Err(format!("it is stale: {}", reading.problem.as_deref().unwrap_or("no newer value came")));
    }
    if status.valid_until.as_ref().is_none_or(|until| until.0 < now) {
        return Err("it is stale: no operator has confirmed it lately".to_owned());
    }
    quantity::number(text).map_err(|_| "it is no number".to_owned())
}

/// Values of a node for expressions: for each value, the first fresh one among the node's NodeConfigs.
pub fn measured<'a>(configs: impl Iterator<Item = &'a Arc<NodeConfig>>, now: Timestamp) -> MeasuredView {
    let configs: Vec<_> = configs.collect();
    let value = |value| configs.iter().find_map(|config| fresh(config.status.as_ref(), value, now).ok());
    MeasuredView {
        cpu: value(NodeValue::Cpu).map(|percent| percent / 100.0),
        memory: value(NodeValue::Memory).map(|percent| percent / 100.0),
        power: value(NodeValue::Power),
        inlet_temperature: value(NodeValue::InletTemperature),
        differential_pressure: value(NodeValue::DifferentialPressure),
    }
}

/// Begin of the time that a value of a node describes, for the value that [`measured`] returns. The value depends on
/// nothing that happened before. None if no value is fresh.
///
/// A value that does not change is written less often than it is measured; it is then at most as old as a value that is
/// not stale can be.
pub fn measured_since<'a>(
    mut configs: impl Iterator<Item = &'a Arc<NodeConfig>>,
    value: NodeValue,
    now: Timestamp,
) -> Option<Timestamp> {
    let config = configs.find(|config| fresh(config.status.as_ref(), value, now).is_ok())?;
    let sampled = config.status.as_ref()?.reading(value)?.sampled_at.as_ref().map_or(Timestamp::MIN, |at| at.0);
    let (collector, predictor) = (config.spec.metrics_collector.as_ref(), config.spec.predictor.as_ref());
    let usage = collector.and_then(|collector| collector.usage.as_ref());
    let predicted = predictor.and_then(|predictor| predictor.power_consumption.as_ref());
    let parsed =
        |text: Option<&DurationText>, unset| text.and_then(|text| duration::parse(text.as_str()).ok()).unwrap_or(unset);
    let interval = |term: &EndpointTerm| parsed(term.fetch_interval.as_ref(), INTERVAL);
    let longest = usage.into_iter().chain(predicted).map(interval).max().unwrap_or(INTERVAL);
    let window = match usage {
        Some(term) if term.type_ == "Prometheus" => parsed(term.window.as_ref(), WINDOW).max(SHORTEST_WINDOW),
        Some(_) | None => METRICS_SERVER_WINDOW,
    };
    let oldest = now.checked_sub(longest * STALE_AFTER).unwrap_or(Timestamp::MIN);
    Some(sampled.max(oldest).checked_sub(window).unwrap_or(Timestamp::MIN))
}

/// Whether the source selects a node with this name and these labels.
pub fn means(source: &NodeConfigField, name: &NodeName, labels: &BTreeMap<String, String>) -> bool {
    match (&source.node_name, &source.node_selector) {
        (Some(wanted), _) => wanted == name,
        (None, Some(wanted)) => wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case(json!({}), Err("it is not measured"))]
    #[case(json!({"cpu": {"value": "1"}}), Err("it is not measured"))]
    #[case(json!({"power": {}}), Err("there is no value yet"))]
    #[case(json!({"power": {"problem": "the server answers 500"}}), Err("the server answers 500"))]
    #[case(json!({"power": {"value": "94.5"}}), Err("it is stale: no operator has confirmed it lately"))]
    #[case(json!({"validUntil": "1970-01-01T00:00:59Z", "power": {"value": "94.5"}}), Err("it is stale: no operator has confirmed it lately"))]
    #[case(json!({"validUntil": "1970-01-01T00:01:00Z", "power": {"value": "94.5"}}), Ok(94.5))]
    #[case(json!({"validUntil": "1970-01-01T00:01:00Z", "power": {"value": "hot"}}), Err("it is no number"))]
    #[case(json!({"validUntil": "1970-01-01T00:01:00Z", "power": {"value": "94.5", "stale": true}}), Err("it is stale: no newer value came"))]
    #[case(json!({"validUntil": "1970-01-01T00:01:00Z", "power": {"value": "94.5", "stale": true, "problem": "no answer"}}), Err("it is stale: no answer"))]
    fn only_fresh_values_are_given(#[case] status: Value, #[case] expected: Result<f64, &str>) {
        let status: NodeConfigStatus = serde_json::from_value(status).unwrap();
        let now = Timestamp::from_second(60).unwrap();
        assert_eq!(fresh(Some(&status), NodeValue::Power, now), expected.map_err(str::to_owned));
        assert_eq!(fresh(None, NodeValue::Power, now), Err("it is not measured".to_owned()));
    }

    #[rstest]
    #[case::metrics_server(json!({"usage": {"type": "MetricsServer"}}), "1970-01-01T00:09:50Z", Some(590 - 60))]
    #[case::unchanged(json!({"usage": {"type": "MetricsServer"}}), "1970-01-01T00:01:00Z", Some(600 - 45 - 60))]
    #[case::slow(json!({"usage": {"type": "MetricsServer", "fetchInterval": "1m"}}), "1970-01-01T00:01:00Z", Some(600 - 180 - 60))]
    #[case::prometheus(json!({"usage": {"type": "Prometheus"}}), "1970-01-01T00:09:50Z", Some(590 - 300))]
    #[case::short(json!({"usage": {"type": "Prometheus", "window": "1m"}}), "1970-01-01T00:09:50Z", Some(590 - 120))]
    #[case::unknown(json!({}), "never", None)]
    fn a_value_describes_its_window(#[case] collector: Value, #[case] sampled: &str, #[case] expected: Option<i64>) {
        let reading = if sampled == "never" { json!({}) } else { json!({"value": "50", "sampledAt": sampled}) };
        let config = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n"},
            "spec": {"nodeName": "n", "metricsCollector": collector},
            "status": {"validUntil": "1970-01-01T01:00:00Z", "cpu": reading},
        });
        let config: Arc<NodeConfig> = Arc::new(serde_json::from_value(config).unwrap());
        let since = measured_since([&config].into_iter(), NodeValue::Cpu, Timestamp::from_second(600).unwrap());
        assert_eq!(since.map(Timestamp::as_second), expected);
    }
}
