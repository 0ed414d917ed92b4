//! The jobs of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::selector;

/// The jobs: inline jobs, and jobs from ConfigMaps. A job that is listed several times is one job, with the largest of
/// its weights; it is dedicated if any entry is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.inline) || has(self.configMaps)").message("set inline, configMaps or both"),
)]
pub struct Jobs {
    /// Inline jobs. At most 500; use ConfigMaps for more. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inline: Option<Vec<InlineJob>>,
    /// ConfigMaps with jobs. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_maps: Option<JobConfigMaps>,
}

/// A job.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InlineJob {
    /// Name of the job, as workers read it. At most 253 characters, without line breaks, and without blanks at the
    /// start or end.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^\\S([^\\x00-\\x1f\\x7f]*\\S)?$"))]
    pub name: String,
    /// Load of the job on its worker, 1 to 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<i32>,
    /// Dedicated: the job has a worker of its own if there are enough workers. Default: Shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<JobQos>,
}

/// See [`InlineJob::qos`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobQos {
    #[default]
    Shared,
    Dedicated,
}

/// ConfigMaps in the pool's namespace. Each key contains one job per line; or a YAML or JSON list whose items are names
/// or objects with name, weight and qos; or an object whose member `jobs` is such a list.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.names) || has(self.selector)").message("set names, selector or both"),
)]
pub struct JobConfigMaps {
    /// Names of ConfigMaps. At most 100. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub names: Option<Vec<String>>,
    /// Selects ConfigMaps by labels. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "config_map_selector")]
    pub selector: Option<LabelSelector>,
}

fn config_map_selector(_: &mut SchemaGenerator) -> Schema {
    selector::schema("Selects ConfigMaps by labels. Default: none.", "ConfigMaps")
}
