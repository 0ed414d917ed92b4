//! Publication of the usage of nodes: the server and the queries.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::refs::{Auth, CaRef};
use crate::scalars::DurationText;

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
    validation = Rule::new("has(self.__namespace__) || !has(self.auth) && !has(self.ca)").message("set namespace: the namespace of the Secrets and the ConfigMap that auth and ca name").field_path(".namespace"),
    validation = Rule::new("!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify").message("ca has no effect with insecureSkipVerify: true; set one of them"),
)]
pub struct PrometheusServer {
    /// http or https address of the server, without `/api/v1`.
    #[schemars(length(min = 8, max = 2048), regex(pattern = "^https?://[^/]"))]
    pub url: String,
    /// Namespace of the Secrets and the ConfigMap that `auth` and `ca` name. It has no effect without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Credentials. Default: none are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Certificate authorities for verifying the server's certificate; for a self-signed certificate, the certificate
    /// itself. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
    /// true: skips certificate verification; whoever answers at this address receives the credentials. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}
