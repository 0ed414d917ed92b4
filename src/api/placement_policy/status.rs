//! The status of a PlacementPolicy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Status of a PlacementPolicy. It is written when something changes for the worse or the better, not with every value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicyStatus {
    /// The generation of the spec that this status describes; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: each agent has what it needs of at least one node. Reconciling: some agents know nothing of any node, and have no
    /// opinion until they do. Stalled: the policy has no opinion until somebody changes it. UsagePublished: the usage of nodes is
    /// written on them, or why not; only with `publishUsage`. MemorySaved: what the agents `reward` and `pigeon` have learned
    /// outlives the operator, or why not; only once they have learned something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The agents with their weights, such as `safe:5,pack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1200))]
    pub summary: Option<String>,
    /// How many nodes there are that take pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The agents, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<AgentStatus>,
    /// Namespace and name of the ConfigMap with what the agents `reward` and `pigeon` have learned; unset until it is saved there.
    /// The operator reads it when it starts, and writes it at most once a minute. A policy that is deleted and made anew begins
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub memory: Option<String>,
}

/// What an agent knows.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Name of the agent.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Of how many of the nodes the agent has what it needs. Counted once a minute, and when it gets or loses the last of them.
    pub nodes: i64,
    /// What the others lack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
