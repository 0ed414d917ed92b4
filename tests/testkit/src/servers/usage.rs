//! A real metrics-server behind the API server's aggregation, which reads what containers use off the plane's kubelets.

use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tempfile::TempDir;

use crate::process::free_port;
use crate::servers::aggregation::aggregate;
use crate::servers::prometheus::peer;
use crate::world::World;

/// The metrics-server. Dropped, it ends.
pub struct MetricsServer {
    home: TempDir,
    server: Child,
}

/// From now on each container of this pod uses so much, as quantities.
pub async fn uses(world: &World, pod: &str, cpu: &str, memory: &str) -> Result<()> {
    let annotations = json!({"kwok.x-k8s.io/usage-cpu": cpu, "kwok.x-k8s.io/usage-memory": memory});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    world.api::<Pod>().patch(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}

impl MetricsServer {
    /// Starts it, and registers it with the API server of the world's plane.
    pub async fn start(world: &World) -> Result<Self> {
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig");
        fs::write(&file, world.plane.cluster.kubectl(&["config", "view", "--raw", "--flatten"], None).await?)?;
        let port = free_port()?;
        aggregate(world, "metrics.k8s.io", "v1beta1", port).await?;
        let option = |name: &str| format!("--{name}={}", file.display());
        let server = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(peer("metrics-server")?)
            .args(["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(option))
            .args([
                "--bind-address=127.0.0.1",
                "--metric-resolution=10s",
                "--kubelet-request-timeout=5s",
                "--kubelet-use-node-status-port",
            ])
            .args(["--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalDNS"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", home.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.path().join("log"))?)
            .spawn()
            .context("cannot start metrics-server")?;
        Ok(Self { home, server })
    }

    /// What it has to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
