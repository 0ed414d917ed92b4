//! Execution: the third stage of a loop. It carries out each decision at most once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::closed_loop::TargetRef;
use super::closed_loop::action::{Resize, Rung};
use super::closed_loop::reasons::LoopReason;
use super::monitoring::Tag;
use super::scalars::Number;
use crate::identity::Uid;

/// Maximum number of pods that one decision resizes.
pub const CLAIMED_PODS: usize = 100;

/// Maximum number of reverted changes that are stored.
pub const UNDONE_LIMIT: usize = 24;

/// Maximum number of fields whose last change is stored.
pub const LAST_CHANGES_LIMIT: usize = 8;

/// Maximum number of resizes that are stored until it is known that no kubelet defers them.
pub const DEFERRED_LIMIT: usize = 8;

/// The target of a loop, and the service account that acts. Created and written by the closed-loop controller.
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
    doc = "The third stage of a ClosedLoop: it carries out each decision at most once. Created by the operator.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Decision", type_ = "integer", json_path = ".status.seq"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Measured", type_ = "string", json_path = ".status.tag.time"),
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
    /// true: no further decision is started, and a claimed one is not carried out any more. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why no decision may be started although the loop is not paused, such as another loop that controls the target.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub blocked: Option<String>,
    /// With mode: Approve, the digest of the approved proposal. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub approve: Option<String>,
}

/// The result of the last decision. Only the execution controller writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: always present. LastActionSucceeded: False if the last decision could not be carried out; not present
    /// before the first decision, and unchanged while one is being carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The sample of the last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Number of the last handled decision. Unset until the execution controller has observed this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// Progress of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExecutionState>,
    /// Reason for this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// When the decision entered this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The result as text: `scaled Deployment/web from 3 to 4`.
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
    /// The change in progress (the claim), recorded before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The last decision that was carried out, or may have been. Dwell, budgets, oscillation and settling count it;
    /// they do not count a decision that changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_out: Option<CarriedOut>,
    /// The last change of each field, stored to detect when another client reverts it. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub last_changes: Vec<LastChange>,
    /// Changes of this loop that other clients reverted, one after the other. After three of one field in a row, the
    /// loop stops. The row ends when a change stays for an hour, or until the loop wants the other direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 24))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub undone: Vec<Undone>,
    /// Resizes to larger resources that ended before all kubelets had carried them out, and those that were taken back
    /// within the last hour. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub deferred: Vec<DeferredResize>,
}

/// A resize that kubelets may have deferred. It is taken back if they still do after a time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeferredResize {
    /// Number of the decision.
    pub seq: i64,
    /// Progress.
    pub state: DeferralState,
    /// When the resize entered this state.
    pub at: MicroTime,
    /// The action.
    pub resize: Resize,
    /// The requests and limits that were sent.
    pub goal: Quantities,
    /// uids of the pods. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<Uid>,
    /// Description of the change back, with the report of a kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// Progress of a deferred resize.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferralState {
    /// A kubelet may still carry it out.
    Waiting,
    /// It is being taken back.
    TakingBack,
    /// It was taken back, and is not sent again for an hour.
    TakenBack,
}

/// A decision that was carried out, or may have been.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CarriedOut {
    /// Number of the decision.
    pub seq: i64,
    /// When it was carried out.
    pub at: MicroTime,
}

/// The last change of a field.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LastChange {
    /// The changed field: `replicas`, or a path.
    pub dimension: String,
    /// The value before.
    pub before: String,
    /// The value after.
    pub after: String,
    /// When the loop made the first change that no other client has reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
}

/// A change that was reverted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Undone {
    /// When the revert was detected.
    pub at: MicroTime,
    /// The field manager that reverted it.
    pub by: String,
    /// The reverted field: `replicas`, or a path.
    #[serde(default)]
    pub dimension: String,
}

/// Progress of a decision.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// No decision has been made yet.
    Idle,
    /// The intent is recorded; the change may have been made.
    Claimed,
    /// The change is in progress.
    Executing,
    /// The change was made.
    Done,
    /// Nothing changed: the target was already at its min or max, or there was no replica to move.
    Limited,
    /// The decision could not be carried out.
    Failed,
    /// Another client changed the target in the meantime; the loop changes nothing more.
    Overtaken,
    /// The outcome cannot be determined; the decision is not carried out again.
    Lost,
}

impl ExecutionState {
    /// Name in statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Claimed => "Claimed",
            Self::Executing => "Executing",
            Self::Done => "Done",
            Self::Limited => "Limited",
            Self::Failed => "Failed",
            Self::Overtaken => "Overtaken",
            Self::Lost => "Lost",
        }
    }
}

/// A claim: the intended change in absolute values, so that repeating it has no further effect.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Number of the decision.
    pub seq: i64,
    /// When the claim was recorded.
    pub at: MicroTime,
    /// Deadline for the change.
    pub deadline: MicroTime,
    /// The action.
    #[serde(rename = "do")]
    pub action: Rung,
    /// The intended state of the target.
    pub goal: Goal,
    /// For resize, the requests and limits at the time of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Quantities>,
    /// uid of the target at the time of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Generation of the target at the time of the claim. A different generation means that the target has changed
    /// since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Pods to resize, ordered by distance from the goal, largest first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<ClaimedPod>,
}

/// A pod to resize, as it was at the time of the claim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedPod {
    /// Name of the pod.
    pub name: String,
    /// uid of the pod.
    pub uid: Uid,
    /// Generation of the pod. A different generation means that the pod has changed since then.
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
    /// Value of the field as JSON.
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
