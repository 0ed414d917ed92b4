//! The stage: the cluster, the operator in it, and the cleanup of both.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::cluster::{Cluster, Wanted, end};
use testkit::plane::install::{ACCOUNT, Installed, NAMESPACE, running};
use testkit::process::free_port;

use super::screen::Screen;
use super::{Options, Play, chain, nodes, placement, swarm};

/// Number of simulated nodes of the local control plane.
const NODES: usize = testkit::chain::NODES;

/// Maximum time for the deletion of a namespace.
const FAREWELL: Duration = Duration::from_secs(60);

pub struct Stage {
    kubeconfig: Option<PathBuf>,
    keep: bool,
    /// Settings file of the operator, if the demo needs one.
    settings: Option<&'static str>,
    /// Port of the scheduler extender, if the operator serves it.
    extender: Option<u16>,
    /// Name of the local control plane; set before it starts.
    plane: Option<String>,
    cluster: Option<Cluster>,
    installed: Installed,
    operator: Option<Operator>,
    namespace: Option<String>,
    home: PathBuf,
}

impl Stage {
    pub fn new(options: &Options) -> Self {
        let home = match options.keep {
            true => state_dir(),
            false => std::env::temp_dir().join(format!("ganglion-demo-{}", std::process::id())),
        };
        Self {
            kubeconfig: options.kubeconfig.clone(),
            keep: options.keep,
            settings: match options.play {
                Play::Moves | Play::Loops => None,
                Play::Nodes => Some(nodes::SETTINGS),
                Play::Swarm => Some(swarm::SETTINGS),
                Play::Placement => Some(placement::SETTINGS),
                Play::Chain => Some(chain::SETTINGS),
            },
            extender: None,
            plane: None,
            cluster: None,
            installed: Installed::default(),
            operator: None,
            namespace: None,
            home,
        }
    }

    /// Enables the scheduler extender, before the operator is started. Returns its port.
    pub fn serve_schedulers(&mut self) -> Result<u16> {
        Ok(*self.extender.insert(free_port()?))
    }

    /// Starts or opens the cluster, installs CRDs and RBAC, creates the namespace and starts the operator.
    pub async fn build(&mut self, screen: &Screen) -> Result<()> {
        let cluster = self.open(screen).await?;
        let cluster = self.cluster.insert(cluster);
        if let Some(holder) = running(&cluster.client).await? {
            screen.done("operator", &format!("already running in this cluster: {holder}"));
            self.namespace = Some(make_namespace(&cluster.client, false).await?);
            return Ok(());
        }
        screen.doing("installing CRDs, service account and RBAC rules");
        self.installed.install(cluster).await?;
        screen.done(
            "installed",
            &format!("CRDs of ganglion.dev, service account {NAMESPACE}/{ACCOUNT}, its ClusterRole"),
        );
        let namespace = self.namespace.insert(make_namespace(&cluster.client, self.plane.is_some()).await?);
        screen.doing("starting the operator");
        let began = Instant::now();
        let scope = ["--watch-namespace", namespace.as_str()];
        let more: &[&str] = if self.plane.is_some() { &[] } else { &scope };
        let operator = self.operator.insert(Operator::installed(cluster, &self.home, more).await?);
        if let Some(settings) = self.settings {
            let file = self.home.join("settings.yaml");
            std::fs::write(&file, settings)?;
            operator.add_options(&["--settings", &file.display().to_string()]);
        }
        if let Some(port) = self.extender {
            operator.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
        }
        if let Ok(url) = std::env::var(TRACES) {
            operator.set_variables(&[(TRACES, &url)]);
        }
        if self.keep {
            operator.keep();
        }
        operator.start()?;
        operator.ready().await?;
        let rights = format!("with the permissions of service account {NAMESPACE}/{ACCOUNT} only");
        screen.done("operator", &format!("ready after {} ms, {rights}", began.elapsed().as_millis()));
        Ok(())
    }

    async fn open(&mut self, screen: &Screen) -> Result<Cluster> {
        if let Some(file) = &self.kubeconfig {
            let cluster = Cluster::open(file).await?;
            let version = cluster.version().await?;
            screen.done("cluster", &format!("{} at {}", version, cluster.config.cluster_url));
            return Ok(cluster);
        }
        screen.doing("starting a control plane and its simulated nodes");
        // With `--keep` the plane has the name that `hack/demo down` stops; other runs use unique names.
        let name = if self.keep { "demo".to_owned() } else { format!("demo-{}", std::process::id()) };
        let plane = self.plane.insert(name);
        let began = Instant::now();
        let wanted = Wanted { name: plane, nodes: NODES, keep: self.keep, ..Wanted::default() };
        let cluster = Cluster::start(&wanted).await?;
        let version = cluster.version().await?;
        let detail = format!("Kubernetes {version}, {NODES} simulated nodes, up after {} s", began.elapsed().as_secs());
        screen.done("control plane", &detail);
        Ok(cluster)
    }

    /// Whether the demo started its own control plane.
    pub fn is_local(&self) -> bool {
        self.kubeconfig.is_none()
    }

    /// Directory for files that must outlive the demo; None without `--keep`.
    pub fn kept(&self) -> Option<&Path> {
        self.keep.then_some(self.home.as_path())
    }

    pub fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().context("there is no cluster")
    }

    /// Client and namespace of the demo.
    pub fn place(&self) -> Result<(Client, String)> {
        let cluster = self.cluster()?;
        Ok((cluster.client.clone(), self.namespace.clone().context("there is no namespace")?))
    }

    /// Prints the end of the operator's log, after a failure.
    pub fn show_log(&self, screen: &Screen) {
        if let Some(operator) = &self.operator {
            screen.say(&format!("\nThe end of the operator's log ({}):", operator.log().display()));
            screen.say(&operator.log_tail(15));
        }
    }

    /// Deletes everything that the demo created.
    pub async fn clear(&mut self, screen: &Screen) -> Result<()> {
        if let (Some(cluster), None) = (&self.cluster, &self.plane) {
            screen.doing("deleting everything that the demo created");
            if let Some(namespace) = self.namespace.take() {
                clear_namespace(&cluster.client, &namespace).await?;
            }
            if let Some(operator) = self.operator.take() {
                operator.stop().await?;
            }
            self.installed.remove(&cluster.client).await?;
            screen.done("cleaned up", "everything that the demo created is deleted");
        }
        if let Some(operator) = self.operator.take() {
            operator.stop().await?;
        }
        if let Some(plane) = self.plane.take() {
            screen.doing("stopping the control plane");
            end(&plane).await?;
        }
        screen.rest();
        if self.home.exists() {
            std::fs::remove_dir_all(&self.home)?;
        }
        Ok(())
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        Ok(self.cluster()?.kubeconfig.clone())
    }

    /// Runs kubectl in the demo's namespace. Returns its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let cluster = self.cluster()?;
        let namespace = self.namespace.as_deref().context("there is no namespace")?;
        cluster.kubectl(&[&["-n", namespace], args].concat(), None).await
    }

    /// Prints commands for what still runs. NS in the hints stands for the namespace.
    pub fn leave(&self, screen: &Screen, hints: &[&str]) {
        let (Some(cluster), Some(namespace)) = (&self.cluster, &self.namespace) else { return };
        screen.say("\nThe control plane and the operator are still running. To look around:\n");
        screen.say(&format!("  export KUBECONFIG={}", cluster.kubeconfig.display()));
        for hint in hints {
            screen.say(&format!("  {}", hint.replace("-n NS", &format!("-n {namespace}"))));
        }
        screen.say(&format!("  k9s -n {namespace}   # columns and keys: config/k9s"));
        screen.say("  source <(cargo run --quiet -- completion bash)   # then: ganglion top <Tab>");
        if let Some(operator) = &self.operator {
            screen.say(&format!(
                "  curl -s http://{}/metrics   # board and alerts: config/monitoring",
                operator.address()
            ));
        }
        screen.say(&format!("\nTraces: with a collector, {TRACES}=http://127.0.0.1:4318 hack/demo loops"));
        screen.say("\nIf kubectl is not installed: hack/controlplane kubectl --name demo …");
        if let Some(operator) = &self.operator {
            screen.say(&format!("The operator's log: {}", operator.log().display()));
        }
        screen.say("To stop everything: hack/demo down");
    }
}

/// Variable with the URL of a collector of traces; the operator gets it from the environment of the demo.
const TRACES: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// State directory of a demo that is kept; `hack/demo down` looks for the operator's pid file there.
fn state_dir() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(".local/state");
    std::env::var_os("XDG_STATE_HOME").map_or_else(home, PathBuf::from).join("ganglion/demo")
}

/// Creates the namespace: `demo` on a plane of our own, a generated unique name on other clusters.
async fn make_namespace(client: &Client, own: bool) -> Result<String> {
    let metadata = if own { json!({"name": "demo"}) } else { json!({"generateName": "ganglion-demo-"}) };
    let namespace: Namespace = serde_json::from_value(json!({"metadata": metadata}))?;
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(made.name_any())
}

/// Deletes the actions first, while the operator still runs and can remove its finalizers.
async fn clear_namespace(client: &Client, namespace: &str) -> Result<()> {
    let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), namespace);
    actions.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let deadline = Instant::now() + Duration::from_secs(15);
    while Instant::now() < deadline && !actions.list(&ListParams::default()).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for action in actions.list(&ListParams::default()).await? {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        actions.patch(&action.name_any(), &PatchParams::default(), &free).await?;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(namespace, &DeleteParams::default()).await?;
    let deadline = Instant::now() + FAREWELL;
    while namespaces.get_opt(namespace).await?.is_some() {
        if Instant::now() > deadline {
            anyhow::bail!("namespace {namespace} still exists after {} s", FAREWELL.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
