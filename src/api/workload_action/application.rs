//! The progress of a moveApplication, in its status.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::reasons;

/// How far a moveApplication is. Counts and what is at work only: each move is a WorkloadAction with a status of its own.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationProgress {
    /// Number of workloads with replicas that move, or have moved.
    pub workloads: i64,
    /// Number of these whose replicas have all left.
    pub workloads_done: i64,
    /// Number of replicas that have moved.
    pub moved: i64,
    /// Number of replicas that are on their way.
    pub in_motion: i64,
    /// Number of replicas that are still to begin.
    pub left: i64,
    /// Number of replicas that could not move.
    pub failed: i64,
    /// Number of replicas that have moved back; only with `onFailure: Rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_back: Option<i64>,
    /// The moves that run, and those that failed; at most 50 of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["action".into()]))]
    pub moves: Vec<ApplicationMove>,
    /// true if `moves` does not list all. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One move of a moveApplication.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationMove {
    /// Name of its WorkloadAction.
    pub action: String,
    /// Kind and name of the workload, such as `Deployment/web`.
    pub workload: String,
    /// Replicas done of replicas that move, such as `1/3`; unset before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Reason of its condition Ready; unset before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// Why it waits or failed, as text, at most 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
