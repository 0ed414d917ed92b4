//! Status of a WorkloadAction: what is intended, how far it is, and what came of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::reasons;
use crate::api::targets::WorkloadRef;

/// At most as many entries stand in a list of the status; a count and `truncated` say when there were more.
pub const LIST_LIMIT: usize = 100;

/// What the operator says about a WorkloadAction. Written by the workload-action controller alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadActionStatus {
    /// The generation of the spec that this status speaks of; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready always; Reconciling while it works; Stalled when it ended without success; TTLHonored where a ttl is asked
    /// for and cannot be kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The action in short, for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// What was chosen, and why the other candidates were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The units of work, one for each replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub slots: Vec<Slot>,
    /// Name of the WorkloadActionReceipt that proves that this action ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// Since when the action waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// When the first slot was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Since when the action's clocks stand still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Time>,
    /// When the action ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
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
    /// Node that the replicas leave: one node's name, or what was asked for until that is known, or `N nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Node that the replicas go to, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Replicas done of replicas asked for, such as `1/3`.
    pub done: String,
}

/// What was chosen.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The nodes looked at as targets: the chosen first, then the best refused. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<NodeChoice>,
    /// The pods looked at as victims: the chosen first. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<PodChoice>,
    /// How many nodes were looked at.
    #[serde(default)]
    pub nodes_total: i64,
    /// How many pods were looked at.
    #[serde(default)]
    pub pods_total: i64,
    /// Some nodes or pods are not listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One node that was looked at.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeChoice {
    /// Name of the node.
    pub name: String,
    /// How many of the action's replicas go there.
    pub replicas: i32,
    /// Why it was chosen or refused, in words.
    pub message: String,
    /// The reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<reasons::Reason>,
}

/// One pod that was looked at.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodChoice {
    /// Name of the pod.
    pub name: String,
    /// The node that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// It was chosen.
    pub chosen: bool,
    /// Why, in words.
    pub message: String,
}

/// One unit of work: one replica that comes, goes or moves.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Identity of the slot: a hash of the action's uid and the index. Every pod it works on bears it.
    pub id: String,
    /// Number of the slot in its action, from 0.
    pub index: i32,
    /// How often the slot was begun anew, from 0.
    pub attempt: i32,
    /// How far it is.
    pub step: Step,
    /// Since when it is at this step.
    pub since: Time,
    /// The workload as the user knows it.
    pub workload: WorkloadRef,
    /// The ReplicaSet whose pods are concerned.
    pub replica_set: SetRef,
    /// Key of the label that ties a pod to the ReplicaSet.
    pub label: String,
    /// The pod that goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<PodOnNode>,
    /// The pod that comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<PodOnNode>,
    /// Nodes that were tried and failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tried: Vec<String>,
    /// The change of the workload's replicas is done (create and delete).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled: bool,
    /// The old pod's eviction is due: it may have been sent. Recorded before it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicting: bool,
    /// disruption: Allowed; the old pod goes before the new one is Ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub break_first: bool,
    /// Why it waits, or ended as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<reasons::Reason>,
    /// The same in words, with what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A ReplicaSet.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SetRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A pod and its node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodOnNode {
    /// Name of the pod.
    pub name: String,
    /// uid of the pod, as soon as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The node that it runs on, or is to run on.
    pub node: String,
}

/// How far a slot is. Steps up to Adopted can be undone; from the first accepted eviction on it is carried through.
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
    /// The slot's work is over.
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
