//! The actions of a drain: names, labels and specs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{MoveKey, NewMove};
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::digest::digest;
use ganglion_core::facts::NodeName;

/// Seconds for which an action is kept after its end: one day.
const KEPT: i64 = 86_400;

/// Maximum length of a label value.
const LABEL: usize = 63;

/// Value of the label [`marks::DRAIN`]: the node's name, or a hash of a longer one.
pub fn label(node: &NodeName) -> String {
    let node = node.as_str();
    if node.len() <= LABEL { node.to_owned() } else { digest(&[node], 40) }
}

/// Manifest of the action for these replicas. `seed` distinguishes the runs of a drain, and its rounds.
pub fn manifest(new: &NewMove, queue_seconds: i64, seed: &str) -> Value {
    let asked = new.of;
    let mut change = json!({
        "workload": asked.workload, "from": {"nodeName": asked.node}, "count": "All",
    });
    if let Some(most) = new.up_to {
        change["upTo"] = json!(most);
    }
    let mut action = json!({
        "apiVersion": "ganglion.dev/v1alpha1",
        "kind": "WorkloadAction",
        "metadata": {
            "name": name(&asked.key(), seed),
            "namespace": asked.namespace,
            "labels": BTreeMap::from([(marks::DRAIN, label(&asked.node))]),
        },
        "spec": {
            "move": change,
            "disruption": if asked.disrupts() { "Allowed" } else { "Never" },
            "runPolicy": "OncePerObject",
            "timeouts": {"queueSeconds": queue_seconds},
            "ttlSecondsAfterFinished": KEPT,
        },
    });
    if let Some(seconds) = new.grace_seconds {
        action["spec"]["gracePeriodSeconds"] = json!(seconds);
    }
    action
}

fn name(key: &MoveKey, seed: &str) -> String {
    let MoveKey { namespace, kind, name, node } = key;
    let mut words = format!("drain-{node}-{name}");
    words.truncate(180);
    format!("{}-{}", words.trim_end_matches(['-', '.']), digest(&[namespace, kind, name, node.as_str(), seed], 8))
}

/// The workload and the node of an action of a drain; None for any other action.
pub fn key_of(action: &WorkloadAction) -> Option<MoveKey> {
    let change = action.spec.move_.as_ref()?;
    let (workload, node) = (change.workload.as_ref()?, change.from.as_ref()?.node_name.as_ref()?);
    Some(MoveKey::new(action.metadata.namespace.as_deref()?, workload, node))
}

/// Whether an operator has seen the action.
pub fn is_seen(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
}

/// Whether the action has not ended.
pub fn is_open(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_none_or(|status| status.finished_at.is_none())
}
