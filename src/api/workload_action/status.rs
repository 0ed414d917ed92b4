//! Status of a WorkloadAction: its plan, its progress and its result.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::{NodeName, SlotId, Uid};
use crate::reasons;
use crate::refs::WorkloadRef;

/// Maximum number of entries in a list of the status; a count and `truncated` show if there were more.
pub const LIST_LIMIT: usize = 100;

/// Status of a WorkloadAction. Only the workload-action controller writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadActionStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: always present. Reconciling: the action is running. Finished=True: the action has ended, with or without
    /// success, and Ready says which. Stalled: the action ended without success. TTLHonored=False:
    /// `ttlSecondsAfterFinished` is set and ignored. Notified, once the action has ended and `notify` is set: True when
    /// each receiver has accepted the event, False when no further attempt is made for a receiver, Unknown until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Summary for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The selected nodes and pods, and why the other candidates were not selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Number of replicas that `count: All` found; unset for other counts, and before the action begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The slots: one unit of work for each replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub slots: Vec<Slot>,
    /// Progress of a moveApplication; unset for other actions, and before the action begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationProgress>,
    /// Name of the WorkloadActionReceipt that proves that this action ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// When the action began to wait for admission, or when the API server first refused the next move of a
    /// moveApplication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// When the first slot was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the action was suspended. Its timeouts do not run while it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Time>,
    /// When the action ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Notifications about the end of the action, one for each receiver of `spec.notify`, in the same order. They do
    /// not affect any other part of this status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub notifications: Vec<Notification>,
}

/// Summary of an action.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Create, Delete, Move, Swap or MoveApplication.
    pub action: String,
    /// Kind and name of the workload or pod, such as `Deployment/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Nodes that the replicas leave: the name of a node, or `N nodes`; before nodes are selected, `from` of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Nodes that the replicas move to: the name of a node, or `N nodes`; before nodes are selected, `to` of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Completed replicas of requested replicas, such as `1/3`.
    pub done: String,
    /// Time from admission to end, such as `2m13s`; unset before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<String>,
}

/// The selected nodes and pods, and the other candidates.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The planned change for each replica; only with `mode: Plan`, since the slots of a running action contain it. At
    /// most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub replicas: Vec<PlannedReplica>,
    /// Nodes that were considered as targets: selected nodes first, then other possible nodes, then rejected nodes. At
    /// most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<NodeChoice>,
    /// Pods that were considered as victims: selected pods first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<PodChoice>,
    /// Number of nodes considered.
    #[serde(default)]
    pub nodes_total: i64,
    /// Number of pods considered.
    #[serde(default)]
    pub pods_total: i64,
    /// true: `nodes` or `pods` was cut to 100 entries. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The planned change for one replica.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlannedReplica {
    /// The pod that leaves; unset for a new replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The node that the pod leaves; unset for a new replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
    /// The node that the new pod runs on; unset for a replica that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeName>,
}

/// One node that was considered.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeChoice {
    /// Name of the node.
    pub name: NodeName,
    /// Number of the action's replicas that are assigned to the node.
    pub replicas: i32,
    /// Why the node was selected or rejected.
    pub message: String,
    /// Reason of the rejection; unset if the node was not rejected.
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
    pub node: Option<NodeName>,
    /// true: the pod was selected.
    pub chosen: bool,
    /// Why the pod was selected or not.
    pub message: String,
}

/// One unit of work: a replica that is created, deleted or moved.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Identity of the slot: a hash of the action's uid and the slot's index. Each pod that the slot works on has it in
    /// the annotation `ganglion.dev/slot`.
    pub id: SlotId,
    /// Index of the slot in its action, from 0.
    pub index: i32,
    /// Number of retries so far.
    pub attempt: i32,
    /// How the replica is changed.
    #[serde(default, skip_serializing_if = "Protocol::is_default")]
    pub protocol: Protocol,
    /// The current step.
    pub step: Step,
    /// When the slot entered this step.
    pub since: Time,
    /// The workload: the Deployment, the StatefulSet, or a ReplicaSet that no Deployment owns.
    pub workload: WorkloadRef,
    /// The ReplicaSet or StatefulSet whose pods the slot works on.
    pub replica_set: SetRef,
    /// Key of the label by which the ReplicaSet selects the pod; empty for a StatefulSet.
    pub label: String,
    /// The pod that is evicted (the victim); unset for create. For a StatefulSet, the uid is that of the most recent
    /// pod to evict, and the node is that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<PodOnNode>,
    /// The replacement pod; unset for delete, and while the old pod must be evicted before another pod may run. If the
    /// ReplicaSet creates it, the name is empty until the slot succeeds. For a
    /// StatefulSet, it has the name of the old pod; while the slot is in progress, each new pod of this name is bound
    /// to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<PodOnNode>,
    /// Number of available pods of the ReplicaSet when the old pod was detached, those that are detached included, if
    /// the ReplicaSet creates the new pod.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub available: i32,
    /// true: the scheduler chooses the node of the new pod. Until the pod is bound, the node of `replacement` is one
    /// that had room for it. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
    /// Nodes on which the replacement pod failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tried: Vec<NodeName>,
    /// true: `spec.replicas` of the workload was changed (create and delete). Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled: bool,
    /// true: the eviction of the old pod was requested; recorded before the request is sent. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicting: bool,
    /// true: the old pod is evicted before the new one is Ready, as `disruption: Allowed` permits. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub break_first: bool,
    /// Why the slot waits, or why it ended without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// Why the changes of a slot that rolls back are not undone yet; `reason` is then the cause of the rollback. Unset
    /// if nothing keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<reasons::Reason>,
    /// Description of the reason and of the obstacle, with advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Slot {
    /// Whether the slot's replica belongs to a StatefulSet.
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
    pub uid: Uid,
}

/// How a replica is changed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The operator creates the new pod, and the ReplicaSet adopts it. Also for delete, which has no new pod.
    #[default]
    Replacement,
    /// The ReplicaSet creates the new pod in place of the old one, which is evicted when the new one is available.
    Successor,
    /// The old pod is evicted before its controller creates the new one.
    Eviction,
}

impl Protocol {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A pod and its node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodOnNode {
    /// Name of the pod.
    pub name: String,
    /// uid of the pod; unset before the pod exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The node on which the pod runs or will run.
    pub node: NodeName,
}

/// The step of a slot. Steps up to Adopted can be undone; after the first accepted eviction, the slot is completed.
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

impl From<Step> for reasons::Reason {
    fn from(step: Step) -> Self {
        match step {
            Step::Queued => Self::Queued,
            Step::Planned => Self::Planned,
            Step::Creating => Self::Creating,
            Step::Scheduling => Self::Scheduling,
            Step::Readying => Self::Readying,
            Step::Detached => Self::Detached,
            Step::Marked => Self::Marked,
            Step::Scaled => Self::Scaled,
            Step::Adopted => Self::Adopted,
            Step::Evicting => Self::Evicting,
            Step::Verifying => Self::Verifying,
            Step::RollingBack => Self::RollingBack,
            Step::Succeeded => Self::Succeeded,
            Step::RolledBack => Self::RolledBack,
            Step::Failed => Self::Failed,
            Step::Aborted => Self::Aborted,
            Step::Expired => Self::Expired,
        }
    }
}

/// Progress of a moveApplication: only counts and the moves in progress. Each move is a WorkloadAction with its own
/// status.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationProgress {
    /// Number of workloads with replicas that must move, or have moved.
    pub workloads: i64,
    /// Number of these workloads whose replicas have all moved.
    pub workloads_done: i64,
    /// Number of replicas that have moved.
    pub moved: i64,
    /// Number of replicas that are moving.
    pub in_motion: i64,
    /// Number of replicas that still have to move.
    pub left: i64,
    /// Number of replicas that could not move.
    pub failed: i64,
    /// Number of replicas that have moved back; only with `onFailure: Rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_back: Option<i64>,
    /// Moves in progress, and failed moves; at most 50 of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["action".into()]))]
    pub moves: Vec<ApplicationMove>,
    /// true: `moves` does not list all moves. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One move of a moveApplication.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationMove {
    /// Name of the move's WorkloadAction.
    pub action: String,
    /// Kind and name of the workload, such as `Deployment/web`.
    pub workload: String,
    /// Moved replicas of all replicas of the move, such as `1/3`; unset before the move begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Reason of the WorkloadAction's condition Ready; unset before the move begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// Why the move waits or failed, at most 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of the notification of one receiver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// URL of the receiver, without its query, at most 256 characters.
    pub url: String,
    /// Pending: the receiver has not accepted the event yet. Delivered: it has accepted the event. Failed: no further
    /// attempt is made.
    pub outcome: NotificationOutcome,
    /// Number of attempts so far, including attempts that could not be sent; at most 10.
    pub attempts: i32,
    /// When the last attempt ended; unset before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Time>,
    /// When the next attempt is made; unset before the first attempt, which is made at once, and after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// HTTP status of the last response; unset if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// See [`Notification::outcome`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotificationOutcome {
    #[default]
    Pending,
    Delivered,
    Failed,
}
