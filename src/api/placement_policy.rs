//! PlacementPolicy: agents that filter and score nodes for a pod, and the publication of the nodes' usage. Agents,
//! labels, status and reasons each have a file below.

pub mod agents;
pub mod labels;
pub mod reasons;
pub mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refs::{Auth, CaRef, RequestHeader};
use crate::scalars::DurationText;
use agents::PolicyAgent;
use labels::LabelOptions;
pub use status::PlacementPolicyStatus;

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
    printcolumn(name = "Delivery", type_ = "string", json_path = ".spec.delivery"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Labeled", type_ = "integer", json_path = ".status.labels.nodes"),
    printcolumn(name = "Valid-Until", type_ = "string", json_path = ".status.validUntil"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.conditions[?(@.type=='DataAvailable')].status"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Schedulers", type_ = "string", json_path = ".spec.schedulerNames", priority = 1),
    printcolumn(name = "Oldest-Label", type_ = "date", json_path = ".status.labels.oldest", priority = 1),
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
    validation = Rule::new("!has(self.labels) || self.delivery.exists(way, way == 'Labels')").message("labels has no effect unless delivery contains Labels").field_path(".labels"),
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
    /// How schedulers receive the policy. Extender: a scheduler that is configured for it asks the operator about each
    /// pod. Labels: the operator keeps a label with the score on each node, and node affinity reads it, in pods or in
    /// the configuration of a scheduler; see `labels`. Default: Extender.
    #[serde(default = "extender")]
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub delivery: Vec<PolicyDelivery>,
    /// Options of the delivery `Labels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelOptions>,
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
    /// of its publishUsage (default: 1h). The usage includes pods that were bound to a node within this time before the
    /// measurement only in part, so the missing part of their requests is added to it. If sampleWindow is shorter than
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

/// See [`PlacementPolicySpec::delivery`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyDelivery {
    #[default]
    Extender,
    Labels,
}

/// Default of [`PlacementPolicySpec::delivery`].
fn extender() -> Vec<PolicyDelivery> {
    vec![PolicyDelivery::Extender]
}

impl PlacementPolicySpec {
    /// Whether the policy is delivered in this way.
    pub fn is_delivered_by(&self, way: PolicyDelivery) -> bool {
        self.delivery.contains(&way)
    }

    /// Names of the schedulers whose pods the policy applies to.
    pub fn schedulers(&self) -> impl Iterator<Item = &str> {
        let named = self.scheduler_names.iter().flatten().map(String::as_str);
        named.chain(self.scheduler_names.is_none().then_some(DEFAULT_SCHEDULER))
    }
}

/// Publication of the usage of all nodes, from the series of node-exporter. A window has 10 to 1440 steps.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.interval) || duration(self.interval) >= duration('1s') && duration(self.interval) <= duration('1h')").message("interval must be 1s to 1h").field_path(".interval"),
    validation = Rule::new("!has(self.step) || self.step.matches('^([0-9]+[hms])+$') && duration(self.step) >= duration('15s')").message("step must be whole seconds, and at least 15s").field_path(".step"),
    validation = Rule::new("!has(self.window) || self.window.matches('^([0-9]+[hms])+$')").message("window must be whole seconds").field_path(".window"),
    validation = Rule::new("duration(has(self.window) ? self.window : '1h').getSeconds() >= 10 * duration(has(self.step) ? self.step : '1m').getSeconds()").message("window (default 1h) must be at least 10 steps long (default of step: 1m)").field_path(".window"),
    validation = Rule::new("duration(has(self.window) ? self.window : '1h').getSeconds() <= 1440 * duration(has(self.step) ? self.step : '1m').getSeconds()").message("window (default 1h) must be at most 1440 steps long (default of step: 1m)").field_path(".window"),
)]
pub struct PublishUsage {
    /// The server that is queried, with one query per statistic for all nodes.
    pub prometheus: PrometheusServer,
    /// Label of the node-exporter series whose value is the node's name or one of its addresses, with or without a
    /// port. Default: instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub node_label: Option<String>,
    /// Labels that the series of node-exporter must have, such as `{cluster: east, job: node-exporter}`, at most 8.
    /// Required if several exporters answer for the address of a node, such as those of other clusters: such a node is
    /// not annotated. Default: all series count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8), extend("additionalProperties" = { "type": "string", "maxLength": 253 }))]
    pub matchers: Option<BTreeMap<String, String>>,
    /// Time range of mean and deviation, in whole seconds. A node with fewer than 10 samples in it is not annotated.
    /// The mean includes pods that were bound within this time only in part, so that nodes could be overfilled: set
    /// sampleWindow of this policy, and of all others that read the annotations, to the same time, up to its maximum of
    /// 1h. Default: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Time between two samples of the window, in whole seconds, at least 15s; also the time that a forecast looks
    /// ahead. Default: 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<DurationText>,
    /// Interval between queries, 1s to 1h, and at most a third of the policy's maxAge. A policy whose maxAge is shorter
    /// than this interval has known usage only part of the time. Default: 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// true: also publishes forecasts, which extrapolate a line through the window by one step. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<bool>,
}

/// A Prometheus server, or one with the same API.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.__namespace__) || !has(self.auth) && !has(self.ca) && !(has(self.headers) && self.headers.exists(header, has(header.secret)))").message("set namespace: the namespace of the Secrets and the ConfigMap that auth, headers and ca name").field_path(".namespace"),
    validation = Rule::new("!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify").message("ca has no effect with insecureSkipVerify: true; set one of them"),
)]
pub struct PrometheusServer {
    /// http or https address of the server, without `/api/v1`.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://[^/]"))]
    pub url: String,
    /// Namespace of the Secrets and the ConfigMap that `auth`, `headers` and `ca` name. It has no effect without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Credentials. Default: none are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Further headers that the operator sends, such as that of a tenant. At most 8. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub headers: Option<Vec<RequestHeader>>,
    /// Certificate authorities for verifying the server's certificate; for a self-signed certificate, the certificate
    /// itself. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
    /// true: skips certificate verification; whoever answers at this address receives the credentials. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}
