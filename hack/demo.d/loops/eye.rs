//! An independent watch of the loops and of the objects that they change, with permissions that any user could have.
//! Records every event.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::monitoring::{Monitoring, Tag};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One of the three stages of a loop; each is a kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    Monitoring,
    Decision,
    Execution,
}

/// Status of a hop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    pub message: String,
    pub tag: Option<Tag>,
    /// State of an Execution; None for other hops.
    pub state: Option<ExecutionState>,
    /// Sequence number of the last decision.
    pub seq: i64,
}

impl Word {
    /// Whether an Execution has finished.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state, None | Some(ExecutionState::Claimed | ExecutionState::Executing))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A hop of the named loop changed its status.
    Said(Hop, String, Word),
    /// New `spec.replicas` of the Deployment.
    Replicas(i32),
    /// New order in which the named loop considers its metrics.
    Rank(String, Vec<String>),
}

/// Current state, and all events so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub words: BTreeMap<(String, Hop), Word>,
    pub ranks: BTreeMap<String, Vec<String>>,
    pub replicas: Option<i32>,
    pub history: Vec<News>,
}

impl Seen {
    /// Current status of a hop of the named loop.
    pub fn word(&self, name: &str, hop: Hop) -> Word {
        self.words.get(&(name.to_owned(), hop)).cloned().unwrap_or_default()
    }

    fn said(&mut self, hop: Hop, name: String, word: Word) {
        if self.words.insert((name.clone(), hop), word.clone()).as_ref() != Some(&word) {
            self.history.push(News::Said(hop, name, word));
        }
    }
}

pub struct Eye {
    state: Arc<State>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Seen>,
    ticks: watch::Sender<u64>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Eye {
    pub fn open(client: &Client, namespace: &str) -> Self {
        let state = Arc::new(State::default());
        let tasks = vec![
            watch(client, namespace, &state, monitoring),
            watch(client, namespace, &state, decision),
            watch(client, namespace, &state, execution),
            watch(client, namespace, &state, parent),
            watch(client, namespace, &state, deployment),
        ];
        Self { state, tasks }
    }

    /// Copy of the current state.
    pub fn now(&self) -> Seen {
        self.state.lock().clone()
    }

    /// Waits until there are more than `so_far` events, at most 200 ms.
    pub async fn news(&self, so_far: usize) {
        let mut ticks = self.state.ticks.subscribe();
        let wait = async {
            while self.state.lock().history.len() <= so_far {
                let _ = ticks.changed().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(200), wait).await;
    }
}

impl Drop for Eye {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Watches one kind until the task is aborted.
fn watch<K>(client: &Client, namespace: &str, state: &Arc<State>, take: fn(&mut Seen, K)) -> JoinHandle<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (api, state): (Api<K>, _) = (Api::namespaced(client.clone(), namespace), state.clone());
    tokio::spawn(async move {
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            // After an error, the watcher retries by itself.
            let Ok(object) = event else { continue };
            take(&mut state.lock(), object);
            state.ticks.send_modify(|tick| *tick += 1);
        }
    })
}

fn monitoring(seen: &mut Seen, object: Monitoring) {
    let name = object.name_any();
    let status = object.status.unwrap_or_default();
    let word = Word { message: status.message.unwrap_or_default(), tag: status.tag, ..Word::default() };
    seen.said(Hop::Monitoring, name, word);
}

fn decision(seen: &mut Seen, object: Decision) {
    let name = object.name_any();
    let status = object.status.unwrap_or_default();
    let message = status.message.unwrap_or_default();
    let word = Word { message, tag: status.tag, seq: status.seq, ..Word::default() };
    seen.said(Hop::Decision, name, word);
}

fn execution(seen: &mut Seen, object: Execution) {
    let name = object.name_any();
    let status = object.status.unwrap_or_default();
    let message = status.message.unwrap_or_default();
    let seq = status.seq.unwrap_or(0);
    seen.said(Hop::Execution, name, Word { message, tag: status.tag, state: status.state, seq });
}

fn parent(seen: &mut Seen, object: ClosedLoop) {
    let name = object.name_any();
    let rank = object.status.and_then(|status| status.effective).unwrap_or_default().rank;
    if seen.ranks.insert(name.clone(), rank.clone()).as_ref() != Some(&rank) {
        seen.history.push(News::Rank(name, rank));
    }
}

fn deployment(seen: &mut Seen, object: Deployment) {
    let replicas = object.spec.and_then(|spec| spec.replicas);
    if seen.replicas != replicas {
        seen.history.extend(replicas.map(News::Replicas));
        seen.replicas = replicas;
    }
}
