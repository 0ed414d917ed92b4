//! The bare program: creates NodeConfigs, writes the status of each once, changes their specs, and has the garbage
//! collector delete them.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::node_config::NodeConfig;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Number of concurrent requests, as in the operator's setting `nodeConfigs.concurrency`.
pub const WRITERS: usize = 32;

/// Owner of its NodeConfigs.
const OWNER: &str = "owner";

pub struct Bare {
    client: Client,
    namespace: String,
    nodes: Vec<String>,
}

impl Bare {
    pub fn new(client: &Client, namespace: &str, nodes: Vec<String>) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned(), nodes }
    }

    fn api(&self) -> Api<NodeConfig> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates all NodeConfigs with this spec, and writes the status of each.
    pub async fn make(&self, spec: &Value) -> Result<()> {
        let owners: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": OWNER}}))?;
        let owner = owners.create(&PostParams::default(), &owner).await?;
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner.uid(),
            "controller": true, "blockOwnerDeletion": true,
        });
        self.each(async |name: String| {
            let mut spec = spec.clone();
            spec["nodeName"] = json!(name);
            let object: NodeConfig = serde_json::from_value(json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
                "metadata": {"name": format!("bare-{name}"), "ownerReferences": [reference]}, "spec": spec,
            }))?;
            let mut made = self.api().create(&PostParams::default(), &object).await?;
            made.status = Some(serde_json::from_value(json!({
                "observedGeneration": 1, "inletTemperature": {"value": "15.5", "source": "Fake"}, "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Sampled", "message": "every value is known and fresh",
                        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
            }))?);
            self.api().replace_status(&made.name_any(), &PostParams::default(), &made).await?;
            Ok(())
        })
        .await
    }

    /// Changes all NodeConfigs to this spec.
    pub async fn change(&self, spec: &Value) -> Result<()> {
        self.each(async |name: String| {
            let mut spec = spec.clone();
            spec["nodeName"] = json!(name);
            let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
            let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
            self.api().patch(&format!("bare-{name}"), &PatchParams::default(), &patch).await?;
            Ok(())
        })
        .await
    }

    /// Deletes their owner.
    pub async fn drop_owner(&self) -> Result<()> {
        let owners: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        owners.delete(OWNER, &DeleteParams::background()).await?;
        Ok(())
    }

    async fn each(&self, work: impl AsyncFn(String) -> Result<()>) -> Result<()> {
        stream::iter(self.nodes.iter().cloned()).map(|name| work(name)).buffer_unordered(WRITERS).try_collect().await
    }
}
