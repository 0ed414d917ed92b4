//! A cluster: a control plane started for the purpose, or one that the user has already.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::process::Command;

use crate::process::{self, run, run_aloud};
use crate::root;

/// See the module.
pub struct Cluster {
    /// The administrator.
    pub client: Client,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Name of the plane, if it was started here.
    pub plane: Option<String>,
    /// Address, authority, and the administrator's credentials.
    pub config: Config,
}

/// What a plane is to be like.
#[derive(Default)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub nodes: usize,
    /// Outlives this process.
    pub keep: bool,
    /// What goes on is not shown on standard error.
    pub quiet: bool,
    /// More options of `hack/controlplane up`.
    pub more: &'a [String],
}

impl Cluster {
    /// Starts a control plane; unless it is to be kept, it ends with this process, whatever becomes of that.
    pub async fn start(wanted: &Wanted<'_>) -> Result<Self> {
        let mut command = Command::new(controlplane());
        command.args(["up", "--name", wanted.name, "--nodes", &wanted.nodes.to_string()]).args(wanted.more);
        if !wanted.keep {
            command.args(["--owner-pid", &std::process::id().to_string()]);
        }
        let printed = if wanted.quiet { run(command, None).await } else { run_aloud(command).await }?;
        let path = printed.lines().last().context("hack/controlplane up printed no kubeconfig")?;
        let mut cluster = Self::open(Path::new(path)).await?;
        cluster.plane = Some(wanted.name.to_owned());
        Ok(cluster)
    }

    /// A cluster that is there already.
    pub async fn open(kubeconfig: &Path) -> Result<Self> {
        let parsed =
            Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot use {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        Ok(Self { client, kubeconfig: kubeconfig.to_owned(), plane: None, config })
    }

    /// What the server calls itself.
    pub async fn version(&self) -> Result<String> {
        let answer = self.client.apiserver_version().await;
        Ok(answer.with_context(|| format!("the cluster of {} does not answer", self.kubeconfig.display()))?.git_version)
    }

    /// Runs kubectl against this cluster as the administrator, the plane's own kubectl where there is a plane; what it
    /// prints.
    pub async fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = match &self.plane {
            Some(name) => {
                let mut command = Command::new(controlplane());
                command.args(["kubectl", "--name", name]);
                command
            }
            None => {
                let mut command = Command::new("kubectl");
                command.arg("--kubeconfig").arg(&self.kubeconfig);
                command
            }
        };
        command.args(args);
        run(command, input).await
    }

    /// Waits until these definitions, or `--all`, are served. kubectl fails at once where one is so new that it has no status.
    pub async fn established(&self, crds: &str) -> Result<()> {
        let wait = ["wait", "--for=condition=Established", "crd", crds, "--timeout=20s"];
        for _ in 0..5 {
            if self.kubectl(&wait, None).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        self.kubectl(&wait, None).await.map(drop)
    }

    /// A fault verb of hack/controlplane, such as `["pause", "etcd"]`.
    pub async fn fault(&self, verb: &[&str]) -> Result<()> {
        let name = self.plane.as_deref().context("the cluster is no plane of ours")?;
        let mut command = Command::new(controlplane());
        command.args(verb).args(["--name", name]);
        run(command, None).await.map(drop)
    }

    /// Seconds of processor time that a component of the plane, such as `apiserver`, has used so far.
    pub fn processor_seconds(&self, component: &str) -> Result<f64> {
        self.plane.as_deref().context("the cluster is no plane of ours")?;
        // As hack/plane/common.sh writes it: pid, start, boot.
        let file = self.kubeconfig.with_file_name("run").join(format!("{component}.pid"));
        let record =
            fs::read_to_string(&file).with_context(|| format!("no record of a process in {}", file.display()))?;
        let pid = record.split_whitespace().next().context("the record of a process is empty")?;
        process::processor_seconds(pid.parse()?)
    }

    /// Ends the plane, if it is one of ours.
    pub async fn down(&self) -> Result<()> {
        match &self.plane {
            Some(name) => end(name).await,
            None => Ok(()),
        }
    }
}

/// Ends a plane and removes its data; no error if there is none.
pub async fn end(plane: &str) -> Result<()> {
    let mut command = Command::new(controlplane());
    command.args(["down", "--name", plane]);
    run(command, None).await.map(drop)
}

/// The kubectl that is built with the plane.
pub async fn kubectl() -> Result<PathBuf> {
    let mut command = Command::new(controlplane());
    command.arg("bin");
    Ok(PathBuf::from(run(command, None).await?.trim()).join("kubectl"))
}

pub(super) fn controlplane() -> OsString {
    std::env::var_os("GANGLION_CONTROLPLANE").unwrap_or_else(|| root().join("hack/controlplane").into())
}
