//! NodeConfig and NodeConfigTemplate: the sources of values about nodes, and the current values. Sources, status and
//! reasons each have a file below.
//!
//! The spec has the field names and the meaning of WAO's kinds of the same names (waok8s/wao-core, v1beta1): WAO's
//! manifests work with another apiVersion. All fields that WAO does not have are optional.

pub mod reasons;
mod rules;
pub mod source;
pub mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::identity::NodeName;
use crate::refs::selector_schema;
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
    printcolumn(name = "Pressure(Pa)", type_ = "string", json_path = ".status.differentialPressure.value"),
    printcolumn(name = "CPU(%)", type_ = "string", json_path = ".status.cpu.value"),
    printcolumn(name = "Predicted(W)", type_ = "string", json_path = ".status.power.value"),
    printcolumn(name = "Measured(W)", type_ = "string", json_path = ".status.measuredPower.value"),
    printcolumn(name = "Sampled", type_ = "date", json_path = ".status.sampledAt"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.conditions[?(@.type=='DataAvailable')].status"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='DataAvailable')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Memory(%)", type_ = "string", json_path = ".status.memory.value", priority = 1),
    printcolumn(
        name = "Error(W)",
        type_ = "string",
        json_path = ".status.powerAccuracy.meanAbsoluteError",
        priority = 1
    ),
    printcolumn(name = "Sensor", type_ = "string", json_path = ".status.inletTemperature.source", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='DataAvailable')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::source("metricsCollector", "inletTemp"),
    validation = rules::source("metricsCollector", "deltaP"),
    validation = rules::source("metricsCollector", "usage"),
    validation = rules::source("metricsCollector", "power"),
    validation = rules::power_metric(""),
    validation = rules::power_sensor(""),
    validation = rules::source("predictor", "powerConsumption"),
    validation = rules::source("predictor", "powerConsumptionEndpointProvider"),
)]
pub struct NodeConfigSpec {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: NodeName,
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

/// Creates a NodeConfig, named `<template>-<node>`, for each node that the selector matches. A NodeConfig is deleted
/// when its node is deleted or no longer matches; all of them are deleted with the template.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "NodeConfigTemplate",
    plural = "nodeconfigtemplates",
    shortname = "ncft",
    category = "ganglion",
    namespaced,
    status = "NodeConfigTemplateStatus",
    derive = "PartialEq",
    doc = "Creates a NodeConfig, named `<template>-<node>`, for each node that the selector matches. A NodeConfig is deleted when its node is deleted or no longer matches; all of them are deleted with the template.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Up-To-Date", type_ = "integer", json_path = ".status.current"),
    printcolumn(name = "Fresh", type_ = "integer", json_path = ".status.fresh"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.conditions[?(@.type=='DataAvailable')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::source_template("metricsCollector", "inletTemp"),
    validation = rules::source_template("metricsCollector", "deltaP"),
    validation = rules::source_template("metricsCollector", "usage"),
    validation = rules::source_template("metricsCollector", "power"),
    validation = rules::power_metric("template."),
    validation = rules::power_sensor("template."),
    validation = rules::source_template("predictor", "powerConsumption"),
    validation = rules::source_template("predictor", "powerConsumptionEndpointProvider"),
)]
pub struct NodeConfigTemplateSpec {
    /// Selects the nodes. An empty selector matches all nodes.
    #[schemars(schema_with = "node_selector")]
    pub node_selector: LabelSelector,
    /// The spec of each NodeConfig. `type`, `endpoint`, `sensor`, the values of headers, and the names of Secrets and
    /// ConfigMaps may contain expressions: `{{ hostname }}` (label kubernetes.io/hostname, or else the node's name),
    /// `{{ node.name }}`, `{{ node.labels["example.com/bmc"] }}`, `{{ ipv4.address }}` (first internal IPv4 address),
    /// `{{ ipv4.octet1 }}` to `{{ ipv4.octet4 }}`, `{{ ipv6.address }}`. Numbers can be added, as in
    /// `{{ ipv4.octet4 + 100 }}`. Texts can be changed by the filters of minijinja, as in
    /// `{{ hostname | replace("node", "bmc") }}`, and by `trim_prefix` and `trim_suffix`. WAO's `{{ .Hostname }}`,
    /// `{{ .IPv4.Address }}` and `{{ .IPv4.Octet1 }}` to `{{ .IPv4.Octet4 }}` have the same meaning.
    pub template: NodeTemplate,
}

fn node_selector(_: &mut SchemaGenerator) -> Schema {
    selector_schema("Selects the nodes. An empty selector matches all nodes.", "nodes")
}

/// The spec of the NodeConfigs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Ignored: each NodeConfig has the name of its node. Accepted for compatibility with WAO's manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// true: the operator sends no requests. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Values that are measured. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_collector: Option<MetricsCollector>,
    /// Values that are predicted. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<Predictor>,
}

/// Status of a NodeConfigTemplate.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfigTemplateStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: every node that the selector matches has its NodeConfig, and all of these are Ready: accepted and polled.
    /// DataAvailable: True if all of them have their values, Unknown before the first ones, False with the reason
    /// otherwise. Reconciling: NodeConfigs are being created, changed or deleted, some are not Ready, or the template
    /// cannot be rendered for some nodes. Stalled: the template is invalid for every node, and the NodeConfigs stay as
    /// they are; or the name of a NodeConfig is used by another object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of nodes that the selector matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Number of these nodes whose NodeConfig matches the current template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<i64>,
    /// Number of these NodeConfigs whose values are all known and fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<i64>,
    /// The template, rendered for one of the nodes: the first by name for which rendering succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<NodePreview>,
    /// Nodes whose NodeConfig does not match the template, and why: the template cannot be rendered for them, or the
    /// name of their NodeConfig is used by another object. At most 10; the condition contains their total number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub left_out: Vec<LeftOut>,
}

/// A rendered template.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodePreview {
    /// Name of the node.
    pub node_name: NodeName,
    /// Values that are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_collector: Option<MetricsCollector>,
    /// Values that are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<Predictor>,
}

/// A node whose NodeConfig does not match the template.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Name of the node.
    pub node: NodeName,
    /// Why the NodeConfig does not match.
    pub message: String,
}
