//! Where the values of a node come from.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refs::{CaRef, SecretRef};
use crate::scalars::DurationText;

/// The types that a source may have, by its name in the spec.
#[must_use]
pub fn types_of(source: &str) -> &'static [&'static str] {
    match source {
        "deltaP" => &["DifferentialPressureAPI", "Fake"],
        "usage" => &["Prometheus", "MetricsServer", "Fake"],
        "powerConsumption" => &["V2InferenceProtocol", "Fake"],
        _ => &["Redfish", "Fake"],
    }
}

/// The types of sources that are asked at no address of the spec.
pub const WITHOUT_ENDPOINT: [&str; 2] = ["Fake", "MetricsServer"];

/// What is measured of a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct MetricsCollector {
    /// Temperature of the air that the node takes in. Types: Redfish, Fake (always 15.5 °C). Default: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temp: Option<EndpointTerm>,
    /// Differential pressure before and behind the node. Types: DifferentialPressureAPI, Fake (always 7.5 Pa). Default: not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_p: Option<EndpointTerm>,
    /// Usage of processors and memory, in percent of what the node has. Types: Prometheus (the series of node-exporter),
    /// MetricsServer (the API metrics.k8s.io of this cluster), Fake (always 50 %). Default: MetricsServer if power is predicted,
    /// else not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<EndpointTerm>,
}

/// What is predicted of a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Predictor {
    /// Power that the node takes, from its processor usage, inlet temperature and differential pressure. Types:
    /// V2InferenceProtocol, Fake (always 3.14 W). The path of the endpoint names the model:
    /// `/v2/models/MODEL/infer` or `/v2/models/MODEL/versions/VERSION/infer`. Default: not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption: Option<EndpointTerm>,
    /// Names the model of the node, instead of `powerConsumption`, which is used while it does not answer. Types: Redfish (the
    /// property `MachineLearningModel` of the node's system), Fake. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption_endpoint_provider: Option<EndpointTerm>,
}

/// A server that is asked for a value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.fetchInterval) || duration(self.fetchInterval) >= duration('1s') && duration(self.fetchInterval) <= duration('1h')").message("fetchInterval must be 1s to 1h").field_path(".fetchInterval"),
    validation = Rule::new("!has(self.window) || duration(self.window) >= duration('1m') && duration(self.window) <= duration('24h')").message("window must be 1m to 24h").field_path(".window"),
    validation = Rule::new("!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify").message("ca has no effect with insecureSkipVerify: true; set one of them"),
)]
pub struct EndpointTerm {
    /// What kind of server it is; each field says which types it takes.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 512))]
    pub type_: String,
    /// http or https address of the server; of a BMC without a path. Not used with the types Fake and MetricsServer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub endpoint: Option<String>,
    /// A Secret of this namespace whose keys `username` and `password` are sent as basic authentication. Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth_secret: Option<SecretRef>,
    /// How often the server is asked, 1s to 1h. Default: 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_interval: Option<DurationText>,
    /// Certificate authorities that the server's certificate is verified with; for a certificate of its own making that
    /// certificate. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
    /// true: any certificate is taken, of anybody who answers at this address, and gets the password. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// Redfish: path of the sensor, such as `/redfish/v1/Chassis/1/Sensors/Inlet`, or its Name or Id.
    /// DifferentialPressureAPI: id of the sensor. Default: Redfish looks for the sensor at the intake; DifferentialPressureAPI
    /// is asked for the sensor of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub sensor: Option<String>,
    /// Prometheus: time over which mean and deviation are taken, 1m to 24h; less than 2m counts as 2m. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Prometheus: label of the series of node-exporter whose value is the node's name or one of its addresses, with or without
    /// a port. Default: instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub node_label: Option<String>,
    /// V2InferenceProtocol: how the model takes the usage of the processors: Percent of all of them, or Raw, in cores. Default:
    /// Percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usage_format: Option<CpuUsageFormat>,
}

/// See [`EndpointTerm::cpu_usage_format`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuUsageFormat {
    #[default]
    Percent,
    Raw,
}

impl CpuUsageFormat {
    /// The name in the spec.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Percent => "Percent",
            Self::Raw => "Raw",
        }
    }
}
