//! The actions of a drain: their names, their labels and what they ask for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{MoveKey, NewMove};
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::digest::digest;

/// How long an action is kept after its end, in seconds: a day.
const KEPT: i64 = 86_400;

/// The longest label value.
const LABEL: usize = 63;

/// Value of the label [`marks::DRAIN`]: the node's name, or a hash of a longer one.
#[must_use]
pub fn label(node: &str) -> String {
    if node.len() <= LABEL { node.to_owned() } else { digest(&[node], 40) }
}

/// The manifest of the action for these replicas. `seed` tells the runs of a drain apart, and its rounds.
#[must_use]
pub fn manifest(new: &NewMove, queue_seconds: i64, seed: &str) -> Value {
    let asked = new.of;
    let mut change = json!({
        "workload": asked.workload, "from": {"nodeName": asked.node}, "count": "All",
    });
    if let Some(most) = new.up_to {
        change["upTo"] = json!(most);
    }
    json!({
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
    })
}

fn name(key: &MoveKey, seed: &str) -> String {
    let MoveKey { namespace, kind, name, node } = key;
    let mut words = format!("drain-{node}-{name}");
    words.truncate(180);
    format!("{}-{}", words.trim_end_matches(['-', '.']), digest(&[namespace, kind, name, node, seed], 8))
}

/// What an action of a drain moves; None for any other action.
#[must_use]
pub fn key_of(action: &WorkloadAction) -> Option<MoveKey> {
    let change = action.spec.move_.as_ref()?;
    let (workload, node) = (change.workload.as_ref()?, change.from.as_ref()?.node_name.as_ref()?);
    Some(MoveKey::new(action.metadata.namespace.as_deref()?, workload, node))
}

/// Whether it has not ended.
#[must_use]
pub fn is_open(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_none_or(|status| status.finished_at.is_none())
}
