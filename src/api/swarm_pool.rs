//! SwarmPool: jobs that are assigned to the pods of a workload. This file contains the
//! spec; status and reasons each have a file below.

pub mod reasons;
pub mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::refs::selector_schema;
use crate::workload_action::OnReplicaOwner;
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
    /// replicas. Default: the pool follows the workload. The operator then writes the workload's number here, for
    /// `kubectl scale`, autoscalers and loops; once one of these sets another number, the pool scales the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: Option<i32>,
    /// Behavior of `replicas` if a GitOps tool owns `spec.replicas` of the workload. Yield: the number is not written,
    /// and the pool reports ReplicasOwnedElsewhere. Force: it is written anyway, for tools that ignore changes of the
    /// field. It is never written beside an autoscaler. Default: Yield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_replica_owner: Option<OnReplicaOwner>,
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

    /// Name of the kind in URLs and roles.
    pub fn resource(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulsets",
            Self::Deployment => "deployments",
        }
    }
}

/// The jobs: inline jobs, and jobs from ConfigMaps. A job that is listed several times is one job, with the largest of
/// its weights; it is dedicated if any entry is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.inline) || has(self.configMaps)").message("set inline, configMaps or both"),
)]
pub struct Jobs {
    /// Inline jobs. At most 500; use ConfigMaps for more. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inline: Option<Vec<InlineJob>>,
    /// ConfigMaps with jobs. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_maps: Option<JobConfigMaps>,
}

/// A job.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InlineJob {
    /// Name of the job, as workers read it. At most 253 characters, without line breaks, and without blanks at the
    /// start or end.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^\\S([^\\x00-\\x1f\\x7f]*\\S)?$"))]
    pub name: String,
    /// Load of the job on its worker, 1 to 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<i32>,
    /// Dedicated: the job has a worker of its own if there are enough workers. Default: Shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<JobQos>,
}

/// See [`InlineJob::qos`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobQos {
    #[default]
    Shared,
    Dedicated,
}

/// ConfigMaps in the pool's namespace. Each key contains one job per line; or a YAML or JSON list whose items are names
/// or objects with name, weight and qos; or an object whose member `jobs` is such a list. The text is UTF-8, under
/// `data`; an empty text has no jobs. If a ConfigMap does not exist or cannot be read, jobs stay with their workers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.names) || has(self.selector)").message("set names, selector or both"),
)]
pub struct JobConfigMaps {
    /// Names of ConfigMaps. At most 100. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub names: Option<Vec<String>>,
    /// Selects ConfigMaps by labels. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "config_map_selector")]
    pub selector: Option<LabelSelector>,
}

fn config_map_selector(_: &mut SchemaGenerator) -> Schema {
    selector_schema("Selects ConfigMaps by labels. Default: none.", "ConfigMaps")
}

/// Assignment of jobs to workers. The numbers of jobs of two workers differ by at most one. If jobs have different
/// weights, the loads of two workers differ by at most the largest weight.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Stable: a change of workers or jobs moves as few jobs as possible. If jobs have different weights, a new pool of
    /// at most 10 jobs has the smallest possible maximum load. In other pools, the maximum load is at most a third
    /// above it: jobs move only if it would be more. Contiguous: each worker has a block of jobs that are adjacent by
    /// name, and the maximum load is the smallest that blocks can have. Default: Stable.
    #[serde(default)]
    pub strategy: AssignmentStrategy,
    /// Maximum number of jobs per worker. Jobs above the maximum stay unassigned until there are more workers. The
    /// maximum takes precedence over the balance of loads. Default: no maximum.
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

/// The ConfigMap that workers read. The pool creates and owns it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.key != 'handover.json'").message("key handover.json is reserved for the pool's own record; choose another key"),
)]
pub struct Output {
    /// Name of the ConfigMap. With the layout PerWorker, the prefix of the names, followed by `-` and the name of the
    /// pod. An existing object of that name that the pool does not own is not changed.
    #[schemars(length(min = 1, max = 180), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
    /// Key of the file. Default: config.yml.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
    /// Shared: one file for all workers. PerWorker: one ConfigMap per worker, for pools whose file would exceed the
    /// maximum size of a ConfigMap, 1 MiB. Default: Shared.
    #[serde(default)]
    pub layout: OutputLayout,
}

fn default_key() -> String {
    "config.yml".to_owned()
}

/// See [`Output::layout`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputLayout {
    #[default]
    Shared,
    PerWorker,
}

/// How a changed file reaches the workers. Only workers whose jobs changed are affected.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// Restart: the pod is evicted, which respects PodDisruptionBudgets, and its successor reads the file; not allowed
    /// for a Deployment. HotReload: the workers watch the file; the pod is annotated, so that its kubelet updates the
    /// volume at once. None: the file is written, and the operator does nothing else. Default: Restart.
    #[serde(default)]
    pub policy: RefreshPolicy,
    /// Maximum number of workers that may be unavailable because of restarts. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_unavailable: Option<i32>,
}

/// See [`Refresh::policy`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshPolicy {
    #[default]
    Restart,
    HotReload,
    None,
}

/// How workers report the version of the file that they use: its member `version`, or the `version` of their own entry.
/// A worker must not report a version before it has stopped the jobs that this version assigns to other workers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.probe) || self.source != 'Probe'").message("source Probe needs probe"),
    validation = Rule::new("!has(self.probe) || self.source == 'Probe'").message("probe is allowed only with source Probe"),
)]
pub struct VersionReport {
    /// Probe: the operator polls each worker over HTTP. Annotation: each worker writes the version to the annotation
    /// `ganglion.dev/observed-version` of its pod. Default: Probe.
    #[serde(default)]
    pub source: VersionSource,
    /// HTTP request to a worker. Required with source Probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<VersionProbe>,
}

/// See [`VersionReport::source`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionSource {
    #[default]
    Probe,
    Annotation,
}

/// HTTP request to the pod's address. The response is a JSON object with the number `version`. If it also contains the
/// list `jobs`, the version counts only if the worker has no jobs other than its own.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct VersionProbe {
    /// Path of the request. Default: /internal/version.
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^/[-A-Za-z0-9._~/%]*$"))]
    pub path: String,
    /// Port of the worker.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

fn default_path() -> String {
    "/internal/version".to_owned()
}

/// Handover of a job from one worker to another.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// Strict: a worker gets a job only after the previous worker has confirmed that it stopped the job, or the
    /// previous worker's pod no longer exists. A pod that is deleted by force (grace period 0) counts as stopped,
    /// although it may still run on a node that is cut off: delete it by force only if the node is off for certain.
    /// Immediate: a worker gets a job at once, so two workers may have the job for a moment. Default: Strict.
    #[serde(default)]
    pub policy: HandoverPolicy,
    /// Seconds without confirmation after which the pool reports the worker that it waits for. The time starts when the
    /// worker first has to confirm a change; later changes do not start it again. The pool continues to wait. Default:
    /// 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: Option<i32>,
    /// Manual confirmations for workers that do not confirm. Each counts for the jobs that its version, or an earlier
    /// one, removed from the worker, also after later changes. A version that the pool has not written yet does not
    /// count, and the pool skips it. At most 100. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["worker".into()]))]
    pub confirmed: Option<Vec<Confirmation>>,
}

/// See [`Handover::policy`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoverPolicy {
    #[default]
    Strict,
    Immediate,
}

/// A manual confirmation that a worker has stopped the jobs that a version assigns to other workers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Confirmation {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub worker: String,
    /// The version that the pool's condition names.
    #[schemars(range(min = 1))]
    pub version: i64,
}
