//! A small kubelet for pods that are real processes on this machine. Each pod has its own address in 127.0.0.0/8.
//!
//! Like a real kubelet:
//!
//! - It binds no pods; the scheduler places them on its node.
//! - A changed ConfigMap reaches a pod's volume after a delay, sooner if the pod itself changes. A new pod gets the
//!   newest version. Files are swapped by a symlink.
//! - A pod is Ready once the program answers `/internal/health`.
//! - A deletion sends SIGTERM and, after the grace period, SIGKILL. The pod is removed once the process has ended.
//! - A container that dies is restarted.
//!
//! Unlike a real kubelet:
//!
//! - It runs one program, `hack/worker`, for every container.
//! - It mounts only the first volume, with all keys.
//! - It probes every 10 ms, and restarts a container after 100 ms.
//!
//! Annotations make a pod misbehave: [`NO_SYNC`], [`NEVER_READY`]. A node can lose its network ([`Kubelet::silence`])
//! or its power (the kubelet is dropped), and a process can be killed ([`Kubelet::kill`]).

pub mod journal;
mod pod;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::NODE_OWNER;
use pod::PodProcess;

/// Annotation of a pod whose volumes are never updated.
pub const NO_SYNC: &str = "test.ganglion.dev/no-sync";

/// Annotation of a pod that never becomes Ready.
pub const NEVER_READY: &str = "test.ganglion.dev/never-ready";

/// Port of every worker.
pub const PORT: u16 = 9090;

static ADDRESSES: AtomicU16 = AtomicU16::new(1);

/// Options of a test's kubelet.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Delay until a changed ConfigMap reaches the volumes.
    pub sync: Duration,
    /// Delay until it reaches the volumes of a pod that has changed as well.
    pub react: Duration,
    /// Additional arguments of the worker.
    pub arguments: Vec<String>,
    /// CPUs of the node.
    pub cores: u32,
}

impl Default for KubeletOptions {
    /// The delays of a real kubelet, no additional arguments, and a large node.
    fn default() -> Self {
        Self { sync: Duration::from_secs(60), react: Duration::from_millis(100), arguments: Vec::new(), cores: 64 }
    }
}

/// Dropping it kills all its processes, like a node that loses power.
pub struct Kubelet {
    pub node: String,
    shared: Arc<KubeletState>,
    task: Option<AbortOnDropHandle<()>>,
}

/// Data shared by all pods of a kubelet.
struct KubeletState {
    client: Client,
    namespace: String,
    /// Shared with the nodes that joined.
    home: Arc<TempDir>,
    program: PathBuf,
    options: KubeletOptions,
    /// ConfigMaps of the namespace by name: the source of the volumes.
    maps: watch::Receiver<HashMap<String, ConfigMap>>,
    /// Whether the node has lost its network.
    silent: AtomicBool,
}

impl Kubelet {
    /// Starts a kubelet, with a node for pods of this namespace that tolerate its taint.
    pub async fn start(client: &Client, namespace: &str, options: KubeletOptions) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("ganglion-kubelet-").tempdir()?;
        Self::start_in(Arc::new(home), client, namespace, "processes", options).await
    }

    /// Adds another node for the same pods. Its workers write to the same journal.
    pub async fn join(&self, name: &str) -> Result<Self> {
        let KubeletState { home, client, namespace, options, .. } = &*self.shared;
        Self::start_in(Arc::clone(home), client, namespace, name, options.clone()).await
    }

    async fn start_in(
        home: Arc<TempDir>,
        client: &Client,
        namespace: &str,
        name: &str,
        options: KubeletOptions,
    ) -> Result<Self> {
        let node = format!("{namespace}-{name}");
        let api: Api<Node> = Api::all(client.clone());
        api.create(&PostParams::default(), &manifest(&node, namespace)?).await?;
        let size = json!({"cpu": options.cores.to_string(), "memory": "64Gi", "pods": "500"});
        let ready = json!({"status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": jiff::Timestamp::now().to_string(), "lastTransitionTime": jiff::Timestamp::now().to_string()}],
        }});
        api.patch_status(&node, &PatchParams::default(), &Patch::Merge(&ready)).await?;
        let (maps, followed) = watch::channel(HashMap::new());
        let shared = Arc::new(KubeletState {
            client: client.clone(),
            namespace: namespace.to_owned(),
            home,
            program: program()?,
            options,
            maps: followed,
            silent: AtomicBool::new(false),
        });
        let task = tokio::spawn(run(Arc::clone(&shared), node.clone(), maps));
        Ok(Self { node, shared, task: Some(AbortOnDropHandle::new(task)) })
    }

    /// Path of the journal that the workers write.
    pub fn journal(&self) -> PathBuf {
        journal_in(self.shared.home.path())
    }

    /// Sends SIGKILL to the process of this pod.
    pub async fn kill(&self, pod: &str) -> Result<()> {
        self.signal(pod, "KILL").await
    }

    /// Sends a signal, such as `STOP`, to the process of this pod.
    pub async fn signal(&self, pod: &str, signal: &str) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.shared.namespace);
        let uid = api.get(pod).await?.uid().unwrap_or_default();
        let pid = std::fs::read_to_string(self.shared.home.path().join(uid).join("pid"));
        let pid = pid.with_context(|| format!("{pod} has no process"))?;
        tokio::process::Command::new("kill").args([&format!("-{signal}"), pid.trim()]).status().await?;
        Ok(())
    }

    /// Cuts the node off from the network. Its processes continue, but the node receives and reports nothing any more.
    pub fn silence(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }

    /// Stops all processes and deletes the node.
    pub async fn stop(mut self) -> Result<()> {
        drop(self.task.take());
        let api: Api<Node> = Api::all(self.shared.client.clone());
        api.delete(&self.node, &DeleteParams::default()).await?;
        Ok(())
    }
}

impl KubeletState {
    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
    }
}

fn journal_in(home: &Path) -> PathBuf {
    home.join("journal")
}

fn manifest(name: &str, namespace: &str) -> Result<Node> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {NODE_OWNER: namespace, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": NODE_OWNER, "value": namespace, "effect": "NoSchedule"}]},
    }))?)
}

/// Path of the worker program, built beside this program or the operator.
fn program() -> Result<PathBuf> {
    let beside = crate::operator::program()?;
    let program = beside.with_file_name("examples").join("worker");
    anyhow::ensure!(program.exists(), "{} is not built: cargo build --example worker", program.display());
    Ok(program)
}

/// Address that no other pod of this process has.
fn address() -> String {
    let number = ADDRESSES.fetch_add(1, Ordering::Relaxed);
    let [high, low] = number.to_be_bytes();
    format!("127.{}.{high}.{low}", 16 + std::process::id() % 200)
}

/// Runs the watches of pods and ConfigMaps, and the heartbeat, until it is dropped.
async fn run(shared: Arc<KubeletState>, node: String, maps: watch::Sender<HashMap<String, ConfigMap>>) {
    tokio::join!(heartbeat(&shared, &node), follow_maps(&shared, maps), follow_pods(&shared, &node));
}

/// Writes the node's status as a kubelet does, often enough for the node controller.
async fn heartbeat(shared: &KubeletState, node: &str) {
    let api: Api<Node> = Api::all(shared.client.clone());
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        if shared.is_silent() {
            return;
        }
        let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": jiff::Timestamp::now().to_string()}]}});
        let _ = api.patch_status(node, &PatchParams::default(), &Patch::Strategic(&beat)).await;
    }
}

async fn follow_maps(shared: &KubeletState, maps: watch::Sender<HashMap<String, ConfigMap>>) {
    let api: Api<ConfigMap> = Api::namespaced(shared.client.clone(), &shared.namespace);
    let mut events = pin!(watcher(api, Config::default()).default_backoff());
    while let Ok(Some(event)) = events.try_next().await.map_err(drop).or(Ok::<_, ()>(None)) {
        maps.send_modify(|maps| match event {
            Event::Apply(map) | Event::InitApply(map) => drop(maps.insert(map.name_any(), map)),
            Event::Delete(map) => drop(maps.remove(&map.name_any())),
            Event::Init | Event::InitDone => {}
        });
    }
}

/// Starts a task for each pod of the node, and passes the pod's changes to it.
async fn follow_pods(shared: &Arc<KubeletState>, node: &str) {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), &shared.namespace);
    let mut events = pin!(watcher(api, Config::default().fields(&format!("spec.nodeName={node}"))).default_backoff());
    let mut tasks = JoinSet::new();
    let mut pods: HashMap<String, mpsc::UnboundedSender<Pod>> = HashMap::new();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
        if shared.is_silent() {
            continue;
        }
        let uid = pod.uid().unwrap_or_default();
        pods.retain(|_, line| !line.is_closed());
        let line = pods.entry(uid).or_insert_with(|| {
            let (line, changes) = mpsc::unbounded_channel();
            tasks.spawn(PodProcess::run(Arc::clone(shared), changes));
            line
        });
        let _ = line.send(pod);
    }
}

/// Lists the pods of a namespace.
pub async fn pods(client: &Client, namespace: &str) -> Result<Vec<Pod>> {
    Ok(Api::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items)
}
