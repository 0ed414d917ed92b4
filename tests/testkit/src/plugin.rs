//! The program as a kubectl plugin: `kubectl ganglion …`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Result;
use tempfile::TempDir;
use tokio::process::Command;

use crate::operator::program;
use crate::plane::cluster::kubectl;

/// A user with kubectl, and with the program as a plugin on the `PATH`.
pub struct Plugin {
    home: TempDir,
    kubectl: PathBuf,
}

impl Plugin {
    /// Creates the user from the text of a kubeconfig.
    pub async fn new(kubeconfig: &str) -> Result<Self> {
        let home = TempDir::new()?;
        std::fs::write(home.path().join("kubeconfig"), kubeconfig)?;
        std::os::unix::fs::symlink(program()?, home.path().join("kubectl-ganglion"))?;
        Ok(Self { home, kubectl: kubectl().await? })
    }

    /// Builds `kubectl ganglion` with these arguments.
    pub fn command(&self, words: &[&str]) -> Command {
        self.kubectl(&[&["ganglion"], words].concat())
    }

    /// Builds `kubectl` with these arguments. A plugin's name must precede all options, so the kubeconfig is passed
    /// through the environment.
    pub fn kubectl(&self, words: &[&str]) -> Command {
        let mut path = OsString::from(self.home.path());
        path.push(":/usr/bin:/bin");
        let mut command = Command::new(&self.kubectl);
        command.args(words).env_clear().env("PATH", path).env("HOME", self.home.path());
        command.env("KUBECONFIG", self.home.path().join("kubeconfig")).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}
