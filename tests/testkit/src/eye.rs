//! The eye: an independent watch of one namespace, or of all, as the administrator, that remembers every event. Names are
//! taken to be different in different namespaces.
//!
//! It sees pods, Deployments, ReplicaSets and our own kinds as any user could. All waits of the tests are waits for what
//! the eye sees; what it makes of it is in [`crate::verdict`].

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

/// What is there now, and all that happened.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub pods: BTreeMap<String, Arc<Pod>>,
    pub deployments: BTreeMap<String, Arc<Deployment>>,
    pub sets: BTreeMap<String, Arc<ReplicaSet>>,
    pub actions: BTreeMap<String, Arc<WorkloadAction>>,
    pub receipts: BTreeMap<String, Arc<WorkloadActionReceipt>>,
    /// Every event, in the order in which it was seen.
    pub history: Vec<Happening>,
    /// Kinds whose first list is in.
    pub synced: usize,
}

/// One event.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A pod was made or changed.
    Pod(Arc<Pod>),
    /// A pod is gone.
    PodGone(Arc<Pod>),
    /// A Deployment was made or changed.
    Deployment(Arc<Deployment>),
    /// A ReplicaSet was made or changed.
    Set(Arc<ReplicaSet>),
    /// An action was made or changed.
    Action(Arc<WorkloadAction>),
}

/// See the module.
pub struct Eye {
    state: Arc<State>,
    tasks: Vec<JoinHandle<()>>,
}

struct State {
    seen: Mutex<Seen>,
    ticks: watch::Sender<u64>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How many kinds the eye watches.
const KINDS: usize = 5;

impl Eye {
    /// Opens the eye on one namespace; it has seen all there is when this returns.
    pub async fn open(client: &Client, namespace: &str) -> Result<Self> {
        Self::over(client, Some(namespace)).await
    }

    /// Opens the eye on all namespaces.
    pub async fn open_wide(client: &Client) -> Result<Self> {
        Self::over(client, None).await
    }

    async fn over(client: &Client, namespace: Option<&str>) -> Result<Self> {
        let state = Arc::new(State { seen: Mutex::default(), ticks: watch::channel(0).0 });
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

    /// What is seen at this moment, and all that happened, to keep.
    pub fn now(&self) -> Seen {
        self.look(Seen::clone)
    }

    /// A look at what is seen at this moment, without a copy of it.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.state.lock())
    }

    /// Waits until this is seen, for at most [`crate::TIMEOUT`].
    pub async fn until<T>(&self, what: &str, test: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        self.within(crate::TIMEOUT, what, test).await
    }

    /// Waits until this is seen.
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
        tokio::time::timeout(limit, wait).await.map_err(|_| anyhow!("waited {limit:?} in vain for {what}"))
    }

    /// An error as soon as this is seen within the time.
    pub async fn never<T>(&self, limit: Duration, what: &str, test: impl Fn(&Seen) -> Option<T>) -> Result<()> {
        match self.within(limit, what, test).await {
            Ok(_) => Err(anyhow!("{what}, which must not be")),
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
trait Watched:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// The objects of this kind that are there.
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>>;

    /// What goes into the history.
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening>;
}

fn api<K: Watched>(client: &Client, namespace: Option<&str>) -> Api<K> {
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// Watches one kind for ever. A list that follows a broken watch comes without deletions: what is not in it is gone.
async fn follow<K: Watched>(api: Api<K>, state: Arc<State>) {
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
            // The watcher tries again.
            Err(_) => {}
        }
        drop(seen);
        state.ticks.send_modify(|tick| *tick += 1);
    }
}

fn put<K: Watched>(seen: &mut Seen, object: K) {
    let object = Arc::new(object);
    K::map(seen).insert(object.name_any(), object.clone());
    seen.history.extend(K::happening(object, true));
}

fn take<K: Watched>(seen: &mut Seen, object: Arc<K>) {
    K::map(seen).remove(&object.name_any());
    seen.history.extend(K::happening(object, false));
}

impl Watched for Pod {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.pods
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        Some(if there { Happening::Pod(object) } else { Happening::PodGone(object) })
    }
}

impl Watched for Deployment {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.deployments
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Deployment(object))
    }
}

impl Watched for ReplicaSet {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.sets
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Set(object))
    }
}

impl Watched for WorkloadAction {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.actions
    }
    fn happening(object: Arc<Self>, there: bool) -> Option<Happening> {
        there.then_some(Happening::Action(object))
    }
}

impl Watched for WorkloadActionReceipt {
    fn map(seen: &mut Seen) -> &mut BTreeMap<String, Arc<Self>> {
        &mut seen.receipts
    }
    fn happening(_: Arc<Self>, _: bool) -> Option<Happening> {
        None
    }
}
