//! Execution: the third hop of a loop. It carries out each decision at most once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::closed_loop::TargetRef;
use super::closed_loop::action::Rung;
use super::closed_loop::reasons::LoopReason;
use super::sample::Tag;
use super::scalars::Number;

/// Maximum number of pods that one decision resizes.
pub const CLAIMED_PODS: usize = 100;

/// The target of a loop, and the account that acts. Created and written by the closed-loop controller.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Execution",
    plural = "executions",
    shortname = "exe",
    namespaced,
    status = "ExecutionStatus",
    derive = "PartialEq",
    doc = "The third hop of a ClosedLoop: it carries out each decision at most once. Created by the operator.",
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
    /// Service account of this namespace that carries out actions. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Starts no further decision; a claimed one is finished. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why no decision may be started although the loop is not paused: another loop controls the target. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub blocked: Option<String>,
    /// Digest of the proposal that may be carried out, with mode: Approve. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub approve: Option<String>,
}

/// The result of the last decision. Only execution writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionStatus {
    /// The generation of the spec that this status describes; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: False if the last decision could not be carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The sample of the last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Number of the last handled decision. Unset until execution has seen this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// How far the decision has been carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExecutionState>,
    /// Why the decision ended with this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// When this state was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The result in words: `scaled Deployment/web from 3 to 4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The value before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The intended value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The value observed after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
    /// The change in progress, recorded before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The result of the last change of a field, to notice when somebody reverts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// Changes of this loop that were reverted within the last ten minutes, at most three. Three stop the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub undone: Vec<Undone>,
}

/// A change of a field.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// The field: `replicas`, or a path.
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
    /// When the revert was noticed.
    pub at: MicroTime,
    /// The field manager that reverted it.
    pub by: String,
}

/// How far a decision has been carried out.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// No decision yet.
    Idle,
    /// The intent is recorded; the change may have been made.
    Claimed,
    /// The change is in progress.
    Executing,
    /// The change was made.
    Done,
    /// The target was already at its min or max; nothing changed.
    Limited,
    /// The decision could not be carried out.
    Failed,
    /// Somebody else changed the target in the meantime; nothing more is changed.
    Overtaken,
    /// The outcome cannot be determined; the decision is not carried out again.
    Lost,
}

/// The intent, in absolute values, so that repeating it changes nothing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Number of the decision.
    pub seq: i64,
    /// When the decision was claimed.
    pub at: MicroTime,
    /// Deadline for the change.
    pub deadline: MicroTime,
    /// The action.
    #[serde(rename = "do")]
    pub action: Rung,
    /// The intended state of the target.
    pub goal: Goal,
    /// For resize: requests and limits at the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Quantities>,
    /// uid of the target at the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Generation of the target at the claim. A different one means that the target has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The pods to resize, the furthest from the goal first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<ClaimedPod>,
}

/// A pod to resize, in its state at the claim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedPod {
    /// Name of the pod.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation. A different one means that the pod has changed since.
    pub generation: i64,
}

/// The intended state of the target. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Goal {
    /// Number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Requests and limits.
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
    /// The complete rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Option<Vec<String>>,
    /// Value of a level.
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
