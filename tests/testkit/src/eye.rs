//! The eye: an independent watch of one namespace, or of all namespaces, as the administrator. It records every event,
//! and assumes that names are unique across namespaces.
//!
//! It sees pods, Deployments, ReplicaSets and our own kinds as any user could. All tests wait for what the eye sees;
//! [`crate::verdict`] evaluates it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::StreamExt;
use futures::future::BoxFuture;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Current objects, and all events so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub pods: BTreeMap<String, Arc<Pod>>,
    pub deployments: BTreeMap<String, Arc<Deployment>>,
    pub sets: BTreeMap<String, Arc<ReplicaSet>>,
    pub actions: BTreeMap<String, Arc<WorkloadAction>>,
    pub receipts: BTreeMap<String, Arc<WorkloadActionReceipt>>,
    /// All events, in the order in which they arrived.
    pub history: Vec<Happening>,
    /// Number of kinds whose first list is complete.
    pub synced: usize,
}

#[derive(Clone, Debug)]
pub enum Happening {
    /// A pod was created or changed.
    Pod(Arc<Pod>),
    /// A pod was deleted.
    PodGone(Arc<Pod>),
    /// A Deployment was created or changed.
    Deployment(Arc<Deployment>),
    /// A ReplicaSet was created or changed.
    Set(Arc<ReplicaSet>),
    /// An action was created or changed.
    Action(Arc<WorkloadAction>),
}

pub struct Eye {
    state: Arc<Observations>,
    tasks: Vec<JoinHandle<()>>,
}

struct Observations {
    seen: Mutex<Seen>,
    ticks: watch::Sender<u64>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Number of kinds that the eye watches.
const KINDS: usize = 5;

impl Eye {
    /// Opens the eye on one namespace. Returns when it has seen all existing objects.
    pub async fn open(client: &Client, namespace: &str) -> Result<Self> {
        Self::over(client, Some(namespace)).await
    }

    /// Opens the eye on all namespaces.
    pub async fn open_wide(client: &Client) -> Result<Self> {
        Self::over(client, None).await
    }

    async fn over(client: &Client, namespace: Option<&str>) -> Result<Self> {
        let state = Arc::new(Observations { seen: Mutex::default(), ticks: watch::channel(0).0 });
        let tasks: [BoxFuture<'static, ()>; KINDS] = [
            Box::pin(follow::<Pod>(api(client, namespace), state.clone())),
            Box::pin(follow::<Deployment>(api(client, namespace), state.clone())),
            Box::pin(follow::<ReplicaSet>(api(client, namespace), state.clone())),
            Box::pin(follow::<WorkloadAction>(api(client, namespace), state.clone())),
            Box::pin(follow::<WorkloadActionReceipt>(api(client, namespace), state.clone())),
        ];
        let eye = Self { state, tasks: tasks.into_iter().map(tokio::spawn).collect() };
        eye.until("the eye to be open", |seen| (seen.synced >= KINDS).then_some(())).await?;
        Ok(eye)
    }

    /// Returns a copy of the current objects and all events.
    pub fn now(&self) -> Seen {
        self.look(Seen::clone)
    }

    /// Evaluates the current objects and events without a copy.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.state.lock())
    }

    /// Waits until `test` returns a value, for at most [`crate::TIMEOUT`].
    pub async fn until<T>(&self, what: &str, test: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        self.within(crate::TIMEOUT, what, test).await
    }

    /// Waits until `test` returns a value, for at most `limit`.
    pub async fn within<T>(&self, limit: Duration, what: &str, test: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        let mut ticks = self.state.ticks.subscribe();
        let wait = async {
            loop {
                ticks.mark_unchanged();
                if let Some(found) = test(&self.state.lock()) {
                    return found;
                }
                let _ = ticks.changed().await;
            }
        };
        tokio::time::timeout(limit, wait).await.map_err(|_| anyhow!("timed out after {limit:?} waiting for {what}"))
    }

    /// Returns an error as soon as `test` returns a value within the limit.
    pub async fn never<T>(&self, limit: Duration, what: &str, test: impl Fn(&Seen) -> Option<T>) -> Result<()> {
        match self.within(limit, what, test).await {
            Ok(_) => Err(anyhow!("{what}, which must not happen")),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Eye {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A kind that the eye watches.
trait EyeKind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// The current objects of this kind.
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>>;

    /// Event for the history, if this kind has one.
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening>;
}

fn api<K: EyeKind>(client: &Client, namespace: Option<&str>) -> Api<K> {
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// Watches one kind until the task is aborted. A list after a broken watch contains no deletions, so objects missing in
/// it count as deleted.
async fn follow<K: EyeKind>(api: Api<K>, state: Arc<Observations>) {
    let mut events = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let mut seen = state.lock();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                put(&mut seen, object);
            }
            Ok(Event::Apply(object)) => put(&mut seen, object),
            Ok(Event::Delete(object)) => take(&mut seen, Arc::new(object)),
            Ok(Event::InitDone) => {
                let there: Vec<Arc<K>> = K::map(&mut seen).values().cloned().collect();
                for object in there.into_iter().filter(|object| !listed.contains(&object.name_any())) {
                    take(&mut seen, object);
                }
                seen.synced += 1;
            }
            // The watcher retries by itself.
            Err(_) => {}
        }
        drop(seen);
        state.ticks.send_modify(|tick| *tick += 1);
    }
}

fn put<K: EyeKind>(seen: &mut Seen, object: K) {
    let object = Arc::new(object);
    K::map(seen).insert(object.name_any(), object.clone());
    seen.history.extend(K::happening(object, true));
}

fn take<K: EyeKind>(seen: &mut Seen, object: Arc<K>) {
    K::map(seen).remove(&object.name_any());
    seen.history.extend(K::happening(object, false));
}

impl EyeKind for Pod {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.pods
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        Some(if there { Happening::Pod(object) } else { Happening::PodGone(object) })
    }
}

impl EyeKind for Deployment {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.deployments
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Deployment(object))
    }
}

impl EyeKind for ReplicaSet {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.sets
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Set(object))
    }
}

impl EyeKind for WorkloadAction {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.actions
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Action(object))
    }
}

impl EyeKind for WorkloadActionReceipt {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.receipts
    }
    fn happening(_: Arc<Self>, _: bool) -> Option<Happening> {
        None
    }
}
