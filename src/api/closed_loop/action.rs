//! The action for an alarm: a ladder of alternatives (rungs) that are tried in order.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric::ResourceName;
use super::policy::Window;
use super::rules;
use super::track::{DirectionPace, ScheduledBounds, Track, TrackForecast};
use super::when::When;
use crate::refs::{Auth, CaRef, NodeSource, RequestHeader, Target};
use crate::scalars::{DurationText, Number};
use crate::workload_action::{Disruption, OnReplicaOwner};

/// Stands for the resources at pod level where others name a container.
pub const POD_LEVEL: &str = "Pod";

/// The action for one alarm, or for a combination of alarms.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::missing_lowers_nothing(),
    validation = rules::tracking_has_one_rung(),
)]
pub struct LoopAction {
    // Not `on`, which is `true` in YAML 1.1, and so for kubectl.
    /// The alarm that the action is for, or a combination of alarms.
    pub when: When,
    /// Time until the effect of an action can be judged, such as `2m`. Until then, this alarm triggers no other action.
    /// If the value has not improved by then, the next rung is tried. Default: 0s; effects are not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<DurationText>,
    /// Alternative actions (rungs), the preferred one first. The next rung is tried when the current one has reached
    /// its bound or had no effect. 1 to 8.
    #[schemars(length(min = 1, max = 8))]
    pub ladder: Vec<Rung>,
    /// Time windows in which the action is allowed. At most 4. Default: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4))]
    pub during: Option<Vec<Window>>,
}

/// One possible action. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.scale), has(self.resize), has(self.workloadAction), has(self.patch), has(self.webhook), has(self.tune)].filter(set, set).size() == 1").message("set exactly one of scale, resize, workloadAction, patch, webhook, tune"),
    validation = Rule::new("!has(self.onReplicaOwner) || !has(self.webhook) && !has(self.tune)").message("onReplicaOwner is for scale, resize, workloadAction and patch"),
)]
pub struct Rung {
    /// Changes the number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Changes the requests and limits of a container in each pod, or those of each pod as a whole, in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// Creates a WorkloadAction for the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_action: Option<ActionTemplate>,
    /// Changes one field of the target. Only for kinds that the operator's settings allow
    /// (`closedLoops.patchableKinds`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchField>,
    /// Sends a CloudEvent to an address, at most once: an event may be lost, but is never sent twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Changes the policy of the target loop, within the bounds of that loop's `tunable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<Tune>,
    /// Behavior if somebody else applies the field that the rung changes, such as a GitOps tool: the replicas, the
    /// resources in the template, or the field of a patch. Yield: the rung is not carried out, with reason
    /// ReplicasOwnedElsewhere or FieldOwnedElsewhere. Force: it is carried out; for owners that ignore changes of the
    /// field, such as Argo CD with ignoreDifferences and RespectIgnoreDifferences. An autoscaler or another loop on the
    /// same field is a conflict in any case. Default: Yield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_replica_owner: Option<OnReplicaOwner>,
}

/// Changes the number of replicas of the target, through its scale subresource.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.by), has(self.factor), has(self.to), has(self.track) || has(self.schedule)].filter(set, set).size() == 1").message("set exactly one of by, factor, to, track (or schedule without track)"),
    validation = Rule::new("!has(self.to) || !has(self.min) && !has(self.max)").message("to needs no min and no max"),
    validation = Rule::new("has(self.track) || has(self.schedule) || !has(self.up) && !has(self.down) && !has(self.cooldown) && !has(self.forecast)").message("up, down, cooldown and forecast go with track"),
    validation = Rule::new("!has(self.track) && !has(self.schedule) || has(self.max) && self.max >= 1").message("track and schedule need max, at least 1"),
    validation = Rule::new("!has(self.by) || self.by != 0").message("by must not be 0"),
    validation = Rule::new("!has(self.by) || self.by < 0 || has(self.max)").message("by upwards needs max"),
    validation = Rule::new("!has(self.by) || self.by > 0 || has(self.min)").message("by downwards needs min"),
    validation = Rule::new("!has(self.factor) || (has(self.min) && has(self.max))").message("factor needs min and max"),
    validation = Rule::new("!has(self.min) || !has(self.max) || self.min <= self.max").message("min must not be above max"),
)]
pub struct Scale {
    /// Number of replicas to add; a negative number removes replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub by: Option<i32>,
    /// Multiplies the number of replicas by this factor. The result is rounded so that the number always changes. A
    /// number as a string, such as "1.5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Number>,
    /// Sets this number of replicas, 0 to 100000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub to: Option<i32>,
    /// Sets the number of replicas that keeps the metric at a target, in one step. Only for alarms on side Target. All
    /// actions of a loop that track have the same min, max, up, down, cooldown, forecast and schedule: the largest
    /// number that one of their metrics asks for counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<Track>,
    /// Minimum number of replicas, 0 to 100000. Default: the current number; with track, 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min: Option<i32>,
    /// Maximum number of replicas, 0 to 100000. Default: the current number. Required with track.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub max: Option<i32>,
    /// With track, how fast the number may rise. Default: if neither `up` nor `down` is set, at most twice as many
    /// replicas, or 4, in each interval, as a HorizontalPodAutoscaler without `behavior`; otherwise the defaults of the
    /// fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<DirectionPace>,
    /// With track, how fast the number may fall. Default: after a window of 300s, to the largest proposal within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<DirectionPace>,
    /// With `min: 0`, time without an active metric after which the last replica is removed, at most 24h. It starts
    /// when the last metric becomes inactive; a metric that is unknown counts as active. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<DurationText>,
    /// With track, raises capacity early, before the load comes, if the load repeats itself. A forecast never lowers
    /// below the number that the metrics ask for, and is used only while its own error is clearly smaller than that of
    /// the last value. Default: no forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<TrackForecast>,
    /// Other bounds at certain times. The first open entry counts. At most 8. Without track, the number is that of the
    /// open entry, and min while none is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub schedule: Option<Vec<ScheduledBounds>>,
}

impl Scale {
    /// Whether the rung keeps a number up to date, instead of changing it once for each alarm.
    pub fn is_tracking(&self) -> bool {
        self.track.is_some() || self.schedule.is_some()
    }
}

/// Changes the requests and limits of a container, or those of the pod as a whole.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.container) != (has(self.pod) && self.pod)").message("set exactly one of container, pod: true"),
    validation = Rule::new("!has(self.takeBackAfter) || duration(self.takeBackAfter) >= duration('10s') && duration(self.takeBackAfter) <= duration('1h')").message("takeBackAfter must be 10s to 1h").field_path(".takeBackAfter"),
    validation = Rule::new("quantity(self.factor).isGreaterThan(quantity('0'))").message("factor must be above 0"),
    validation = Rule::new("!quantity(self.factor).isGreaterThan(quantity('1')) || has(self.max)").message("a factor above 1 needs max"),
    validation = Rule::new("!quantity(self.factor).isLessThan(quantity('1')) || has(self.min)").message("a factor under 1 needs min"),
)]
pub struct Resize {
    /// Name of the container. Either this or `pod: true` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// true: changes the resources at pod level (`spec.resources` of the pod), which bound its containers. Requires
    /// Kubernetes 1.36 or later, and nodes that declare InPlacePodLevelResourcesVerticalScaling. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<bool>,
    /// cpu or memory.
    pub resource: ResourceName,
    /// Multiplies the quantity by this factor. A number as a string, such as "1.25".
    pub factor: Number,
    /// Lower bound, a quantity such as `100m` or `128Mi`. Default: the current quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Upper bound, a quantity such as `2` or `2Gi`. Default: the current quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// Which quantities change: Requests, Limits or Both. Default: Both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<Bounds>,
    /// Also changes the pod template of the workload, which starts a rollout. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Time after which larger resources that a kubelet defers, because its node is full, are taken back: the pod gets
    /// the allocated resources again, and the node has room for others. For an hour, the pod is not resized to these
    /// resources again. 10s to 1h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_back_after: Option<DurationText>,
}

impl Resize {
    /// Returns the name of the container or `Pod`, which no container can be called.
    pub fn part(&self) -> &str {
        self.container.as_deref().unwrap_or(POD_LEVEL)
    }
}

/// A WorkloadAction whose workload is the loop's target. Exactly one of create, delete, move is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.create), has(self.delete), has(self.move)].filter(set, set).size() == 1").message("set exactly one of create, delete, move"),
)]
pub struct ActionTemplate {
    /// Adds replicas on chosen nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateTemplate>,
    /// Removes replicas from chosen nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<DeleteTemplate>,
    /// Moves replicas to other nodes.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub move_: Option<MoveTemplate>,
    /// See WorkloadAction's `spec.disruption`. Default: Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    /// See WorkloadAction's `spec.timeouts.queueSeconds`, 1 to 86400. An action that waits does not ask whether the
    /// alarm is still raised. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub queue_seconds: Option<i32>,
}

/// See WorkloadAction's `spec.create`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CreateTemplate {
    /// Nodes for the new replicas.
    pub to: Target,
    /// Number of replicas to add, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<i32>,
}

/// See WorkloadAction's `spec.delete`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeleteTemplate {
    /// Nodes from which replicas are removed. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Number of replicas to remove, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<i32>,
}

/// See WorkloadAction's `spec.move`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MoveTemplate {
    /// Nodes that the replicas leave. Default: any node that is not a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// Nodes that the replicas move to.
    pub to: Target,
    /// Maximum number of replicas to move, 1 to 100. If fewer match when the action begins, those move; without any,
    /// the next rung of the ladder follows. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<i32>,
}

/// Changes one field of the target. Exactly one of by, factor, to is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.by), has(self.factor), has(self.to)].filter(set, set).size() == 1").message("set exactly one of by, factor, to"),
    validation = Rule::new("has(self.to) || (has(self.min) && has(self.max))").message("by and factor need min and max"),
)]
pub struct PatchField {
    /// Path of the field, starting with `spec`: names and indexes separated by dots, such as `spec.rate` or
    /// `spec.items[0].rate`. A dot within a name is written as `\.`, or the name as `['a.b']`.
    #[schemars(length(min = 6, max = 253), regex(pattern = "^spec\\."))]
    pub path: String,
    /// Amount to add; a negative amount is subtracted. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Number>,
    /// Multiplies the value by this factor. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Number>,
    /// Sets this value, as JSON: `5`, `"fast"`, `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub to: Option<String>,
    /// Minimum of the result. Required with by and factor; has no effect with to. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Maximum of the result. Required with by and factor; has no effect with to. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
}

/// Receiver of a CloudEvent 1.0. The id of the event consists of the loop's uid and the decision's number.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// http or https address of the receiver.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// Credentials that the operator sends. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Further headers that the operator sends, such as that of a tenant. At most 8. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub headers: Option<Vec<RequestHeader>>,
    /// Certificate authorities for verifying the server's certificate. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
}

/// Changes the target loop's policy. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.raiseRank) != has(self.threshold)").message("set exactly one of raiseRank, threshold"),
)]
pub struct Tune {
    /// LeastServed: moves the metric that the rule LastServed selected up by one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise_rank: Option<RaiseRank>,
    /// Changes one level of a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<TuneThreshold>,
}

/// Changes one level of the target loop.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TuneThreshold {
    /// The level to change, such as `cpu.low.raise`.
    #[schemars(length(min = 1, max = 60), regex(pattern = "^[a-zA-Z][a-zA-Z0-9_]*\\.(low|high)\\.(raise|clear)$"))]
    pub path: String,
    /// Amount to add; a negative amount is subtracted. A number as a string.
    pub by: Number,
}

/// See [`Tune::raise_rank`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RaiseRank {
    #[default]
    LeastServed,
}

/// See [`Resize::what`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounds {
    Requests,
    Limits,
    #[default]
    Both,
}
