//! The agents of a policy and their options. The defaults are those of the originals: kube-safe-scheduler (safe,
//! congestion, pigeon, reward), WAO (power, podSpread).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node_config::source::CpuUsageFormat;
use crate::scalars::{Decimal, DurationText, Fraction};

/// An agent. Exactly one of safe, congestion, pigeon, power, podSpread, reward, expression is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.safe), has(self.congestion), has(self.pigeon), has(self.power), has(self.podSpread), has(self.reward), has(self.expression)].filter(set, set).size() == 1").message("set exactly one of safe, congestion, pigeon, power, podSpread, reward, expression"),
)]
pub struct PolicyAgent {
    /// Name of the agent, shown in reasons of rejections and in explanations.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Weight of the agent's score in the total score, 0 to 1000. 0: the agent only filters. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<i32>,
    /// Limits the risk of overload, based on measured usage of CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<SafeAgent>,
    /// Avoids nodes with a high congestion factor. Other tools write the factor to the annotation `congestion-factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionAgent>,
    /// Spreads or packs pods by their requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pigeon: Option<PigeonAgent>,
    /// Prefers nodes whose predicted power consumption rises least. Requires NodeConfigs with a predictor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerAgent>,
    /// Spreads a share of each ReplicaSet's pods over regions, zones or nodes. This agent only filters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_spread: Option<PodSpreadAgent>,
    /// Prefers nodes on which pods of the same type ran well before, and avoids nodes on which they failed. At most one
    /// per policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<RewardAgent>,
    /// Filters and scores nodes by CEL expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<ExpressionAgent>,
}

/// Options of `safe`. Usage is read from annotations (`mean-used-cpu`, `std-used-cpu`, `mean-used-memory`,
/// `std-used-memory`, or `mean-free-…` and `std-free-…`), or else from the node's NodeConfig. A resource whose usage is
/// unknown is not evaluated. A node without any known usage is not rejected and has the score 0.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SafeAgent {
    /// Share of a resource above which a node is overloaded, 0 to 1. Default: "0.9".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Fraction>,
    /// Accepted probability of overload, 0 to 1. Default: "0.3".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Fraction>,
    /// Weight of a forecast relative to the mean, 0 to 1. Default: "0.2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast_weight: Option<Fraction>,
    /// true: nodes with a higher risk than `risk` are rejected. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<bool>,
    /// Overload: the lower the risk, the better. Balance: the lower and the steadier the usage, the better. Default:
    /// Overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<SafeScore>,
    /// Options of `score: Balance`. Default: those of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<SafeBalance>,
}

/// See [`SafeAgent::score`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SafeScore {
    #[default]
    Overload,
    Balance,
}

/// Influence of the deviation of usage on the score.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.sensitivity) || double(self.sensitivity) > 0.0").message("sensitivity must be above 0").field_path(".sensitivity"),
)]
pub struct SafeBalance {
    /// Factor of the deviation. Default: "1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Decimal>,
    /// Root of the deviation that is used: 1 for the deviation itself, 2 for its square root. Default: "2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Decimal>,
}

/// Options of `congestion`. A node without the annotation `congestion-factor` is not congested; if the annotation is
/// not a number, the score is 0. The annotation `ganglion.dev/congestion-sampled-at` contains the time at which the
/// factor was measured, such as `2026-01-31T12:00:00Z`. A factor that is older than maxAge counts as missing. Without
/// the time annotation, a factor does not expire.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.max) || double(self.max) > 0.0").message("max must be above 0").field_path(".max"),
)]
pub struct CongestionAgent {
    /// Factor of a fully congested node. Default: "100".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Decimal>,
}

/// Options of `pigeon`. The best node has the score 10, the worst node 1, and a node without room for the pod 0. The
/// scores show the order of the nodes, not how much they differ.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.prime) || (has(self.resources) ? self.resources.exists(one, one == self.prime) : self.prime in ['cpu', 'memory'])").message("prime must be one of resources").field_path(".prime"),
)]
pub struct PigeonAgent {
    /// AdaptiveBinPacking: makes the allocation of nodes as diverse as the pods; equal pods are spread, pods of mixed
    /// sizes are packed. LoadBalance: equal allocation of the prime resource. Consolidate: full nodes and empty nodes.
    /// Default: AdaptiveBinPacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<PigeonObjective>,
    /// Resources that AdaptiveBinPacking uses, and that a node must have enough of. Default: cpu, memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resources: Option<Vec<PigeonResourceName>>,
    /// Resource that LoadBalance and Consolidate use. Default: the first of resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prime: Option<PigeonResourceName>,
    /// Measure for Consolidate. Scaled: how close each node is to full or empty, relative to the mean. Deviation:
    /// standard deviation. Default: Scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate_by: Option<ConsolidateBy>,
}

/// See [`PigeonAgent::objective`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PigeonObjective {
    #[default]
    AdaptiveBinPacking,
    LoadBalance,
    Consolidate,
}

/// A resource of nodes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PigeonResourceName {
    #[default]
    #[serde(rename = "cpu")]
    Cpu,
    #[serde(rename = "memory")]
    Memory,
    #[serde(rename = "pods")]
    Pods,
    #[serde(rename = "nvidia.com/gpu")]
    Gpu,
    #[serde(rename = "ephemeral-storage")]
    EphemeralStorage,
}

/// See [`PigeonAgent::consolidate_by`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsolidateBy {
    #[default]
    Scaled,
    Deviation,
}

/// Options of `power`. The node whose power consumption rises least has the score 10, the node whose power consumption
/// rises most has the score `base`, a node without enough CPU has 1, and a node without a prediction 0. If a NodeConfig
/// is Inaccurate, the straight line in `status.powerAccuracy` counts instead of its prediction.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PowerAgent {
    /// Assumed CPU usage of a pod that is bound and does not run yet, as a share of its CPU request, 0 to 1. Default:
    /// "0.5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_usage_assumption: Option<Fraction>,
    /// Uses only predictions of models whose input has this unit of CPU usage, according to the NodeConfigs
    /// (`predictor.powerConsumption.cpuUsageFormat`): Percent or Raw. Straight lines are used in any case. Default:
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usage_format: Option<CpuUsageFormat>,
    /// Score of the node whose power consumption rises most, in percent, 15 to 90; it is always higher than the score
    /// of a node without enough CPU. Default: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 15, max = 90))]
    pub base: Option<i32>,
}

/// Options of `podSpread`. The areas are regions if the nodes are in at least two regions, otherwise zones if the nodes
/// are in at least two zones, otherwise nodes. A pod may run in the areas with the fewest pods of its ReplicaSet, among
/// the areas with a node that no other agent rejects; the order of the agents does not matter. Pods count once the
/// operator's watch has received them: if replicas are created within milliseconds, some are placed before the others
/// are observed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodSpreadAgent {
    /// Share of the replicas that is spread, 0 to 1. The annotation `wao.bitmedia.co.jp/podspread-rate` of the pod
    /// takes precedence, then that of its ReplicaSet. Default: only pods with one of these annotations are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Fraction>,
}

/// Options of `reward`. Each type of pods has a value from 0 to 1 on each node, and the score is ten times the value. A
/// running pod raises the value; a container that ends with an error, or a failed pod, lowers it. The type is the label
/// `podtype`, or else `app`, or else `name`, or else the name of the pod. Pods of DaemonSets and of other schedulers do
/// not count. The values survive restarts in the ConfigMap that `status.memory` names.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.learningRate) || double(self.learningRate) > 0.0").message("learningRate must be above 0").field_path(".learningRate"),
    validation = Rule::new("!has(self.meanTimeToFailure) || duration(self.meanTimeToFailure) >= duration('1s') && duration(self.meanTimeToFailure) <= duration('720h')").message("meanTimeToFailure must be 1s to 720h").field_path(".meanTimeToFailure"),
    validation = Rule::new("!has(self.period) || duration(self.period) >= duration('1m') && duration(self.period) <= duration('24h')").message("period must be 1m to 24h").field_path(".period"),
)]
pub struct RewardAgent {
    /// Weight of the last pod relative to all pods before it, above 0, at most 1. Default: "0.1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<Fraction>,
    /// Initial value of a node that has not run a pod of the type, 0 to 1. The higher the value, the sooner a pod is
    /// placed there. Default: "1.0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Fraction>,
    /// If a container ran longer than this until it failed, or since it last failed, the failure moves the value
    /// towards 0.5; otherwise towards 0. 1s to 720h. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_time_to_failure: Option<DurationText>,
    /// Interval at which a pod whose containers run and never failed moves the value towards 1, 1m to 24h. Default:
    /// 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<DurationText>,
}

/// Options of `expression`: CEL expressions such as `node.pods < 3`. The variables are those of `where` in
/// WorkloadActions. Pods that a scheduler is placing count: in `filter` on every node on which they may be, in `score`
/// on the most likely one. `node.arriving` is their number.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.filter) || has(self.score)").message("set filter, score or both"),
)]
pub struct ExpressionAgent {
    /// Expression that must be true; a node is rejected if it is false, or has no value for the node. At most 512
    /// characters. Default: no node is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub filter: Option<String>,
    /// Expression for the score, limited to 0 to 10, such as `10.0 * (1.0 - node.memory.requestedShare)`. If it has no
    /// value for a node, the score is 0. At most 512 characters. Default: no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub score: Option<String>,
}
