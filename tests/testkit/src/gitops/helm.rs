//! Helm 4: a chart whose templates are the manifests.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::SemaphorePermit;

use super::{APPLICATION, DEPLOYMENT_ARGUMENT, DeployEnd, GitOpsTool, TURNS, write_kubeconfig, write_manifests};
use crate::process::run;
use crate::servers::prometheus::peer;
use crate::testbed::Testbed;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 0.1.0\n";

pub struct Helm<'a> {
    testbed: &'a Testbed,
    home: TempDir,
    program: PathBuf,
    is_installed: bool,
    _turn: SemaphorePermit<'static>,
}

impl Helm<'_> {
    /// Runs a command on the release, and waits for its end.
    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let home = self.home.path();
        let mut command = Command::new(&self.program);
        command.args(arguments).args(["--wait", "--timeout", DEPLOYMENT_ARGUMENT, "--namespace", &self.testbed.ns]);
        command.arg("--kubeconfig").arg(home.join("kubeconfig")).env_clear().env("HOME", home);
        run(command, None).await
    }

    async fn apply(&mut self) -> DeployEnd {
        let chart = self.home.path().join("chart").display().to_string();
        let verb = if self.is_installed { "upgrade" } else { "install" };
        let end = self.run(&[verb, APPLICATION, &chart]).await;
        // An installation that failed is in the history, too.
        self.is_installed = true;
        match end {
            Ok(_) => DeployEnd::Healthy,
            Err(error) => DeployEnd::Failed(error.to_string()),
        }
    }
}

impl<'a> GitOpsTool<'a> for Helm<'a> {
    const MANAGER: &'static str = "helm";

    async fn start(testbed: &'a Testbed) -> Result<Self> {
        let turn = TURNS.acquire().await?;
        let home = TempDir::new()?;
        write_kubeconfig(testbed, home.path()).await?;
        Ok(Self { testbed, home, program: peer("helm")?, is_installed: false, _turn: turn })
    }

    async fn deploy(&mut self, manifests: &[Value]) -> Result<DeployEnd> {
        let chart = self.home.path().join("chart");
        // Braces of the manifests are not for Helm.
        write_manifests(&chart.join("templates"), manifests, |text| text.replace("{{", "{{ \"{{\" }}"))?;
        fs::write(chart.join("Chart.yaml"), CHART)?;
        Ok(self.apply().await)
    }

    async fn resync(&mut self) -> Result<DeployEnd> {
        Ok(self.apply().await)
    }

    async fn remove(self) -> Result<()> {
        self.run(&["uninstall", APPLICATION]).await.map(drop)
    }
}
