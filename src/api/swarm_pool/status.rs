//! The status of a SwarmPool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a SwarmPool.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SwarmPoolStatus {
    /// The generation of the spec that this status describes; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: every job has a worker, and every worker works by its list. Reconciling: jobs are on their way. Stalled: somebody
    /// has to do something; the message says what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many pods the workload has; for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Label selector of these pods; for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub selector: Option<String>,
    /// Version of the last written file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// How many jobs there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i64>,
    /// How many jobs have changed, or will change, their worker because of the last change of jobs or workers. New jobs do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<i64>,
    /// When jobs were last dealt out differently, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<PoolChange>,
    /// How many workers work by their lists, of those that have jobs, such as `3/4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub converged: Option<String>,
    /// Jobs without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unassigned: Option<Unassigned>,
    /// The workers: those first that do not work by their lists. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub workers: Vec<PoolWorker>,
    /// true: there are more workers than `workers` has. The ConfigMaps with the label `ganglion.dev/swarm-pool` have all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Since when the pool has been waiting for a worker, or for workers that are not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
}

/// A change of who has which job.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolChange {
    /// When.
    pub at: Time,
    /// Version of the file with which it began.
    pub version: i64,
    /// What changed, such as `3 to 4 workers`.
    #[schemars(length(max = 256))]
    pub why: String,
}

/// Jobs without a worker.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Unassigned {
    /// How many.
    pub count: i64,
    /// Their names. At most 10.
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub names: Vec<String>,
}

/// A worker.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolWorker {
    /// Name of its pod.
    pub name: String,
    /// How many jobs it has been told to do.
    pub jobs: i64,
    /// Sum of their weights.
    pub weight: i64,
    /// Version of the file at which its jobs last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_version: Option<i64>,
    /// The newest version of its list that it reports to work by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<i64>,
    /// How far it is.
    pub state: PoolWorkerState,
}

/// See [`PoolWorker::state`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolWorkerState {
    /// Works by its list.
    Converged,
    /// Has not yet confirmed that it stopped jobs, which others wait for.
    Releasing,
    /// Has not yet read its list.
    #[default]
    Refreshing,
    /// Some of its jobs are still with other workers.
    Waiting,
    /// Its pod is not Ready, or not there.
    NotReady,
    /// Is to have no jobs, and has not yet released those that it had: `spec.drain` names it, or the workload has fewer replicas.
    Leaving,
    /// Is to have no jobs, and has none.
    Drained,
}
