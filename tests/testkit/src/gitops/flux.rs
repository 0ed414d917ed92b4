//! Flux's kustomize-controller. Its sources come from source-controller, which is not there: this module serves the
//! artifact, and writes the status of the GitRepository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::SemaphorePermit;
use tokio::task::JoinHandle;

use super::{
    APPLICATION, DEPLOYMENT_ARGUMENT, DeployEnd, GitOpsTool, TURNS, own_kind, patch_spec, until_object,
    write_kubeconfig, write_manifests,
};
use crate::process::{LoggedProcess, attached, run};
use crate::servers::prometheus::peer;
use crate::testbed::Testbed;

pub struct Flux<'a> {
    testbed: &'a Testbed,
    controller: LoggedProcess,
    home: TempDir,
    server: JoinHandle<()>,
    /// Address of the server of artifacts.
    address: String,
    revision: usize,
    /// Number of the last requested reconciliation.
    request: usize,
    _turn: SemaphorePermit<'static>,
}

impl Flux<'_> {
    /// Lines of the log of its controller that tell of changed objects.
    pub fn changes(&self) -> Vec<String> {
        let log = self.controller.log();
        let is_change = |line: &&str| line.contains("server-side apply completed") && line.contains(r#":"configured""#);
        log.lines().filter(is_change).map(str::to_owned).collect()
    }

    /// Changes the spec of the Kustomization by a merge patch.
    pub async fn configure(&self, spec: Value) -> Result<()> {
        patch_spec(self.testbed, "kustomizations", &spec).await
    }

    fn kustomizations(&self) -> Api<DynamicObject> {
        own_kind(self.testbed, "kustomize.toolkit.fluxcd.io", "v1", "Kustomization")
    }

    /// Stores the manifests as an artifact. Returns the status that source-controller would write.
    async fn store(&self) -> Result<Value> {
        let file = format!("{}.tar.gz", self.revision);
        let path = self.home.path().join("artifacts").join(&file);
        let mut pack = Command::new("tar");
        pack.arg("-czf").arg(&path).arg("-C").arg(self.home.path().join("manifests")).arg(".");
        run(pack, None).await?;
        let mut sum = Command::new("sha256sum");
        sum.arg(&path);
        let sum = run(sum, None).await?;
        let digest = sum.split_whitespace().next().context("no digest")?;
        Ok(json!({"artifact": {
            "path": file, "url": format!("http://{}/{file}", self.address), "revision": self.revision_name(),
            "digest": format!("sha256:{digest}"), "lastUpdateTime": jiff::Timestamp::now().to_string(),
        }}))
    }

    fn revision_name(&self) -> String {
        format!("main@sha1:{:040x}", self.revision)
    }

    /// Waits until the controller has finished this reconciliation.
    async fn end(&mut self, is_current: impl Fn(&Value) -> bool) -> Result<DeployEnd> {
        let end = until_object(&self.kustomizations(), "Flux", |object| {
            let status = object.data.get("status").filter(|status| is_current(status))?;
            let conditions = status["conditions"].as_array()?;
            let find = |kind: &str| conditions.iter().find(|one| one["type"] == kind);
            // After a failure, the controller waits for the next interval.
            let is_idle = |one: &Value| one["status"] != "True" || one["reason"] == "ProgressingWithRetry";
            let ready = find("Ready").filter(|_| find("Reconciling").is_none_or(is_idle))?;
            match ready["status"].as_str()? {
                "True" => Some(DeployEnd::Healthy),
                "False" => Some(DeployEnd::Failed(ready["message"].as_str().unwrap_or_default().to_owned())),
                _ => None,
            }
        })
        .await;
        self.controller.ensure_running()?;
        end.with_context(|| self.controller.log())
    }
}

/// Serves the files of a directory.
async fn serve(home: PathBuf) -> Result<(String, JoinHandle<()>)> {
    async fn file(State(home): State<PathBuf>, path: Uri) -> Result<Vec<u8>, StatusCode> {
        let name = Path::new(path.path()).file_name().ok_or(StatusCode::NOT_FOUND)?;
        fs::read(home.join(name)).map_err(|_| StatusCode::NOT_FOUND)
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().fallback(file).with_state(home);
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    Ok((address, server))
}

impl<'a> GitOpsTool<'a> for Flux<'a> {
    const MANAGER: &'static str = "kustomize-controller";

    async fn start(testbed: &'a Testbed) -> Result<Self> {
        let turn = TURNS.acquire().await?;
        testbed.plane.cluster.install_crds("flux").await?;
        let home = TempDir::new()?;
        let artifacts = home.path().join("artifacts");
        fs::create_dir(&artifacts)?;
        let (address, server) = serve(artifacts).await?;
        let mut command = attached(peer("kustomize-controller")?);
        command.args(["--watch-all-namespaces=false", "--metrics-addr=0", "--health-addr=0"]);
        command.env("KUBECONFIG", write_kubeconfig(testbed, home.path()).await?);
        command.env("RUNTIME_NAMESPACE", &testbed.ns).env("TMPDIR", home.path());
        let controller = LoggedProcess::start(command, home.path().join("log"))?;
        let git = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": APPLICATION},
            "spec": {"interval": "1h", "url": "https://git.example/app"},
        });
        let kustomization = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": APPLICATION},
            "spec": {
                "interval": "1h", "timeout": DEPLOYMENT_ARGUMENT, "prune": true, "wait": true, "path": "./",
                "sourceRef": {"kind": "GitRepository", "name": APPLICATION},
            },
        });
        for object in [git, kustomization] {
            testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        }
        Ok(Self { testbed, home, controller, server, address, revision: 0, request: 0, _turn: turn })
    }

    async fn deploy(&mut self, manifests: &[Value]) -> Result<DeployEnd> {
        self.revision += 1;
        write_manifests(&self.home.path().join("manifests"), manifests, |text| text)?;
        let status = json!({"status": self.store().await?}).to_string();
        let patch = ["patch", "gitrepositories", APPLICATION, "--subresource=status", "--type=merge", "-p", &status];
        self.testbed.kubectl(&patch, None).await?;
        let revision = self.revision_name();
        self.end(|status| status["lastAttemptedRevision"] == json!(revision)).await
    }

    async fn resync(&mut self) -> Result<DeployEnd> {
        self.request += 1;
        let request = self.request.to_string();
        let annotation = format!("reconcile.fluxcd.io/requestedAt={request}");
        self.testbed.kubectl(&["annotate", "--overwrite", "kustomizations", APPLICATION, &annotation], None).await?;
        self.end(|status| status["lastHandledReconcileAt"] == json!(request)).await
    }

    async fn remove(self) -> Result<()> {
        let delete = ["delete", "kustomizations", APPLICATION, "--timeout", DEPLOYMENT_ARGUMENT];
        self.testbed.kubectl(&delete, None).await.with_context(|| self.controller.log())?;
        Ok(())
    }
}

impl Drop for Flux<'_> {
    fn drop(&mut self) {
        self.server.abort();
    }
}
