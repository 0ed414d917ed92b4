//! Templates: from the text to NodeConfigs.

mod plan;
mod properties;
mod rendering;

use serde_json::{Value, json};

use super::*;
use ganglion_core::facts::{Identity, Key};

/// Creates a node with this name, addresses and labels.
fn node(name: &str, addresses: &[&str], labels: &[(&str, &str)]) -> NodeFact {
    NodeFact {
        id: Identity { key: Key::new("", name), uid: name.into(), version: "1".into() },
        addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..NodeFact::default()
    }
}

fn worker() -> NodeFact {
    let labels = [("kubernetes.io/hostname", "worker-0"), ("example.com/bmc", "10.9.8.7"), ("rack", "r1")];
    node("node-0", &["10.0.3.7", "fd00::7"], &labels)
}

fn template(inlet_temp: Value) -> NodeTemplate {
    serde_json::from_value(json!({"metricsCollector": {"inletTemp": inlet_temp}})).expect("a template")
}

/// Renders the text as the name of a sensor, where nearly everything is valid.
fn sensor_of(text: &str, node: &NodeFact) -> Result<String, String> {
    let compiled = compile(&template(json!({"type": "Fake", "sensor": text}))).map_err(|error| error.to_string())?;
    let spec = render(&compiled, node).map_err(|error| error.to_string())?;
    let sensor = spec.metrics_collector.and_then(|collector| collector.inlet_temp).and_then(|term| term.sensor);
    Ok(sensor.expect("a sensor"))
}
