//! Actions of the tests, as a user would write them.

use serde_json::{Value, json};

/// Manifest of a WorkloadAction with this spec.
pub fn action(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Reference to a Deployment.
pub fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

/// Reference to a ReplicaSet.
pub fn replica_set(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name})
}

/// Moves this pod to this node.
pub fn move_pod(pod: &str, node: &str) -> Value {
    json!({"move": {"pod": {"name": pod}, "to": {"nodeName": node}}})
}

/// Deletes this pod, and one replica with it.
pub fn delete_pod(pod: &str) -> Value {
    json!({"delete": {"pod": {"name": pod}}})
}

/// Adds a replica of this Deployment on this node.
pub fn create_on(name: &str, node: &str) -> Value {
    json!({"create": {"workload": deployment(name), "to": {"nodeName": node}}})
}

/// The same spec with additional members.
pub fn with(mut spec: Value, members: Value) -> Value {
    if let Value::Object(members) = members {
        for (key, value) in members {
            spec[key] = value;
        }
    }
    spec
}
