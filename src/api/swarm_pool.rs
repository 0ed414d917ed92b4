//! SwarmPool: jobs that are assigned to the pods of a workload. Members of the spec, the status and the reasons each
//! have a file below.

pub mod assignment;
pub mod handover;
pub mod jobs;
pub mod output;
pub mod reasons;
pub mod status;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use assignment::Assignment;
use handover::{Handover, Refresh, VersionReport};
use jobs::Jobs;
use output::Output;
pub use status::SwarmPoolStatus;

/// Assigns a list of jobs to the pods of a workload, so that each job has exactly one worker and a change of jobs or
/// workers moves few jobs. The workers read their jobs from a ConfigMap.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "SwarmPool",
    plural = "swarmpools",
    shortname = "swp",
    category = "ganglion",
    namespaced,
    status = "SwarmPoolStatus",
    derive = "PartialEq",
    doc = "Assigns a list of jobs to the pods of a workload, so that each job has exactly one worker and a change of jobs or workers moves few jobs. The workers read their jobs from a ConfigMap.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Workload", type_ = "string", json_path = ".spec.workload.name"),
    printcolumn(name = "Workers", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Jobs", type_ = "integer", json_path = ".status.jobs"),
    printcolumn(name = "Moved", type_ = "integer", json_path = ".status.moved"),
    printcolumn(name = "Converged", type_ = "string", json_path = ".status.converged"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".status.version", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.workload == oldSelf.workload").message("workload is immutable; create another SwarmPool for another workload"),
    validation = Rule::new("self.output == oldSelf.output").message("output is immutable; create another SwarmPool for another output"),
    validation = Rule::new("self.workload.kind != 'Deployment' || has(self.refresh) && self.refresh.policy != 'Restart'").message("refresh.policy must be HotReload or None for a Deployment: a restarted pod has a new name and would not find its jobs"),
    validation = Rule::new("has(self.version) || has(self.handover) && self.handover.policy == 'Immediate' || !has(self.refresh) || self.refresh.policy == 'Restart'").message("set version, so that workers report the version that they use, or handover.policy Immediate: without a report, the pool cannot detect when a worker has stopped a job"),
)]
pub struct SwarmPoolSpec {
    /// The workload whose pods are the workers.
    pub workload: PoolWorkload,
    /// Number of workers. It is written to the workload, unless an autoscaler or a GitOps tool owns the workload's
    /// replicas. Default: the pool uses the workload's number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: Option<i32>,
    /// The jobs.
    pub jobs: Jobs,
    /// Strategy for the assignment of jobs. Default: Stable, without a maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// The ConfigMap from which workers read their jobs.
    pub output: Output,
    /// How a changed file reaches the workers. Default: Restart, one worker at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Refresh>,
    /// How workers report the version of the file that they use. Default: they do not report; a restarted worker counts
    /// as having read the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionReport>,
    /// How a job moves from one worker to another. Default: Strict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Pod names of workers that get no jobs; their jobs move to other workers. At most 100. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub drain: Option<Vec<String>>,
    /// true: no jobs are assigned, no file is written and no worker is restarted; the workers continue with their
    /// current jobs. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// A workload in the pool's own namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct PoolWorkload {
    /// `apps/v1`.
    #[schemars(regex(pattern = "^apps/v1$"), length(max = 7))]
    pub api_version: String,
    /// Kind of the workload.
    pub kind: PoolWorkloadKind,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// See [`PoolWorkload::kind`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolWorkloadKind {
    /// Each pod is the worker with its ordinal.
    #[default]
    StatefulSet,
    /// Each Ready pod occupies a slot; when the pod is deleted, another pod takes over the slot with its jobs.
    Deployment,
}

impl PoolWorkloadKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StatefulSet => "StatefulSet",
            Self::Deployment => "Deployment",
        }
    }
}
