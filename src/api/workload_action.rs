//! WorkloadAction: one decision about where replicas run, carried out once. Spec only; the status is in [`status`].

pub mod application;
pub mod count;
pub mod notification;
pub mod status;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refs::SecretRef;
use super::scalars::TIME_PATTERN;
use super::targets::{NodeSource, PodRef, Target, WorkloadRef};
pub use count::ReplicaCount;
pub use status::WorkloadActionStatus;

/// One decision about where replicas run. Everything but `suspend`, `abort`, `timeouts` and `ttlSecondsAfterFinished`
/// is immutable: make a new action for a new decision.
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
    validation = Rule::new("self.disruption == oldSelf.disruption && self.onReplicaOwner == oldSelf.onReplicaOwner && self.runPolicy == oldSelf.runPolicy && self.stableSeconds == oldSelf.stableSeconds && self.priority == oldSelf.priority").message("disruption, onReplicaOwner, runPolicy, stableSeconds and priority are immutable; make a new WorkloadAction instead"),
    validation = Rule::new("has(self.notAfter) == has(oldSelf.notAfter) && (!has(self.notAfter) || self.notAfter == oldSelf.notAfter)").message("notAfter is immutable; make a new WorkloadAction instead"),
    validation = Rule::new("has(self.notify) == has(oldSelf.notify) && (!has(self.notify) || self.notify == oldSelf.notify)").message("notify is immutable; make a new WorkloadAction instead"),
)]
pub struct WorkloadActionSpec {
    /// More replicas, on chosen nodes: raises the workload's `spec.replicas`. Exactly one of create, delete, move,
    /// swap, moveApplication is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<Create>,
    /// Fewer replicas, exactly the named or chosen ones: lowers the workload's `spec.replicas`. Of a StatefulSet only those with the
    /// highest ordinals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    /// Replicas move to other nodes: the replacement pods are Ready on the target before the old pods are evicted.
    /// Never writes `spec.replicas`. Replicas of a StatefulSet keep their names: they move one after the other, the old pod first,
    /// and need `disruption: Allowed`.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub move_: Option<Move>,
    /// Replicas on two nodes exchange their nodes. With room on both, nobody is evicted before all replacement pods are Ready; with
    /// room on one, that side goes first; without, `disruption: Allowed` lets the first replica be evicted before its replacement
    /// runs. Until the first eviction, a failure of one undoes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Moves every replica of the workloads of an application from some nodes to others, in waves: one move of each workload, at
    /// most `maxParallel` replicas at once, the new pods Ready before the old ones go. The moves are WorkloadActions that belong to
    /// this one. `status.application` counts; `status.plan.pods` lists what stays, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_application: Option<MoveApplication>,
    /// Execute carries the action out; Plan fills `status.plan` and stops without any effect. Default: Execute.
    #[serde(default)]
    pub mode: Mode,
    /// Never: the number of Ready replicas does not fall below `spec.replicas`. Allowed: if a replacement pod cannot be
    /// scheduled beside the old pod, the old pod is evicted first. Disruption budgets hold either way. Of a workload whose pods
    /// must not run side by side (a volume that is ReadWriteOnce or ReadWriteOncePod, or `strategy: Recreate`), replicas move with
    /// Allowed only, without `to`, and off cordoned nodes. Default: Never.
    #[serde(default)]
    pub disruption: Disruption,
    /// true pauses the action at its next safe point; its timeouts do not run meanwhile, and its replicas count only for the
    /// limits of their namespace and workload. false resumes it. Default: false.
    #[serde(default)]
    pub suspend: bool,
    /// true undoes the action if no pod was evicted yet; after the first eviction the action is completed. Default:
    /// false.
    #[serde(default)]
    pub abort: bool,
    /// Order of admission within the namespace when limits do not allow all actions at once: higher first, then older,
    /// then by name; -1000 to 1000. Between namespaces, turns go to the one with the fewest replicas at work. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// How long each phase may take. Default: the defaults of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Seconds that a new replica must stay Ready before the old one is evicted, 0 to 86400. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub stable_seconds: i32,
    /// What create and delete do if an autoscaler or a GitOps tool owns `spec.replicas`: Yield ends the action as
    /// Stalled with reason ReplicasOwnedElsewhere, Force writes `spec.replicas` anyway. Default: Yield.
    #[serde(default)]
    pub on_replica_owner: OnReplicaOwner,
    /// Receivers of a CloudEvent when the action has ended, at most 8. Their answers change nothing of the action's result:
    /// `status.notifications` and the condition Notified have the outcome. An event is sent at once, and up to nine more times
    /// within about 20 minutes until the receiver has accepted it. An action that is deleted in the meantime is not notified
    /// again. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub notify: Option<Vec<Notify>>,
    /// Once: the same action (name and spec) runs once, even if it is deleted and applied again. OncePerObject: each
    /// new object runs. Auto: as OncePerObject for an object that a person made by hand (its first field manager is
    /// kubectl, and it has no mark of Argo CD, Flux, Helm, Fleet or a restore), else as Once. Default: Auto.
    #[serde(default)]
    pub run_policy: RunPolicy,
    /// An action that was not admitted by this time (RFC 3339) expires. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = TIME_PATTERN))]
    pub not_after: Option<Time>,
    /// Seconds from the action's end to its deletion, 0 to 31536000; the deletion waits until each receiver of `notify` has
    /// accepted the event or was given up, which is within about 20 minutes. Ignored, with condition TTLHonored=False, on
    /// objects with labels or annotations of Argo CD, Flux, Helm, Fleet, Config Sync or kapp, the label
    /// app.kubernetes.io/instance included. Default: the action is not deleted.
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

/// Replicas to remove: a pod by name, or a number of a workload's replicas, from chosen nodes.
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
    /// The one replica to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes that the replicas are removed from; only with workload. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Number of replicas to remove, 1 to 100, or All: those that match when the action begins, which may be none; only with
    /// workload. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<ReplicaCount>,
    /// The most replicas that `count: All` removes, 1 to 100; without it, an action that finds more than 100 is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub up_to: Option<i32>,
}

/// Replicas to move: a pod by name, or a number of a workload's replicas, from chosen nodes.
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
    /// The one replica to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes that the replicas leave; only with workload. Default: any node that is not a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Nodes that the replicas move to. Default: any other node that can take them and does not match `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Number of replicas to move, 1 to 100, or All: those that match when the action begins, which may be none; only with
    /// workload. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<ReplicaCount>,
    /// The most replicas that `count: All` moves, 1 to 100; without it, an action that finds more than 100 is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub up_to: Option<i32>,
}

/// Replicas that exchange their nodes: one on one node, the others together on another.
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
    /// The replica itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Nodes that the replica is on; only with workload. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
}

/// An application: all workloads with some labels, whose replicas leave some nodes and run on others.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MoveApplication {
    /// The workloads of this namespace that have all these labels, 1 to 16, such as `app.kubernetes.io/part-of: shop`.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub selector: BTreeMap<String, String>,
    /// Nodes that the replicas leave.
    pub from: NodeSource,
    /// Nodes that the replicas move to, those that match `from` excepted. Default: any other node that can take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Number of replicas that move at once, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_parallel: Option<i32>,
    /// Number of replicas of one workload that move at once, 1 to 100. Default: as many as `maxParallel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_parallel_per_workload: Option<i32>,
    /// Names of the workloads that begin first, in this order, at most 100. The others follow by uid. Default: all by uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    pub order: Option<Vec<String>>,
    /// What follows if a replica cannot move. Stop: no other replica begins, those on their way are completed. Continue: all others
    /// move. Rollback: as Stop, but those on their way are undone where no pod was evicted yet, and then the replicas that have
    /// moved go back, each to its own node if it has room, else to another one that matches `from`. Default: Stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// How long each phase of an action may take.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Seconds that the action may wait for its admission, 1 to 86400. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub queue_seconds: Option<i32>,
    /// Seconds within which a new replica must be scheduled, 1 to 86400. Default: 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub schedule_seconds: Option<i32>,
    /// Seconds within which a scheduled new replica must be Ready, 1 to 86400, `stableSeconds` not included. Default:
    /// 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub ready_seconds: Option<i32>,
    /// Seconds that disruption budgets may refuse the old pod's eviction, and seconds that its termination may take
    /// beyond its grace period, 1 to 86400. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub drain_seconds: Option<i32>,
}

/// A receiver of the CloudEvent that reports the action's end.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Notify {
    /// http or https URL that a CloudEvents 1.0 request is sent to: POST, structured JSON. A status 2xx within 5 seconds
    /// accepts the event; redirects are not followed, and other statuses below 500 than 408 and 429 are not tried again.
    /// The event's `id` stays the same when it is sent again.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// Secret of this namespace whose key `hmac` signs the request as Standard Webhooks has it: HMAC-SHA256 of id, time and
    /// body in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`. A value that begins with `whsec_` is the
    /// key in base64 after it, any other is the key itself, without line ends at the end of a text. The event is not sent while
    /// the Secret cannot be read. The operator needs a RoleBinding to `ganglion-namespace`. Default: unsigned.
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
