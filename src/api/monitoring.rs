//! Monitoring: the first hop of a loop. Samples come in, alarms go out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::closed_loop::metric::{Metric, Side};
use super::closed_loop::reasons::LoopReason;
use super::closed_loop::{TargetRef, Trace};
use super::sample::{Sample, Tag};
use super::scalars::{DurationText, Number};

/// What a loop watches, with the levels that hold after tuning. Made and written by the closed-loop controller; only
/// `sample` belongs to the sender of samples.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Monitoring",
    plural = "monitorings",
    shortname = "mon",
    category = "ganglion",
    namespaced,
    status = "MonitoringStatus",
    derive = "PartialEq",
    doc = "The first hop of a ClosedLoop: samples come in, alarms go out. Made by the operator; senders write spec.sample.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".status.tag.time"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringSpec {
    /// What is watched, in the order in which alarms are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub metrics: Vec<Metric>,
    /// How often the sources are queried. Default: 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// When the status is written. Default: OnChange.
    #[serde(default)]
    pub trace: Trace,
    /// Service account that objects are read as. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// What the loop acts on, for sources that refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// Stops watching. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The last sample that was pushed. Write it by server-side apply, with a field manager of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// What was observed. Written by monitoring alone. Neither it nor its conditions have an observedGeneration: each pushed
/// sample is a new generation, and not each sample is written, so a client that compares the two would wait forever.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringStatus {
    /// Ready: False while no sample has come or a metric is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last sample that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// The alarms in words, in the order of the metrics: `Low cpu,Low memory`; `No Event` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last value of each metric that could be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub values: Vec<Reading>,
    /// The alarms that stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub alarms: Vec<AlarmState>,
    /// The alarms that will be raised unless the value recovers within `for`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pending: Vec<AlarmState>,
    /// The metrics whose value is not known, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub unknown: Vec<UnknownMetric>,
    /// How many samples were refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSamples>,
    /// What the rule LastServed found, for each metric with a source `loop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub last_served: Vec<LastServed>,
    /// When the last sample was received, by the operator's clock. A sample that was received before a decision took effect
    /// leads to no further decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<MicroTime>,
    /// While an alarm stands: how long the values count as current. Nothing is decided on them later; monitoring looks at
    /// them again at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<MicroTime>,
    /// The leader term in which this was written; a term begins each time that a replica of the operator takes the lease.
    /// Decisions use only what was written in their own term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// When this status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<MicroTime>,
}

/// A value that was read.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// Name of the metric.
    pub metric: String,
    /// Its value, as it was received.
    pub value: Number,
    /// When it was measured.
    pub at: MicroTime,
}

/// An alarm, and since when.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AlarmState {
    /// Name of the metric.
    pub metric: String,
    /// On which side.
    pub side: Side,
    /// Since when the value is beyond the level.
    pub since: MicroTime,
    /// How far it is beyond the level, as a share of the level: "0.6".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess: Option<Number>,
    /// The value is unknown or assumed now: no action may lower capacity because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The value is unknown now and the alarm is only kept: nothing is done about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// A metric without a value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnknownMetric {
    /// Name of the metric.
    pub metric: String,
    /// Since when.
    pub since: MicroTime,
    /// Why, in words.
    pub message: String,
}

/// How many samples were refused, by reason. The numbers only grow.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RefusedSamples {
    /// Samples older than the last accepted one.
    pub out_of_order: i64,
    /// Samples as old as the last accepted one.
    pub repeated: i64,
    /// Samples from the future.
    pub from_future: i64,
    /// Samples whose time cannot be read.
    pub unreadable: i64,
    /// Why the last sample was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LoopReason>,
}

/// How often each metric of another loop was served since its rank last changed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LastServed {
    /// Name of the metric of this loop that the rule gives.
    pub metric: String,
    /// The other loop's rank at that time.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// The other loop's counters when the rank changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub base: Vec<Share>,
    /// The other loop's counters since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shares: Vec<Share>,
    /// The metric that should move up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_served: Option<String>,
    /// The other loop's counters when that was found: what comes later counts for the time after the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub found: Vec<Share>,
}

/// How often a metric was wanted and served.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Name of the metric.
    pub metric: String,
    /// In how many iterations its alarm stood.
    pub wanted: i64,
    /// How often it was served.
    pub served: i64,
}
