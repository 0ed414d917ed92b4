//! The control planes of the tests: one shared by all tests of the process, and planes of their own for tests that break
//! one. A plane ends with the test process, whatever becomes of that.

pub mod audit;
pub mod cluster;
pub mod install;
pub mod kubeconfig;
pub mod scheduler;

use std::process::Stdio;
use std::sync::Arc;

use anyhow::Result;
use kube::Config;
use tokio::sync::{OnceCell, Semaphore};

use audit::Audit;
use cluster::{Cluster, Wanted, controlplane};

/// Nodes `node-0` … of the shared plane.
pub const NODES: usize = 8;

/// How many planes of tests' own there are at once, beside the shared one: an idle plane takes a tenth of a processor, and one that
/// starts takes all that it gets.
static OWN_PLANES: Semaphore = Semaphore::const_new(2);

static SHARED: OnceCell<Result<Arc<Plane>, String>> = OnceCell::const_new();

/// A control plane that is up, with what a user installs of the operator.
pub struct Plane {
    pub cluster: Cluster,
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
        let turn = OWN_PLANES.acquire().await?;
        let name = format!("test-{}-{name}", std::process::id());
        let plane = Arc::new(Self::start(&name, nodes).await?);
        // Its guard gives the turn back.
        turn.forget();
        Ok(OwnPlane(plane))
    }

    async fn start(name: &str, nodes: usize) -> Result<Self> {
        let home = audit::kept().join(name);
        std::fs::create_dir_all(&home)?;
        let audit = Audit::prepare(&home, false)?;
        let wanted = Wanted { name, nodes, quiet: true, more: audit.options(), ..Wanted::default() };
        let cluster = Cluster::start(&wanted).await?;
        install::apply(&cluster).await?;
        let token = install::token(&cluster.client).await?;
        Ok(Self { cluster, token })
    }

    /// Address and authority, without credentials.
    pub fn anonymous(&self) -> Config {
        let mut config = self.cluster.config.clone();
        config.auth_info = Default::default();
        config
    }
}

/// A plane of one test's own.
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
            eprintln!("plane {name} did not go down; it ends with this process");
        }
        OWN_PLANES.add_permits(1);
    }
}
