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
        "power" => &["Redfish", "Prometheus", "Fake"],
        "powerConsumption" => &["V2InferenceProtocol", "Linear", "Fake"],
        _ => &["Redfish", "Fake"],
    }
}

/// Types of sources without an endpoint in the spec.
pub const WITHOUT_ENDPOINT: [&str; 3] = ["Fake", "MetricsServer", "Linear"];

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
    /// Power that the node draws. Types: Redfish (EnvironmentMetrics, Power or the power supplies of the node's
    /// chassis), Prometheus (the series of `metric`), Fake (always 3.14 W). If power is also predicted, the status
    /// shows the error of the prediction. Default: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<EndpointTerm>,
}

/// Values that are predicted for a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Predictor {
    /// Power consumption of the node. Types: V2InferenceProtocol (a model predicts it from CPU usage, inlet temperature
    /// and differential pressure), Linear (a straight line over the CPU usage, from `idleWatts` to `fullWatts`, or by
    /// `cpuFamily`), Fake (always 3.14 W). The path of the endpoint names the model: `/v2/models/MODEL/infer` or
    /// `/v2/models/MODEL/versions/VERSION/infer`. Default: not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption: Option<EndpointTerm>,
    /// Source of the endpoint of the node's model. It replaces the endpoint of `powerConsumption`, or its straight
    /// line, which is used while this source does not answer. Types: Redfish (the property `MachineLearningModel` of
    /// the node's system), Fake. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_consumption_endpoint_provider: Option<EndpointTerm>,
}

/// A server that provides a value.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.fetchInterval) || duration(self.fetchInterval) >= duration('1s') && duration(self.fetchInterval) <= duration('1h')").message("fetchInterval must be 1s to 1h").field_path(".fetchInterval"),
    validation = Rule::new("!has(self.window) || duration(self.window) >= duration('1m') && duration(self.window) <= duration('24h')").message("window must be 1m to 24h").field_path(".window"),
    validation = Rule::new("self.type.contains('{{') || (self.type == 'Linear' && !has(self.cpuFamily) ? has(self.idleWatts) && has(self.fullWatts) && self.idleWatts <= self.fullWatts : !has(self.idleWatts) && !has(self.fullWatts))").message("type Linear requires idleWatts and fullWatts, which is not less, or cpuFamily without them; other types have neither").field_path(".idleWatts"),
    validation = Rule::new("!has(self.cpuFamily) || self.type == 'Linear' || self.type.contains('{{')").message("cpuFamily requires type Linear").field_path(".cpuFamily"),
    validation = Rule::new("!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify").message("ca has no effect with insecureSkipVerify: true; set one of them"),
)]
pub struct EndpointTerm {
    /// Type of the server. Each field that uses a server lists its types.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 512))]
    pub type_: String,
    /// http or https address of the server; for a BMC, without a path. Not used with the types Fake, MetricsServer and
    /// Linear.
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
    /// Redfish: path of the sensor, such as `/redfish/v1/Chassis/1/Sensors/Inlet`, or its Name or Id. For `power`: the
    /// path of a reading, such as `/redfish/v1/Chassis/1/EnvironmentMetrics` or one that an error names.
    /// DifferentialPressureAPI: id of the sensor. Default: Redfish searches for the sensor at the
    /// inlet, or for the power of the machine; DifferentialPressureAPI uses the sensor of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub sensor: Option<String>,
    /// Time range, 1m to 24h. For `usage` from Prometheus: range of mean and deviation; less than 2m counts as 2m;
    /// default: 5m. For `power`: range over which the error of the prediction is averaged; default: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Prometheus: label of the series whose value is the node's name or one of its addresses, with or
    /// without a port. Default: instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub node_label: Option<String>,
    /// Prometheus: labels that the series must have, such as `{cluster: east, job: node-exporter}`, at most 8. Required
    /// if several series are of the same node, such as those of other clusters. Default: all series count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8), extend("additionalProperties" = { "type": "string", "maxLength": 253 }))]
    pub matchers: Option<BTreeMap<String, String>>,
    /// Prometheus in `power`: name of a metric in watts, or of a counter in joules; it ends in `_watts`, `_watt`,
    /// `:watts`, `_joules_total` or `_joule_total`. Required for this type. Examples:
    /// `ipmi_dcmi_power_consumption_watts` (IPMI exporter), `kepler_platform_watts` and
    /// `kepler_node_platform_joules_total` (Kepler), `node_hwmon_power_average_watt` (node-exporter).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = "^[a-zA-Z_:][a-zA-Z0-9_:]*([_:]watts|_watt|_joules?_total)$")
    )]
    pub metric: Option<String>,
    /// V2InferenceProtocol: unit of CPU usage in the model's input. Percent: percent of all CPUs. Raw: cores. Default:
    /// Percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usage_format: Option<CpuUsageFormat>,
    /// V2InferenceProtocol: name of the model's output with the power in watts. Default: the only output, or the one
    /// that is named `power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub output: Option<String>,
    /// Linear: power of the idle node in watts. Required for this type without `cpuFamily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub idle_watts: Option<i32>,
    /// Linear: power of the node in watts when all of its CPUs are used. Required for this type without `cpuFamily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub full_watts: Option<i32>,
    /// Linear: processor family of the node, instead of `idleWatts` and `fullWatts`. Watts per hardware thread of the
    /// family times `status.capacity.cpu` of the node: an average of servers of that family, in which accelerators are
    /// not included. Values: CascadeLake, IceLake, SapphireRapids (Intel Xeon), EpycGen2, EpycGen3, EpycGen4 (AMD).
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_family: Option<CpuFamily>,
}

/// See [`EndpointTerm::cpu_family`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuFamily {
    CascadeLake,
    IceLake,
    SapphireRapids,
    EpycGen2,
    EpycGen3,
    EpycGen4,
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
