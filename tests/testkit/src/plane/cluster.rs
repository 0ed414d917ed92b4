//! A cluster: a control plane started for this run, or an existing cluster of the user.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::process::Command;

use crate::process::{self, run, run_aloud};
use crate::root;

/// Maximum time of a command of kubectl. That of 1.30 may wait for ever for a pod whose name is taken again.
const LONGEST: Duration = Duration::from_secs(300);

pub struct Cluster {
    /// Client of the administrator.
    pub client: Client,
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    /// Name of the plane, if it was started here.
    pub plane: Option<String>,
    /// Address, certificate authority, and credentials of the administrator.
    pub config: Config,
}

/// Options of a plane.
#[derive(Default)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub nodes: usize,
    /// Lets the plane outlive this process.
    pub keep: bool,
    /// Hides the progress from standard error.
    pub quiet: bool,
    /// Additional options of `hack/controlplane up`.
    pub more: &'a [String],
}

impl Cluster {
    /// Starts a control plane. Unless it is to be kept, it ends with this process, even if the process is killed.
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

    /// Opens an existing cluster.
    pub async fn open(kubeconfig: &Path) -> Result<Self> {
        let parsed =
            Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot use {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        Ok(Self { client, kubeconfig: kubeconfig.to_owned(), plane: None, config })
    }

    /// Version that the server reports.
    pub async fn version(&self) -> Result<String> {
        let answer = self.client.apiserver_version().await;
        Ok(answer.with_context(|| format!("the cluster of {} does not answer", self.kubeconfig.display()))?.git_version)
    }

    /// Runs kubectl against this cluster as the administrator, and returns its output. On a plane, uses the kubectl
    /// built with it.
    pub async fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(args);
        let ended = tokio::time::timeout(LONGEST, run(command, input)).await;
        ended.unwrap_or_else(|_| bail!("kubectl {args:?} does not end"))
    }

    /// Kubeconfig of the administrator, with its certificates.
    pub async fn administrator(&self) -> Result<String> {
        self.kubectl(&["config", "view", "--raw", "--flatten"], None).await
    }

    /// Runs a command of kubectl that opens an editor. `editor` is a shell command, which gets the path of the file.
    pub async fn kubectl_edit(&self, args: &[&str], editor: &str) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(args).env("KUBE_EDITOR", editor);
        run(command, None).await
    }

    fn kubectl_command(&self) -> Command {
        let Some(name) = &self.plane else {
            let mut command = Command::new("kubectl");
            command.arg("--kubeconfig").arg(&self.kubeconfig);
            return command;
        };
        let mut command = Command::new(controlplane());
        command.args(["kubectl", "--name", name]);
        command
    }

    /// Installs the CRDs of another project, as listed by hack/crds/paths.
    pub async fn install_crds(&self, project: &str) -> Result<()> {
        let mut command = Command::new(root().join("hack/crds/paths"));
        command.arg(project);
        for file in run(command, None).await?.lines() {
            // Some CRDs are too large for an annotation, hence server-side apply.
            self.kubectl(&["apply", "--server-side", "-f", file], None).await?;
        }
        self.established("--all").await
    }

    /// Waits until these definitions, or `--all`, are served. kubectl fails at once if a definition is too new to have
    /// a status.
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

    /// Runs a fault verb of hack/controlplane, such as `["pause", "etcd"]`.
    pub async fn fault(&self, verb: &[&str]) -> Result<()> {
        let name = self.plane.as_deref().context("the cluster is not a plane started here")?;
        let mut command = Command::new(controlplane());
        command.args(verb).args(["--name", name]);
        run(command, None).await.map(drop)
    }

    /// Process of a component of the plane, such as `apiserver`.
    pub fn pid(&self, component: &str) -> Result<u32> {
        self.plane.as_deref().context("the cluster is not a plane started here")?;
        // Format of hack/plane/common.sh: pid, start, boot.
        let file = self.kubeconfig.with_file_name("run").join(format!("{component}.pid"));
        let record =
            fs::read_to_string(&file).with_context(|| format!("no record of a process in {}", file.display()))?;
        let pid = record.split_whitespace().next().context("the record of a process is empty")?;
        Ok(pid.parse()?)
    }

    /// Seconds of processor time used so far by a component of the plane.
    pub fn processor_seconds(&self, component: &str) -> Result<f64> {
        process::processor_seconds(self.pid(component)?)
    }

    /// Stops the plane, if it was started here.
    pub async fn down(&self) -> Result<()> {
        match &self.plane {
            Some(name) => end(name).await,
            None => Ok(()),
        }
    }
}

/// Stops a plane and removes its data; not an error if it does not exist.
pub async fn end(plane: &str) -> Result<()> {
    let mut command = Command::new(controlplane());
    command.args(["down", "--name", plane]);
    run(command, None).await.map(drop)
}

/// Path of the kubectl built with the plane.
pub async fn kubectl() -> Result<PathBuf> {
    let mut command = Command::new(controlplane());
    command.arg("bin");
    Ok(PathBuf::from(run(command, None).await?.trim()).join("kubectl"))
}

pub(super) fn controlplane() -> OsString {
    std::env::var_os("GANGLION_CONTROLPLANE").unwrap_or_else(|| root().join("hack/controlplane").into())
}
