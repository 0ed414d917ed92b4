//! Status of a WorkloadAction: its plan, its progress and its result.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons;
use crate::targets::WorkloadRef;
use crate::workload_action::application::ApplicationProgress;
use crate::workload_action::notification::Notification;

/// The most entries that a list of the status has; a count and `truncated` say when there were more.
pub const LIST_LIMIT: usize = 100;

/// What the operator says about a WorkloadAction. Written by the workload-action controller alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadActionStatus {
    /// The generation of the spec that this status is about; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready always; Reconciling while the action runs; Stalled when it ended without success; TTLHonored=False when
    /// `ttlSecondsAfterFinished` is set and ignored; Notified when the action has ended and `notify` is set: True when each
    /// receiver has accepted the event, False when one was given up, Unknown before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The action in short, for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The chosen nodes and pods, and why the other candidates were not chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Number of replicas that `count: All` found; unset for other counts, and before the action begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The units of work, one for each replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub slots: Vec<Slot>,
    /// How far a moveApplication is; unset for other actions, and before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationProgress>,
    /// Name of the WorkloadActionReceipt that proves that this action ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// When the action began to wait for its admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// When the first slot was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the action was suspended; its timeouts do not run from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Time>,
    /// When the action ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The notifications of the action's end, one for each receiver of `spec.notify` and in that order. They change nothing
    /// else in this status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub notifications: Vec<Notification>,
}

/// The action in short.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Create, Delete, Move, Swap or MoveApplication.
    pub action: String,
    /// Kind and name of the workload or pod, such as `Deployment/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Nodes that the replicas leave: a node's name, or `N nodes`; before they are chosen, `from` of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Nodes that the replicas move to: a node's name, or `N nodes`; before they are chosen, `to` of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Replicas done of replicas requested, such as `1/3`.
    pub done: String,
    /// Time from the admission to the end, such as `2m13s`; unset before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<String>,
}

/// The chosen nodes and pods, with the other candidates.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What each replica would do; only with `mode: Plan`, since the slots of a running action say it. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub replicas: Vec<PlannedReplica>,
    /// The nodes considered as targets: the chosen first, then the other possible ones, then the refused. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<NodeChoice>,
    /// The pods considered as victims: the chosen first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<PodChoice>,
    /// Number of nodes considered.
    #[serde(default)]
    pub nodes_total: i64,
    /// Number of pods considered.
    #[serde(default)]
    pub pods_total: i64,
    /// true if `nodes` or `pods` was cut to 100 entries. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What one replica would do.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlannedReplica {
    /// The pod that leaves; unset for a new replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The node that it leaves; unset for a new replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node that the new pod runs on; unset for a replica that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// One node that was considered.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeChoice {
    /// Name of the node.
    pub name: String,
    /// Number of the action's replicas that the node gets.
    pub replicas: i32,
    /// Why the node was chosen or refused, as text.
    pub message: String,
    /// The reason of the refusal; unset if the node was not refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<reasons::Reason>,
}

/// One pod that was considered.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodChoice {
    /// Name of the pod.
    pub name: String,
    /// The node that the pod runs on; unset before it is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether the pod was chosen.
    pub chosen: bool,
    /// Why the pod was chosen or not, as text.
    pub message: String,
}

/// One unit of work: one replica that is created, deleted or moved.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Identity of the slot: a hash of the action's uid and the index. Every pod that the slot works on has it as
    /// annotation `ganglion.dev/slot`.
    pub id: String,
    /// Number of the slot in its action, from 0.
    pub index: i32,
    /// Number of retries so far.
    pub attempt: i32,
    /// The current step.
    pub step: Step,
    /// When the slot reached this step.
    pub since: Time,
    /// The workload: the Deployment, the StatefulSet, or a ReplicaSet that no Deployment owns.
    pub workload: WorkloadRef,
    /// The ReplicaSet, or StatefulSet, whose pods the slot works on.
    pub replica_set: SetRef,
    /// Key of the label that ties a pod to the ReplicaSet; empty for a StatefulSet.
    pub label: String,
    /// The pod that is evicted; unset for create. Of a StatefulSet, the uid is that of the last pod that had to go, and the node
    /// that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<PodOnNode>,
    /// The replacement pod; unset for delete, and while an old pod goes first that no other pod may run beside. Of a StatefulSet it
    /// has the name of the old one; while the slot is at work, each new pod of this name is bound to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<PodOnNode>,
    /// Nodes on which the replacement pod failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tried: Vec<String>,
    /// Whether `spec.replicas` of the workload was changed (create and delete). Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled: bool,
    /// Whether the old pod's eviction was requested; recorded before the request is sent. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicting: bool,
    /// Whether the old pod is evicted before the new one is Ready, as `disruption: Allowed` permits. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub break_first: bool,
    /// Why the slot waits, or why it ended without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// The reason as text, with advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Slot {
    /// Whether its replica is that of a StatefulSet.
    #[must_use]
    pub fn is_stateful(&self) -> bool {
        self.workload.kind == "StatefulSet"
    }
}

/// A ReplicaSet or StatefulSet.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SetRef {
    /// Name of the ReplicaSet or StatefulSet.
    pub name: String,
    /// uid of the ReplicaSet or StatefulSet.
    pub uid: String,
}

/// A pod and its node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodOnNode {
    /// Name of the pod.
    pub name: String,
    /// uid of the pod; unset before the pod exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The node that the pod runs on, or is to run on.
    pub node: String,
}

/// The step of a slot. Steps up to Adopted can be undone; after the first accepted eviction the slot is completed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    #[default]
    Queued,
    Planned,
    Creating,
    Scheduling,
    Readying,
    Detached,
    Marked,
    Scaled,
    Adopted,
    Evicting,
    Verifying,
    RollingBack,
    Succeeded,
    RolledBack,
    Failed,
    Aborted,
    Expired,
}

impl Step {
    /// Whether the slot has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Queued
            | Self::Planned
            | Self::Creating
            | Self::Scheduling
            | Self::Readying
            | Self::Detached
            | Self::Marked
            | Self::Scaled
            | Self::Adopted
            | Self::Evicting
            | Self::Verifying
            | Self::RollingBack => false,
            Self::Succeeded | Self::RolledBack | Self::Failed | Self::Aborted | Self::Expired => true,
        }
    }
}
