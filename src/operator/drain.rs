//! `ganglion drain`: drains nodes with the user's permissions. Cordons them, creates the actions, and follows them
//! until all are complete.
//!
//! [`ganglion_actions_plan::drain`] decides about each pod. A drain stores no state except its actions, which it finds
//! by their label: it can be interrupted at any time.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::plan::{self, PlanBasis};
use crate::operator::settings::Settings;
use cluster::DrainClient;
use ganglion_actions_plan::drain::action::{is_open, key_of, manifest};
use ganglion_actions_plan::drain::{DrainPlan, DrainProgress, DrainReport, DrainWishes, MoveKey, stays_of_plan};
use ganglion_actions_plan::preview::ActionPreview;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key, NodeName};

/// Interval between reads of pods and actions.
const PACE: Duration = Duration::from_secs(1);

/// Maximum time, in seconds, that an action waits for admission if the drain has no timeout: one day.
const QUEUE: i64 = 86_400;

/// Maximum number of consecutive failures of the API server.
const MOST_FAILURES: u32 = 30;

/// Error: nodes cannot be drained.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no node {0}; `kubectl get nodes` lists all nodes")]
    NoNode(String),
    #[error("no node has the labels {0}; `kubectl get nodes --show-labels` lists all labels")]
    NoneSelected(String),
    #[error("{what}: {words}")]
    NotAllowed { what: &'static str, words: String },
    #[error(
        "the cluster does not have the kind WorkloadAction: install the operator's CRDs with `kubectl apply --server-side -k crds`"
    )]
    NoKind,
    #[error("the API server did not answer")]
    Api(#[source] Box<kube::Error>),
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
    pub wishes: DrainWishes,
    /// Actions that this run created or resumed.
    own: BTreeSet<Key>,
    refused: BTreeMap<MoveKey, String>,
    since: Timestamp,
    plan: DrainPlan,
    actions: Vec<WorkloadAction>,
}

impl Drain {
    /// Creates a drain of these nodes and of the nodes that the selector matches.
    pub async fn new(
        client: Client,
        names: Vec<String>,
        selector: Option<&str>,
        wishes: DrainWishes,
    ) -> Result<Self, Error> {
        let cluster = DrainClient { client };
        let mut nodes: BTreeSet<NodeName> = BTreeSet::new();
        for name in names.into_iter().map(NodeName::from) {
            cluster.node(&name).await?;
            nodes.insert(name);
        }
        if let Some(selector) = selector {
            nodes.extend(cluster.nodes_with(selector).await?);
        }
        let (own, refused, since) = (BTreeSet::new(), BTreeMap::new(), Timestamp::now());
        let nodes = nodes.into_iter().collect();
        Ok(Self { cluster, nodes, wishes, own, refused, since, plan: DrainPlan::default(), actions: Vec::new() })
    }

    /// State of the drain at the last read.
    pub fn progress(&self) -> DrainProgress<'_> {
        DrainProgress {
            nodes: &self.nodes,
            wishes: &self.wishes,
            plan: &self.plan,
            actions: &self.actions,
            refused: &self.refused,
        }
    }

    /// When the drain began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Plans the drain, with the operator's own plans if possible. Changes nothing.
    pub async fn preview(&mut self) -> Result<(DrainReport, BTreeMap<MoveKey, ActionPreview>), Error> {
        self.refresh().await?;
        let seed = self.seed(0);
        let new = self.progress().next_moves();
        let keys: Vec<MoveKey> = new.iter().map(|new| new.of.key()).collect();
        let documents: Vec<Value> = new.iter().map(|new| manifest(new, QUEUE, &seed)).collect();
        let client = &self.cluster.client;
        let basis = PlanBasis { cordoned: &self.nodes, is_maker: true };
        let previews = match plan::plan(client, "default", &Settings::default(), &documents, basis).await {
            Ok(previews) => keys.into_iter().zip(previews).collect(),
            Err(plan::Error::NoKind) => return Err(Error::NoKind),
            // Without the operator's read permissions, the report has no plans of the actions.
            Err(_) => BTreeMap::new(),
        };
        let stays = stays_of_plan(&self.progress(), &previews);
        let report = DrainReport { stays, ..self.progress().report(false, SignedDuration::ZERO) };
        Ok((report.judged(), previews))
    }

    /// Cordons the nodes, and resumes the open actions of an interrupted drain. Returns their number.
    pub async fn begin(&mut self) -> Result<usize, Error> {
        for node in &self.nodes {
            self.cluster.cordon(node, true).await?;
        }
        let found = self.cluster.actions(&self.nodes).await?;
        self.own = found.iter().filter(|action| is_open(action)).map(key).collect();
        Ok(self.own.len())
    }

    /// Reads actions and pods, and creates the actions that can start now. Returns whether the drain is over.
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
        Ok(self.progress().is_over())
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

    /// Aborts the open actions of a drain of the nodes, and uncordons them. Returns the aborted actions.
    pub async fn undo(&self) -> Result<Vec<Key>, Error> {
        let mut aborted = Vec::new();
        for action in self.cluster.actions(&self.nodes).await?.iter().filter(|action| is_open(action)) {
            let abort = json!({"spec": {"abort": true, "suspend": false}});
            self.cluster.patch_action(&key(action), &abort).await?;
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
        let pods = self.cluster.pods(&self.nodes).await?;
        let around = self.cluster.surroundings(&pods).await?;
        self.plan = DrainPlan::of(&pods, &around);
        self.actions = actions;
        Ok(())
    }

    fn seed(&self, round: usize) -> String {
        format!("{}-{round}", self.since.as_nanosecond())
    }
}

fn key(action: &WorkloadAction) -> Key {
    Identity::from(&action.metadata).key
}
