//! A cluster: a control plane started for the purpose, or one that the user has already.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::process::Command;

use crate::process::run;
use crate::root;

/// See the module.
pub struct Cluster {
    pub client: Client,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Name of the plane, if it was started here.
    pub plane: Option<String>,
    pub config: Config,
}

/// What a plane is to be like.
#[derive(Default)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub nodes: usize,
    /// Outlives this process.
    pub keep: bool,
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
        let printed = run(command, true).await?;
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

    /// Runs kubectl against this cluster, the plane's own where there is a plane.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
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
        run(command, false).await
    }

    /// Holds a component of the plane still, such as `kcm`.
    pub async fn pause(&self, component: &str) -> Result<()> {
        let mut command = Command::new(controlplane());
        command.args(["pause", component, "--name", self.plane.as_deref().context("the cluster is no plane of ours")?]);
        run(command, false).await.map(drop)
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
    run(command, false).await.map(drop)
}

fn controlplane() -> OsString {
    std::env::var_os("GANGLION_CONTROLPLANE").unwrap_or_else(|| root().join("hack/controlplane").into())
}
