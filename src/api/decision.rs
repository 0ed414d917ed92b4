//! Decision: the second stage of a loop. It selects one alarm to serve and records why the others were rejected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::closed_loop::action::{LoopAction, Rung};
use super::closed_loop::metric::Side;
use super::closed_loop::policy::Policy;
use super::closed_loop::reasons::LoopReason;
use super::closed_loop::when::{Alarm, When};
use super::closed_loop::{LoopMode, Trace};
use super::monitoring::Tag;
use crate::identity::Uid;
use crate::line;

mod act;
mod entry;
mod ladder_state;
pub use act::{Act, Direction, Rejected};
pub use entry::{Entry, Repetitions};
pub use ladder_state::LadderState;

/// Maximum number of entries in `status.rejected`: one for each possible action, and as many alarms without one.
pub const REJECTED_LIMIT: usize = 64;

/// Maximum number of past actions stored for dwell, budgets and oscillation.
pub const ACTS_LIMIT: usize = 64;

/// Maximum number of counters, unless the spec has more metrics.
pub const COUNTERS_LIMIT: usize = 32;

/// Decision policy of a loop, with the rank in effect after tuning. Created and written by the closed-loop controller.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Decision",
    plural = "decisions",
    shortname = "dec",
    namespaced,
    status = "DecisionStatus",
    derive = "PartialEq",
    doc = "The second stage of a ClosedLoop: it selects one alarm to serve and records why the others were rejected. Created by the operator.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Number", type_ = "integer", json_path = ".status.seq"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Measured", type_ = "string", json_path = ".status.tag.time"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSpec {
    /// The loop's mode. Default: Auto.
    #[serde(default)]
    pub mode: LoopMode,
    /// When the status is written; see the loop's `trace`. Default: OnChange.
    #[serde(default)]
    pub trace: Trace,
    /// Why no decision may be made although the loop is not paused, such as another loop that controls the target.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub blocked: Option<String>,
    /// Path of the target's number of replicas, such as `spec.size`. Default: `spec.replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub replicas_path: Option<String>,
    /// Names of all metrics, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// Selects one action in each iteration, and limits how often the loop acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The action for each alarm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub actions: Vec<LoopAction>,
}

/// The last decision, and the history that later decisions need. Only the decision controller writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: False if the policy is invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last sample that was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Number of the last decision. It never decreases.
    #[serde(default)]
    pub seq: i64,
    /// The decision on the last sample as text: `React to cpu`, `Hold cpu: …`, or `No Event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    /// State of the last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// Alarms of the last sample that were not served, and why. Each entry is one line: side, metric, reason, and
    /// message. A combination of alarms is listed as `High queue and Low errors`.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rejected: Vec<Rejected>,
    /// The limits in effect now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitState>,
    /// Number of times that each metric was wanted, served and limited. The counters never decrease. Counters of
    /// metrics that were removed from the spec are kept while there are at most 32 counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub counters: Vec<Counter>,
    /// State of each ladder. Each entry is one line: side, metric, index of the next rung, from 0. The following parts
    /// are optional: the value at the last action, the time at which its effect can be judged, the time until which the
    /// ladder counts as exhausted, the digest of the ladder in the spec, and DryRun.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ladders: Vec<LadderState>,
    /// Past actions that dwell, budgets and oscillation still need, and at least the last two; the oldest first. Each
    /// entry is one line: number, time, direction, dimension. Only actions that were carried out, or may have been,
    /// are listed; in mode DryRun also those that would have been, marked with DryRun.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub acts: Vec<Act>,
    /// The last decisions, the oldest first. Each entry is one line: number, time, alarm with its value, rung of the
    /// ladder, action, outcome (with its time if it came later), effect. At most 64. In mode DryRun, equal decisions in
    /// a row are one line with their number. `ganglion explain` shows the lines as a table.
    #[serde(default, deserialize_with = "line::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<Entry>,
    /// Leader term in which this status was written. A term begins each time a replica of the operator acquires the
    /// lease. A decision of an earlier term is carried out only after it is confirmed in the current term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// When this status was last written. The outcome of the last decision and the counters are written with the next
    /// decision, or five minutes after the last write; until then, see the Execution's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<MicroTime>,
}

/// One decision, with everything needed to carry it out.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// Number of the decision. Each decision has at most one effect.
    pub seq: i64,
    /// Name of the metric that is served; for a combination of alarms, that of the alarm by which it ranked.
    pub metric: String,
    /// The side of the metric's alarm.
    pub side: Side,
    /// The combination of alarms that is served; unset if it is one alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Index of the rung in the ladder, from 0.
    pub rung: i32,
    /// The action.
    #[serde(rename = "do")]
    pub action: Rung,
    /// When the decision was made.
    pub at: MicroTime,
    /// Tag of the sample on which the decision was made. The trace of the decision is found by it, whichever sample was
    /// evaluated since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// When that sample was received, by the operator's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<MicroTime>,
    /// uid of the Execution that carries out the decision. A re-created Execution ignores it.
    pub executor: Uid,
    /// The mode of the loop at the decision: Auto, DryRun or Approve.
    pub mode: LoopMode,
    /// The value was unknown: the action must not lower capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// Why the action must not lower capacity, although its rung may: it sets a number, and only the current one shows
    /// whether that is less. Unset: it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_lowering: Option<String>,
    /// For an action that tracks: the change of the number of replicas. It is made only while the target has the number
    /// before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaChange>,
    /// For tune: the metric of the target loop that moves up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_served: Option<String>,
    /// With mode: Approve, the digest of decision, action and target. An approval contains this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Outcome of the decision. Unset while it is being carried out, and until the next write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl Chosen {
    /// The alarm or the combination of alarms that is served.
    pub fn served(&self) -> When {
        let one = || When::One(Alarm { metric: self.metric.clone(), side: self.side });
        self.when.clone().unwrap_or_else(one)
    }
}

/// A change of the number of replicas.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaChange {
    /// Number before the change.
    pub from: i32,
    /// Number after the change.
    pub to: i32,
}

/// The limits in effect.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LimitState {
    /// End of the dwell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dwell_until: Option<MicroTime>,
    /// Number of actions that the budget still allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left: Option<i32>,
    /// Until when capacity is not lowered, because the loop oscillated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damped_until: Option<MicroTime>,
    /// Until when no action is taken, because the loop oscillated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_until: Option<MicroTime>,
}

/// Number of times that a metric was wanted, served and limited.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Counter {
    /// Name of the metric.
    pub metric: String,
    /// Number of iterations in which the metric's alarm was active and had an action. A combination of alarms counts
    /// for the metric by which it ranked.
    pub wanted: i64,
    /// Number of times that the alarm was served: its action was carried out. A dry run serves nothing.
    pub served: i64,
    /// Number of times that a limit prevented it: dwell, budget, oscillation, time window, min or max.
    pub limited: i64,
    /// When the alarm was last served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_served: Option<MicroTime>,
}

/// Outcome of a decision.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The decision was carried out.
    Served,
    /// mode: DryRun; in mode Auto, the decision would have been carried out.
    DryRun,
    /// Nothing changed: the target was already at its min or max, or there was no replica to move.
    Limited,
    /// The decision could not be carried out.
    Failed,
    /// Another client changed the target in the meantime; the next decision uses the new state.
    Overtaken,
    /// The outcome cannot be determined; the decision is not carried out again.
    Lost,
    /// The decision was withdrawn before it was carried out.
    Withdrawn,
}

impl Outcome {
    pub fn reason(self) -> LoopReason {
        match self {
            Self::Served => LoopReason::Served,
            Self::DryRun => LoopReason::DryRun,
            Self::Limited => LoopReason::Limited,
            Self::Failed => LoopReason::Failed,
            Self::Overtaken => LoopReason::Overtaken,
            Self::Lost => LoopReason::Lost,
            Self::Withdrawn => LoopReason::Withdrawn,
        }
    }
}
