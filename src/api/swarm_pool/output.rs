//! Where workers find their jobs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ConfigMap that workers read. The pool makes it, and owns it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.key != 'handover.json'").message("key handover.json is the pool's own record; choose another"),
)]
pub struct Output {
    /// Name of the ConfigMap; with the layout PerWorker, the beginning of the names, before `-` and the name of the pod. An
    /// object of that name that the pool does not own is left alone.
    #[schemars(length(min = 1, max = 180), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
    /// Key of the file. Default: config.yml.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
    /// Shared: one file for all workers. PerWorker: a ConfigMap for each worker, for pools that are too large for one, which has
    /// room for 1 MiB. Default: Shared.
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
