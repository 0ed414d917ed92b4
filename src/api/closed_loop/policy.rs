//! Decision policy of a loop: the alarm that is served first, the limits on actions, and the parts that
//! other loops may change.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::Uid;
use crate::scalars::{DurationText, Number};

/// Selects one action in each iteration, and limits how often the loop acts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.weights) == (has(self.select) && self.select == 'Weighted')").message("weights goes with select: Weighted, and Weighted needs weights"),
    validation = Rule::new("has(self.expression) == (has(self.select) && self.select == 'Expression')").message("expression goes with select: Expression, and Expression needs an expression"),
)]
pub struct Policy {
    /// Selects the alarm that is served. Rank: the first in `rank`. Weighted: the alarm with the largest product of its
    /// weight and its excess over the level. Expression: the alarm with the largest result of `expression`. Ties go to
    /// the first in rank. Default: Rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<Select>,
    /// Names of metrics, the most important first. Metrics that are not listed follow in the order of `metrics`.
    /// Default: the order of `metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub rank: Option<Vec<String>>,
    /// With select: Weighted, the weight of each metric by name. Numbers as strings. Default for a metric: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub weights: Option<BTreeMap<String, Number>>,
    /// With select: Expression, an expression that returns a number for each alarm, such as
    /// `metric.excess * 2.0 - metric.served`. An alarm whose number is 0 or less is not served in this iteration. At
    /// most 512 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub expression: Option<String>,
    /// Minimum time between two actions of the loop, such as `60s`. Default: 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dwell: Option<DurationText>,
    /// Maximum number of actions in a period. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Reaction when the loop alternately raises and lowers capacity. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oscillation: Option<Oscillation>,
    /// Whether capacity may be lowered while a metric is unknown that could ask for more: another metric with an action
    /// that raises. WhenKnown: not before that metric has a value again, as a HorizontalPodAutoscaler does; a value
    /// that is assumed (`missing.then`) is one. Always: each alarm is judged by its own metric. Default: WhenKnown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowering: Option<Lowering>,
    /// Additional limits that apply at certain times only. At most 4. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub limits: Option<Vec<Limit>>,
    /// Number of past decisions in the Decision's status, 10 to 64. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 64))]
    pub history_limit: Option<i32>,
}

/// See [`Policy::lowering`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lowering {
    #[default]
    WhenKnown,
    Always,
}

/// At most `max` actions in any period of length `per`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Maximum number of actions, 0 to 60. 0 allows none.
    #[schemars(range(min = 0, max = 60))]
    pub max: i32,
    /// Length of the period, such as `10m`.
    pub per: DurationText,
}

/// Detects that the loop alternately raises and lowers capacity.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Oscillation {
    /// Number of changes of direction within `per` that counts as oscillation, 1 to 30.
    #[schemars(range(min = 1, max = 30))]
    pub reversals: i32,
    /// Length of the period, such as `15m`.
    pub per: DurationText,
    /// Damp: capacity may be raised but not lowered until there are fewer changes of direction. Freeze: the loop takes
    /// no action until then. Default: Damp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Calm>,
}

/// A limit that applies at certain times. If several limits apply, the strictest counts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.dwell) || has(self.budget)").message("set dwell, budget or both; budget: {max: 0, per: 1h} allows no action"),
)]
pub struct Limit {
    /// Name of the limit, shown in messages.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
    /// When the limit applies. 1 to 4.
    #[schemars(length(min = 1, max = 4))]
    pub during: Vec<Window>,
    /// Minimum time between two actions while the limit applies. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dwell: Option<DurationText>,
    /// Maximum number of actions in a period while the limit applies. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A recurring time window: from `start` to `until`, or for `duration` from `cron`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.cron) == has(self.duration) && has(self.start) == has(self.until) && has(self.cron) != has(self.start)").message("set either start and until, or cron and duration"),
)]
pub struct Window {
    /// Start of the window as five cron fields: minute, hour, day of month, month, day of week. `0 8 * * MON-FRI` means
    /// eight o'clock on working days. A window that does not open within five years is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 100))]
    pub start: Option<String>,
    /// End of the window as five cron fields. The window is open from each `start` to the next `until`: with
    /// `30 6 * * MON-FRI` and `10 22 * * *`, it is closed on weekends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 100))]
    pub until: Option<String>,
    /// Start of a window of fixed length, in the form of `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 100))]
    pub cron: Option<String>,
    /// Length of a window that starts at `cron`, such as `10h`. Clock changes do not alter it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationText>,
    /// IANA time zone of the cron fields, such as `Europe/Berlin`. If clocks skip a time, it counts as the first moment
    /// after the gap. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// See [`Policy::select`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    #[default]
    Rank,
    Weighted,
    Expression,
}

/// See [`Oscillation::then`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calm {
    #[default]
    Damp,
    Freeze,
}

/// Parts of the policy that other loops may change, with bounds.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Tunable {
    /// Names of the loops in this namespace that may make changes; the first takes precedence. 1 to 4.
    #[schemars(length(min = 1, max = 4), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub by: Vec<String>,
    /// Whether these loops may change the rank. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rank: bool,
    /// Levels that these loops may change. At most 16. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub thresholds: Option<Vec<TunableThreshold>>,
    /// Time after which a change expires unless it is renewed, such as `12h`. Default: 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationText>,
}

/// Bounds for one level.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("quantity(self.min).compareTo(quantity(self.max)) <= 0").message("min must not be above max"),
    validation = Rule::new("quantity(self.maxStep).isGreaterThan(quantity('0'))").message("maxStep must be above 0"),
)]
pub struct TunableThreshold {
    /// The level as metric, low or high, and raise or clear, such as `cpu.low.raise`.
    #[schemars(length(min = 1, max = 60), regex(pattern = "^[a-zA-Z][a-zA-Z0-9_]*\\.(low|high)\\.(raise|clear)$"))]
    pub path: String,
    /// Lower bound. A number as a string.
    pub min: Number,
    /// Upper bound. A number as a string.
    pub max: Number,
    /// Maximum difference of one change. A number as a string.
    pub max_step: Number,
}

/// Changes that another loop made, in absolute values. Only the Execution of that loop writes this entry.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// Name of the loop that made the change.
    pub by: String,
    /// uid of that loop's Execution.
    pub uid: Uid,
    /// Number of that loop's decision.
    pub seq: i64,
    /// When the last change was made. The lifetime of each part counts from its own change.
    pub at: MicroTime,
    /// The complete rank, if it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Option<Vec<String>>,
    /// When the rank was changed, if it was before the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_at: Option<MicroTime>,
    /// The levels that were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub thresholds: Vec<TunedThreshold>,
    /// The change as text, such as `Increase rank memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub message: Option<String>,
}

impl Tuning {
    /// Whether the tuning contains this level with this value.
    pub fn has_level(&self, path: &str, value: &Number) -> bool {
        self.level_at(path, value).is_some()
    }

    /// Returns when this level was changed to this value.
    pub fn level_at(&self, path: &str, value: &Number) -> Option<&MicroTime> {
        let tuned = self.thresholds.iter().find(|tuned| tuned.path == path && tuned.value == *value)?;
        Some(tuned.at.as_ref().unwrap_or(&self.at))
    }

    /// Returns when the rank was changed to this one.
    pub fn rank_at(&self, rank: &[String]) -> Option<&MicroTime> {
        let is_same = self.rank.as_deref() == Some(rank);
        is_same.then(|| self.rank_at.as_ref().unwrap_or(&self.at))
    }
}

/// A level that was changed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TunedThreshold {
    /// The level, such as `cpu.low.raise`.
    #[schemars(length(max = 60))]
    pub path: String,
    /// The new value.
    pub value: Number,
    /// When the level was changed, if it was before the last change of the tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
}
