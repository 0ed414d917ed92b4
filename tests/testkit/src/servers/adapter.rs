//! A real prometheus-adapter behind the API server's aggregation, which serves metrics of a Prometheus to autoscalers.

use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::free_port;
use crate::root;
use crate::servers::aggregation::aggregate;
use crate::servers::prometheus::peer;
use crate::world::World;

/// The adapter. Dropped, it ends.
pub struct Adapter {
    home: TempDir,
    server: Child,
}

impl Adapter {
    /// Starts it with the rules of this file of the tree, on the Prometheus at this address, and registers external metrics with
    /// the API server of the world's plane.
    pub async fn start(world: &World, prometheus: &str, rules: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig");
        fs::write(&file, world.administrator().await?)?;
        let port = free_port()?;
        aggregate(world, "external.metrics.k8s.io", "v1beta1", port).await?;
        let option = |name: &str| format!("--{name}={}", file.display());
        let server = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(peer("prometheus-adapter")?)
            .args(["lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(option))
            .args(["--bind-address=127.0.0.1", "--metrics-relist-interval=2s", "--metrics-max-age=1m"])
            .arg(format!("--prometheus-url={prometheus}"))
            .arg(format!("--config={}", root().join(rules).display()))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", home.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.path().join("log"))?)
            .spawn()
            .context("cannot start prometheus-adapter")?;
        Ok(Self { home, server })
    }

    /// What it has to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
