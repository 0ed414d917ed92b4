//! How workers get to read a changed file, how they report it, and how a job moves from one worker to another.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How workers get to read a changed file. Only workers whose jobs changed are touched.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// Restart: the pod is evicted, so that PodDisruptionBudgets hold, and its successor reads the file; not for a Deployment.
    /// HotReload: the workers watch the file; the pod is annotated, so that its kubelet updates the volume at once. None: the
    /// file is written, and nothing else is done. Default: Restart.
    #[serde(default)]
    pub policy: RefreshPolicy,
    /// How many workers may be unavailable because of restarts. Default: 1.
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

/// How workers report the version of the file that they work by: its member `version`, or the `version` of their own entry. A
/// worker must not report a version before it has stopped the jobs that this version takes away.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.probe) || self.source != 'Probe'").message("source Probe needs probe"),
    validation = Rule::new("!has(self.probe) || self.source == 'Probe'").message("probe is for source Probe"),
)]
pub struct VersionReport {
    /// Probe: the operator asks each worker over HTTP. Annotation: each worker writes the version to the annotation
    /// `ganglion.dev/observed-version` of its pod. Default: Probe.
    #[serde(default)]
    pub source: VersionSource,
    /// How a worker is asked.
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

/// A request to the pod's address. The answer is a JSON object with the number `version`. If it also has the list `jobs`, a
/// worker counts only if it has no job but its own.
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

/// How a job moves from one worker to another.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// Strict: a worker gets a job only after the one that had it has confirmed that it stopped, or its pod is gone. Immediate: at
    /// once, so that two workers may have the job for a moment. Default: Strict.
    #[serde(default)]
    pub policy: HandoverPolicy,
    /// After how many seconds without confirmation the pool says which worker it waits for. It goes on waiting. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: Option<i32>,
    /// Confirmations by hand, for workers that do not confirm: each counts for this version only. At most 100. Default: none.
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

/// Somebody knows that a worker has stopped what a version takes from it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Confirmation {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub worker: String,
    /// The version, as the pool's condition names it.
    #[schemars(range(min = 1))]
    pub version: i64,
}
