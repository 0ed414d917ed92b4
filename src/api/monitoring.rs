//! Monitoring: the first stage of a loop. It evaluates samples and raises alarms. A sample has the tag that
//! identifies it in every stage.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::closed_loop::action::LoopAction;
use super::closed_loop::metric::Metric;
use super::closed_loop::reasons::LoopReason;
use super::closed_loop::{TargetRef, Trace};
use super::scalars::{DurationText, Number};
use crate::line;

mod alarm_state;
pub use alarm_state::AlarmState;

/// The metrics of a loop, with the levels in effect after tuning. The closed-loop controller creates and writes it;
/// senders write only `sample`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Monitoring",
    plural = "monitorings",
    shortname = "mon",
    namespaced,
    status = "MonitoringStatus",
    derive = "PartialEq",
    doc = "The first stage of a ClosedLoop: it evaluates samples and raises alarms. Created by the operator; senders write spec.sample.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Measured", type_ = "string", json_path = ".status.tag.time"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.conditions[?(@.type=='DataAvailable')].status"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringSpec {
    /// The metrics, in the order in which their alarms are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub metrics: Vec<Metric>,
    /// The actions on side Target: the number of replicas that they ask for is computed with the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tracking: Vec<LoopAction>,
    /// Interval between queries of the sources. Default: 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// When the status is written; see the loop's `trace`. Default: OnChange.
    #[serde(default)]
    pub trace: Trace,
    /// Service account that reads the sources. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The loop's target, for sources that refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// true: monitoring is stopped. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The last pushed sample. Write it by server-side apply, with a separate field manager for each sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// The observed values and alarms. Only the monitoring controller writes it. Neither the status nor its conditions have
/// an observedGeneration: each pushed sample is a new generation, but not each sample leads to a status write, so a
/// client that compares the two could wait forever.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringStatus {
    /// Ready: always present. DataAvailable: True if every metric has a value, or the value that `missing.then`
    /// assumes; False if one is unknown; Unknown before the first value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last accepted sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// The alarms as text, in the order of the metrics: `Low cpu,Low memory`; `No Event` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Last known value of each metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub values: Vec<Reading>,
    /// The active alarms. Each entry is one line: side, metric, time at which the value crossed the level. The excess
    /// over the level, unknown, and held are optional parts.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub alarms: Vec<AlarmState>,
    /// Alarms that will be raised unless the value recovers within `for`, in the same form.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pending: Vec<AlarmState>,
    /// Metrics whose value is unknown, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub unknown: Vec<UnknownMetric>,
    /// Number of rejected samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSamples>,
    /// State of the rule LastServed, for each metric with a source `loop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub last_served: Vec<LastServed>,
    /// Number of replicas that the actions on side Target ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking: Option<TrackingState>,
    /// When the last sample was received, by the operator's clock. A value that was measured before a decision took
    /// effect leads to no further decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<MicroTime>,
    /// While an alarm is active, the time until which the values count as current. Later they lead to no decision; the
    /// values are evaluated again at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<MicroTime>,
    /// Leader term in which this status was written. A term begins each time a replica of the operator acquires the
    /// lease. Decisions use only values of their own term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// When this status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<MicroTime>,
}

/// Number of replicas that keeps the metrics at their targets, and how it was computed. It is written when the number
/// changes, or the memory.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TrackingState {
    /// `spec.replicas` of the target when the number was computed.
    pub replicas: i32,
    /// Number of replicas that the target should have.
    pub wants: i32,
    /// Reason of this number, such as Raised, HeldByWindow or AtMax.
    pub reason: String,
    /// When the number was computed.
    pub at: MicroTime,
    /// Explanation, one line for each metric and each stage: proposal, zero, window, rate, bounds, result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub lines: Vec<String>,
    /// Proposals and own changes within windows and periods, in a form of its own. It survives restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub memory: Option<String>,
    /// Number of the last decision whose change is in the memory.
    #[serde(default)]
    pub counted: i64,
    /// Why no number can be computed now. The last one stands, and triggers no action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub problem: Option<String>,
}

/// The value of a metric.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// Name of the metric.
    pub metric: String,
    /// The value, as received.
    pub value: Number,
    /// Time from which its age counts, by the operator's clock: arrival of the sample, start of the query, or for the
    /// source `resource` the time that metrics.k8s.io reports. For a formula, that of the oldest operand that it uses.
    pub at: MicroTime,
    /// When the value was measured, if that does not say how old it may be: for the source `nodeConfig` the `sampledAt`
    /// of the node, or the oldest one. A value that was measured before the last action took effect leads to no further
    /// action. Unset: `at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<MicroTime>,
    /// Value if the pods that are not measured, or not ready yet, use nothing. The alarm `High` is raised and cleared
    /// by it. Unset: all pods are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Number>,
    /// Value if the pods that are not measured use all that they request; a mean is that over one pod fewer. The alarm
    /// `Low` is raised and cleared by it. If only `atLeast` is set, a pod that is not measured requests nothing; the
    /// alarm `Low` is not raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Number>,
    /// Smallest request of the pods that are not measured. The alarm `Low` is not raised for a level above it, since
    /// these pods may use as much as the level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_request: Option<Number>,
    /// For a formula: operand that is unknown, and in whose place a value is assumed (`missing.then: Assume`, or
    /// `coalesce`). Such a value leads to one action, however long the operand is unknown, and does not lower capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_operand: Option<String>,
    /// Why the source has returned no newer value. The value stands until it is older than `missing.after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A metric whose value is unknown.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnknownMetric {
    /// Name of the metric.
    pub metric: String,
    /// Time since which the value is unknown.
    pub since: MicroTime,
    /// Why the value is unknown.
    pub message: String,
    /// Value that is used instead, see `missing.then`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<Number>,
}

/// Number of rejected samples, by reason. The counters never decrease.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RefusedSamples {
    /// Samples older than the last accepted one.
    pub out_of_order: i64,
    /// Samples with the same time as the last accepted one.
    pub repeated: i64,
    /// Samples whose time is in the future.
    pub from_future: i64,
    /// Samples whose time cannot be parsed.
    pub unreadable: i64,
    /// Reason for the last rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LoopReason>,
}

/// Number of times that each metric of another loop was served since its rank last changed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LastServed {
    /// Name of the metric in this loop.
    pub metric: String,
    /// Rank of the other loop since its last change.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// Counters of the other loop when the rank changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub base: Vec<Share>,
    /// Counters of the other loop since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shares: Vec<Share>,
    /// The least served metric, which should move up in rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_served: Option<String>,
    /// Counters of the other loop when the least served metric was determined. Later counts belong to the period after
    /// the rank change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub found: Vec<Share>,
}

/// Number of times that a metric was wanted and served.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Name of the metric.
    pub metric: String,
    /// Number of iterations in which the metric's alarm was active.
    pub wanted: i64,
    /// Number of times that it was served.
    pub served: i64,
}

/// Values that a sender measured at one time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Time of the measurement: RFC 3339, to the microsecond, such as `2026-11-21T10:00:00.000001Z`. A sample is
    /// rejected and counted if it is not newer than the last one, or is more than 10 seconds in the future.
    #[schemars(length(min = 20, max = 40))]
    pub time: String,
    /// Values by metric name, or by the `key` of the metric's source, each as a string: `{cpu: "2", memory: "40"}`.
    /// Text that is not a number counts as unknown, never as zero. At most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 64 }))]
    pub values: BTreeMap<String, String>,
}

/// Identifies a sample. The same tag in two children means that they refer to the same sample.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Tag {
    /// When the sample was measured, to the microsecond, UTC.
    pub time: MicroTime,
    /// Number of the sample in its loop. It defines the order of the samples.
    pub sequence: i64,
    /// In a loop with pushed and polled metrics, the time of the last pushed sample, by the sender's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<MicroTime>,
}
