//! PlacementPolicy: agents that filter and score nodes for a pod, and the publishing of the nodes' usage. The agents, the
//! publishing, the status and the reasons have a file each below.

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

/// The scheduler whose pods a policy is for by default.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Filters and scores nodes for pods: for kube-scheduler, which asks by its extender protocol, and for WorkloadActions whose
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
    doc = "Filters and scores nodes for pods: for kube-scheduler, which asks by its extender protocol, and for WorkloadActions whose target names the policy.",
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
    validation = Rule::new("self.agents.exists(agent, !has(agent.weight) || agent.weight > 0)").message("give at least one agent a weight above 0; weight: 0 is for agents that only filter").field_path(".agents"),
    validation = Rule::new("self.agents.filter(agent, has(agent.reward)).size() <= 1").message("at most one agent can be reward").field_path(".agents"),
    validation = Rule::new("!has(self.maxAge) || duration(self.maxAge) >= duration('10s') && duration(self.maxAge) <= duration('24h')").message("maxAge must be 10s to 24h").field_path(".maxAge"),
    validation = Rule::new("!has(self.sampleWindow) || duration(self.sampleWindow) <= duration('1h')").message("sampleWindow must be at most 1h").field_path(".sampleWindow"),
    validation = Rule::new("!has(self.publishUsage) || duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') + duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') + duration(has(self.publishUsage.interval) ? self.publishUsage.interval : '1m') <= duration(has(self.maxAge) ? self.maxAge : '5m')").message("publishUsage.interval (default 1m) must be at most a third of maxAge (default 5m)").field_path(".publishUsage"),
)]
pub struct PlacementPolicySpec {
    /// Agents, at most 16: each filters nodes, scores them from 0 to 10, or both. A node that one of them rejects is rejected. The
    /// score of a node is the weighted mean of the agents' scores, without the agents that know nothing of any node; it is
    /// rounded once, to a whole number from 0 to 10.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<PolicyAgent>,
    /// Active: kube-scheduler gets the policy's filters and scores. Shadow: kube-scheduler gets no opinion, and what it would have
    /// got is in the operator's log; a metric counts the answers. WorkloadActions are served either way. Default: Active.
    #[serde(default)]
    pub mode: PolicyMode,
    /// The policy is for the pods of these schedulers (`spec.schedulerName` of a pod), at most 16; others get no opinion, and
    /// neither do the pods of DaemonSets. Default: default-scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub scheduler_names: Option<Vec<String>>,
    /// Values of a node that are older than this count as missing, 10s to 24h. Annotations without a time do not get old.
    /// Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationText>,
    /// The time over which measured usage is averaged, at most 1h: for usage that a policy publishes, the window of its
    /// publishUsage (default: 1h). The requests of pods that were bound to a node later than this before the measurement are added
    /// to the usage, which does not show those pods yet, or only in part. If it is shorter than the time of the average, pods that
    /// come in quick succession fill a node too far; if it is longer, fewer pods fit than could. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_window: Option<DurationText>,
    /// Publishes the usage of all nodes, from Prometheus, as annotations of the nodes: for this operator's policies, and for other
    /// tools that read them (`mean-used-cpu`, `std-used-cpu`, `mean-free-cpu`, …, `ganglion.dev/usage-sampled-at`). A node is
    /// written where a number changes by more than 1 % of itself and by more than 0.1 % of what is allocatable, and at least every
    /// half of maxAge, by the policy with the shortest maxAge of all. Usage that is not known any more is taken away after maxAge;
    /// 5 minutes after the last sample if no policy publishes any more. Of several policies with valid options the oldest
    /// publishes. Default: nothing is published.
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
    /// The schedulers whose pods the policy is for.
    pub fn schedulers(&self) -> impl Iterator<Item = &str> {
        let named = self.scheduler_names.iter().flatten().map(String::as_str);
        named.chain(self.scheduler_names.is_none().then_some(DEFAULT_SCHEDULER))
    }
}
