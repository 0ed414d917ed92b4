//! Execution: the third hop of a loop. One decision comes in and is carried out, once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::closed_loop::TargetRef;
use super::closed_loop::action::Rung;
use super::closed_loop::reasons::LoopReason;
use super::sample::Tag;
use super::scalars::Number;

/// At most as many pods are resized by one decision.
pub const CLAIMED_PODS: usize = 100;

/// On what a loop acts, and as whom. Made and written by the closed-loop controller.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Execution",
    plural = "executions",
    shortname = "exe",
    category = "ganglion",
    namespaced,
    status = "ExecutionStatus",
    derive = "PartialEq",
    doc = "The third hop of a ClosedLoop: one decision comes in and is carried out, once. Made by the operator.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Decision", type_ = "integer", json_path = ".status.seq"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".status.tag.time"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionSpec {
    /// What is acted on.
    pub target: TargetRef,
    /// Account of this namespace as which actions are done. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Nothing is begun; what was claimed is brought to its end. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why nothing may be begun though the loop is not paused: another one has the target. Default: nothing is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub blocked: Option<String>,
    /// Number of the proposal that may be carried out. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<i64>,
}

/// What was done. Written by execution alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionStatus {
    /// The generation of the spec that this status speaks of; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: False where the last decision could not be carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The sample that the last decision was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Number of the last decision that was taken up. Unset until execution has seen this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExecutionState>,
    /// Why it ended as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The same in words: `scaled Deployment/web from 3 to 4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The value before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value that was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The value that was seen at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
    /// What is being done: recorded before it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// What the last change of a field left behind, to notice that somebody takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// When changes of this loop were taken back, and by whom: the last three within ten minutes. Three stop the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub undone: Vec<Undone>,
}

/// A change of a field that was done.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Of what: `replicas`, or the path of a field.
    pub dimension: String,
    /// The value before.
    pub before: String,
    /// The value after.
    pub after: String,
}

/// A change that was taken back.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Undone {
    /// When it was noticed.
    pub at: MicroTime,
    /// The field manager that took it back.
    pub by: String,
}

/// How far a decision is carried out.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// Nothing was to be done yet.
    Idle,
    /// It is recorded what will be done; it may have been done.
    Claimed,
    /// Its effect is under way.
    Executing,
    /// It was done.
    Done,
    /// A min or max left nothing to do.
    Limited,
    /// It could not be done.
    Failed,
    /// The target was changed by another in between; nothing more is done.
    Overtaken,
    /// Whether it was done cannot be known; it is not done again.
    Lost,
}

/// What is about to be done, in absolute values, so that doing it again changes nothing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Number of the decision.
    pub seq: i64,
    /// When it was claimed.
    pub at: MicroTime,
    /// Until when it must have ended.
    pub deadline: MicroTime,
    /// What is to be done.
    #[serde(rename = "do")]
    pub action: Rung,
    /// What the target is to be.
    pub goal: Goal,
    /// Requests and limits when it was claimed, for resize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Quantities>,
    /// uid of the target when it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Generation of the target when it was claimed: another one means that somebody has changed it since, we or others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The pods that are resized, the furthest behind first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<ClaimedPod>,
}

/// A pod that is resized, as it was when that was claimed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedPod {
    /// Name of the pod.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation: another one means that somebody has changed it since, we or others.
    pub generation: i64,
}

/// What the target is to be. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Goal {
    /// So many replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// So much of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantities: Option<Quantities>,
    /// This value, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A WorkloadAction of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_action: Option<String>,
    /// A CloudEvent of this id was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// This rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Option<Vec<String>>,
    /// This level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Number>,
}

/// Requests and limits of one resource of a container.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Quantities {
    /// What is requested, where there is a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Number>,
    /// What it is limited to, where there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Number>,
}
