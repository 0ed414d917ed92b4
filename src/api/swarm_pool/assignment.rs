//! How jobs are dealt out.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How jobs are dealt out. Workers differ by one job at most; where jobs have weights, by the largest weight.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Stable: a change of workers or jobs moves as few jobs as possible. Contiguous: each worker has a block of jobs that are
    /// next to each other by name. Default: Stable.
    #[serde(default)]
    pub strategy: AssignmentStrategy,
    /// How many jobs a worker may have. Jobs that are left over have no worker until there are more workers. Default: any number.
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
