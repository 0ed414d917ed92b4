//! A real metrics-server behind the API server's aggregation, which reads what containers use off a kubelet of this file's own.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::operator::free_port;
use super::prometheus::peer;
use super::server::{Manner, Server};
use super::world::World;

/// What a kubelet answers with.
const METRICS: &str = "200 OK\nContent-Type: text/plain; version=0.0.4\r\n";

/// What one container is said to use: cores, and bytes of memory.
#[derive(Clone, Copy, Debug)]
pub struct Used(pub f64, pub u64);

/// The metrics-server and its kubelet. Dropped, both end.
pub struct MetricsServer {
    home: TempDir,
    server: Child,
    kubelet: JoinHandle<()>,
    used: watch::Sender<Used>,
}

impl MetricsServer {
    /// Starts it for one container of one pod, and registers it with the API server of the world's plane.
    pub async fn start(world: &World, pod: &str, container: &str, used: Used) -> Result<Self> {
        let (used, mut now) = watch::channel(used);
        let kubelet = Server::start(Manner::Hangs).await;
        let address = kubelet.address;
        let labels = format!(r#"{{container="{container}",namespace="{}",pod="{pod}"}}"#, world.ns);
        let kubelet = tokio::spawn(async move {
            let (mut seconds, begun) = (100.0, Timestamp::now().as_second());
            let mut last = tokio::time::Instant::now();
            loop {
                let Used(cores, bytes) = *now.borrow_and_update();
                seconds += cores * last.elapsed().as_secs_f64();
                last = tokio::time::Instant::now();
                let at = Timestamp::now().as_millisecond();
                let text = format!(
                    "node_cpu_usage_seconds_total {seconds} {at}\nnode_memory_working_set_bytes {bytes} {at}\n\
                     container_cpu_usage_seconds_total{labels} {seconds} {at}\n\
                     container_memory_working_set_bytes{labels} {bytes} {at}\n\
                     container_start_time_seconds{labels} {begun}\n"
                );
                kubelet.turn(Manner::Says(METRICS, text));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig");
        fs::write(&file, world.plane.kubectl(&["config", "view", "--raw", "--flatten"], None).await?)?;
        let port = free_port()?;
        register(world, address.port(), port).await?;
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
            .args(["--deprecated-kubelet-completely-insecure", &format!("--secure-port={port}")])
            .arg(format!("--cert-dir={}", home.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.path().join("log"))?)
            .spawn()
            .context("cannot start metrics-server")?;
        Ok(Self { home, server, kubelet, used })
    }

    /// What it has to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// From now on the container uses this.
    pub fn uses(&self, used: Used) {
        let _ = self.used.send(used);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.kubelet.abort();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A node whose kubelet is ours, and the API that the metrics-server serves.
async fn register(world: &World, kubelet: u16, port: u16) -> Result<()> {
    let apply = async |object: serde_json::Value, more: &[&str]| {
        let all = [&["apply", "--server-side", "-f", "-"], more].concat();
        world.kubectl(&all, Some(&object.to_string())).await
    };
    let (kind, name) = ("Node", json!({"name": "meter"}));
    apply(json!({"apiVersion": "v1", "kind": kind, "metadata": name, "spec": {"unschedulable": true}}), &[]).await?;
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
    });
    apply(json!({"apiVersion": "v1", "kind": kind, "metadata": name, "status": status}), &["--subresource=status"])
        .await?;
    apply(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}),
        &[],
    )
    .await?;
    apply(
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics", "namespace": world.ns, "port": port}}}),
        &[],
    )
    .await
    .map(drop)
}
