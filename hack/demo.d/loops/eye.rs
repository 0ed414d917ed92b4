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
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::jiff::Timestamp;
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
    /// New `spec.replicas` of the named Deployment.
    Replicas(String, i32),
    /// New order in which the named loop considers its metrics.
    Rank(String, Vec<String>),
    /// The named HorizontalPodAutoscaler has measured something else, or wants another number.
    Autoscaler(String, Measured),
}

impl News {
    /// Name of the object; a loop, its children and what belongs to it may share it.
    pub fn name(&self) -> &str {
        match self {
            Self::Said(_, name, _) | Self::Replicas(name, _) | Self::Rank(name, _) | Self::Autoscaler(name, _) => name,
        }
    }
}

/// State of a HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Usage in percent of the requests; None while it is unknown.
    pub percent: Option<i32>,
    pub desired: i32,
}

/// Current state, and all events so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub words: BTreeMap<(String, Hop), Word>,
    pub ranks: BTreeMap<String, Vec<String>>,
    /// Values of `spec.replicas` by Deployment, each with the time at which the watch saw it.
    pub replicas: BTreeMap<String, Vec<(Timestamp, i32)>>,
    pub autoscalers: BTreeMap<String, Measured>,
    pub history: Vec<News>,
}

impl Seen {
    /// Current status of a hop of the named loop.
    pub fn word(&self, name: &str, hop: Hop) -> Word {
        self.words.get(&(name.to_owned(), hop)).cloned().unwrap_or_default()
    }

    /// Current `spec.replicas` of a Deployment.
    pub fn replicas(&self, name: &str) -> Option<i32> {
        self.replicas.get(name)?.last().map(|(_, replicas)| *replicas)
    }

    /// Values of `spec.replicas` from an earlier state on, which comes first.
    pub fn path(&self, name: &str, since: &Seen) -> Vec<i32> {
        let earlier = since.replicas.get(name).map_or(0, Vec::len);
        let all = self.replicas.get(name).into_iter().flatten();
        all.skip(earlier.saturating_sub(1)).map(|(_, replicas)| *replicas).collect()
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
            watch(client, namespace, &state, autoscaler),
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
    let name = object.name_any();
    let Some(replicas) = object.spec.and_then(|spec| spec.replicas) else { return };
    if seen.replicas(&name) != Some(replicas) {
        seen.replicas.entry(name.clone()).or_default().push((Timestamp::now(), replicas));
        seen.history.push(News::Replicas(name, replicas));
    }
}

fn autoscaler(seen: &mut Seen, object: HorizontalPodAutoscaler) {
    let name = object.name_any();
    let status = object.status.unwrap_or_default();
    let metric = status.current_metrics.into_iter().flatten().next();
    let percent = metric.and_then(|metric| metric.resource?.current.average_utilization);
    let measured = Measured { percent, desired: status.desired_replicas };
    if seen.autoscalers.insert(name.clone(), measured.clone()).as_ref() != Some(&measured) {
        seen.history.push(News::Autoscaler(name, measured));
    }
}
