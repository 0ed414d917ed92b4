//! Argo CD: its application controller, its repo server, Debian's Redis, and a local Git repository.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::SemaphorePermit;

use super::{
    APPLICATION, DEPLOYMENT_ARGUMENT, DeployEnd, GitOpsTool, TURNS, own_kind, patch_spec, until_object,
    write_kubeconfig, write_manifests,
};
use crate::process::{LoggedProcess, attached, free_port, run};
use crate::servers::prometheus::peer;
use crate::servers::serves;
use crate::testbed::Testbed;
use crate::{TIMEOUT, root};

/// Annotation by which a user requests a comparison. The controller removes it when it has compared.
const REFRESH: &str = "argocd.argoproj.io/refresh";

/// The cluster of the controller's own kubeconfig.
const CLUSTER: &str = "https://kubernetes.default.svc";

pub struct ArgoCd<'a> {
    testbed: &'a Testbed,
    controller: LoggedProcess,
    _servers: [LoggedProcess; 2],
    home: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl ArgoCd<'_> {
    fn applications(&self) -> Api<DynamicObject> {
        own_kind(self.testbed, "argoproj.io", "v1alpha1", "Application")
    }

    /// The Application.
    pub async fn application(&self) -> Result<DynamicObject> {
        Ok(self.applications().get(APPLICATION).await?)
    }

    /// Changes the spec of the Application by a merge patch.
    pub async fn configure(&self, spec: Value) -> Result<()> {
        patch_spec(self.testbed, "applications", &spec).await
    }

    /// Commits the manifests. Returns the revision.
    async fn commit(&self) -> Result<String> {
        git(self.home.path(), &["add", "--all"]).await?;
        git(self.home.path(), &["commit", "--quiet", "--allow-empty", "--message", "revision"]).await?;
        self.revision().await
    }

    async fn revision(&self) -> Result<String> {
        Ok(git(self.home.path(), &["rev-parse", "HEAD"]).await?.trim().to_owned())
    }

    /// Requests a comparison with this revision, and waits until the controller has compared and synced.
    async fn refresh(&mut self, revision: &str) -> Result<DeployEnd> {
        let annotation = format!("{REFRESH}=normal");
        self.testbed.kubectl(&["annotate", "--overwrite", "applications", APPLICATION, &annotation], None).await?;
        let end = until_object(&self.applications(), "Argo CD", |object| end(object, revision)).await;
        self.controller.ensure_running()?;
        end.with_context(|| self.controller.log())
    }
}

/// End of the sync with this revision; None while it is running, or while a health check is not final.
fn end(application: &DynamicObject, revision: &str) -> Option<DeployEnd> {
    let status = application.data.get("status")?;
    let (sync, operation) = (&status["sync"], &status["operationState"]);
    let is_busy = application.annotations().contains_key(REFRESH)
        || application.data.get("operation").is_some()
        || operation["phase"] == "Running";
    if is_busy || sync["revision"] != revision {
        return None;
    }
    match (sync["status"].as_str()?, status["health"]["status"].as_str()?) {
        ("Synced", "Healthy") => Some(DeployEnd::Healthy),
        ("Synced", "Degraded") => Some(DeployEnd::Failed(degraded(status))),
        _ if operation["syncResult"]["revision"] == revision && operation["phase"] != "Succeeded" => {
            Some(DeployEnd::Failed(operation["message"].to_string()))
        }
        _ => None,
    }
}

/// Messages of the objects that are Degraded.
fn degraded(status: &Value) -> String {
    let resources = status["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let degraded = resources.iter().filter(|resource| resource["health"]["status"] == "Degraded");
    let messages: Vec<String> =
        degraded.map(|resource| format!("{} {}: {}", resource["kind"], resource["name"], resource["health"])).collect();
    messages.join("\n")
}

async fn git(home: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(home.join("repository")).args(["-c", "user.name=test", "-c", "user.email=test@example.com"]);
    command.args(arguments);
    run(command, None).await
}

/// Objects that Argo CD's own manifests install: its settings, a project without limits, and the cluster, of which it
/// reads this namespace only.
fn settings(namespace: &str) -> [Value; 4] {
    let labels = json!({"app.kubernetes.io/part-of": "argocd"});
    let any = json!([{"group": "*", "kind": "*"}]);
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "argocd-secret", "labels": labels},
            "stringData": {"server.secretkey": "key"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "cluster", "labels": {"argocd.argoproj.io/secret-type": "cluster"}},
            "stringData": {"name": "in-cluster", "server": CLUSTER, "namespaces": namespace,
                "clusterResources": "true", "config": "{}"}}),
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "default"},
            "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": any, "namespaceResourceWhitelist": any}}),
    ]
}

fn application(home: &Path, namespace: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": APPLICATION, "finalizers": ["resources-finalizer.argocd.argoproj.io"]},
        "spec": {
            "project": "default", "destination": {"server": CLUSTER, "namespace": namespace},
            "source": {
                "repoURL": format!("file://{}/repository", home.display()), "targetRevision": "main",
                "path": "manifests", "directory": {"recurse": true},
            },
            "syncPolicy": {"automated": {"prune": true, "selfHeal": true}},
        },
    })
}

/// Starts Redis on this port.
fn start_redis(home: &Path, port: u16) -> Result<LoggedProcess> {
    let program = peer("redis")?;
    let root = program.ancestors().nth(3).context("the path of Redis is too short")?;
    let mut command = attached(&program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.env("LD_LIBRARY_PATH", root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)));
    command.current_dir(home);
    LoggedProcess::start(command, home.join("redis.log"))
}

impl<'a> GitOpsTool<'a> for ArgoCd<'a> {
    const MANAGER: &'static str = "argocd-controller";

    async fn start(testbed: &'a Testbed) -> Result<Self> {
        let turn = TURNS.acquire().await?;
        testbed.plane.cluster.install_crds("argo-cd").await?;
        for object in settings(&testbed.ns) {
            testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        }
        // As config/argocd/health.yaml tells users.
        let health = root().join("config/argocd/health.yaml").display().to_string();
        testbed.kubectl(&["patch", "configmap", "argocd-cm", "--patch-file", &health], None).await?;
        let home = TempDir::new()?;
        let (redis, repo_server) = (free_port()?, free_port()?);
        let kubeconfig = write_kubeconfig(testbed, home.path()).await?;
        let program = peer("argo-cd")?;
        let start = |name: &str, arguments: &[&str]| {
            // The name selects one of the programs, and is the field manager where Argo CD replaces objects.
            let link = home.path().join(name);
            symlink(&program, &link)?;
            let mut command = attached(link);
            command.args(arguments).args(["--redis", &format!("127.0.0.1:{redis}")]);
            command.env("KUBECONFIG", &kubeconfig).env("HOME", home.path());
            command.env("TMPDIR", home.path()).env("ARGOCD_ASK_PASS_SOCK", home.path().join("ask-pass"));
            command.env("ARGOCD_GPG_ENABLED", "false").env("ARGOCD_FAKE_IN_CLUSTER", "true");
            LoggedProcess::start(command, home.path().join(format!("{name}.log")))
        };
        let health_port = free_port()?;
        let (port, metrics) = (repo_server.to_string(), health_port.to_string());
        let local = ["--address", "127.0.0.1", "--metrics-address", "127.0.0.1", "--disable-tls"];
        let ports = ["--port", port.as_str(), "--metrics-port", metrics.as_str()];
        let mut servers =
            [start_redis(home.path(), redis)?, start("argocd-repo-server", &[&local[..], &ports].concat())?];
        let is_up = async {
            while !serves(health_port, "/healthz").await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, is_up).await.context("the repo server does not answer")?;
        servers.iter_mut().try_for_each(LoggedProcess::ensure_running)?;
        // The controller has no option for the address of its metrics.
        let (address, own_metrics) = (format!("127.0.0.1:{repo_server}"), free_port()?.to_string());
        let repo = ["--repo-server", address.as_str(), "--repo-server-plaintext"];
        let own = ["--namespace", &testbed.ns, "--metrics-port", own_metrics.as_str(), "--persist-resource-health"];
        let controller = start("argocd-application-controller", &[&repo[..], &own].concat())?;
        let mut this = Self { testbed, home, controller, _servers: servers, _turn: turn };
        fs::create_dir_all(this.home.path().join("repository/manifests"))?;
        fs::write(this.home.path().join("repository/manifests/README"), "The manifests of an application.\n")?;
        git(this.home.path(), &["init", "--quiet", "--initial-branch=main"]).await?;
        this.commit().await?;
        let application = application(this.home.path(), &testbed.ns);
        testbed.kubectl(&["apply", "-f", "-"], Some(&application.to_string())).await?;
        // Otherwise the first comparison could sync the next revision with the options of this Application.
        this.resync().await?.healthy()?;
        Ok(this)
    }

    async fn deploy(&mut self, manifests: &[Value]) -> Result<DeployEnd> {
        write_manifests(&self.home.path().join("repository/manifests"), manifests, |text| text)?;
        let revision = self.commit().await?;
        self.refresh(&revision).await
    }

    async fn resync(&mut self) -> Result<DeployEnd> {
        let revision = self.revision().await?;
        self.refresh(&revision).await
    }

    async fn remove(self) -> Result<()> {
        let delete = ["delete", "applications", APPLICATION, "--timeout", DEPLOYMENT_ARGUMENT];
        self.testbed.kubectl(&delete, None).await.with_context(|| self.controller.log())?;
        Ok(())
    }
}
