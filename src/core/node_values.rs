//! Values in the status of a NodeConfig for decisions, without stale ones, and the nodes that a source `nodeConfig`
//! selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::expression::MeasuredView;
use crate::facts::NodeName;
use crate::quantity;
use ganglion_api::closed_loop::metric::NodeConfigField;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};

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
}
