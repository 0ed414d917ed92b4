//! A real control plane: one shared by all tests of the process, and planes of their own for tests that break one.
//!
//! Starts planes with `hack/controlplane`, installs what a user would install (CRDs, kustomize/base) with the plane's own
//! kubectl, and hands out the operator's token. A plane ends with the test process, whatever becomes of that.

pub mod cluster;
pub mod install;

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::root;

/// Namespace and name of the operator's service account in kustomize/base.
pub const ACCOUNT_NAMESPACE: &str = "ganglion-system";
pub const ACCOUNT: &str = "ganglion";

/// Nodes `node-0` … of the shared plane.
pub const NODES: usize = 8;

static SHARED: OnceCell<Result<Arc<Plane>, String>> = OnceCell::const_new();

/// A control plane that is up.
pub struct Plane {
    pub name: String,
    pub client: Client,
    /// Address and authority, without credentials.
    pub config: Config,
    /// The authority's certificate, as a kubeconfig has it.
    pub authority: String,
    /// A token of the operator's service account.
    pub token: String,
}

impl Plane {
    /// The plane that all tests share: started by whoever comes first.
    pub async fn shared() -> Result<Arc<Self>> {
        let start = || async {
            let name = format!("test-{}", std::process::id());
            Self::start(&name, NODES).await.map(Arc::new).map_err(|error| format!("{error:#}"))
        };
        SHARED.get_or_init(start).await.clone().map_err(|error| anyhow::anyhow!("the shared control plane: {error}"))
    }

    /// A plane for one test, ended when the guard is dropped.
    pub async fn own(name: &str, nodes: usize) -> Result<OwnPlane> {
        let name = format!("test-{}-{name}", std::process::id());
        Ok(OwnPlane(Arc::new(Self::start(&name, nodes).await?)))
    }

    async fn start(name: &str, nodes: usize) -> Result<Self> {
        let owner = std::process::id().to_string();
        let nodes = nodes.to_string();
        let printed =
            run(controlplane(), &["up", "--name", name, "--nodes", &nodes, "--owner-pid", &owner], None).await?;
        let path = printed.lines().last().context("hack/controlplane up printed no kubeconfig")?.to_owned();
        let kubeconfig = Kubeconfig::read_from(&path)?;
        let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref());
        let authority = cluster.and_then(|cluster| cluster.certificate_authority_data.clone()).unwrap_or_default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        config.auth_info = Default::default();
        let mut plane = Self { name: name.to_owned(), client, config, authority, token: String::new() };
        plane.install().await?;
        plane.token = plane.request_token().await?;
        Ok(plane)
    }

    /// What a user does to install the operator.
    async fn install(&self) -> Result<()> {
        let base = root().join("kustomize/base").display().to_string();
        self.kubectl(&["apply", "--server-side", "-k", &base], None).await?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=20s"], None).await?;
        Ok(())
    }

    async fn request_token(&self) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), ACCOUNT_NAMESPACE);
        let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = api.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
        Ok(answer.status.context("no token in the answer")?.token)
    }

    /// The plane's own kubectl, as the administrator; what it prints, or an error with what it complains of.
    pub async fn kubectl(&self, args: &[&str], stdin: Option<&str>) -> Result<String> {
        let mut all = vec!["kubectl", "--name", &self.name];
        all.extend(args);
        run(controlplane(), &all, stdin).await
    }

    /// A fault verb of hack/controlplane, such as `["pause", "etcd"]`.
    pub async fn fault(&self, verb: &[&str]) -> Result<()> {
        let mut all = verb.to_vec();
        all.extend(["--name", &self.name]);
        run(controlplane(), &all, None).await.map(drop)
    }
}

/// A plane of one test's own.
pub struct OwnPlane(pub Arc<Plane>);

impl Drop for OwnPlane {
    fn drop(&mut self) {
        let down = std::process::Command::new(controlplane())
            .args(["down", "--name", &self.0.name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !down.is_ok_and(|status| status.success()) {
            eprintln!("plane {} did not go down; it ends with this process", self.0.name);
        }
    }
}

fn controlplane() -> PathBuf {
    std::env::var_os("GANGLION_CONTROLPLANE").map_or_else(|| root().join("hack/controlplane"), PathBuf::from)
}

/// Runs a program to its end; its standard output, or an error that holds what it printed.
async fn run(program: PathBuf, args: &[&str], stdin: Option<&str>) -> Result<String> {
    let mut command = Command::new(&program);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).await?;
    }
    let Output { status, stdout, stderr } = child.wait_with_output().await?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        bail!("{} {} failed:\n{stdout}{}", program.display(), args.join(" "), String::from_utf8_lossy(&stderr));
    }
    Ok(stdout)
}
