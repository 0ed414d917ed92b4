//! A real MLServer on loopback, with linear models of power that it was given as files.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{free_port, run};
use crate::servers::prometheus::peer;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// The name of the model.
pub const MODEL: &str = "power";

/// A linear model: the power of a node is `base` and so much for each percent of usage, degree and pascal.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    pub base: f64,
    pub cpu: f64,
    pub inlet: f64,
    pub pressure: f64,
}

impl Linear {
    /// What it predicts.
    pub fn watts(&self, [cpu, inlet, pressure]: [f64; 3]) -> f64 {
        self.base + self.cpu * cpu + self.inlet * inlet + self.pressure * pressure
    }
}

/// The server. Dropped, it ends.
pub struct ModelServer {
    home: TempDir,
    port: u16,
    server: Child,
}

impl ModelServer {
    /// Trains these versions of the model, and serves them.
    pub async fn start(versions: &[(&str, Linear)]) -> Result<Self> {
        let home = TempDir::new()?;
        let (port, grpc, metrics) = (free_port()?, free_port()?, free_port()?);
        // Without workers of its own the server is one process, which ends when it is told to.
        let settings = json!({"host": "127.0.0.1", "http_port": port, "grpc_port": grpc, "metrics_port": metrics,
            "parallel_workers": 0, "debug": false});
        fs::write(home.path().join("settings.json"), settings.to_string())?;
        let programs = peer("mlserver")?;
        for (version, model) in versions {
            train(&programs.join("python"), &home.path().join(version), version, *model).await?;
        }
        let log = fs::File::create(home.path().join("log"))?;
        let server = std::process::Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(programs.join("mlserver"))
            .args(["start", "."])
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start mlserver")?;
        let this = Self { home, port, server };
        for (version, _) in versions {
            tokio::time::timeout(TIMEOUT, this.ready(version))
                .await
                .with_context(|| format!("mlserver does not serve {version}:\n{}", this.log()))?;
        }
        Ok(this)
    }

    /// Where this path is served.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What it has to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Waits until a version of the model is loaded.
    async fn ready(&self, version: &str) {
        let path = format!("/v2/models/{MODEL}/versions/{version}/ready");
        while !serves(self.port, &path).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

async fn train(python: &Path, folder: &Path, version: &str, model: Linear) -> Result<()> {
    fs::create_dir(folder)?;
    let settings = json!({"name": MODEL, "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib", "version": version}});
    fs::write(folder.join("model-settings.json"), settings.to_string())?;
    let mut command = tokio::process::Command::new(python);
    command.arg(root().join("tests/peers/train.py")).arg(folder.join("model.joblib"));
    command.args([model.base, model.cpu, model.inlet, model.pressure].map(|number| number.to_string()));
    run(command, None).await.map(drop)
}
