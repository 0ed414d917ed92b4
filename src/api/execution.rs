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

/// What a loop acts on, and as which account. Created and written by the closed-loop controller.
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
    /// The object to act on.
    pub target: TargetRef,
    /// Service account of this namespace that does the actions. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Begins nothing new; a claimed decision is finished. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why nothing may be begun although the loop is not paused: another loop has the target. Default: nothing.
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
    /// Number of the last decision that was handled. Unset until execution has seen this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// How far it has been carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExecutionState>,
    /// Why it ended as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// Since when it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The same in words: `scaled Deployment/web from 3 to 4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The value before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The intended value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The value observed at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
    /// What is being done; recorded before it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The result of the last change of a field, to notice when somebody reverts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// When changes of this loop were reverted, and by whom: the last three within ten minutes. Three stop the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub undone: Vec<Undone>,
}

/// A change that was made to a field.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Which field: `replicas`, or a path.
    pub dimension: String,
    /// The value before.
    pub before: String,
    /// The value after.
    pub after: String,
}

/// A change that was reverted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Undone {
    /// When it was noticed.
    pub at: MicroTime,
    /// The field manager that reverted it.
    pub by: String,
}

/// How far a decision has been carried out.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// No decision yet.
    Idle,
    /// The intent is recorded; the effect may have happened.
    Claimed,
    /// The effect is under way.
    Executing,
    /// It was done.
    Done,
    /// A min or max left nothing to do.
    Limited,
    /// It could not be done.
    Failed,
    /// Somebody else changed the target in between; nothing more is done.
    Overtaken,
    /// Whether it was done cannot be determined; it is not done again.
    Lost,
}

/// The intent, in absolute values, so that repeating it changes nothing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Number of the decision.
    pub seq: i64,
    /// When it was claimed.
    pub at: MicroTime,
    /// Its deadline.
    pub deadline: MicroTime,
    /// What is to be done.
    #[serde(rename = "do")]
    pub action: Rung,
    /// The intended state of the target.
    pub goal: Goal,
    /// Requests and limits when it was claimed, for resize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Quantities>,
    /// uid of the target when it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Generation of the target when it was claimed; a different one means that the target has been changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The pods to resize, those furthest from the goal first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<ClaimedPod>,
}

/// A pod to resize, as it was at the claim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedPod {
    /// Name of the pod.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation; a different one means that the pod has been changed since.
    pub generation: i64,
}

/// The intended state of the target. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Goal {
    /// Number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Quantity of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantities: Option<Quantities>,
    /// Value of the field, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Name of the WorkloadAction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_action: Option<String>,
    /// Id of the CloudEvent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The whole rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Option<Vec<String>>,
    /// A level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Number>,
}

/// Requests and limits of one resource of a container.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Quantities {
    /// The request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Number>,
    /// The limit, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Number>,
}
