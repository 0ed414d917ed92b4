//! Tests of the conversions and of the handover.

mod handover;
mod hpa;
mod scaled_object;

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{ImportOptions, ImportedLoop, convert_hpa};

/// A HorizontalPodAutoscaler of the Deployment `web`, with these further fields of its spec.
fn hpa_object(fields: &Value) -> DynamicObject {
    let mut spec =
        json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 10});
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "uid": "h"}, "spec": spec,
    }))
    .unwrap()
}

/// The loop for such an autoscaler.
fn import(fields: &Value) -> ImportedLoop {
    convert_hpa(&hpa_object(fields), &ImportOptions::default()).unwrap()
}

/// Text of the refusal of such an autoscaler.
fn refused(fields: &Value) -> String {
    convert_hpa(&hpa_object(fields), &ImportOptions::default()).unwrap_err().to_string()
}

/// The rung of the action at this index.
fn scale(import: &ImportedLoop, index: usize) -> &Value {
    &import.manifest["actions"][index]["ladder"][0]["scale"]
}

fn resource(name: &str, target: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": name, "target": target}})
}

/// Whether one of these texts contains the words.
fn contains(texts: &[String], words: &str) -> bool {
    texts.iter().any(|text| text.contains(words))
}
