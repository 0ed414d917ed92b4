//! The operator as a process: `ganglion run` with the token of its service account, its log kept.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::plane::cluster::Cluster;
use crate::plane::install::{NAMESPACE, token};
use crate::process;

/// How long it may take to come up, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ports for health and metrics: below those that planes take and that the kernel hands out.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// What Linux counts processor time in, a second.
const CLOCK_TICKS: f64 = 100.0;

/// One replica of the operator. Dropped, it is killed, unless it is to be kept.
pub struct Operator {
    /// Where its kubeconfig, its log and its record lie.
    home: PathBuf,
    port: u16,
    keep: bool,
    child: Child,
}

impl Operator {
    /// Starts the program beside this one; `more` are further options of `ganglion run`.
    pub async fn start(cluster: &Cluster, home: &Path, keep: bool, more: &[&str]) -> Result<Self> {
        fs::create_dir_all(home)?;
        let kubeconfig = home.join("kubeconfig");
        write_private(&kubeconfig, &kubeconfig_text(cluster, &token(&cluster.client).await?))?;
        let port = free_port()?;
        let log = File::create(home.join("log"))?;
        // To be kept, it needs a session of its own; otherwise it is to end also where this process is killed.
        let mut command = match keep {
            true => Command::new("setsid"),
            false => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL"]);
                command
            }
        };
        command.arg(program()?).args(["run", "--lease-namespace", NAMESPACE, "--log", "text"]);
        command.arg("--kubeconfig").arg(&kubeconfig).args(["--bind", &format!("127.0.0.1:{port}")]).args(more);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("RUST_BACKTRACE", "1");
        // As kustomize/base has it.
        command.env("MALLOC_ARENA_MAX", "2");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("setsid and setpriv are missing (package util-linux)")?;
        if keep {
            process::record(child.id(), &home.join("operator.pid"))?;
        }
        Ok(Self { home: home.to_owned(), port, keep, child })
    }

    /// Waits until `/readyz` says yes; an error with the log if the process ends instead.
    pub async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator ended ({status}) before it was ready:\n{}", self.log_tail(20));
            }
            if self.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the operator is not ready after {} s:\n{}", PATIENCE.as_secs(), self.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A line of its process's status, in MiB, such as `VmRSS`.
    pub fn memory(&self, line: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find(|one| one.starts_with(line)).context("no such line in /proc/PID/status")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no figure in /proc/PID/status")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Seconds of processor time that it has used so far, of all its threads.
    pub fn processor_seconds(&self) -> Result<f64> {
        let ticks = process::stat(self.pid(), 13)?.parse::<f64>()? + process::stat(self.pid(), 14)?.parse::<f64>()?;
        Ok(ticks / CLOCK_TICKS)
    }

    /// Asks it to end, and waits; then makes it end.
    pub async fn stop(mut self) -> Result<()> {
        self.keep = false;
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Where its log lies.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if !self.keep {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// `ganglion`, built into the same place as this program: target/…/examples/demo, target/…/ganglion.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.parent().and_then(Path::parent).context("this program lies in no directory")?.join("ganglion");
    if !program.exists() {
        bail!("{} is not built; start this with hack/demo or hack/bench", program.display());
    }
    Ok(program)
}

/// The cluster's address and authority with the service account's token in place of the user's credentials.
fn kubeconfig_text(cluster: &Cluster, token: &str) -> String {
    let config = &cluster.config;
    let mut server = json!({
        "server": config.cluster_url.to_string(),
        "insecure-skip-tls-verify": config.accept_invalid_certs,
    });
    if let Some(name) = &config.tls_server_name {
        server["tls-server-name"] = json!(name);
    }
    if let Some(proxy) = &config.proxy_url {
        server["proxy-url"] = json!(proxy.to_string());
    }
    if let Some(authority) = config.root_cert.as_ref().filter(|_| !config.accept_invalid_certs) {
        server["certificate-authority-data"] = json!(base64(pem(authority).as_bytes()));
    }
    // JSON is YAML.
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "ganglion",
        "clusters": [{"name": "cluster", "cluster": server}],
        "users": [{"name": "ganglion", "user": {"token": token}}],
        "contexts": [{"name": "ganglion", "context": {"cluster": "cluster", "user": "ganglion"}}],
    })
    .to_string()
}

fn pem(certificates: &[Vec<u8>]) -> String {
    let lines = |der: &Vec<u8>| {
        let text = base64(der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.iter().map(lines).collect()
}

fn base64(bytes: &[u8]) -> String {
    // The type that Kubernetes' own objects have for it.
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

/// Readable by the user alone, since it holds a token.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let _ = fs::remove_file(path);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

fn free_port() -> Result<u16> {
    let span = PORTS.end - PORTS.start;
    let begin = u16::try_from(std::process::id() % u32::from(span))?;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let found = (0..span).map(|step| PORTS.start + (begin + step) % span).find(free);
    found.with_context(|| format!("no free port between {} and {}", PORTS.start, PORTS.end))
}
