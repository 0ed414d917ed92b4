//! Control planes of the tests: one is shared by all tests of the process; tests that break a plane use a separate one.
//! A plane ends with the test process, even if the process is killed.

pub mod audit;
pub mod cluster;
pub mod install;
pub mod kubeconfig;
pub mod scheduler;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use tokio::sync::{OnceCell, Semaphore};

use audit::Audit;
use cluster::{Cluster, Wanted, controlplane};

use crate::{TIMEOUT, root};

/// Number of nodes (`node-0` …) of the shared plane.
pub const NODES: usize = 8;

/// Maximum number of separate planes at once, besides the shared one. An idle plane uses a tenth of a processor, and a
/// starting plane uses all that is available.
static OWN_PLANES: Semaphore = Semaphore::const_new(2);

static SHARED: OnceCell<Result<Arc<Plane>, String>> = OnceCell::const_new();

/// Whether the shared plane outlives this process and serves the next one too, and the logs of the operators stay:
/// `hack/test story` sets this variable.
pub fn is_kept() -> bool {
    std::env::var_os("GANGLION_STORY_KEEP").is_some()
}

/// A running control plane with the operator's manifests installed.
pub struct Plane {
    pub cluster: Cluster,
    /// Token of the operator's service account.
    pub token: String,
    /// Log of the operator's requests.
    pub audit: Audit,
}

impl Plane {
    /// The plane that all tests share. The first caller starts it.
    pub async fn shared() -> Result<Arc<Self>> {
        let start = || async {
            let started = if is_kept() {
                let home = root().join("target/story/plane");
                let wanted = Wanted { name: "story", nodes: NODES, keep: true, ..Wanted::default() };
                Self::start_at(&home, wanted, &install::base()).await
            } else {
                Self::start(&format!("test-{}", std::process::id()), NODES, &install::base()).await
            };
            started.map(Arc::new).map_err(|error| format!("{error:#}"))
        };
        SHARED.get_or_init(start).await.clone().map_err(|error| anyhow::anyhow!("the shared control plane: {error}"))
    }

    /// Starts a plane for one test; it stops when the guard is dropped.
    pub async fn own(name: &str, nodes: usize) -> Result<OwnPlane> {
        Self::own_with(name, nodes, &install::base()).await
    }

    /// The same with other manifests: a directory `kustomize/base`, or a file of a release.
    pub async fn own_with(name: &str, nodes: usize, manifests: &Path) -> Result<OwnPlane> {
        let turn = OWN_PLANES.acquire().await?;
        let name = format!("test-{}-{name}", std::process::id());
        let plane = Arc::new(Self::start(&name, nodes, manifests).await?);
        // Dropping the guard releases the permit.
        turn.forget();
        Ok(OwnPlane(plane))
    }

    async fn start(name: &str, nodes: usize, manifests: &Path) -> Result<Self> {
        Self::start_at(&audit::kept().join(name), Wanted { name, nodes, quiet: true, ..Wanted::default() }, manifests)
            .await
    }

    /// Starts a plane with its audit log in this directory. A plane that runs already is used as it is.
    async fn start_at(home: &Path, wanted: Wanted<'_>, manifests: &Path) -> Result<Self> {
        std::fs::create_dir_all(home)?;
        let audit = Audit::prepare(home, false)?;
        let wanted = Wanted { more: audit.options(), ..wanted };
        let cluster = Cluster::start(&wanted).await?;
        install::apply(&cluster, manifests).await?;
        let token = install::token(&cluster.client).await?;
        Ok(Self { cluster, token, audit })
    }

    /// Address and authority, without credentials.
    pub fn anonymous(&self) -> Config {
        let mut config = self.cluster.config.clone();
        config.auth_info = Default::default();
        config
    }
}

/// Creates a namespace, and waits for its default service account: the API server rejects pods before it exists, and
/// the ReplicaSet controller then backs off before it retries.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = Namespace { metadata, ..Namespace::default() };
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.context("namespace")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    let there = await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(TIMEOUT, there).await.context("no default service account")??;
    Ok(())
}

/// Plane of a single test.
pub struct OwnPlane(pub Arc<Plane>);

impl Drop for OwnPlane {
    fn drop(&mut self) {
        let Some(name) = &self.0.cluster.plane else { return };
        let down = std::process::Command::new(controlplane())
            .args(["down", "--name", name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !down.is_ok_and(|status| status.success()) {
            eprintln!("plane {name} did not stop; it ends with this process");
        }
        OWN_PLANES.add_permits(1);
    }
}
