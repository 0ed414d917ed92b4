//! PlacementPolicy: agents that filter and score nodes for a pod, and the publication of the nodes' usage. Agents,
//! publication, status and reasons each have a file below.

pub mod agents;
pub mod reasons;
pub mod status;
pub mod usage;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalars::DurationText;
use agents::PolicyAgent;
pub use status::PlacementPolicyStatus;
use usage::PublishUsage;

/// Name of the scheduler whose pods a policy applies to by default.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Filters and scores nodes for pods: for kube-scheduler through its extender protocol, and for WorkloadActions whose
/// target names the policy.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "PlacementPolicy",
    plural = "placementpolicies",
    shortname = "plpol",
    category = "ganglion",
    status = "PlacementPolicyStatus",
    derive = "PartialEq",
    doc = "Filters and scores nodes for pods: for kube-scheduler through its extender protocol, and for WorkloadActions whose target names the policy.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Agents", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Schedulers", type_ = "string", json_path = ".spec.schedulerNames", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.agents.exists(agent, !has(agent.weight) || agent.weight > 0)").message("at least one agent must have a weight above 0; weight: 0 is for agents that only filter").field_path(".agents"),
    validation = Rule::new("self.agents.filter(agent, has(agent.reward)).size() <= 1").message("at most one agent may be of type reward").field_path(".agents"),
    validation = Rule::new("!has(self.maxAge) || duration(self.maxAge) >= duration('10s') && duration(self.maxAge) <= duration('24h')").message("maxAge must be 10s to 24h").field_path(".maxAge"),
    validation = Rule::new("!has(self.sampleWindow) || duration(self.sampleWindow) <= duration('1h')").message("sampleWindow must be at most 1h").field_path(".sampleWindow"),
    validation = Rule::new("!has(self.publishUsage) || duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') + duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') + duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') <= duration(has(self.maxAge) ? self.maxAge : '5m')").message("publishUsage.interval (default 1m) must be at most a third of maxAge (default 5m)").field_path(".publishUsage"),
)]
pub struct PlacementPolicySpec {
    /// Agents, at most 16. Each agent filters nodes, scores them from 0 to 10, or both. A node is rejected if any agent
    /// rejects it. The score of a node is the weighted mean of the agents' scores, without agents that have no data
    /// about any node; it is rounded once, to a whole number from 0 to 10.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<PolicyAgent>,
    /// Active: kube-scheduler receives the policy's filters and scores. Shadow: the policy does not affect
    /// kube-scheduler; its results are written to the operator's log, and a metric counts them. WorkloadActions use the
    /// policy in both modes. Default: Active.
    #[serde(default)]
    pub mode: PolicyMode,
    /// Names of the schedulers whose pods the policy applies to (`spec.schedulerName` of a pod), at most 16. The policy
    /// does not affect pods of other schedulers or pods of DaemonSets. Default: default-scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub scheduler_names: Option<Vec<String>>,
    /// Maximum age of a node's values, 10s to 24h. Older values count as missing. Annotations without a time do not
    /// expire. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationText>,
    /// Time range over which measured usage is averaged, at most 1h. For usage that a policy publishes, set the window
    /// of its publishUsage (default: 1h). Pods that were bound to a node within this time before the measurement are
    /// not, or only in part, included in its usage, so their requests are added to it. If sampleWindow is shorter than
    /// the actual time range, pods that are bound in quick succession overfill a node; if it is longer, fewer pods fit
    /// than could. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_window: Option<DurationText>,
    /// Publishes the usage of all nodes, from Prometheus, as annotations of the nodes: for this operator's policies,
    /// and for other tools that read them (`mean-used-cpu`, `std-used-cpu`, `mean-free-cpu`, …,
    /// `ganglion.dev/usage-sampled-at`). A node is annotated when a number changes by more than 1 % of itself and by
    /// more than 0.1 % of the allocatable amount, and at least once per half of maxAge, using the shortest maxAge of
    /// all policies. Annotations whose usage is no longer known are removed after the longest maxAge of all policies,
    /// or 5 minutes after the last sample if no policy publishes usage any more. If several policies have valid
    /// options, the oldest one publishes. Default: nothing is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_usage: Option<PublishUsage>,
}

/// See [`PlacementPolicySpec::mode`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyMode {
    #[default]
    Active,
    Shadow,
}

impl PlacementPolicySpec {
    /// Names of the schedulers whose pods the policy applies to.
    pub fn schedulers(&self) -> impl Iterator<Item = &str> {
        let named = self.scheduler_names.iter().flatten().map(String::as_str);
        named.chain(self.scheduler_names.is_none().then_some(DEFAULT_SCHEDULER))
    }
}
