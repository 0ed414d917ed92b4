//! Status of a ClosedLoop: conditions, the effective policy, and the changes that other loops made.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::policy::{TunedThreshold, Tuning};
use crate::identity::Uid;

/// Status of a ClosedLoop. Other loops write `tuning`, one entry each; the closed-loop controller writes all other
/// fields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClosedLoopStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: always present; True if the spec is accepted and the loop works on it, also before the first sample, and
    /// while a decision waits for approval. Reconciling: children are being created, the target is being checked, or a
    /// temporary problem exists. Stalled: the spec cannot work. DataAvailable: whether every metric has a value;
    /// Unknown before the first one. LastActionSucceeded: how the last action ended; not present before the first one.
    /// Proposed: a decision waits for approval. ChangeUndone: another client undid changes within the last hour; after
    /// the third of a field in a row, the loop stops. Preflight: whether the target and the permissions of the service
    /// account allow every action; checked when the spec changes, after a failed action, and every 5 minutes, in every
    /// mode except Paused. Conflict: another loop or an autoscaler controls the same target. TimescaleOverlap: the loop
    /// is too fast for the loop that it tunes. UtilizationFeedback: a metric with an action is in percent of requests
    /// that the loop changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Summary for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<LoopSummary>,
    /// The effective policy, after tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Effective>,
    /// Changes made by other loops. At most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["by".into()]))]
    pub tuning: Vec<Tuning>,
    /// Memory of the forecast of an action on side Target. The monitoring controller writes it once an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastState>,
    /// Managers that apply fields which this loop would change, by server-side apply. A manager is remembered if
    /// somebody else changes the field, until it applies the object without the field. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub owners: Vec<SeenOwner>,
    /// Path of the number of replicas in the target, such as `spec.size`, if it is not `spec.replicas`: the CRD of the
    /// kind, or a write of the scale subresource, names it. A rung that patches this path changes replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub replicas_path: Option<String>,
}

/// Memory of a forecast.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ForecastState {
    /// Demand of the last season, and the errors of the forecast, in a form of its own.
    #[schemars(length(max = 2048))]
    pub memory: String,
}

/// Manager that applied a field of the target.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SeenOwner {
    /// The field: `replicas`, container and resource, or a path.
    pub dimension: String,
    /// Paths of the fields that the manager applied. A resize changes two. Default: every field of the dimension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub paths: Vec<String>,
    /// The field manager.
    pub manager: String,
    /// uid of the target.
    pub uid: Uid,
    /// When the manager last applied the target with the field.
    pub applied_at: MicroTime,
}

/// Summary of a loop.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LoopSummary {
    /// Kind and name of the target, such as `Deployment/web`.
    pub target: String,
    /// The active alarms, such as `High cpu,Low memory`; `none` if there is none; unset before the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarms: Option<String>,
    /// The last action, such as `replicas 3 → 4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// When the last action was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted_at: Option<MicroTime>,
    /// The last decision as text, such as `React to cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// When the last decision was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<MicroTime>,
}

/// The effective policy of a loop.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    /// The rank of all metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rank: Vec<String>,
    /// The levels that differ from the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub thresholds: Vec<TunedThreshold>,
    /// When the next of these changes expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<MicroTime>,
    /// Changes that were rejected, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub refused: Vec<String>,
}
