//! The ConfigMap from which workers read their jobs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ConfigMap that workers read. The pool creates and owns it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.key != 'handover.json'").message("key handover.json is reserved for the pool's own record; choose another key"),
)]
pub struct Output {
    /// Name of the ConfigMap. With the layout PerWorker, the prefix of the names, followed by `-` and the name of the
    /// pod. An existing object of that name that the pool does not own is not changed.
    #[schemars(length(min = 1, max = 180), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
    /// Key of the file. Default: config.yml.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
    /// Shared: one file for all workers. PerWorker: one ConfigMap per worker, for pools whose file would exceed the
    /// maximum size of a ConfigMap, 1 MiB. Default: Shared.
    #[serde(default)]
    pub layout: OutputLayout,
}

fn default_key() -> String {
    "config.yml".to_owned()
}

/// See [`Output::layout`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputLayout {
    #[default]
    Shared,
    PerWorker,
}
