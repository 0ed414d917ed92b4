//! A real MLServer on loopback, which serves linear power models from files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{self, free_port, run};
use crate::servers::prometheus::peer;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// Name of the model.
pub const MODEL: &str = "power";

/// A linear model: the power of a node is `base` plus a fixed amount per percent of usage, degree and pascal, and per
/// percent and degree: fans and leakage grow with both.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    pub base: f64,
    pub cpu: f64,
    pub inlet: f64,
    pub pressure: f64,
    pub cpu_inlet: f64,
}

impl Linear {
    /// A model that predicts 0 W.
    pub const ZERO: Self = Self { base: 0.0, cpu: 0.0, inlet: 0.0, pressure: 0.0, cpu_inlet: 0.0 };

    /// Power that the model predicts.
    pub fn watts(&self, [cpu, inlet, pressure]: [f64; 3]) -> f64 {
        self.base + self.cpu * cpu + self.inlet * inlet + self.pressure * pressure + self.cpu_inlet * cpu * inlet
    }
}

/// The server. Dropping it stops the process, unless [`Self::stay`] was called.
pub struct ModelServer {
    home: PathBuf,
    /// Temporary directory, if the caller named none.
    _own: Option<TempDir>,
    port: u16,
    server: Child,
    stays: bool,
}

impl ModelServer {
    /// Trains these versions of the model, and serves them until this process ends.
    pub async fn start(versions: &[(&str, Linear)]) -> Result<Self> {
        let own = TempDir::new()?;
        let mut this = Self::serve(versions, own.path(), Command::new("setpriv").args(["--pdeathsig", "KILL"])).await?;
        this._own = Some(own);
        Ok(this)
    }

    /// Like [`Self::start`], with its files in this directory. A pid file (`models.pid`) lets a later command stop the
    /// process if [`Self::stay`] is called.
    pub async fn start_recorded(versions: &[(&str, Linear)], home: &Path) -> Result<Self> {
        let this = Self::serve(versions, home, &mut Command::new("setsid")).await?;
        process::record(this.server.id(), &home.join("models.pid"))?;
        Ok(this)
    }

    async fn serve(versions: &[(&str, Linear)], home: &Path, launcher: &mut Command) -> Result<Self> {
        let (port, grpc, metrics) = (free_port()?, free_port()?, free_port()?);
        // Without parallel workers the server is a single process, which ends on a signal.
        let settings = json!({"host": "127.0.0.1", "http_port": port, "grpc_port": grpc, "metrics_port": metrics,
            "parallel_workers": 0, "debug": false});
        fs::write(home.join("settings.json"), settings.to_string())?;
        let programs = peer("mlserver")?;
        for (version, model) in versions {
            train(&programs.join("python"), &home.join(version), version, *model).await?;
        }
        let log = fs::File::create(home.join("log"))?;
        let server = launcher
            .arg(programs.join("mlserver"))
            .args(["start", "."])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start mlserver")?;
        let this = Self { home: home.to_owned(), _own: None, port, server, stays: false };
        for (version, _) in versions {
            tokio::time::timeout(TIMEOUT, this.ready(version))
                .await
                .with_context(|| format!("mlserver does not serve {version}:\n{}", this.log()))?;
        }
        Ok(this)
    }

    /// Lets it outlive this process.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Its output.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
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
        if !self.stays {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}

async fn train(python: &Path, folder: &Path, version: &str, model: Linear) -> Result<()> {
    fs::create_dir(folder)?;
    let settings = json!({"name": MODEL, "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib", "version": version}});
    fs::write(folder.join("model-settings.json"), settings.to_string())?;
    let mut command = tokio::process::Command::new(python);
    command.arg(root().join("tests/peers/train.py")).arg(folder.join("model.joblib"));
    let Linear { base, cpu, inlet, pressure, cpu_inlet } = model;
    command.args([base, cpu, inlet, pressure, cpu_inlet].map(|number| number.to_string()));
    run(command, None).await.map(drop)
}
