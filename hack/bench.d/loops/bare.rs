//! The bare program: the minimum that any controller must do to record a sample. It watches Monitorings, and for each
//! new sample replaces Monitoring.status and then Decision.status, with about 300 bytes each.
//!
//! It evaluates no rules and keeps no history. Kinds, specs and parameters of the requests are those of the operator's
//! loops.

use std::collections::HashMap;
use std::fmt::Debug;

use anyhow::Result;
use futures::StreamExt;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use http::{Method, Request, header};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::plane::cluster::Cluster;
use testkit::plane::install::token_of;
use testkit::plane::kubeconfig;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::scene;
use crate::fleet;

/// Its service account, and its field manager.
const NAME: &str = "bare";

/// The program, with its own client. It ends when this is dropped.
pub struct Bare(JoinHandle<()>);

impl Drop for Bare {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Creates a namespace with an account for the program. The account has all rights there, which the operator's
/// admission policies ask of the author of a status. Their cost counts for both sides.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    fleet::namespace(client, name).await?;
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    scene::account(client, name, NAME, &rules).await
}

/// Copies the children of the loops in the first namespace to the second, with the same specs but without loops.
pub async fn copy_loops(client: &Client, from: &str, to: &str) -> Result<()> {
    copy::<Monitoring>(client, from, to).await?;
    copy::<Decision>(client, from, to).await?;
    copy::<Execution>(client, from, to).await
}

async fn copy<K>(client: &Client, from: &str, to: &str) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + Debug,
{
    let (ours, theirs): (Api<K>, Api<K>) = (Api::namespaced(client.clone(), from), Api::namespaced(client.clone(), to));
    for mut child in ours.list(&ListParams::default()).await? {
        let meta = child.meta_mut();
        // Removes the owner: an owner in another namespace would make the garbage collector delete the copy.
        *meta = ObjectMeta { name: meta.name.take(), labels: meta.labels.take(), ..ObjectMeta::default() };
        theirs.create(&PostParams::default(), &child).await?;
    }
    Ok(())
}

impl Bare {
    /// Starts the program on this namespace.
    pub async fn start(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let token = token_of(&cluster.client, namespace, NAME).await?;
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig::direct(&cluster.config, &token))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self(tokio::spawn(run(Client::try_from(config)?, namespace.to_owned()))))
    }
}

/// Passes each version of a Monitoring to the task of its name; a busy task skips to the newest version.
async fn run(client: Client, namespace: String) {
    let monitorings: Api<Monitoring> = Api::namespaced(client.clone(), &namespace);
    let events = watcher::watcher(monitorings, watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    let (mut newest, mut tasks) = (HashMap::new(), JoinSet::new());
    while let Some(event) = events.next().await {
        // After an error, the watcher retries by itself.
        let Ok(monitoring) = event else { continue };
        newest.entry(monitoring.name_any()).or_insert_with_key(|name| {
            let (sender, receiver) = watch::channel(monitoring.clone());
            let recorder = Recorder { client: client.clone(), namespace: namespace.clone(), name: name.clone() };
            tasks.spawn(recorder.run(receiver));
            sender
        });
        if let Some(sender) = newest.get(&monitoring.name_any()) {
            sender.send_replace(monitoring);
        }
    }
}

/// Records the samples of one loop.
struct Recorder {
    client: Client,
    namespace: String,
    name: String,
}

impl Recorder {
    async fn run(self, mut newest: watch::Receiver<Monitoring>) {
        let (mut last, mut sequence, mut decision) = (None, 0, None);
        loop {
            let monitoring = newest.borrow_and_update().clone();
            let time = monitoring.spec.sample.map(|sample| sample.time).filter(|time| last.as_ref() != Some(time));
            if let Some(time) = time {
                let version = monitoring.metadata.resource_version.unwrap_or_default();
                match self.record(&version, &mut decision, &time, sequence).await {
                    Ok(()) => (last, sequence) = (Some(time), sequence + 1),
                    // The sender was faster: its new sample arrives by the watch.
                    Err(kube::Error::Api(status)) if status.code == 409 => decision = None,
                    Err(error) => eprintln!("the bare program: {error}"),
                }
            }
            if newest.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes both statuses. `decision` is the resource version of the Decision, if known.
    async fn record(
        &self,
        monitoring: &str,
        decision: &mut Option<String>,
        time: &str,
        sequence: u64,
    ) -> kube::Result<()> {
        self.replace::<Monitoring>(monitoring, &monitoring_status(time, sequence)).await?;
        let version = match decision.take() {
            Some(version) => version,
            None => {
                version_of(Api::<Decision>::namespaced(self.client.clone(), &self.namespace).get(&self.name).await?)
            }
        };
        let written = self.replace::<Decision>(&version, &decision_status(time, sequence)).await?;
        *decision = Some(version_of(written));
        Ok(())
    }

    /// Sends requests as the operator does: only the written fields, without a second parse for unknown fields.
    async fn replace<K>(&self, version: &str, status: &Value) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let Self { client, namespace, name } = self;
        let path = K::url_path(&(), Some(namespace));
        let body = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": {"namespace": namespace, "name": name, "resourceVersion": version},
            "status": status,
        });
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("{path}/{name}/status?fieldManager={NAME}&fieldValidation=Ignore"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        client.request(request).await
    }
}

fn version_of(object: Decision) -> String {
    object.metadata.resource_version.unwrap_or_default()
}

fn monitoring_status(time: &str, sequence: u64) -> Value {
    json!({
        "tag": {"time": time, "sequence": sequence},
        "message": "Low cpu,Low memory",
        "values": [{"metric": "cpu", "value": "2", "at": time}, {"metric": "memory", "value": "40", "at": time}],
        "heartbeat": time,
    })
}

fn decision_status(time: &str, sequence: u64) -> Value {
    let counter = |metric: &str| json!({"metric": metric, "wanted": sequence, "served": sequence, "limited": 0});
    json!({
        "tag": {"time": time, "sequence": sequence},
        "seq": sequence,
        "message": "Would react to cpu",
        "reason": "DryRun",
        "counters": [counter("cpu"), counter("memory")],
        "heartbeat": time,
    })
}
