//! A real external scaler of KEDA on loopback, made with KEDA's package: `hack/peers external-scaler`.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Authority;
use super::prometheus::peer;
use crate::TIMEOUT;
use crate::process::{attached, free_port, signal};

/// Token that a guarded scaler requires.
pub const TOKEN: &str = "word";

/// An external scaler. Dropping it kills the process.
pub struct ScalerProcess {
    home: TempDir,
    program: PathBuf,
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

/// Answers about the metric `queue`: its value, its target, and whether the scaler is active.
pub fn queue(value: f64, target: f64, active: bool) -> Value {
    json!({
        "active": active,
        "spec": {"metricSpecs": [{"metricName": "queue", "targetSizeFloat": target}]},
        "metrics": {"metricValues": [{"metricName": "queue", "metricValueFloat": value}]},
    })
}

impl ScalerProcess {
    /// Starts one with these answers, by the value of the key `of` in the metadata.
    pub async fn start(answers: &Value) -> Result<Self> {
        let mut scaler = Self::stopped(answers)?;
        scaler.restart().await?;
        Ok(scaler)
    }

    /// Prepares one that is not started.
    pub fn stopped(answers: &Value) -> Result<Self> {
        let program = peer("external-scaler")?;
        let scaler = Self { home: TempDir::new()?, program, port: free_port()?, options: Vec::new(), child: None };
        scaler.set(answers)?;
        Ok(scaler)
    }

    /// Starts one over TLS that requires [`TOKEN`], and a certificate of this authority if there is one.
    pub async fn guarded(answers: &Value, authority: &Authority, clients: Option<&Authority>) -> Result<Self> {
        let mut scaler = Self::stopped(answers)?;
        let (certificate, key) = authority.files();
        let pair = scaler.home.path().join("pair.pem");
        fs::write(&pair, [fs::read(certificate)?, fs::read(key)?].concat())?;
        scaler.options.extend(["-token".to_owned(), TOKEN.to_owned()]);
        scaler.options.extend(["-certificate".to_owned(), pair.display().to_string()]);
        if let Some(clients) = clients {
            let file = scaler.home.path().join("clients.pem");
            fs::write(&file, clients.pem())?;
            scaler.options.extend(["-clients".to_owned(), file.display().to_string()]);
        }
        scaler.restart().await?;
        Ok(scaler)
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Replaces its answers.
    pub fn set(&self, answers: &Value) -> Result<()> {
        let (new, file) = (self.home.path().join("new"), self.file("answers"));
        fs::write(&new, answers.to_string())?;
        // A stream may read it at the same time.
        Ok(fs::rename(new, file)?)
    }

    /// Requests for this method, in the order of their arrival; also those to former processes.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        let calls = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        calls.filter(|call| call["method"] == method).collect()
    }

    /// Kills it.
    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it if it runs, and starts it at the same address.
    pub async fn restart(&mut self) -> Result<()> {
        self.end();
        let log = fs::File::options().create(true).append(true).open(self.file("log"))?;
        let mut command = attached(&self.program);
        command.args(["-listen", &self.address()]).arg("-answers").arg(self.file("answers")).args(&self.options);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("cannot start external-scaler (package util-linux)")?);
        let begun = std::time::Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            if begun.elapsed() > TIMEOUT {
                bail!("external-scaler does not listen:\n{}", fs::read_to_string(self.file("log")).unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Sends SIGSTOP: connections are accepted, but not answered.
    pub fn pause(&self) -> Result<()> {
        signal(self.child.as_ref().context("external-scaler is not running")?, "-STOP")
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> Result<()> {
        signal(self.child.as_ref().context("external-scaler is not running")?, "-CONT")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

impl Drop for ScalerProcess {
    fn drop(&mut self) {
        self.end();
    }
}
