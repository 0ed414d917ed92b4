//! A real metrics-server behind the API server's aggregation layer, which reads container usage from the plane's
//! kubelets.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::servers::aggregation::{Aggregated, AggregationHost};
use crate::testbed::Testbed;

/// Annotation of a simulated pod: cpu usage of each of its containers.
pub const CPU: &str = "kwok.x-k8s.io/usage-cpu";

/// Sets the usage of each container of this pod, as quantities.
pub async fn uses(testbed: &Testbed, pod: &str, cpu: &str, memory: &str) -> Result<()> {
    set(&testbed.api(), pod, cpu, memory).await
}

/// The same for one of these pods.
pub async fn set(pods: &Api<Pod>, pod: &str, cpu: &str, memory: &str) -> Result<()> {
    let annotations = json!({CPU: cpu, "kwok.x-k8s.io/usage-memory": memory});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    pods.patch(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Starts it with this time between measurements, and registers it with the API server of the cluster.
pub async fn start(host: impl Into<AggregationHost<'_>>, resolution: Duration) -> Result<Aggregated> {
    let resolution = format!("--metric-resolution={}s", resolution.as_secs());
    let kubeconfig = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];
    let options = [
        &resolution,
        "--kubelet-request-timeout=5s",
        "--kubelet-use-node-status-port",
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalDNS",
    ];
    let apis = [("metrics.k8s.io", "v1beta1")];
    Aggregated::start(host.into(), "metrics-server", &apis, &kubeconfig, &options.map(str::to_owned)).await
}
