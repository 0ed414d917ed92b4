//! The agents of a policy and their options. Defaults are those of the originals: kube-safe-scheduler (safe, congestion, pigeon,
//! reward), WAO (power, podSpread).

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
    /// Name of the agent, in reasons of rejections and in explanations.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How much its score counts beside those of the others, 0 to 1000. 0: it only filters. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<i32>,
    /// Keeps the risk of overload low, by measured usage of CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<SafeAgent>,
    /// Avoids nodes with a high congestion factor, which others write into the annotation `congestion-factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionAgent>,
    /// Spreads or packs pods by their requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pigeon: Option<PigeonAgent>,
    /// Prefers nodes whose predicted power rises least. Needs NodeConfigs with a predictor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerAgent>,
    /// Spreads a part of each ReplicaSet's pods over regions, zones or nodes. A filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_spread: Option<PodSpreadAgent>,
    /// Prefers nodes on which pods of the same type ran well before, and avoids those on which they failed. One for each policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<RewardAgent>,
    /// Filters and scores by expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<ExpressionAgent>,
}

/// Options of `safe`. Usage is that of annotations (`mean-used-cpu`, `std-used-cpu`, `mean-used-memory`, `std-used-memory`, or
/// `mean-free-…` and `std-free-…`), or else that of the node's NodeConfig. Without usage of a resource, it is not judged; a node
/// without any is not rejected, and has the score 0.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SafeAgent {
    /// A node is overloaded above this share of a resource, 0 to 1. Default: "0.9".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Fraction>,
    /// Probability of overload that is accepted, 0 to 1. Default: "0.3".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Fraction>,
    /// Weight of a forecast beside the mean, 0 to 1. Default: "0.2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast_weight: Option<Fraction>,
    /// true: nodes with a higher risk than `risk` are rejected. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<bool>,
    /// Overload: the lower the risk, the better. Balance: the lower and the steadier the usage, the better. Default: Overload.
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

/// How the deviation of usage counts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.sensitivity) || double(self.sensitivity) > 0.0").message("sensitivity must be above 0").field_path(".sensitivity"),
)]
pub struct SafeBalance {
    /// Factor of the deviation. Default: "1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Decimal>,
    /// Which root of the deviation counts: 1 the deviation itself, 2 its square root. Default: "2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Decimal>,
}

/// Options of `congestion`. A node without the annotation `congestion-factor` is not congested; one whose annotation is no number
/// has the score 0. The annotation `ganglion.dev/congestion-sampled-at` is the time at which the factor was measured, such as
/// `2026-01-31T12:00:00Z`: a factor that is older than maxAge counts as missing. Without that annotation, a factor does not get
/// old.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.max) || double(self.max) > 0.0").message("max must be above 0").field_path(".max"),
)]
pub struct CongestionAgent {
    /// The factor of a fully congested node. Default: "100".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Decimal>,
}

/// Options of `pigeon`. The best node scores 10, the worst 1, one without room for the pod 0: the scores show the order of nodes,
/// not how different they are.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.prime) || (has(self.resources) ? self.resources.exists(one, one == self.prime) : self.prime in ['cpu', 'memory'])").message("prime must be one of resources").field_path(".prime"),
)]
pub struct PigeonAgent {
    /// AdaptiveBinPacking: nodes get as different as pods are; equal pods are spread, pods of mixed sizes are packed. LoadBalance:
    /// equal allocation of the prime resource. Consolidate: full nodes and empty nodes. Default: AdaptiveBinPacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<PigeonObjective>,
    /// The resources that count for AdaptiveBinPacking, and that a node needs enough of. Default: cpu, memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resources: Option<Vec<PigeonResourceName>>,
    /// The resource that counts for LoadBalance and Consolidate. Default: the first of resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prime: Option<PigeonResourceName>,
    /// How Consolidate measures. Scaled: how close each node is to full or empty, beside the mean. Deviation: the standard
    /// deviation. Default: Scaled.
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

/// Options of `power`. The node whose power rises least scores 10, the one where it rises most `base`; one without enough CPU
/// scores 1, one whose prediction is missing 0.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PowerAgent {
    /// Share of the requested CPU that a pod is taken to use that is bound and does not run yet, 0 to 1. Default: "0.5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_usage_assumption: Option<Fraction>,
    /// The agent uses only predictions of models that take the usage of processors like this, as their NodeConfigs say
    /// (`predictor.powerConsumption.cpuUsageFormat`): Percent or Raw. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usage_format: Option<CpuUsageFormat>,
    /// Score of the node whose power rises most, in percent, 15 to 90: always more than that of a node without enough CPU.
    /// Default: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 15, max = 90))]
    pub base: Option<i32>,
}

/// Options of `podSpread`. Regions where nodes are in at least two, else zones where they are in at least two, else nodes. A pod
/// may go to the areas with the fewest pods of its ReplicaSet, among the areas with a node that no other agent rejects; the order
/// of the agents does not matter. Pods count once the operator's watch has brought them: of replicas that are made within
/// milliseconds, some are placed before the others are known.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodSpreadAgent {
    /// Share of the replicas that is spread, 0 to 1. The annotation `wao.bitmedia.co.jp/podspread-rate` of the pod comes first,
    /// then that of its ReplicaSet. Default: only pods with one of these annotations are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Fraction>,
}

/// Options of `reward`. Each type of pods has a value from 0 to 1 on each node, and the score is ten times the value. A pod that
/// runs raises it; a container that ends with an error, or a failed pod, lowers it. The type is the label `podtype`, else `app`,
/// else `name`, else the name of the pod. Pods of DaemonSets and of other schedulers do not count. The values are kept over
/// restarts, in the ConfigMap that `status.memory` names.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.learningRate) || double(self.learningRate) > 0.0").message("learningRate must be above 0").field_path(".learningRate"),
    validation = Rule::new("!has(self.meanTimeToFailure) || duration(self.meanTimeToFailure) >= duration('1s') && duration(self.meanTimeToFailure) <= duration('720h')").message("meanTimeToFailure must be 1s to 720h").field_path(".meanTimeToFailure"),
    validation = Rule::new("!has(self.period) || duration(self.period) >= duration('1m') && duration(self.period) <= duration('24h')").message("period must be 1m to 24h").field_path(".period"),
)]
pub struct RewardAgent {
    /// How much the last pod counts beside all before it, above 0, at most 1. Default: "0.1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<Fraction>,
    /// Value of a node on which no pod of the type was, 0 to 1: the higher, the sooner a pod tries it. Default: "1.0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Fraction>,
    /// A container that ran for longer than this until it failed, or since it failed before, pulls the value to 0.5, any other to
    /// 0. 1s to 720h. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_time_to_failure: Option<DurationText>,
    /// A pod whose containers run and never failed pulls the value to 1 once in this time, 1m to 24h. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<DurationText>,
}

/// Options of `expression`, in CEL, such as `node.pods < 3`. Names: those of `where` in WorkloadActions.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.filter) || has(self.score)").message("set filter, score or both"),
)]
pub struct ExpressionAgent {
    /// A node is rejected if this is false, or has no value for the node. At most 512 characters. Default: no node is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub filter: Option<String>,
    /// The score, cut to 0 to 10, such as `10.0 * (1.0 - node.memory.requestedShare)`; without a value for a node, its score is 0.
    /// At most 512 characters. Default: no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub score: Option<String>,
}
