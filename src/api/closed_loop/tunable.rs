//! Parts of a loop's policy that other loops may change, and the changes that they made.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::identity::Uid;
use crate::scalars::{DurationText, Number};

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
    /// When the change was made.
    pub at: MicroTime,
    /// The complete rank, if it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 40)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Option<Vec<String>>,
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

/// A level that was changed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TunedThreshold {
    /// The level, such as `cpu.low.raise`.
    #[schemars(length(max = 60))]
    pub path: String,
    /// The new value.
    pub value: Number,
}
