//! WorkloadAction: one decision about where replicas run, carried out once. This file contains the spec; the status is
//! in [`status`].

pub mod status;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::refs::{NodeSource, PodRef, SecretRef, Target, WorkloadRef};
use super::scalars::TIME_PATTERN;
pub use status::WorkloadActionStatus;

/// One decision about where replicas run. All fields except `suspend`, `abort`, `timeouts` and
/// `ttlSecondsAfterFinished` are immutable: create a new action for a new decision.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "WorkloadAction",
    plural = "workloadactions",
    shortname = "wa",
    category = "ganglion",
    namespaced,
    status = "WorkloadActionStatus",
    derive = "PartialEq",
    doc = "One decision about where replicas run: create, delete or move exactly those replicas, losing none. Carried out once.",
    selectable = ".spec.suspend",
    printcolumn(name = "Action", type_ = "string", json_path = ".status.summary.action"),
    printcolumn(name = "Workload", type_ = "string", json_path = ".status.summary.workload"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.summary.from"),
    printcolumn(name = "To", type_ = "string", json_path = ".status.summary.to"),
    printcolumn(name = "Done", type_ = "string", json_path = ".status.summary.done"),
    printcolumn(name = "Took", type_ = "string", json_path = ".status.summary.took"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.create), has(self.delete), has(self.move), has(self.swap), has(self.moveApplication)].filter(set, set).size() == 1").message("set exactly one of create, delete, move, swap, moveApplication"),
    validation = Rule::new("has(self.create) == has(oldSelf.create) && (!has(self.create) || self.create == oldSelf.create)").message("create is immutable; make a new WorkloadAction for a new decision"),
    validation = Rule::new("has(self.delete) == has(oldSelf.delete) && (!has(self.delete) || self.delete == oldSelf.delete)").message("delete is immutable; make a new WorkloadAction for a new decision"),
    validation = Rule::new("has(self.move) == has(oldSelf.move) && (!has(self.move) || self.move == oldSelf.move)").message("move is immutable; make a new WorkloadAction for a new decision"),
    validation = Rule::new("has(self.swap) == has(oldSelf.swap) && (!has(self.swap) || self.swap == oldSelf.swap)").message("swap is immutable; make a new WorkloadAction for a new decision"),
    validation = Rule::new("has(self.moveApplication) == has(oldSelf.moveApplication) && (!has(self.moveApplication) || self.moveApplication == oldSelf.moveApplication)").message("moveApplication is immutable; make a new WorkloadAction for a new decision"),
    validation = Rule::new("self.mode == oldSelf.mode").message("mode is immutable; make a new WorkloadAction with mode: Execute to carry out a plan"),
    validation = Rule::new("self.disruption == oldSelf.disruption && self.dataLoss == oldSelf.dataLoss && self.onReplicaOwner == oldSelf.onReplicaOwner && self.runPolicy == oldSelf.runPolicy && self.stableSeconds == oldSelf.stableSeconds && self.priority == oldSelf.priority").message("disruption, dataLoss, onReplicaOwner, runPolicy, stableSeconds and priority are immutable; make a new WorkloadAction instead"),
    validation = Rule::new("has(self.notAfter) == has(oldSelf.notAfter) && (!has(self.notAfter) || self.notAfter == oldSelf.notAfter)").message("notAfter is immutable; make a new WorkloadAction instead"),
    validation = Rule::new("has(self.gracePeriodSeconds) == has(oldSelf.gracePeriodSeconds) && (!has(self.gracePeriodSeconds) || self.gracePeriodSeconds == oldSelf.gracePeriodSeconds)").message("gracePeriodSeconds is immutable; make a new WorkloadAction instead"),
    validation = Rule::new("has(self.notify) == has(oldSelf.notify) && (!has(self.notify) || self.notify == oldSelf.notify)").message("notify is immutable; make a new WorkloadAction instead"),
)]
pub struct WorkloadActionSpec {
    /// Adds replicas on selected nodes and raises the workload's `spec.replicas`. Exactly one of create, delete, move,
    /// swap, moveApplication is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<Create>,
    /// Removes exactly the named or selected replicas and lowers the workload's `spec.replicas`. A StatefulSet
    /// can lose only the replicas with the highest ordinals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    /// Moves replicas to other nodes: the replacement pods are Ready on the target before the old pods are evicted. A
    /// move never writes `spec.replicas`. Replicas of a StatefulSet keep their names; they move one after the other,
    /// the old pod is evicted first, and `disruption: Allowed` is required.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub move_: Option<Move>,
    /// Replicas on two nodes exchange their nodes. If both nodes have room, no pod is evicted before all replacement
    /// pods are Ready. If one node has room, the replicas that move there go first. If neither has room,
    /// `disruption: Allowed` permits that the first replica is evicted before its replacement runs. Until the first
    /// eviction, a failure of one replica undoes the whole swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Moves all replicas of an application's workloads from some nodes to others, in waves: one move per workload, at
    /// most `maxParallel` replicas at once, and the new pods are Ready before the old ones are evicted. Each move is a
    /// WorkloadAction that this action owns. `status.application` contains the counts; `status.plan.pods` lists the
    /// pods that stay, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_application: Option<MoveApplication>,
    /// Execute: the action is carried out. Plan: `status.plan` is filled in, and nothing else is done. Default:
    /// Execute.
    #[serde(default)]
    pub mode: Mode,
    /// Never: the number of Ready replicas does not fall below `spec.replicas`. Allowed: if a replacement pod cannot be
    /// scheduled beside the old pod, the old pod is evicted first. PodDisruptionBudgets are respected in both cases. If
    /// the pods of a workload must not run side by side (a ReadWriteOnce or ReadWriteOncePod volume, or
    /// `strategy: Recreate`), its replicas move only with Allowed, without `to`, and off cordoned nodes. Default:
    /// Never.
    #[serde(default)]
    pub disruption: Disruption,
    /// Refuse: an action that would delete PersistentVolumeClaims with their data does nothing. Accept: it deletes
    /// them. Applies to a StatefulSet with `persistentVolumeClaimRetentionPolicy.whenScaled: Delete`: to `delete`, and
    /// to `create` if claims of the new replica exist already, which are deleted if the create is undone. The plan
    /// names the claims. Default: Refuse.
    #[serde(default)]
    pub data_loss: DataLoss,
    /// true: the action pauses at its next safe point; its timeouts do not run meanwhile, and its replicas count only
    /// for the limits of their namespace and workload. false: the action resumes. Default: false.
    #[serde(default)]
    pub suspend: bool,
    /// true: the action is undone if no pod has been evicted yet; after the first eviction, the action is completed.
    /// Default: false.
    #[serde(default)]
    pub abort: bool,
    /// Priority of admission within the namespace when limits do not allow all actions at once: higher first, then
    /// older, then by name; -1000 to 1000. Between namespaces, the one with the fewest replicas in progress is served
    /// first. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// Timeouts of the phases. Default: the defaults of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Seconds that a new replica must stay Ready before the old replica is evicted, 0 to 86400. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub stable_seconds: i32,
    /// Seconds that a pod gets to end after the action has evicted it, 0 to 86400. 0: the API server removes the pod at
    /// once, and its containers may run on for a moment, beside those of the next pod of that name in a StatefulSet.
    /// Replicas that a StatefulSet removes itself, when an action lowers its `spec.replicas`, get their own. Default:
    /// the pod's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub grace_period_seconds: Option<i32>,
    /// Behavior of create and delete if an autoscaler or a GitOps tool owns `spec.replicas`. Yield: the action ends as
    /// Stalled with reason ReplicasOwnedElsewhere. Force: the action writes `spec.replicas` anyway. Default: Yield.
    #[serde(default)]
    pub on_replica_owner: OnReplicaOwner,
    /// Receivers of a CloudEvent that is sent when the action has ended, at most 8. Their responses do not change the
    /// action's result; `status.notifications` and the condition Notified contain the outcome. An event is sent at
    /// once, and is retried up to nine times within about 20 minutes until the receiver accepts it. If the action is
    /// deleted in the meantime, there are no further attempts. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub notify: Option<Vec<Notify>>,
    /// Once: the same action (name and spec) runs once, even if it is deleted and applied again. OncePerObject: each
    /// new object runs. Auto: like OncePerObject if a person created the object (its first field manager is kubectl,
    /// and it has no labels or annotations of Argo CD, Flux, Helm, Fleet or a restore), otherwise like Once. Default:
    /// Auto.
    #[serde(default)]
    pub run_policy: RunPolicy,
    /// Time (RFC 3339) at which the action expires if it has not been admitted. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = TIME_PATTERN))]
    pub not_after: Option<Time>,
    /// Seconds from the end of the action to its deletion, 0 to 31536000. The deletion waits until each receiver of
    /// `notify` has accepted the event or no further attempt is made, at most about 20 minutes. Ignored, with condition
    /// TTLHonored=False, on objects with labels or annotations of Argo CD, Flux, Helm, Fleet, Config Sync or kapp,
    /// including the label app.kubernetes.io/instance. Default: the action is not deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// New replicas of a workload.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Create {
    /// The workload that gets more replicas.
    pub workload: WorkloadRef,
    /// Nodes that the new replicas run on.
    pub to: Target,
    /// Number of new replicas, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<i32>,
}

/// Replicas to remove: a pod by name, or a number of a workload's replicas on selected nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.workload) != has(self.pod)").message("set exactly one of workload, pod"),
    validation = Rule::new("!has(self.pod) || (!has(self.from) && !has(self.count))").message("pod names the one replica; from and count go with workload"),
    validation = Rule::new("!has(self.upTo) || (has(self.count) && self.count == 'All')").message("upTo goes with count: All"),
)]
pub struct Delete {
    /// The workload that gets fewer replicas. Exactly one of workload, pod is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRef>,
    /// The replica to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes from which replicas are removed; only with workload. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Number of replicas to remove, 1 to 100, or All: the replicas that match when the action begins, which may be
    /// none; only with workload. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<ReplicaCount>,
    /// Maximum number of replicas that `count: All` removes, 1 to 100. Without it, an action that finds more than 100
    /// replicas is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub up_to: Option<i32>,
}

/// Replicas to move: a pod by name, or a number of a workload's replicas on selected nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.workload) != has(self.pod)").message("set exactly one of workload, pod"),
    validation = Rule::new("!has(self.pod) || (!has(self.from) && !has(self.count))").message("pod names the one replica; from and count go with workload"),
    validation = Rule::new("!has(self.upTo) || (has(self.count) && self.count == 'All')").message("upTo goes with count: All"),
)]
pub struct Move {
    /// The workload whose replicas move. Exactly one of workload, pod is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRef>,
    /// The replica to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes that the replicas leave; only with workload. Default: any node that is not a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Nodes that the replicas move to. Default: any other node that can run them and does not match `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Number of replicas to move, 1 to 100, or All: the replicas that match when the action begins, which may be none;
    /// only with workload. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<ReplicaCount>,
    /// Maximum number of replicas that `count: All` moves, 1 to 100. Without it, an action that finds more than 100
    /// replicas is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub up_to: Option<i32>,
}

/// Replicas that exchange their nodes: one replica on one node, the others together on another node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    /// The replica on one side.
    pub replica: SwapSide,
    /// The replicas on the other side, 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub with: Vec<SwapSide>,
}

/// One side of a swap: a pod by name, or a workload's replica on a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.workload) != has(self.pod)").message("set exactly one of workload, pod"),
)]
pub struct SwapSide {
    /// The workload that the replica belongs to. Exactly one of workload, pod is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRef>,
    /// The replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes on which the replica runs; only with workload. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
}

/// An application: all workloads with certain labels. Their replicas move from some nodes to others.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MoveApplication {
    /// Labels that select the workloads in this namespace, 1 to 16, such as `app.kubernetes.io/part-of: shop`. A
    /// workload must have all of them.
    #[schemars(
        extend("minProperties" = 1, "maxProperties" = 16),
        extend("additionalProperties" = { "type": "string", "maxLength": 63 })
    )]
    pub selector: BTreeMap<String, String>,
    /// Nodes that the replicas leave.
    pub from: NodeSource,
    /// Nodes that the replicas move to, except nodes that match `from`. Default: any other node that can run them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Maximum number of replicas that move at once, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_parallel: Option<i32>,
    /// Maximum number of replicas of one workload that move at once, 1 to 100. Default: `maxParallel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_parallel_per_workload: Option<i32>,
    /// Names of the workloads that move first, in this order, at most 100. The others follow, ordered by uid. Default:
    /// all by uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    pub order: Option<Vec<String>>,
    /// Behavior if a replica cannot move. Stop: no further replica starts to move, and moves in progress are completed.
    /// Continue: all other replicas move. Rollback: like Stop, but moves in progress are undone if no pod has been
    /// evicted yet, and then the replicas that have moved are moved back, each to its original node if that has room,
    /// otherwise to another node that matches `from`. Default: Stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// Timeouts of the phases of an action.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Seconds that the action may wait for admission, 1 to 86400; also, without a target, for a node with room, and
    /// for the creation of a move of a moveApplication while the API server refuses it. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub queue_seconds: Option<i32>,
    /// Seconds within which a new replica must be scheduled, 1 to 86400. Default: 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub schedule_seconds: Option<i32>,
    /// Seconds within which a scheduled new replica must be Ready, 1 to 86400, not including `stableSeconds`. Default:
    /// 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub ready_seconds: Option<i32>,
    /// Seconds during which PodDisruptionBudgets may refuse the eviction of the old pod, and also the seconds that its
    /// termination may take beyond its grace period, 1 to 86400. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub drain_seconds: Option<i32>,
}

/// A receiver of the CloudEvent that reports the action's end.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Notify {
    /// http or https URL that a CloudEvents 1.0 request is sent to: POST, structured JSON. A 2xx status within 5
    /// seconds accepts the event. Redirects are not followed. Statuses below 500 other than 2xx, 408 and 429 are not
    /// retried. The event's `id` stays the same for all attempts.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// Secret in this namespace whose key `hmac` signs the request as defined by Standard Webhooks: HMAC-SHA256 of id,
    /// time and body in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`. If the value begins with
    /// `whsec_`, the rest is the key in base64; any other value is the key itself, without line breaks at its end. The
    /// event is not sent while the Secret cannot be read. The operator needs a RoleBinding to `ganglion-namespace`.
    /// Default: the request is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// See [`WorkloadActionSpec::mode`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Execute,
    Plan,
}

/// See [`WorkloadActionSpec::disruption`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disruption {
    #[default]
    Never,
    Allowed,
}

/// See [`WorkloadActionSpec::data_loss`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataLoss {
    #[default]
    Refuse,
    Accept,
}

/// See [`WorkloadActionSpec::on_replica_owner`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReplicaOwner {
    #[default]
    Yield,
    Force,
}

/// See [`WorkloadActionSpec::run_policy`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPolicy {
    #[default]
    Auto,
    Once,
    OncePerObject,
}

/// See [`MoveApplication::on_failure`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    #[default]
    Stop,
    Continue,
    Rollback,
}

/// Maximum number of replicas that one action changes. The status contains a slot for each of them, and must stay small
/// enough for etcd.
pub const MOST_REPLICAS: i32 = 100;

const ALL: &str = "All";

/// A number of replicas, or `All`: all replicas that exist when the action begins.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(try_from = "IntOrString", into = "IntOrString")]
pub enum ReplicaCount {
    Number(i32),
    All,
}

impl TryFrom<IntOrString> for ReplicaCount {
    type Error = String;

    fn try_from(count: IntOrString) -> Result<Self, Self::Error> {
        match count {
            IntOrString::Int(number) => Ok(Self::Number(number)),
            IntOrString::String(text) if text == ALL => Ok(Self::All),
            IntOrString::String(text) => Err(format!("count is a number or {ALL}, not \"{text}\"")),
        }
    }
}

impl From<ReplicaCount> for IntOrString {
    fn from(count: ReplicaCount) -> Self {
        match count {
            ReplicaCount::Number(number) => Self::Int(number),
            ReplicaCount::All => Self::String(ALL.to_owned()),
        }
    }
}

impl JsonSchema for ReplicaCount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ReplicaCount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 1, "maximum": MOST_REPLICAS, "maxLength": 3, "pattern": "^All$",
        })
    }
}
