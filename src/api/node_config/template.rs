//! NodeConfigTemplate: a NodeConfig for each node that a selector matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::rules;
use super::source::{MetricsCollector, Predictor};
use crate::selector;

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
    validation = rules::source_template("metricsCollector", "inletTemp"),
    validation = rules::source_template("metricsCollector", "deltaP"),
    validation = rules::source_template("metricsCollector", "usage"),
    validation = rules::source_template("predictor", "powerConsumption"),
    validation = rules::source_template("predictor", "powerConsumptionEndpointProvider"),
)]
pub struct NodeConfigTemplateSpec {
    /// The nodes. An empty selector matches all.
    #[schemars(schema_with = "node_selector")]
    pub node_selector: LabelSelector,
    /// The spec of each NodeConfig. `type`, `endpoint`, `sensor` and the names of Secrets and ConfigMaps may have expressions:
    /// `{{ hostname }}` (label kubernetes.io/hostname, else the node's name), `{{ node.name }}`,
    /// `{{ node.labels["example.com/bmc"] }}`, `{{ ipv4.address }}` (first internal IPv4 address), `{{ ipv4.octet1 }}` to
    /// `{{ ipv4.octet4 }}`, `{{ ipv6.address }}`. Numbers can be added, as in `{{ ipv4.octet4 + 100 }}`, and texts changed by the
    /// filters of minijinja, as in `{{ hostname | replace("node", "bmc") }}`, and by `trim_prefix` and `trim_suffix`. WAO's `{{ .Hostname }}`, `{{ .IPv4.Address }}` and `{{ .IPv4.Octet1 }}` to
    /// `{{ .IPv4.Octet4 }}` mean the same.
    pub template: NodeTemplate,
}

fn node_selector(_: &mut SchemaGenerator) -> Schema {
    selector::schema("The nodes. An empty selector matches all.", "nodes")
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
    /// created, changed or deleted, some are not Ready, or the template cannot be rendered for some nodes. Stalled: it is wrong
    /// for every node, and the NodeConfigs stay as they are; or the name of a NodeConfig is taken.
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
    /// The template rendered for one of its nodes: the first by name for which it can be.
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
