//! The real binary as a process: started with the service account's token, killed, restarted, its log kept.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::PATIENCE;
use crate::operator::program;
use crate::plane::Plane;

/// Below the ports that planes take and that the kernel hands out.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
const PORTS: (u16, u16) = (10_000, 19_999);

/// One replica of the operator, running or not. Dropped, it is killed.
pub struct Operator {
    home: TempDir,
    arguments: Vec<String>,
    port: u16,
    child: Option<Child>,
}

/// How the operator reaches the API server.
pub enum Way<'a> {
    /// Straight, over TLS.
    Direct,
    /// Through a proxy at this address.
    Proxy(&'a std::net::SocketAddr),
}

impl Operator {
    /// Prepares an operator that watches these namespaces and holds its lease in the first.
    pub fn prepare(plane: &Plane, way: Way<'_>, identity: &str, namespaces: &[&str], more: &[&str]) -> Result<Self> {
        let home = TempDir::new()?;
        let kubeconfig = home.path().join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(plane, &way, &plane.token))?;
        let port = free_port()?;
        let mut arguments = vec!["run".to_owned()];
        let lease = namespaces.first().context("an operator needs a namespace")?;
        let mut option = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
        option("kubeconfig", &kubeconfig.display().to_string());
        option("bind", &format!("127.0.0.1:{port}"));
        option("lease-namespace", lease);
        option("identity", identity);
        option("log", "text");
        if !more.contains(&"--settings") {
            let settings = home.path().join("settings.yaml");
            fs::write(&settings, SETTINGS)?;
            option("settings", &settings.display().to_string());
        }
        for namespace in namespaces {
            option("watch-namespace", namespace);
        }
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        Ok(Self { home, arguments, port, child: None })
    }

    /// Gives it these settings (YAML) besides, from its next start on.
    pub fn settings(&mut self, yaml: &str) -> Result<()> {
        Ok(fs::write(self.home.path().join("settings.yaml"), format!("{SETTINGS}\n{yaml}"))?)
    }

    /// Starts the process; [`Self::ready`] waits until it is up.
    pub fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        // setpriv, so that it dies with the test even where that is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program()?)
            .args(&self.arguments)
            .env_clear()
            .env("RUST_BACKTRACE", "1")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start setpriv (package util-linux)")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until `/readyz` says yes; an error with the log if the process ends instead.
    pub async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                bail!("the operator ended ({status}) before it was ready:\n{}", self.log_tail(40));
            }
            if self.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the operator is not ready after {PATIENCE:?}:\n{}", self.log_tail(40));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The answer to a GET on the operator's own port, head and all.
    pub async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// SIGKILL: gone when this returns.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and the status with which it ends.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        let child = self.child.as_ref().context("the operator does not run")?;
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                self.child = None;
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("the operator does not end within {PATIENCE:?} of SIGTERM:\n{}", self.log_tail(40));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The status, if the process has ended by itself.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match self.child.as_mut() {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("log")
    }

    /// The last lines of the log, over all restarts.
    pub fn log_tail(&self, lines: usize) -> String {
        let text =
            fs::read(self.log_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// A directory that lives as long as the operator, for its settings.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A kubeconfig of whoever has this token.
pub fn kubeconfig_text(plane: &Plane, way: &Way<'_>, token: &str) -> String {
    let cluster = match way {
        Way::Proxy(address) => json!({"server": format!("http://{address}")}),
        Way::Direct => json!({
            "server": plane.config.cluster_url.to_string(),
            "certificate-authority-data": plane.authority,
        }),
    };
    // JSON is YAML.
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "plane",
        "clusters": [{"name": "plane", "cluster": cluster}],
        "users": [{"name": "ganglion", "user": {"token": token}}],
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "ganglion"}}],
    })
    .to_string()
}

/// Servers of tests are on this host.
const SETTINGS: &str = "outbound: {allowLoopback: true}";

/// A port that nothing listens on, and that no other test of this process is given.
pub fn free_port() -> Result<u16> {
    let (low, high) = PORTS;
    let span = high - low;
    let begin = u16::try_from(std::process::id() % u32::from(span))?;
    for _ in 0..span {
        let port = low + begin.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed)) % span;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {low} and {high}")
}
