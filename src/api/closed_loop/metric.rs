//! The metrics of a loop: their levels, their sources, and the value to assume when none arrives.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter_metric::{CustomMetric, ExternalMetric};
pub use super::aggregate::Aggregate;
use super::policy::Window;
use super::scaler::ScalerSource;
use crate::identity::NodeName;
use crate::node_config::status::NodeValue;
use crate::refs::{Auth, CaRef, RequestHeader};
use crate::scalars::{DurationText, Number};

/// A value that the loop watches. At least one of `low`, `high`, `equal`, or `missing` with `then: Alarm` is set,
/// unless a formula uses the metric or an action tracks it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.low) || !has(self.low.clear) || quantity(self.low.clear).compareTo(quantity(self.low.raise)) >= 0").message("low.clear must not be under low.raise: an alarm of a low value ends above the level at which it begins"),
    validation = Rule::new("!has(self.high) || !has(self.high.clear) || quantity(self.high.clear).compareTo(quantity(self.high.raise)) <= 0").message("high.clear must not be above high.raise: an alarm of a high value ends under the level at which it begins"),
    validation = Rule::new("!has(self.over) || !has(self.source.formula)").message("a formula has no samples of its own: set over on the metrics that it uses"),
    validation = Rule::new("!has(self.low) || !has(self.high) || quantity(self.low.raise).compareTo(quantity(self.high.raise)) < 0").message("low.raise must be under high.raise"),
)]
pub struct Metric {
    /// Name of the metric: a letter followed by letters, digits and `_`; at most 40 characters.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-zA-Z][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// Source of its value.
    pub source: Source,
    /// Uses the values of a period of time instead of the last one, such as `{window: 5m, as: mean}`. Not for a
    /// formula. Default: the last value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<ValueWindow>,
    /// Alarm `Low`: raised when the value is below `raise`, cleared when it is `clear` or more. Default: no such alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Level>,
    /// Alarm `High`: raised when the value is above `raise`, cleared when it is `clear` or less. Default: no such
    /// alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Level>,
    /// Alarm `Equal`: active while the value equals `to`. Default: no such alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal: Option<Equal>,
    /// Behavior when the last value is older than `after`. Until then the value stands: if the source fails, alarms
    /// keep their state and the time of `for`, and trigger no action before the next value. Default: Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// Values of a period of time, as one number. The period ends with the newest value. The metric is unknown until the
/// operator has known its values for the whole period; the message says at what time that is. This is also so after a
/// restart of the operator, and after a time without values that is longer than `missing.after`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ValueWindow {
    /// Length of the period, from `1s` to `24h`.
    pub window: DurationText,
    /// mean: mean by time. max: largest value. p95: smallest value that at least 95 % of the values do not exceed.
    /// rate: increase of a counter per second, between the value at the start of the period and the newest one; a
    /// counter that becomes smaller counts from 0 again.
    #[serde(rename = "as")]
    pub function: WindowFunction,
}

/// See [`ValueWindow::function`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WindowFunction {
    #[default]
    Mean,
    Max,
    P95,
    Rate,
}

impl WindowFunction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Max => "max",
            Self::P95 => "p95",
            Self::Rate => "rate",
        }
    }
}

/// A level with hysteresis.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// The alarm is raised when the value is below (low) or above (high) this. A number as a string, such as "5" or
    /// "512Mi".
    pub raise: Number,
    /// The alarm is cleared when the value returns to this. A number as a string. Default: the same as `raise`; there
    /// is no hysteresis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear: Option<Number>,
    /// Minimum time that the value must be beyond `raise` before the alarm is raised, such as `30s`. Default: 0s.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_: Option<DurationText>,
}

/// A value to compare the metric with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Equal {
    /// The alarm is active while the metric equals this value. A number as a string.
    pub to: Number,
    /// Largest difference from `to` that counts as equal. A number as a string. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Number>,
    /// Minimum time that the value must be equal before the alarm is raised, such as `30s`. Default: 0s.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_: Option<DurationText>,
}

/// Behavior when the last value is older than `after`. An unknown value never leads to lower capacity.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.value) == (has(self.then) && self.then == 'Assume')").message("value goes with then: Assume, and Assume needs a value"),
)]
pub struct Missing {
    /// Maximum age of the last value, such as `45s`. Default: three intervals; for the sources push, resource, external
    /// and custom, whose values come at a pace of their own, at least 150s; for a formula, the longest one of its
    /// operands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DurationText>,
    /// Hold: the alarm keeps its state and triggers no action. Assume: `value` is used instead. Alarm: the alarm
    /// `Missing` is raised; an action can be declared for it. Assume and Alarm lead to one action, however long the
    /// value is missing. Default: Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<MissingThen>,
    /// With Assume, the value to use. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
}

/// See [`Missing::then`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingThen {
    #[default]
    Hold,
    Assume,
    Alarm,
}

/// The level that a metric violates. Target: the number of replicas is not the one that keeps the metric at its target.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    #[default]
    Low,
    High,
    Equal,
    Missing,
    Target,
}

impl Side {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "Low",
            Self::High => "High",
            Self::Equal => "Equal",
            Self::Missing => "Missing",
            Self::Target => "Target",
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Source of a value. Exactly one member is set. If a source fails, times out, or returns nothing, `NaN` or text, the
/// metric is unknown, never zero.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.push), has(self.prometheus), has(self.http), has(self.scaler), has(self.object), has(self.resource), has(self.external), has(self.custom), has(self.cron), has(self.nodeConfig), has(self.__loop__), has(self.formula)].filter(set, set).size() == 1").message("set exactly one of push, prometheus, http, scaler, object, resource, external, custom, cron, nodeConfig, loop, formula"),
)]
pub struct Source {
    /// A sender writes the value into `spec.sample` of the loop's Monitoring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// Queries a Prometheus server once per interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// Fetches a JSON document once per interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Asks an external scaler of KEDA once per interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaler: Option<ScalerSource>,
    /// A field or condition of an object in the loop's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectField>,
    /// Resource usage of pods, from metrics.k8s.io. Pods that are not measured or not ready yet count as in a
    /// HorizontalPodAutoscaler: for the alarm `High` as if they used nothing, for the alarm `Low` as if they used all
    /// that they request. The service account needs the permission to list pods, here and in metrics.k8s.io.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceUse>,
    /// A metric of something outside of Kubernetes, from external.metrics.k8s.io. The service account needs the
    /// permission to list the resource with the name of the metric in that API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalMetric>,
    /// A metric of an object or of pods, from custom.metrics.k8s.io. The service account needs the permission to get
    /// the resource and the metric as its subresource, such as `pods/http_requests`, in that API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomMetric>,
    /// A number for certain times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<CronSource>,
    /// A value from the status of one or more NodeConfigs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_config: Option<NodeConfigField>,
    /// Decisions of another loop, for a slower loop that tunes it.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_: Option<LoopHistory>,
    /// Computes the value from other metrics of this loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<FormulaSource>,
}

/// A number that depends on the time, as that of a cron trigger of KEDA. For an action on side Target, `schedule` sets
/// numbers and bounds by time without a metric.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CronSource {
    /// When `value` is the number: while at least one of these windows is open. 1 to 4.
    #[schemars(length(min = 1, max = 4))]
    pub during: Vec<Window>,
    /// Number while a window is open, as a string, such as "10".
    pub value: Number,
    /// Number at all other times, as a string. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Number>,
}

/// A value that is computed from other metrics of the loop.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FormulaSource {
    /// Expression in CEL over names of other metrics, also formulas, such as `requests / replicas`. The name `replicas`
    /// is the target's `spec.replicas`, unless a metric has that name; the target must be a Deployment, ReplicaSet,
    /// StatefulSet or SwarmPool, and the loop's account must be allowed to get it. All numbers are doubles: `5 / 2` is
    /// 2.5. Operators: `+ - * / ?:`, comparisons, `&& || !`; functions: `max(a, b)`, `min(a, b)`, and `coalesce(a, b,
    /// 8)`, which is its first argument with a value. If an operand is unknown, so is the value, except within
    /// `coalesce`; a value that `missing.then: Assume` assumes is one. A division by zero, NaN and infinity are
    /// unknown; negative numbers are numbers. The value is as old as the oldest operand that it uses. At most 512
    /// characters.
    #[schemars(length(min = 1, max = 512))]
    pub expression: String,
}

/// A value that a sender pushes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Push {
    /// Key of the value in the sample. Default: the metric's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub key: Option<String>,
}

/// A query to Prometheus. It must return one number: a scalar, or a vector with one element.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// http or https address of the server, without `/api/v1`.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// PromQL query.
    #[schemars(length(min = 1, max = 2048))]
    pub query: String,
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

/// A JSON document from an address.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// http or https address of the document.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// Path of the value in the document: names and indexes separated by dots, such as `data.cpu`, `items.0.load` or
    /// `items[0].load`. A dot within a name is written as `\.`, or the name as `['a.b']`. The value is a number, or a
    /// text with a number or quantity.
    #[schemars(length(min = 1, max = 253))]
    pub path: String,
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

/// A number in an object, or the status of one of its conditions (1 or 0).
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.path) != has(self.condition)").message("set exactly one of path, condition"),
    validation = Rule::new("self.kind != 'Secret'").message("a Secret is no source: its values would be shown in a status"),
)]
pub struct ObjectField {
    /// API version of the object, such as `apps/v1`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9-]{1,63}$"))]
    pub api_version: String,
    /// Kind of the object. Secret is not allowed, because statuses show the values of sources.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object, in the loop's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Path of the number: names and indexes separated by dots, such as `status.readyReplicas`. A dot within a name is
    /// written as `\.`, or the name as `['a.b']`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub path: Option<String>,
    /// Type of a condition in `status.conditions`. True counts as 1 and False as 0; Unknown makes the metric unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub condition: Option<String>,
}

/// Resource usage of pods.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUse {
    /// cpu, measured in cores, or memory, measured in bytes.
    pub resource: ResourceName,
    /// Labels that select the pods. Default: the pods of the loop's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Counts only this container of each pod. Default: all containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// Usage: cores or bytes. Utilization: usage in percent of the requests. Default: Usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UseUnit>,
    /// Aggregation of the values of several pods. Default: Mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Aggregate>,
}

/// A value from the status of NodeConfigs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.nodeName) != has(self.nodeSelector)").message("set exactly one of nodeName, nodeSelector"),
)]
pub struct NodeConfigField {
    /// The NodeConfig of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<NodeName>,
    /// The NodeConfigs of nodes that have all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Namespace of the NodeConfigs. If it is not the loop's own namespace, the loop's service account needs the
    /// permission to list NodeConfigs there. Default: the loop's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the value in the NodeConfig's status. Stale values are ignored.
    pub field: NodeValue,
    /// Aggregation of the values of several nodes. Default: Mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<NodeAggregate>,
}

/// Decisions of another loop in this namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LoopHistory {
    /// Name of the loop. Default: the loop's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// LastServed: once one metric has been served `window` times since the rank last changed, the value is how far the
    /// least served metric is behind it; until then, the value is 0. A metric that was wanted and never served counts
    /// as least served.
    pub rule: LoopRule,
    /// Number of times that a metric must be served before the rule returns a value other than 0, 1 to 64. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub window: Option<i32>,
}

/// See [`LoopHistory::rule`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopRule {
    #[default]
    LastServed,
}

/// A resource of containers, spelled as in `resources.requests`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ResourceName {
    #[default]
    Cpu,
    Memory,
}

impl ResourceName {
    /// Name in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// See [`ResourceUse::unit`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UseUnit {
    #[default]
    Usage,
    Utilization,
}

/// Aggregation of the values of several nodes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeAggregate {
    #[default]
    Mean,
    Max,
    Min,
    Sum,
    /// Number of nodes whose value is known and fresh.
    Count,
}
