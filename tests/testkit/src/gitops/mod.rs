//! Helm, Flux and Argo CD as real programs, which deploy manifests to the namespace of a testbed as its administrator.
//! They are built by hack/peers.

pub mod argo_cd;
pub mod flux;
pub mod helm;

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::testbed::Testbed;

/// Maximum time of a deployment: the tools wait for the operator and for pods, on a machine that may be busy.
const DEPLOYMENT: Duration = Duration::from_secs(600);

/// The same, as an argument of the tools.
const DEPLOYMENT_ARGUMENT: &str = "10m";

/// Maximum number of tools at once: more would only wait for the two or three processors.
static TURNS: Semaphore = Semaphore::const_new(3);

/// Name of the release, Kustomization or Application.
const APPLICATION: &str = "app";

/// End of a deployment, as the tool reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeployEnd {
    /// Everything is applied, and the tool considers it healthy.
    Healthy,
    /// Report of the tool.
    Failed(String),
}

impl DeployEnd {
    /// Fails unless the deployment is healthy.
    pub fn healthy(self) -> Result<()> {
        match self {
            Self::Healthy => Ok(()),
            Self::Failed(report) => bail!("the deployment failed: {report}"),
        }
    }

    /// Report of the failure.
    pub fn failed(self) -> Result<String> {
        match self {
            Self::Healthy => bail!("the deployment did not fail"),
            Self::Failed(report) => Ok(report),
        }
    }
}

/// A tool that deploys one application.
pub trait GitOpsTool<'a>: Sized {
    /// Field manager with which it applies objects.
    const MANAGER: &'static str;

    /// Starts it for this testbed.
    fn start(testbed: &'a Testbed) -> impl Future<Output = Result<Self>>;

    /// Deploys these manifests as the next revision, deletes objects that the previous revision had in addition, and
    /// waits for the end.
    fn deploy(&mut self, manifests: &[Value]) -> impl Future<Output = Result<DeployEnd>>;

    /// Compares the cluster with the last revision, corrects differences, and waits for the end.
    fn resync(&mut self) -> impl Future<Output = Result<DeployEnd>>;

    /// Deletes all that it has deployed, and waits until it is gone.
    fn remove(self) -> impl Future<Output = Result<()>>;
}

/// Writes the administrator's kubeconfig into this directory. Returns its path.
async fn write_kubeconfig(testbed: &Testbed, home: &Path) -> Result<PathBuf> {
    let path = home.join("kubeconfig");
    fs::write(&path, testbed.administrator().await?)?;
    Ok(path)
}

/// Replaces the content of a directory by these manifests, one file each, after `edit`. JSON is valid YAML.
fn write_manifests(folder: &Path, manifests: &[Value], edit: impl Fn(String) -> String) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for manifest in manifests {
        let kind = manifest["kind"].as_str().context("a manifest without a kind")?;
        let metadata = &manifest["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
        let name = name.context("a manifest without a name")?;
        let file = format!("{kind}-{name}.yaml").to_lowercase();
        fs::write(folder.join(file), edit(manifest.to_string()))?;
    }
    Ok(())
}

/// Changes the spec of the tool's own object by a merge patch. `resource` is its kind.
async fn patch_spec(testbed: &Testbed, resource: &str, spec: &Value) -> Result<()> {
    let patch = json!({"spec": spec}).to_string();
    testbed.kubectl(&["patch", resource, APPLICATION, "--type=merge", "-p", &patch], None).await.map(drop)
}

/// Objects of one of the tool's own kinds in the namespace of the testbed.
fn own_kind(testbed: &Testbed, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(testbed.client.clone(), &testbed.ns, &resource)
}

/// Waits until `test` returns a value for the tool's own object. The error contains its status.
async fn until_object<T>(
    api: &Api<DynamicObject>,
    what: &str,
    test: impl Fn(&DynamicObject) -> Option<T>,
) -> Result<T> {
    let look = async {
        loop {
            if let Ok(object) = api.get(APPLICATION).await
                && let Some(found) = test(&object)
            {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if let Ok(found) = tokio::time::timeout(DEPLOYMENT, look).await {
        return Ok(found);
    }
    bail!("timed out waiting for {what}: {}", api.get(APPLICATION).await?.data["status"])
}
