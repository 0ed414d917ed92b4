//! Refresh of changed files, version reports of workers, and handover of jobs from one worker to another.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// previous worker's pod no longer exists. Immediate: a worker gets a job at once, so two workers may have the job
    /// for a moment. Default: Strict.
    #[serde(default)]
    pub policy: HandoverPolicy,
    /// Seconds without confirmation after which the pool reports the worker that it waits for. The pool continues to
    /// wait. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: Option<i32>,
    /// Manual confirmations for workers that do not confirm; each counts for one version only. At most 100. Default:
    /// none.
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
