//! A receiver of notifications on loopback, written with the CloudEvents SDK and the Standard Webhooks library.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::process::free_port;
use crate::servers::prometheus::peer;
use crate::{TIMEOUT, root};

/// Language of the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    Python,
    Node,
}

/// The receiver. Dropping it stops the process.
pub struct EventReceiver {
    home: TempDir,
    port: u16,
    server: Child,
}

impl EventReceiver {
    /// Starts a receiver that accepts messages signed with this secret.
    pub async fn start(sdk: Sdk, secret: &str) -> Result<Self> {
        let (home, port) = (TempDir::new()?, free_port()?);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match sdk {
            Sdk::Python => {
                command.arg(peer("cloudevents-python")?.join("python")).arg(root().join("tests/peers/receive.py"));
            }
            Sdk::Node => {
                command.arg("node").arg(root().join("tests/peers/receive.cjs"));
                command.env("NODE_PATH", peer("cloudevents-node")?);
            }
        }
        command.args([&port.to_string(), secret]).stdin(Stdio::null());
        command.stdout(File::create(home.path().join("read"))?).stderr(File::create(home.path().join("log"))?);
        let server = command.spawn().context("setpriv is missing (package util-linux)")?;
        let mut this = Self { home, port, server };
        tokio::time::timeout(TIMEOUT, this.listens()).await.context("the receiver does not listen")??;
        Ok(this)
    }

    async fn listens(&mut self) -> Result<()> {
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = self.server.try_wait()? {
                let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
                bail!("the receiver ended ({status}):\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/events", self.port)
    }

    /// Attributes and data that it read from each request.
    pub fn read(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.home.path().join("read"))?;
        // The last line may be incomplete.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
