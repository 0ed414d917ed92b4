//! What a loop does about an alarm: a ladder of rungs, tried one after another.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric::Side;
use super::policy::Window;
use super::source::{Auth, CaRef, ResourceName};
use crate::api::scalars::{DurationText, Number};
use crate::api::targets::{NodeSource, Target};
use crate::api::workload_action::Disruption;

/// What to do about one alarm.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.when.side != 'Missing' || self.ladder.all(r, !(has(r.scale) && has(r.scale.by) && r.scale.by < 0) && !(has(r.workloadAction) && has(r.workloadAction.delete)))").message("what is done about a missing value must not lower capacity"),
)]
pub struct LoopAction {
    // Not `on`, which is `true` in YAML 1.1, and so for kubectl.
    /// The alarm.
    pub when: Alarm,
    /// Time after which the effect of such an action can be judged; until then it is not done again. If it had no effect
    /// by then, the next rung is tried. Default: 0s, and effects are not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<DurationText>,
    /// What can be done, the preferred first; the next rung is tried when one is exhausted or had no effect. 1 to 8.
    #[schemars(length(min = 1, max = 8))]
    pub ladder: Vec<Rung>,
    /// The action is only done at these times. At most 4. Default: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4))]
    pub during: Option<Vec<Window>>,
}

/// An alarm of a metric.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// Name of the metric.
    #[schemars(length(min = 1, max = 40))]
    pub metric: String,
    /// Low, High, Equal, or Missing.
    pub side: Side,
}

/// One thing that can be done. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.scale), has(self.resize), has(self.workloadAction), has(self.patch), has(self.webhook), has(self.tune)].filter(set, set).size() == 1").message("set exactly one of scale, resize, workloadAction, patch, webhook, tune"),
)]
pub struct Rung {
    /// Changes the number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Changes the resources of a container in each pod, in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// Creates a WorkloadAction for the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_action: Option<ActionTemplate>,
    /// Changes a number or a text in one field of the target. Only for kinds that the operator's settings allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchField>,
    /// Sends a CloudEvent to an address. It may get lost; it is never sent twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Changes the policy of the loop that is the target, within its `tunable` bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<Tune>,
}

/// Changes the number of replicas of the target, by its scale subresource.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.by) != has(self.factor)").message("set exactly one of by, factor"),
    validation = Rule::new("!has(self.by) || self.by != 0").message("by must not be 0"),
    validation = Rule::new("!has(self.by) || self.by < 0 || has(self.max)").message("by upwards needs max"),
    validation = Rule::new("!has(self.by) || self.by > 0 || has(self.min)").message("by downwards needs min"),
    validation = Rule::new("!has(self.factor) || (has(self.min) && has(self.max))").message("factor needs min and max"),
    validation = Rule::new("!has(self.min) || !has(self.max) || self.min <= self.max").message("min must not be above max"),
)]
pub struct Scale {
    /// How many replicas to add; negative to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub by: Option<i32>,
    /// Multiplies the replicas by this factor; rounds so that the number always changes. A number as a string, such as "1.5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Number>,
    /// Never fewer than this, 0 to 100000. Default: no fewer than there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min: Option<i32>,
    /// Never more than this, 0 to 100000. Default: no more than there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub max: Option<i32>,
}

/// Changes the resources of a container.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("quantity(self.factor).isGreaterThan(quantity('0'))").message("factor must be above 0"),
    validation = Rule::new("!quantity(self.factor).isGreaterThan(quantity('1')) || has(self.max)").message("a factor above 1 needs max"),
    validation = Rule::new("!quantity(self.factor).isLessThan(quantity('1')) || has(self.min)").message("a factor under 1 needs min"),
)]
pub struct Resize {
    /// Name of the container.
    #[schemars(length(min = 1, max = 63))]
    pub container: String,
    /// cpu or memory.
    pub resource: ResourceName,
    /// Multiplies the quantity by this factor. A number as a string, such as "1.25".
    pub factor: Number,
    /// Never less than this quantity. Default: no less than there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Never more than this quantity. Default: no more than there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// Requests, Limits or Both. Default: Both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<Bounds>,
    /// Also write it into the workload's pod template, which starts a rollout. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
}

/// A WorkloadAction about the loop's target, which is then its workload. Exactly one member of create, delete, move is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.create), has(self.delete), has(self.move)].filter(set, set).size() == 1").message("set exactly one of create, delete, move"),
)]
pub struct ActionTemplate {
    /// More replicas, on chosen nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateTemplate>,
    /// Fewer replicas, from chosen nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<DeleteTemplate>,
    /// Replicas change their node.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub move_: Option<MoveTemplate>,
    /// See WorkloadAction's `spec.disruption`. Default: Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
}

/// See WorkloadAction's `spec.create`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CreateTemplate {
    /// Where the new replicas run.
    pub to: Target,
    /// How many more, 1 to 100. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<i32>,
}

/// See WorkloadAction's `spec.delete`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeleteTemplate {
    /// Nodes that the replicas are taken from. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeSource>,
    /// How many replicas go, 1 to 100. Default: 1.
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
    /// Where they go.
    pub to: Target,
    /// How many replicas move, 1 to 100. Default: 1.
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
    /// Where the field stands below `spec`, names and indexes with dots between: `spec.rate`.
    #[schemars(length(min = 6, max = 253), regex(pattern = "^spec\\."))]
    pub path: String,
    /// How much to add; negative to subtract. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Number>,
    /// Multiplies the value by this factor. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Number>,
    /// Sets this value, as JSON: `5`, `"fast"`, `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub to: Option<String>,
    /// Never less than this, with by and factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Never more than this, with by and factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
}

/// Where a CloudEvent 1.0 is sent. Its id consists of the loop's uid and the decision's number.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// http or https address.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// How the operator authenticates itself. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Authorities that the server's certificate is checked against. Default: the public ones.
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
    /// LeastServed: moves the metric that the rule LastServed found up one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise_rank: Option<RaiseRank>,
    /// Changes a level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<TuneThreshold>,
}

/// Changes one level of the target loop.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TuneThreshold {
    /// Which level, such as `cpu.low.raise`.
    #[schemars(length(min = 1, max = 60), regex(pattern = "^[a-zA-Z][a-zA-Z0-9_]*\\.(low|high)\\.(raise|clear)$"))]
    pub path: String,
    /// How much to add; negative to subtract. A number as a string.
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
