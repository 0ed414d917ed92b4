//! Status of a PlacementPolicy.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::labels::TypicalRequest;

/// Status of a PlacementPolicy. It is written when something changes for the better or the worse, not with every value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicyStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: the policy filters and scores nodes. Stalled: the policy has no effect until somebody changes it.
    /// DataAvailable: whether each agent has data about at least one node; others do not affect the result.
    /// UsagePublished: whether the usage of nodes is published as annotations; only with `publishUsage`. MemorySaved:
    /// whether the values that the agents `reward` and `pigeon` have learned are saved and survive restarts of the
    /// operator; only once they have learned something. LabelsCurrent: whether each node has the label of the policy;
    /// LabelsApplied: whether the API server adds terms that read the label to new pods; both only with the delivery
    /// `Labels`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The agents with their weights, such as `safe:5,pack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1200))]
    pub summary: Option<String>,
    /// Number of nodes that accept pods: they are Ready, not cordoned, not terminating, and have no taint of a node
    /// role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The agents, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<AgentStatus>,
    /// Namespace and name of the ConfigMap with the values that the agents `reward` and `pigeon` have learned; unset
    /// until they are saved. The operator reads it at start and writes it at most once a minute. A policy that is
    /// deleted and re-created starts without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub memory: Option<String>,
    /// The labels of nodes; only with the delivery `Labels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelStatus>,
    /// Time until which the labels are valid: `maxAge` after the operator has last compared all of them. It is renewed
    /// each third of `maxAge`. Pods that are created later get no terms that read the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Time>,
}

/// Labels of nodes. Updated with `validUntil`, and at once when all nodes have the label, or no longer do.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LabelStatus {
    /// Key of the label. Its values are 0 (worst) to 15 (best), and `rejected` with `rejections: Required`.
    #[schemars(length(max = 128))]
    pub key: String,
    /// Number of nodes with the label.
    pub nodes: i64,
    /// Time at which the oldest label was written. A label is written when it changes, so it may be old and right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
    /// Requests of the pod for which the agents answered.
    pub typical_request: TypicalRequest,
}

/// Data of an agent.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Name of the agent.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Number of nodes about which the agent has the data it needs. Updated once a minute, and at once when it becomes
    /// zero or all nodes, or no longer is.
    pub nodes: i64,
    /// Data that is missing for the other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
