//! Progress of a moveApplication, part of its status.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::reasons;

/// Progress of a moveApplication: only counts and the moves in progress. Each move is a WorkloadAction with its own
/// status.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationProgress {
    /// Number of workloads with replicas that must move, or have moved.
    pub workloads: i64,
    /// Number of these workloads whose replicas have all moved.
    pub workloads_done: i64,
    /// Number of replicas that have moved.
    pub moved: i64,
    /// Number of replicas that are moving.
    pub in_motion: i64,
    /// Number of replicas that still have to move.
    pub left: i64,
    /// Number of replicas that could not move.
    pub failed: i64,
    /// Number of replicas that have moved back; only with `onFailure: Rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_back: Option<i64>,
    /// Moves in progress, and failed moves; at most 50 of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["action".into()]))]
    pub moves: Vec<ApplicationMove>,
    /// true: `moves` does not list all moves. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One move of a moveApplication.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationMove {
    /// Name of the move's WorkloadAction.
    pub action: String,
    /// Kind and name of the workload, such as `Deployment/web`.
    pub workload: String,
    /// Moved replicas of all replicas of the move, such as `1/3`; unset before the move begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Reason of the WorkloadAction's condition Ready; unset before the move begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// Why the move waits or failed, at most 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
