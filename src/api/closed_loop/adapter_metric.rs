//! Metrics that adapters serve behind the API server, as HorizontalPodAutoscaler has them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::TargetRef;
use super::aggregate::Aggregate;
use crate::refs::selector_schema;

/// A metric of something outside of Kubernetes, such as the length of a queue, from external.metrics.k8s.io. It is what
/// a HorizontalPodAutoscaler reads for its type External.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetric {
    /// Name of the metric. At most 253 characters, without `/` and `%`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[^/%]+$"))]
    pub metric: String,
    /// Selects values by the labels of the metric. A value that has one of the labels, and does not match, is left out
    /// even if the adapter returns it. Default: all values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "value_selector")]
    pub selector: Option<LabelSelector>,
    /// Namespace in which the metric is read. If it is not the loop's own namespace, the service account needs the
    /// permission there. Default: the loop's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Treatment of several values. Sum: they are added up, as by a HorizontalPodAutoscaler. Default: the metric is
    /// unknown if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub several: Option<SeveralValues>,
}

/// See [`ExternalMetric::several`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeveralValues {
    #[default]
    Sum,
}

/// A metric of an object or of pods, from custom.metrics.k8s.io. It is what a HorizontalPodAutoscaler reads for its
/// types Object and Pods. Exactly one of `object`, `pods` is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.object) != has(self.pods)").message("set exactly one of object, pods"),
    validation = Rule::new("!has(self.of) || has(self.pods)").message("of combines the values of pods: an object has one value"),
)]
pub struct CustomMetric {
    /// Name of the metric. At most 253 characters, without `/` and `%`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[^/%]+$"))]
    pub metric: String,
    /// Selects values by the labels of the metric. Default: all values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "value_selector")]
    pub selector: Option<LabelSelector>,
    /// The object that the metric describes, in the loop's namespace. The kind Namespace means this namespace itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<TargetRef>,
    /// The pods that the metric describes, each with a value of its own. The service account also needs the permission
    /// to list pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<MetricPods>,
    /// Aggregation of the values of several pods. Default: Mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Aggregate>,
}

/// Pods with a metric. `{}` means the pods of the loop's target.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MetricPods {
    /// Labels that select the pods. Default: the pods of the loop's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub pod_labels: Option<BTreeMap<String, String>>,
}

fn value_selector(_: &mut SchemaGenerator) -> Schema {
    selector_schema("Selects values by the labels of the metric. Default: all values.", "values")
}
