//! Processes that run to their end, that run beside this one, or whose pid file lets a later command distinguish them
//! from others with the same pid; and free ports for them.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Ports for listeners: below the ports of planes and those that the kernel assigns to clients.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// Clock ticks per second, in which Linux counts processor time.
const CLOCK_TICKS: f64 = 100.0;

/// Offset of the next port to try.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Runs a command to its end with this standard input. Returns its standard output, or an error with all its output.
pub async fn run(mut command: Command, input: Option<&str>) -> Result<String> {
    command.stderr(Stdio::piped());
    finish(command, input).await
}

/// Runs a command to its end, and shows its standard error meanwhile. Returns its standard output.
pub async fn run_aloud(mut command: Command) -> Result<String> {
    command.stderr(Stdio::inherit());
    finish(command, None).await
}

async fn finish(mut command: Command, input: Option<&str>) -> Result<String> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).kill_on_drop(true);
    let words = format!("{:?}", command.as_std());
    let mut child = command.spawn().with_context(|| format!("cannot start {words}"))?;
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).await?;
    }
    let Output { status, stdout, stderr } = child.wait_with_output().await?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        bail!("{words} failed ({status}):\n{stdout}{}", String::from_utf8_lossy(&stderr));
    }
    Ok(stdout)
}

/// Command that starts this program. It ends with this process, even if this process is killed.
pub fn attached(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A process that runs beside this one, with its output in a file. Dropping it kills the process.
pub struct LoggedProcess {
    child: Child,
    log: PathBuf,
}

impl LoggedProcess {
    /// Starts the command of [`attached`].
    pub fn start(mut command: std::process::Command, log: PathBuf) -> Result<Self> {
        let file = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {command:?} (package util-linux)"))?;
        Ok(Self { child, log })
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its output from this byte on.
    pub fn log_from(&self, byte: u64) -> Result<String> {
        let mut file = fs::File::open(&self.log)?;
        file.seek(SeekFrom::Start(byte))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Fails with its output if it has ended by itself.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the process ended ({status}):\n{}", self.log()),
            None => Ok(()),
        }
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal, such as `-STOP`.
pub fn signal(child: &Child, signal: &str) -> Result<()> {
    let sent = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status()?;
    ensure!(sent.success(), "kill {signal}");
    Ok(())
}

/// Writes the pid file of a process in the format of hack/plane/common.sh: pid, start, boot.
pub fn record(pid: u32, file: &Path) -> Result<()> {
    let start = stat(pid, 21)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    fs::write(file, format!("{pid} {start} {}\n", boot.trim()))?;
    Ok(())
}

/// Field of /proc/PID/stat, counted from 0.
pub fn stat(pid: u32, field: usize) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name (field 1) may contain blanks and parentheses, so fields are counted from the last parenthesis.
    let field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(field.checked_sub(2)?));
    Ok(field.context("an unknown /proc/PID/stat")?.to_owned())
}

/// Seconds of processor time used so far by all threads of a process.
pub fn processor_seconds(pid: u32) -> Result<f64> {
    let (user, system): (f64, f64) = (stat(pid, 13)?.parse()?, stat(pid, 14)?.parse()?);
    Ok((user + system) / CLOCK_TICKS)
}

/// Returns a free port that this process has not used before.
pub fn free_port() -> Result<u16> {
    let count = PORTS.end - PORTS.start;
    let begin = u16::try_from(std::process::id() % u32::from(count))?;
    for _ in 0..count {
        let port = PORTS.start + begin.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed)) % count;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    //! Tests input, output and error messages of commands.

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_command_reads_what_it_is_given() {
        assert_eq!(run(Command::new("cat"), Some("a\nb")).await.unwrap(), "a\nb");
        assert_eq!(run(Command::new("cat"), None).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_command_that_fails_is_told_with_all_that_it_printed() {
        let error = run(shell("echo out; echo err >&2; exit 3"), None).await.unwrap_err().to_string();
        for part in ["out\n", "err\n", "exit status: 3"] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    }

    #[test]
    fn processor_time_counts_what_was_used_in_between() {
        let before = processor_seconds(std::process::id()).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_secs(2) {
            if processor_seconds(std::process::id()).unwrap() >= before + 0.05 {
                return;
            }
        }
        panic!("two seconds of work used no processor time");
    }

    #[test]
    fn a_port_is_given_once() {
        assert_ne!(free_port().unwrap(), free_port().unwrap());
    }
}
