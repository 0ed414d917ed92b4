//! Sources of the values of a node.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refs::{CaRef, RequestHeader, SecretRef};
use crate::scalars::DurationText;

/// Allowed types of a source, by its name in the spec.
pub fn types_of(source: &str) -> &'static [&'static str] {
    match source {
        "deltaP" => &["DifferentialPressureAPI", "Fake"],
        "usage" => &["Prometheus", "MetricsServer", "Fake"],
        "powerConsumption" => &["V2InferenceProtocol", "Fake"],
        _ => &["Redfish", "Fake"],
    }
}

/// Types of sources without an endpoint in the spec.
pub const WITHOUT_ENDPOINT: [&str; 2] = ["Fake", "MetricsServer"];

/// Values that are measured for a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct MetricsCollector {
    /// Temperature of the air at the node's inlet. Types: Redfish, Fake (always 15.5 °C). Default: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temp: Option<EndpointTerm>,
    /// Differential pressure between the front and the back of the node. Types: DifferentialPressureAPI, Fake (always
    /// 7.5 Pa). Default: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_p: Option<EndpointTerm>,
    /// CPU and memory usage, in percent of the node's capacity. Types: Prometheus (the series of node-exporter),
    /// MetricsServer (the API metrics.k8s.io of this cluster), Fake (always 50 %). Default: MetricsServer if power is
    /// predicted, otherwise not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<EndpointTerm>,
}

/// Values that are predicted for a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Predictor {
    /// Power consumption of the node, predicted from its CPU usage, inlet temperature and differential pressure. Types:
    /// V2InferenceProtocol, Fake (always 3.14 W). The path of the endpoint names the model: `/v2/models/MODEL/infer` or
    /// `/v2/models/MODEL/versions/VERSION/infer`. Default: not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption: Option<EndpointTerm>,
    /// Source of the endpoint of the node's model. It replaces the endpoint of `powerConsumption`, which is used while
    /// this source does not answer. Types: Redfish (the property `MachineLearningModel` of the node's system), Fake.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption_endpoint_provider: Option<EndpointTerm>,
}

/// A server that provides a value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.fetchInterval) || duration(self.fetchInterval) >= duration('1s') && duration(self.fetchInterval) <= duration('1h')").message("fetchInterval must be 1s to 1h").field_path(".fetchInterval"),
    validation = Rule::new("!has(self.window) || duration(self.window) >= duration('1m') && duration(self.window) <= duration('24h')").message("window must be 1m to 24h").field_path(".window"),
    validation = Rule::new("!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify").message("ca has no effect with insecureSkipVerify: true; set one of them"),
)]
pub struct EndpointTerm {
    /// Type of the server. Each field that uses a server lists its types.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 512))]
    pub type_: String,
    /// http or https address of the server; for a BMC, without a path. Not used with the types Fake and MetricsServer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub endpoint: Option<String>,
    /// A Secret in this namespace whose keys `username` and `password` are sent as basic authentication. Default: no
    /// credentials are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth_secret: Option<SecretRef>,
    /// Further headers that the operator sends, such as that of a tenant. At most 8. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub headers: Option<Vec<RequestHeader>>,
    /// Interval between requests to the server, 1s to 1h. Default: 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_interval: Option<DurationText>,
    /// Certificate authorities for verifying the server's certificate; for a self-signed certificate, the certificate
    /// itself. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
    /// true: skips certificate verification; whoever answers at this address receives the password. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// Redfish: path of the sensor, such as `/redfish/v1/Chassis/1/Sensors/Inlet`, or its Name or Id.
    /// DifferentialPressureAPI: id of the sensor. Default: Redfish searches for the sensor at the inlet;
    /// DifferentialPressureAPI uses the sensor of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub sensor: Option<String>,
    /// Prometheus: time range of mean and deviation, 1m to 24h; less than 2m counts as 2m. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Prometheus: label of the node-exporter series whose value is the node's name or one of its addresses, with or
    /// without a port. Default: instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub node_label: Option<String>,
    /// Prometheus: labels that the series of node-exporter must have, such as `{cluster: east, job: node-exporter}`, at
    /// most 8. Required if several exporters answer for the address of a node, such as those of other clusters.
    /// Default: all series count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8), extend("additionalProperties" = { "type": "string", "maxLength": 253 }))]
    pub matchers: Option<BTreeMap<String, String>>,
    /// V2InferenceProtocol: unit of CPU usage in the model's input. Percent: percent of all CPUs. Raw: cores. Default:
    /// Percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usage_format: Option<CpuUsageFormat>,
    /// V2InferenceProtocol: name of the model's output with the power in watts. Default: the only output, or the one
    /// that is named `power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub output: Option<String>,
}

/// See [`EndpointTerm::cpu_usage_format`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuUsageFormat {
    #[default]
    Percent,
    Raw,
}

impl CpuUsageFormat {
    /// Name in the spec.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Percent => "Percent",
            Self::Raw => "Raw",
        }
    }
}
