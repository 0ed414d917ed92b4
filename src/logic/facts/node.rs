//! Facts about nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::{Identity, Requests};
use crate::logic::quantity;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFact {
    pub id: Identity,
    pub labels: BTreeMap<String, String>,
    /// Its internal addresses, IPv4 and IPv6, in the order of its status.
    pub addresses: Vec<String>,
    pub ready: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    pub taints: Vec<Taint>,
    pub allocatable: Requests,
    /// Maximum number of pods.
    pub pod_capacity: i64,
    pub terminating: bool,
}

impl From<Node> for NodeFact {
    fn from(node: Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let size = |name: &str| status.and_then(|status| status.allocatable.as_ref()).and_then(|map| map.get(name));
        Self {
            id: (&node.metadata).into(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            addresses: status
                .and_then(|status| status.addresses.as_ref())
                .map(|all| all.iter().filter(|one| one.type_ == "InternalIP").map(|one| one.address.clone()).collect())
                .unwrap_or_default(),
            ready: status
                .and_then(|status| status.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True")),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: Requests {
                cpu: size("cpu").and_then(|text| quantity::cpu_millis(&text.0).ok()).unwrap_or(0),
                memory: size("memory").and_then(|text| quantity::bytes(&text.0).ok()).unwrap_or(0),
            },
            pod_capacity: size("pods").and_then(|text| quantity::bytes(&text.0).ok()).unwrap_or(0),
            terminating: node.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(version: &str, heartbeat: &str, addresses: Value) -> Node {
        let value = json!({
            "metadata": {"name": "n", "resourceVersion": version, "labels": {"kubernetes.io/hostname": "host"}},
            "status": {
                "addresses": addresses,
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
                "images": [{"names": [heartbeat], "sizeBytes": 1}],
            },
        });
        serde_json::from_value(value).expect("a node")
    }

    #[test]
    fn only_internal_addresses_are_kept_and_in_their_order() {
        let addresses = json!([
            {"type": "Hostname", "address": "host"},
            {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
        ]);
        let fact = NodeFact::from(node("1", "2026-11-23T00:00:00Z", addresses));
        assert_eq!(fact.addresses, ["fd00::1", "10.0.0.1"]);
    }

    #[test]
    fn a_heartbeat_changes_no_more_than_the_version() {
        let addresses = || json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        let before = NodeFact::from(node("1", "2026-11-23T00:00:00Z", addresses()));
        let mut after = NodeFact::from(node("2", "2026-11-23T00:00:10Z", addresses()));
        assert_ne!(before, after);
        after.id.version = "1".to_owned();
        assert_eq!(before, after);
    }
}
