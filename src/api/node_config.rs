//! NodeConfig and NodeConfigTemplate: the sources of values about nodes, and the current values. Sources, status and
//! reasons each have a file below.
//!
//! The spec has the field names and the meaning of WAO's kinds of the same names (waok8s/wao-core, v1beta1): WAO's
//! manifests work with another apiVersion. All fields that WAO does not have are optional.

pub mod reasons;
mod rules;
pub mod source;
pub mod status;
pub mod template;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use source::{MetricsCollector, Predictor};
pub use status::NodeConfigStatus;

/// Sources of values about one node, such as temperature, usage and power; the status contains the values.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "NodeConfig",
    plural = "nodeconfigs",
    shortname = "ncfg",
    category = "ganglion",
    namespaced,
    status = "NodeConfigStatus",
    derive = "PartialEq",
    doc = "Sources of values about one node, such as temperature, usage and power; the status contains the values.",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Inlet(C)", type_ = "string", json_path = ".status.inletTemperature.value"),
    printcolumn(name = "DeltaP(Pa)", type_ = "string", json_path = ".status.differentialPressure.value"),
    printcolumn(name = "CPU(%)", type_ = "string", json_path = ".status.cpu.value"),
    printcolumn(name = "Power(W)", type_ = "string", json_path = ".status.power.value"),
    printcolumn(name = "Sampled", type_ = "date", json_path = ".status.sampledAt"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Memory(%)", type_ = "string", json_path = ".status.memory.value", priority = 1),
    printcolumn(name = "Sensor", type_ = "string", json_path = ".status.inletTemperature.source", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::source("metricsCollector", "inletTemp"),
    validation = rules::source("metricsCollector", "deltaP"),
    validation = rules::source("metricsCollector", "usage"),
    validation = rules::source("predictor", "powerConsumption"),
    validation = rules::source("predictor", "powerConsumptionEndpointProvider"),
)]
pub struct NodeConfigSpec {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: String,
    /// true: the operator sends no requests, and the last values become stale. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Values that are measured. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_collector: Option<MetricsCollector>,
    /// Values that are predicted. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<Predictor>,
}
