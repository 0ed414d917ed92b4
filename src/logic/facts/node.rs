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
