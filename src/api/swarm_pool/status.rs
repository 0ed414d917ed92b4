//! The status of a SwarmPool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a SwarmPool.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SwarmPoolStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: every job has a worker, and every worker uses its current job list. Reconciling: jobs are being moved.
    /// Stalled: the user has to act; the message says what to do. FollowsWorkload: False while the API server refuses
    /// to write the workload's replicas into a pool that follows it. SlotsRecorded: False while it refuses to annotate
    /// pods with their slots. SurplusDeleted: False while it refuses to delete ConfigMaps of workers that are gone.
    /// Jobs are handed over nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of pods of the workload, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Values of `spec.replicas` that the operator wrote, or is about to write, to show the replicas of the workload in
    /// a pool without replicas. While `spec.replicas` is one of them, the pool follows its workload. At most 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub followed: Vec<i32>,
    /// Label selector of these pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub selector: Option<String>,
    /// Version of the last written file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Number of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i64>,
    /// Number of jobs that have moved, or will move, to another worker because of the last change of jobs or workers.
    /// New jobs do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<i64>,
    /// When and why the assignment last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<PoolChange>,
    /// Number of workers that use their current job list, of the workers that have jobs, such as `3/4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub converged: Option<String>,
    /// Jobs without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unassigned: Option<Unassigned>,
    /// The workers; workers that do not use their current job list come first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub workers: Vec<PoolWorker>,
    /// true: `workers` does not list all workers. The ConfigMaps with the label `ganglion.dev/swarm-pool` list all of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Time since which the pool has been waiting for a worker, or for workers that are not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
}

/// A change of the assignment.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolChange {
    /// When the assignment changed.
    pub at: Time,
    /// First version of the file with this change.
    pub version: i64,
    /// Description of the change, such as `3 to 4 workers`.
    #[schemars(length(max = 256))]
    pub why: String,
}

/// Jobs without a worker.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Unassigned {
    /// Number of unassigned jobs.
    pub count: i64,
    /// Names of unassigned jobs. At most 10.
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub names: Vec<String>,
}

/// A worker.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolWorker {
    /// Name of the worker's pod.
    pub name: String,
    /// Number of jobs that are assigned to the worker.
    pub jobs: i64,
    /// Sum of the weights of these jobs.
    pub weight: i64,
    /// Version of the file in which the worker's jobs last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_version: Option<i64>,
    /// Newest version of its job list that the worker reports to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<i64>,
    /// State of the worker.
    pub state: PoolWorkerState,
}

/// See [`PoolWorker::state`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolWorkerState {
    /// Uses its current job list.
    Converged,
    /// Must still confirm that it stopped jobs that move to other workers.
    Releasing,
    /// Must still read its new job list.
    #[default]
    Refreshing,
    /// Waits for jobs that other workers have not released yet.
    Waiting,
    /// Its pod is not Ready or does not exist.
    NotReady,
    /// Gets no jobs, because `spec.drain` names it or the workload has fewer replicas; must still release its previous
    /// jobs.
    Leaving,
    /// Gets no jobs and holds none.
    Drained,
}

impl PoolWorkerState {
    /// Name in statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "Converged",
            Self::Releasing => "Releasing",
            Self::Refreshing => "Refreshing",
            Self::Waiting => "Waiting",
            Self::NotReady => "NotReady",
            Self::Leaving => "Leaving",
            Self::Drained => "Drained",
        }
    }
}
