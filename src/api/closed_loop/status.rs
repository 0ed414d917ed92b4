//! Status of a ClosedLoop: what holds of its policy, who changed it, and how it is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::tunable::{TunedThreshold, Tuning};

/// Status of a ClosedLoop. Each writer has its own fields: `tuning` belongs to other loops, one entry each; everything else
/// to the closed-loop controller.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClosedLoopStatus {
    /// The generation of the spec that this status speaks of; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready always; Reconciling while children are being made; Stalled when the spec cannot work; Conflict where another
    /// loop or autoscaler has the same target; TimescaleOverlap where the loop is too fast for the one that it tunes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The loop in short, for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<LoopSummary>,
    /// The policy in effect, after tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Effective>,
    /// Changes made by other loops. At most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["by".into()]))]
    pub tuning: Vec<Tuning>,
}

/// The loop in short.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LoopSummary {
    /// Kind and name of the target, such as `Deployment/web`.
    pub target: String,
    /// The last decision in words, such as `React to cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<MicroTime>,
}

/// The policy in effect.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    /// The rank of all metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// The levels that differ from the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub thresholds: Vec<TunedThreshold>,
    /// When the first of the changes in effect expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<MicroTime>,
    /// Which changes were not accepted, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub refused: Vec<String>,
}
