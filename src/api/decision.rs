//! Decision: the second hop of a loop. Alarms come in, one choice goes out, with all that was passed over.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::closed_loop::action::{LoopAction, Rung};
use super::closed_loop::metric::Side;
use super::closed_loop::policy::Policy;
use super::closed_loop::reasons::LoopReason;
use super::closed_loop::{LoopMode, Trace};
use super::sample::Tag;
use super::scalars::Number;

mod entry;
pub use entry::Entry;

/// At most as many alarms stand in `status.rejected`: one for each action that there may be, and as many without one.
pub const REJECTED_LIMIT: usize = 64;

/// At most as many actions are remembered for dwell, budgets and oscillation.
pub const ACTS_LIMIT: usize = 64;

/// How a loop decides, with the rank that holds after tuning. Made and written by the closed-loop controller.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "Decision",
    plural = "decisions",
    shortname = "dec",
    category = "ganglion",
    namespaced,
    status = "DecisionStatus",
    derive = "PartialEq",
    doc = "The second hop of a ClosedLoop: alarms come in, one choice goes out, with all that was passed over. Made by the operator.",
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Decision", type_ = "integer", json_path = ".status.seq"),
    printcolumn(name = "Sample", type_ = "integer", json_path = ".status.tag.sequence"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".status.tag.time"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSpec {
    /// The loop's mode. Default: Auto.
    #[serde(default)]
    pub mode: LoopMode,
    /// When the status is written. Default: OnChange.
    #[serde(default)]
    pub trace: Trace,
    /// Why nothing may be decided although the loop is not paused: another loop has the target. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub blocked: Option<String>,
    /// Names of the metrics, the most important first: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// How one action is chosen, and how often there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// What can be done about each alarm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub actions: Vec<LoopAction>,
}

/// What was decided, and the history that decisions need. Written by decision alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStatus {
    /// The generation of the spec that this status speaks of; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: False where the policy cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last sample that was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Number of the last decision. It only grows.
    #[serde(default)]
    pub seq: i64,
    /// What was decided about the last sample, in words: `React to cpu`, `Hold cpu: …`, or `No Event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    /// How far the last decision is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LoopReason>,
    /// The alarms of the last sample that were not served, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rejected: Vec<Rejected>,
    /// The limits in effect now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitState>,
    /// How often each metric was wanted, served and limited. They only grow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub counters: Vec<Counter>,
    /// Which rung of each ladder is due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ladders: Vec<LadderState>,
    /// The past actions that dwell, budgets and oscillation still need, and at least the last two: the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub acts: Vec<Act>,
    /// The last decisions, the oldest first, each in one line: number, time, alarm with its value, rung of the ladder, action,
    /// outcome with its time where it came later, effect. At most 64. `ganglion explain` shows them as a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<Entry>,
    /// The leader term in which this was written; a term begins each time that a replica of the operator takes the lease.
    /// A decision of an earlier term is carried out only after it is confirmed in the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// When this status was last written. The end of the last decision and the counters are written with the next decision,
    /// or five minutes after the last write; until then see Execution's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<MicroTime>,
}

/// One decision, with all that is needed to carry it out.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// Its number: each has at most one effect.
    pub seq: i64,
    /// The metric that is served.
    pub metric: String,
    /// The side on which it is alarmed.
    pub side: Side,
    /// Which rung of the ladder, from 0.
    pub rung: i32,
    /// What is to be done.
    #[serde(rename = "do")]
    pub action: Rung,
    /// When it was decided.
    pub at: MicroTime,
    /// uid of the Execution that is to carry it out; an Execution that was made in its place ignores it.
    pub executor: String,
    /// Auto, DryRun or Approve: the mode in which it was decided.
    pub mode: LoopMode,
    /// The value was unknown: capacity must not be lowered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// For tune: the metric of the target loop that moves up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_served: Option<String>,
    /// How it ended; unset while it is being carried out, and until the next write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// An alarm that was not served.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Name of the metric.
    pub metric: String,
    /// On which side.
    pub side: Side,
    /// Why.
    pub reason: LoopReason,
    /// The same in words.
    pub message: String,
}

/// The limits in effect.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LimitState {
    /// When the dwell ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dwell_until: Option<MicroTime>,
    /// How many actions the budget still allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left: Option<i32>,
    /// Until when capacity is not lowered, because the loop has oscillated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damped_until: Option<MicroTime>,
    /// Until when nothing is done, because the loop has oscillated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_until: Option<MicroTime>,
}

/// How often a metric was wanted, served and limited.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Counter {
    /// Name of the metric.
    pub metric: String,
    /// In how many iterations its alarm stood and an action is declared for it.
    pub wanted: i64,
    /// How often it was served.
    pub served: i64,
    /// How often a limit prevented it: dwell, budget, oscillation, time, min or max.
    pub limited: i64,
    /// When it was last served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_served: Option<MicroTime>,
}

/// Which rung of a ladder is due.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LadderState {
    /// Name of the metric.
    pub metric: String,
    /// On which side.
    pub side: Side,
    /// The rung that is due, from 0.
    pub rung: i32,
    /// When the last action's effect can be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge_at: Option<MicroTime>,
    /// The value when it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// Until when no rung is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted_until: Option<MicroTime>,
}

/// An action that was decided: what limits need to know of it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Act {
    /// Number of the decision.
    pub seq: i64,
    /// When it was decided.
    pub at: MicroTime,
    /// Whether it raises or lowers capacity.
    pub direction: Direction,
    /// Which capacity: `replicas`, `app/memory`.
    pub dimension: String,
}

/// How a decision ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Served,
    /// mode: DryRun; it would have been carried out.
    DryRun,
    /// A min or max left nothing to do.
    Limited,
    /// It could not be carried out.
    Failed,
    /// Somebody else changed the target in between; the next decision starts from its state then.
    Overtaken,
    /// Its outcome cannot be determined; it is not done again.
    Lost,
    /// It was withdrawn before it was begun.
    Withdrawn,
}

impl Outcome {
    /// The word for it.
    #[must_use]
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

/// Whether an action raises or lowers capacity, or does neither.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    Raise,
    Lower,
    #[default]
    Neither,
}
