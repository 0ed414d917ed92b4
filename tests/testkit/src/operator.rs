//! The operator as a process: `ganglion run` with the token of a service account. It can be killed and restarted, and
//! its log is kept.

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

/// Settings of a lease that other replicas take over soon after its holder was killed. On a busy machine, a request may
/// take seconds, so a shorter lease would be lost.
pub const SHORT_LEASE: &str = "lease: {durationSeconds: 8, renewDeadlineSeconds: 6, retrySeconds: 1}";

/// Last words of an operator that has lost its lease.
const LEASE_LOST: &str = "the lease is lost";

/// Maximum time of a graceful stop.
const FAREWELL: Duration = Duration::from_secs(60);

/// One replica of the operator, running or not. Dropping it kills the process, unless [`Self::keep`] was called.
pub struct Operator {
    /// Directory of its kubeconfig, log and pid file.
    home: PathBuf,
    /// Path of another program; None for the operator.
    program: Option<PathBuf>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    port: u16,
    keep: bool,
    child: Option<Child>,
    /// Length of the log in bytes at the last start.
    begun: u64,
}

impl Operator {
    /// Prepares an operator that uses this kubeconfig and this directory; `more` are additional options of `ganglion
    /// run`.
    pub fn prepare(home: &Path, kubeconfig: &str, more: &[&str]) -> Result<Self> {
        Self::process(home, kubeconfig, None, &[&["run", "--log", "text"], more].concat())
    }

    /// Prepares another program, which is started and awaited in the same way. `command` is its first argument. It must
    /// accept `--kubeconfig` and `--bind`, and answer `/readyz`.
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
        let (home, variables) = (home.to_owned(), Vec::new());
        let operator = Self { home, program, arguments, variables, port, keep: false, child: None, begun: 0 };
        File::create(operator.log())?;
        Ok(operator)
    }

    /// Prepares an operator with the service account and the permissions that are installed in this cluster.
    pub async fn installed(cluster: &Cluster, home: &Path, more: &[&str]) -> Result<Self> {
        let kubeconfig = kubeconfig::direct(&cluster.config, &token(&cluster.client).await?);
        Self::prepare(home, &kubeconfig, &[&["--lease-namespace", NAMESPACE], more].concat())
    }

    /// Address of its metrics and probes.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Adds options that apply from the next start on.
    pub fn add_options(&mut self, more: &[&str]) {
        self.arguments.extend(more.iter().map(|text| (*text).to_owned()));
    }

    /// Replaces the environment variables that it has besides those of every test, from the next start on.
    pub fn set_variables(&mut self, variables: &[(&str, &str)]) {
        self.variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    }

    /// Runs this build of `ganglion` from the next start on.
    pub fn run_program(&mut self, program: &Path) {
        self.program = Some(program.to_owned());
    }

    /// Lets the process outlive this one from the next start on; a later command finds it by its pid file.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Starts the process; [`Self::ready`] waits until it is ready.
    pub fn start(&mut self) -> Result<()> {
        let log = File::options().append(true).open(self.log())?;
        self.begun = log.metadata()?.len();
        // A process that is kept needs its own session. Otherwise it must end when this process is killed.
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
        // As in kustomize/base.
        command.env("MALLOC_ARENA_MAX", "1");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("setsid and setpriv are missing (package util-linux)")?;
        let child = self.child.insert(child);
        if self.keep {
            process::record(child.id(), &self.home.join("operator.pid"))?;
        }
        Ok(())
    }

    /// Waits until `/readyz` succeeds. If the process ends first, the error contains its log.
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

    /// Waits until it holds the lease.
    pub async fn leads(&self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.get("/metrics").await?.contains("\nganglion_leader 1\n") {
            if Instant::now() > deadline {
                bail!("the operator does not lead after {} s:\n{}", TIMEOUT.as_secs(), self.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Response to a GET on the operator's own port, including the head.
    pub async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Exit status, if the process has ended by itself.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match self.child.as_mut() {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Starts the process again if it has lost its lease, which ends it. In a cluster, the kubelet does that. On a busy
    /// machine, an API server that restarts may not answer for longer than a lease lasts. Returns whether it did.
    pub fn restart_after_lease(&mut self) -> Result<bool> {
        if self.ended()?.is_none_or(|status| status.success()) {
            return Ok(false);
        }
        let log = fs::read(self.log())?;
        let since = usize::try_from(self.begun).ok().and_then(|begun| log.get(begun..)).unwrap_or_default();
        let is_lost = String::from_utf8_lossy(since).contains(LEASE_LOST);
        if is_lost {
            self.start()?;
        }
        Ok(is_lost)
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends SIGTERM, and SIGKILL if the process does not end in time.
    pub async fn stop(mut self) -> Result<()> {
        self.keep = false;
        let Some(child) = &self.child else { return Ok(()) };
        let _ = process::signal(child, "-TERM");
        let _ = self.end().await?;
        Ok(())
    }

    /// Sends a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) -> Result<()> {
        process::signal(self.child.as_ref().context("the operator is not running")?, signal)
    }

    /// Waits until the process has ended by itself, or after a signal. None if it does not end in time.
    pub async fn end(&mut self) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + FAREWELL;
        while self.child.is_some() && Instant::now() < deadline {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(None)
    }

    /// Identifier of its process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the operator is not running")?.id())
    }

    /// Value of a line of the process's status in MiB, for example of `VmRSS`.
    pub fn memory(&self, line: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find(|one| one.starts_with(line)).context("no such line in /proc/PID/status")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no figure in /proc/PID/status")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Seconds of processor time used so far by all its threads.
    pub fn processor_seconds(&self) -> Result<f64> {
        process::processor_seconds(self.pid()?)
    }

    /// Path of its log.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// Last lines of its log, across restarts.
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

/// Path of `ganglion`: the one that cargo names for tests, or the one built beside this program
/// (target/…/examples/demo, target/…/ganglion).
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

/// Writes a file that only the user can read, because it contains a token.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let _ = fs::remove_file(path);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: &str = "echo 'Error: the lease is lost: late'; exit 1";

    /// A process of this script, which has ended.
    fn ended(home: &Path, script: &str) -> Operator {
        let file = home.join("script");
        fs::write(&file, script).unwrap();
        let mut operator = Operator::other("/bin/sh".into(), &file.display().to_string(), home, "").unwrap();
        operator.start().unwrap();
        crate::block_on(operator.end()).unwrap().expect("it ends");
        operator
    }

    #[test]
    fn only_an_operator_without_its_lease_is_started_again() {
        let home = tempfile::tempdir().unwrap();
        for (script, expected) in
            [(LOST, true), ("echo 'no permission'; exit 1", false), ("echo 'the lease is lost'; exit 0", false)]
        {
            assert_eq!(ended(home.path(), script).restart_after_lease().unwrap(), expected, "{script}");
        }
    }

    #[test]
    fn words_of_an_earlier_run_do_not_count() {
        let home = tempfile::tempdir().unwrap();
        let mut operator = ended(home.path(), LOST);
        fs::write(home.path().join("script"), "exit 1").unwrap();
        assert!(operator.restart_after_lease().unwrap());
        crate::block_on(operator.end()).unwrap().expect("it ends");
        assert!(!operator.restart_after_lease().unwrap());
    }
}
