//! APIs that servers on loopback serve behind the API server.

use anyhow::Result;
use serde_json::{Value, json};

use crate::world::World;

/// Lets the API server of the world's plane serve this API from this port.
pub async fn aggregate(world: &World, group: &str, version: &str, port: u16) -> Result<()> {
    let apply =
        async |object: Value| world.kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string())).await;
    let service = group.split('.').next().unwrap_or(group);
    apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}))
    .await?;
    apply(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": service, "namespace": world.ns, "port": port}}}))
    .await
    .map(drop)
}
