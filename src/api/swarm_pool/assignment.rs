//! Assignment of jobs to workers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Assignment of jobs to workers. The numbers of jobs of two workers differ by at most one; if jobs have weights, their
/// loads differ by at most the largest weight.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Stable: a change of workers or jobs moves as few jobs as possible. Contiguous: each worker has a block of jobs
    /// that are adjacent by name. Default: Stable.
    #[serde(default)]
    pub strategy: AssignmentStrategy,
    /// Maximum number of jobs per worker. Jobs above the maximum stay unassigned until there are more workers. Default:
    /// no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub max_jobs_per_worker: Option<i32>,
}

/// See [`Assignment::strategy`].
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AssignmentStrategy {
    #[default]
    Stable,
    Contiguous,
}
