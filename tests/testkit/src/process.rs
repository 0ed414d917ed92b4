//! Processes: run to their end, or recorded so that a later command can tell them from others that got the same pid.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// Runs a command to its end; its standard output, or an error with what it complained of. With `loud`, what it says on
/// standard error is shown while it runs.
pub async fn run(mut command: Command, loud: bool) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command.stderr(if loud { Stdio::inherit() } else { Stdio::piped() });
    let words = format!("{:?}", command.as_std());
    let Output { status, stdout, stderr } = command.output().await.with_context(|| format!("cannot start {words}"))?;
    if !status.success() {
        bail!("{words} failed ({status}):\n{}", String::from_utf8_lossy(&stderr));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Writes the record of a process as hack/plane/common.sh reads it: pid, start, boot.
pub fn record(pid: u32, file: &Path) -> Result<()> {
    let start = stat(pid, 21)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    fs::write(file, format!("{pid} {start} {}\n", boot.trim()))?;
    Ok(())
}

/// A field of /proc/PID/stat, counted from 0.
pub fn stat(pid: u32, field: usize) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name, field 1, may hold blanks and brackets, so fields are counted from the last bracket.
    let field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(field.checked_sub(2)?));
    Ok(field.context("an unknown /proc/PID/stat")?.to_owned())
}
