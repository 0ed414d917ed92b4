//! `ganglion drain`: drains nodes with the user's permissions. Cordons them, creates the actions, evicts the pods that
//! no action moves, and follows all until they are complete.
//!
//! [`ganglion_actions_plan::drain`] decides about each pod. A drain stores no state except its actions, which it finds
//! by their label: it can be interrupted at any time.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::plan::{self, PlanBasis};
use super::read;
use crate::operator::ProgressLine;
use crate::operator::settings::Settings;
use cluster::DrainClient;
pub use cluster::{LEASE, MANAGER};
use ganglion_actions_plan::drain::action::{is_open, is_seen, key_of, manifest};
use ganglion_actions_plan::drain::{
    DrainPlan, DrainProgress, DrainReport, DrainWishes, LastEviction, MoveKey, Terminations, WorkloadMove,
    unseen_words, working_namespaces,
};
use ganglion_actions_plan::preview::ActionPreview;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key, NodeName, Uid};
use ganglion_runtime::error::failure;

/// Interval between reads of pods and actions.
const PACE: Duration = Duration::from_secs(1);

/// Maximum time, in seconds, that an action waits for admission if the drain has no timeout: one day.
const QUEUE: i64 = 86_400;

/// Maximum number of consecutive failures of the API server.
const MOST_FAILURES: u32 = 30;

/// Number of rounds after which the eviction of a pod that a budget holds is tried again.
const EVICTION_ROUNDS: u32 = 5;

/// Number of rounds in which the scheduler may still bind pods to a node that was just cordoned.
const FIRST_ROUNDS: u32 = 2;

/// Number of concurrent evictions.
const EVICTIONS_AT_ONCE: usize = 8;

/// Error: nodes cannot be drained.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no node {0}; `kubectl get nodes` lists all nodes")]
    NoNode(String),
    #[error("no node has the labels {0}; `kubectl get nodes --show-labels` lists all labels")]
    NoneSelected(String),
    #[error("nothing was changed, since you do not have the permission to {0}")]
    MissingRights(String),
    #[error("{what}: {words}")]
    NotAllowed { what: &'static str, words: String },
    #[error(
        "the cluster does not have the kind WorkloadAction: install the operator's CRDs with `kubectl apply --server-side -k crds`"
    )]
    NoKind,
    #[error("the API server failed: {}", failure(.0))]
    Api(Box<kube::Error>),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// The drained nodes, with options and state.
pub struct Drain {
    cluster: DrainClient,
    pub nodes: Vec<NodeName>,
    pub options: DrainOptions,
    /// Actions that this run created or resumed.
    own: BTreeSet<Key>,
    refused: BTreeMap<MoveKey, String>,
    evictions: BTreeMap<Uid, LastEviction>,
    terminations: Terminations,
    /// Own actions that no operator has seen, and when each was noticed.
    unseen: BTreeMap<Key, Timestamp>,
    /// Why no operator has seen an action.
    operator: Option<String>,
    /// Controllers of all pods that were on the nodes.
    owners: BTreeMap<Uid, Uid>,
    since: Timestamp,
    now: Timestamp,
    rounds: u32,
    plan: DrainPlan,
    actions: Vec<WorkloadAction>,
    /// Pods on the nodes.
    pods: BTreeSet<Uid>,
    /// Pods that were on the nodes in the first rounds.
    known: BTreeSet<Uid>,
}

/// Options of a drain.
#[derive(Clone, Debug, Default)]
pub struct DrainOptions {
    pub wishes: DrainWishes,
    /// Namespace of the operator's lease. None: any namespace.
    pub lease_namespace: Option<String>,
}

/// Members of the spec that abort an action. A suspended action would not be undone.
pub fn abort_spec() -> Value {
    json!({"abort": true, "suspend": false})
}

impl Drain {
    /// Creates a drain of these nodes and of the nodes that the selector matches.
    pub async fn new(
        client: Client,
        names: Vec<String>,
        selector: Option<&str>,
        options: DrainOptions,
    ) -> Result<Self, Error> {
        let cluster = DrainClient::new(client);
        let mut nodes: BTreeSet<NodeName> = BTreeSet::new();
        for name in names.into_iter().map(NodeName::from) {
            cluster.node(&name).await?;
            nodes.insert(name);
        }
        if let Some(selector) = selector {
            nodes.extend(cluster.nodes_with(selector).await?);
        }
        let since = Timestamp::now();
        Ok(Self {
            cluster,
            nodes: nodes.into_iter().collect(),
            options,
            own: BTreeSet::new(),
            refused: BTreeMap::new(),
            evictions: BTreeMap::new(),
            terminations: Terminations::default(),
            unseen: BTreeMap::new(),
            operator: None,
            owners: BTreeMap::new(),
            since,
            now: since,
            rounds: 0,
            plan: DrainPlan::default(),
            actions: Vec::new(),
            pods: BTreeSet::new(),
            known: BTreeSet::new(),
        })
    }

    /// State of the drain at the last read.
    pub fn progress(&self) -> DrainProgress<'_> {
        DrainProgress {
            nodes: &self.nodes,
            wishes: &self.options.wishes,
            plan: &self.plan,
            actions: &self.actions,
            refused: &self.refused,
            evictions: &self.evictions,
            terminations: &self.terminations,
            operator: self.operator.as_deref(),
            now: self.now,
        }
    }

    /// When the drain began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Plans the drain, with the operator's own plans if possible. Changes nothing.
    pub async fn preview(
        &mut self,
        say: ProgressLine<'_>,
    ) -> Result<(DrainReport, BTreeMap<MoveKey, ActionPreview>), Error> {
        say("reads the pods on the nodes");
        self.refresh().await?;
        let seed = self.seed(0);
        let new = self.progress().next_moves();
        let keys: Vec<MoveKey> = new.iter().map(|new| new.of.key()).collect();
        let documents: Vec<Value> = new.iter().map(|new| manifest(new, QUEUE, &seed)).collect();
        let client = &self.cluster.client;
        let basis = PlanBasis { cordoned: &self.nodes, is_maker: true };
        let previews = match plan::plan(client, "default", &Settings::default(), &documents, basis, say).await {
            Ok(previews) => keys.into_iter().zip(previews).collect(),
            Err(plan::Error::NoKind) => return Err(Error::NoKind),
            // Without the operator's read permissions, the report has no plans of the actions.
            Err(_) => BTreeMap::new(),
        };
        Ok((self.progress().planned(&previews), previews))
    }

    /// Checks the user's rights, cordons the nodes, and resumes the open actions of an interrupted drain. Returns their
    /// number.
    pub async fn begin(&mut self, say: ProgressLine<'_>) -> Result<usize, Error> {
        say("reads pods and checks your rights");
        self.refresh().await?;
        let missing = read::missing_rights(&self.cluster.client, self.progress().rights()).await?;
        if !missing.is_empty() {
            return Err(Error::MissingRights(missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")));
        }
        for node in &self.nodes {
            say(&format!("cordons node {node}"));
            self.cluster.cordon(node, true).await?;
        }
        let found = self.cluster.actions(&self.nodes).await?;
        self.own = found.iter().filter(|action| is_open(action)).map(key).collect();
        Ok(self.own.len())
    }

    /// Reads actions and pods, creates the actions that can start now, and evicts the pods that no action moves.
    /// Returns whether the drain is over.
    pub async fn step(&mut self, queue_seconds: Option<i64>) -> Result<bool, Error> {
        self.refresh().await?;
        let seed = self.seed(self.own.len());
        let new = self.progress().next_moves();
        let documents: Vec<(MoveKey, Value)> = new
            .iter()
            .map(|new| (new.of.key(), manifest(new, queue_seconds.unwrap_or(QUEUE).clamp(1, QUEUE), &seed)))
            .collect();
        for (of, document) in documents {
            match self.cluster.create(&of.namespace, &document).await? {
                Ok(action) => {
                    self.own.insert(key(&action));
                    self.actions.push(action);
                }
                Err(words) => drop(self.refused.insert(of, words)),
            }
        }
        self.evict().await?;
        Ok(self.progress().is_over())
    }

    /// Evicts the pods that no action moves. Pods that a budget holds are tried again after some rounds.
    async fn evict(&mut self) -> Result<(), Error> {
        let again = self.rounds.is_multiple_of(EVICTION_ROUNDS);
        self.rounds = self.rounds.wrapping_add(1);
        let mut due: Vec<Identity> = self.progress().next_evictions().into_iter().cloned().collect();
        due.retain(|pod| again || !self.evictions.contains_key(&pod.uid));
        let (cluster, grace) = (&self.cluster, self.options.wishes.grace_seconds);
        let one = async |pod: Identity| Ok::<_, Error>((pod.uid.clone(), cluster.evict(&pod, grace).await?));
        let answers: Vec<(Uid, LastEviction)> =
            stream::iter(due).map(one).buffer_unordered(EVICTIONS_AT_ONCE).try_collect().await?;
        self.evictions.extend(answers);
        Ok(())
    }

    /// Finds out in which namespaces operators work, and why none has seen an action.
    async fn check_operators(&mut self) -> Result<(), Error> {
        let unseen: BTreeSet<Key> = self.actions.iter().filter(|one| !is_seen(one)).map(key).collect();
        self.unseen.retain(|key, _| unseen.contains(key));
        for key in unseen {
            self.unseen.entry(key).or_insert(self.now);
        }
        self.operator = None;
        let since = self.unseen.values().min().copied();
        if since.is_none() && self.progress().due().next().is_none() {
            return Ok(());
        }
        let Some(leases) = self.cluster.leases(self.options.lease_namespace.as_deref()).await? else { return Ok(()) };
        if let Some(namespaces) = working_namespaces(&leases) {
            let outside = self.plan.moves.iter().filter(|of| !namespaces.contains(of.namespace.as_str()));
            for of in outside.map(WorkloadMove::key) {
                let words = format!("no operator works in namespace {}", of.namespace);
                self.refused.entry(of).or_insert(words);
            }
        }
        self.operator = since.and_then(|since| unseen_words(&leases, LEASE, since, self.now));
        Ok(())
    }

    /// Repeats [`Self::step`] until the drain is over or the deadline has passed, and shows the state after each step.
    /// Fails after many consecutive failures. Returns whether the drain ended in time.
    pub async fn follow(&mut self, until: Option<Timestamp>, mut show: impl FnMut(&Self)) -> Result<bool, Error> {
        let mut failures = 0;
        loop {
            let left = until.map(|until| until.duration_since(Timestamp::now()).as_secs());
            match self.step(left).await {
                Ok(over) => {
                    failures = 0;
                    show(self);
                    if over {
                        return Ok(true);
                    }
                }
                Err(Error::Api(_)) if failures < MOST_FAILURES => failures += 1,
                Err(error) => return Err(error),
            }
            if left.is_some_and(|left| left <= 0) {
                return Ok(false);
            }
            sleep(PACE).await;
        }
    }

    /// Report at the end of the drain, with the pods of the drained workloads that no node has taken.
    pub async fn report(&self, timed_out: bool) -> DrainReport {
        let gone = self.owners.iter().filter(|(pod, _)| !self.pods.contains(*pod));
        // An earlier call may have evicted pods that this one has not seen.
        let slots = self.actions.iter().filter_map(|action| action.status.as_ref()).flat_map(|status| &status.slots);
        let of_slots = slots.filter(|slot| slot.evicting).map(|slot| &slot.replica_set.uid);
        let owners: BTreeSet<Uid> = gone.map(|(_, owner)| owner).chain(of_slots).cloned().collect();
        // The report is complete enough without them.
        let pending =
            if owners.is_empty() { Vec::new() } else { self.cluster.pending(&owners).await.unwrap_or_default() };
        let took = Timestamp::now().duration_since(self.since);
        DrainReport { pending, ..self.progress().report(timed_out, took) }
    }

    /// Aborts the open actions of a drain of the nodes, and uncordons them. Returns the aborted actions.
    pub async fn undo(&self) -> Result<Vec<Key>, Error> {
        let mut aborted = Vec::new();
        for action in self.cluster.actions(&self.nodes).await?.iter().filter(|action| is_open(action)) {
            self.cluster.patch_action(&key(action), &json!({"spec": abort_spec()})).await?;
            aborted.push(key(action));
        }
        for node in &self.nodes {
            self.cluster.cordon(node, false).await?;
        }
        Ok(aborted)
    }

    /// Reads actions before pods: a pod that a completed action has moved is no longer on the node.
    async fn refresh(&mut self) -> Result<(), Error> {
        let mut actions = self.cluster.actions(&self.nodes).await?;
        actions.retain(|action| self.own.contains(&key(action)) && key_of(action).is_some());
        let mut pods = self.cluster.pods(&self.nodes, self.options.wishes.pod_selector.as_deref()).await?;
        let around = self.cluster.surroundings(&pods, &self.nodes).await?;
        let here = pods.iter().map(|pod| pod.id.uid.clone());
        if self.rounds < FIRST_ROUNDS {
            self.known.extend(here.clone());
        }
        self.pods = here.collect();
        for pod in &mut pods {
            pod.late = !self.known.contains(&pod.id.uid);
        }
        self.plan = DrainPlan::of(&pods, &around);
        self.actions = actions;
        self.now = Timestamp::now();
        self.terminations.note(&self.plan.leaving, self.now);
        let owned = pods.into_iter().filter_map(|pod| Some((pod.id.uid, pod.controller?)));
        self.owners.extend(owned);
        self.check_operators().await
    }

    fn seed(&self, round: usize) -> String {
        format!("{}-{round}", self.since.as_nanosecond())
    }
}

fn key(action: &WorkloadAction) -> Key {
    Identity::from(&action.metadata).key
}
