//! The operator as a process: `ganglion run` with the token of a service account, killed, restarted, its log kept.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::TIMEOUT;
use crate::plane::cluster::Cluster;
use crate::plane::install::{NAMESPACE, token};
use crate::plane::kubeconfig;
use crate::process::{self, free_port};

/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(60);

/// One replica of the operator, running or not. Dropped, it is killed, unless it is to be kept.
pub struct Operator {
    /// Where its kubeconfig, its log and its record lie.
    home: PathBuf,
    /// The operator's own where there is none.
    program: Option<PathBuf>,
    arguments: Vec<String>,
    port: u16,
    keep: bool,
    child: Option<Child>,
}

impl Operator {
    /// Prepares an operator that reaches the API server by this kubeconfig, with its files in this directory; `more` are
    /// further options of `ganglion run`.
    pub fn prepare(home: &Path, kubeconfig: &str, more: &[&str]) -> Result<Self> {
        Self::process(home, kubeconfig, None, &[&["run", "--log", "text"], more].concat())
    }

    /// Prepares another program to be started and awaited in the same way. Its first argument is this command; it takes
    /// `--kubeconfig` and `--bind`, and answers `/readyz`.
    pub fn other(program: PathBuf, command: &str, home: &Path, kubeconfig: &str) -> Result<Self> {
        Self::process(home, kubeconfig, Some(program), &[command])
    }

    fn process(home: &Path, kubeconfig: &str, program: Option<PathBuf>, words: &[&str]) -> Result<Self> {
        fs::create_dir_all(home)?;
        let file = home.join("kubeconfig");
        write_private(&file, kubeconfig)?;
        let port = free_port()?;
        let (file, bind) = (file.display().to_string(), format!("127.0.0.1:{port}"));
        let options = ["--kubeconfig", &file, "--bind", &bind];
        let arguments = words.iter().chain(&options).map(|text| (*text).to_owned()).collect();
        let operator = Self { home: home.to_owned(), program, arguments, port, keep: false, child: None };
        File::create(operator.log())?;
        Ok(operator)
    }

    /// Prepares an operator with the account and the rights that are installed in this cluster.
    pub async fn installed(cluster: &Cluster, home: &Path, more: &[&str]) -> Result<Self> {
        let kubeconfig = kubeconfig::direct(&cluster.config, &token(&cluster.client).await?);
        Self::prepare(home, &kubeconfig, &[&["--lease-namespace", NAMESPACE], more].concat())
    }

    /// Where it serves metrics and probes.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From its next start on it has these options, too.
    pub fn add_options(&mut self, more: &[&str]) {
        self.arguments.extend(more.iter().map(|text| (*text).to_owned()));
    }

    /// From its next start on it outlives this process; its record tells a later command where it is.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Starts the process; [`Self::ready`] waits until it is up.
    pub fn start(&mut self) -> Result<()> {
        let log = File::options().append(true).open(self.log())?;
        // To be kept, it needs a session of its own; otherwise it is to end also where this process is killed.
        let mut command = match self.keep {
            true => Command::new("setsid"),
            false => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL"]);
                command
            }
        };
        command.arg(self.program.clone().map_or_else(program, Ok)?).args(&self.arguments);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("RUST_BACKTRACE", "1");
        // As kustomize/base has it.
        command.env("MALLOC_ARENA_MAX", "2");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("setsid and setpriv are missing (package util-linux)")?;
        let child = self.child.insert(child);
        if self.keep {
            process::record(child.id(), &self.home.join("operator.pid"))?;
        }
        Ok(())
    }

    /// Waits until `/readyz` says yes; an error with the log if the process ends instead.
    pub async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.ended()? {
                bail!("the operator ended ({status}) before it was ready:\n{}", self.log_tail(20));
            }
            if self.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the operator is not ready after {} s:\n{}", TIMEOUT.as_secs(), self.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The answer to a GET on the operator's own port, head and all.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// The status, if the process has ended by itself.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match self.child.as_mut() {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// SIGKILL: gone when this returns.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and a while to end by itself; then SIGKILL.
    pub async fn stop(mut self) -> Result<()> {
        self.keep = false;
        let Some(child) = &self.child else { return Ok(()) };
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        let deadline = Instant::now() + FAREWELL;
        while self.ended()?.is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the operator does not run")?.id())
    }

    /// A line of its process's status, in MiB, such as `VmRSS`.
    pub fn memory(&self, line: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find(|one| one.starts_with(line)).context("no such line in /proc/PID/status")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no figure in /proc/PID/status")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Seconds of processor time that it has used so far, of all its threads.
    pub fn processor_seconds(&self) -> Result<f64> {
        process::processor_seconds(self.pid()?)
    }

    /// Where its log lies.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// The last lines of its log, over all restarts.
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
            self.kill();
        }
    }
}

/// `ganglion`: where cargo says that a test finds it, or built into the same place as this program (target/…/examples/demo,
/// target/…/ganglion).
pub fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("CARGO_BIN_EXE_ganglion") {
        return Ok(program.into());
    }
    let own = std::env::current_exe()?;
    let program = own.parent().and_then(Path::parent).context("this program lies in no directory")?.join("ganglion");
    if !program.exists() {
        bail!("{} is not built; start this with hack/demo, hack/bench or hack/test", program.display());
    }
    Ok(program)
}

/// Readable by the user alone, since it holds a token.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let _ = fs::remove_file(path);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
