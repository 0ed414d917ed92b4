//! NodeConfigTemplate: a NodeConfig for each node that a selector matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::rules;
use super::source::{MetricsCollector, Predictor};

/// Makes a NodeConfig, named `<template>-<node>`, for each node that the selector matches. A NodeConfig goes when its node
/// leaves or no longer matches, and all of them with the template.
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
    doc = "Makes a NodeConfig, named `<template>-<node>`, for each node that the selector matches. A NodeConfig goes when its node leaves or no longer matches, and all of them with the template.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.current"),
    printcolumn(name = "Fresh", type_ = "integer", json_path = ".status.fresh"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
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
    validation = rules::source_template("metricsCollector", "inletTemp", &["Redfish", "Fake"]),
    validation = rules::source_template("metricsCollector", "deltaP", &["DifferentialPressureAPI", "Fake"]),
    validation = rules::source_template("metricsCollector", "usage", &["Prometheus", "MetricsServer", "Fake"]),
    validation = rules::source_template("predictor", "powerConsumption", &["V2InferenceProtocol", "Fake"]),
    validation = rules::source_template("predictor", "powerConsumptionEndpointProvider", &["Redfish", "Fake"]),
)]
pub struct NodeConfigTemplateSpec {
    /// The nodes. An empty selector matches all.
    #[schemars(schema_with = "bounded_selector")]
    pub node_selector: LabelSelector,
    /// The spec of each NodeConfig. `type`, `endpoint`, `sensor` and the names of Secrets and ConfigMaps may have expressions:
    /// `{{ hostname }}` (label kubernetes.io/hostname, else the node's name), `{{ node.name }}`,
    /// `{{ node.labels["example.com/bmc"] }}`, `{{ ipv4.address }}` (first internal IPv4 address), `{{ ipv4.octet1 }}` to
    /// `{{ ipv4.octet4 }}`, `{{ ipv6.address }}`. WAO's `{{ .Hostname }}`, `{{ .IPv4.Address }}` and `{{ .IPv4.Octet1 }}` to
    /// `{{ .IPv4.Octet4 }}` mean the same.
    pub template: NodeTemplate,
}

/// The schema of a label selector, bounded.
fn bounded_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The nodes. An empty selector matches all.",
        "properties": {
            "matchLabels": {
                "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
                "description": "Labels that the nodes have, all of them.",
            },
            "matchExpressions": {
                "type": "array", "maxItems": 64,
                "description": "Conditions on the labels of the nodes; all must hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317, "description": "The label."},
                        "operator": {
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "How the label is compared with the values.",
                        },
                        "values": {
                            "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
                            "description": "The values, for In and NotIn.",
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "message": "In and NotIn need values; Exists and DoesNotExist have none",
                    }],
                },
            },
        },
    })
}

/// The spec of the NodeConfigs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Has no effect; each NodeConfig has the name of its node. For manifests that were written for WAO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// true: no machine and no server is asked. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What is measured. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_collector: Option<MetricsCollector>,
    /// What is predicted. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<Predictor>,
}

/// Status of a NodeConfigTemplate.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfigTemplateStatus {
    /// The generation of the spec that this status describes; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: every node that the selector matches has its NodeConfig, and these are Ready. Reconciling: NodeConfigs are being
    /// created, changed or deleted, or some are not Ready. Stalled: the template cannot be rendered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many nodes the selector matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// How many of them have a NodeConfig as the template says now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<i64>,
    /// How many of these NodeConfigs are Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<i64>,
    /// The template rendered for the first of its nodes by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<NodePreview>,
    /// Nodes without a NodeConfig as the template says, and why: those for which it cannot be rendered, and those whose
    /// NodeConfig's name is taken. At most 10; the condition has their number.
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
    pub node_name: String,
    /// What is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_collector: Option<MetricsCollector>,
    /// What is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<Predictor>,
}

/// A node without a NodeConfig as the template says.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Name of the node.
    pub node: String,
    /// Why.
    pub message: String,
}
