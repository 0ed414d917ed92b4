//! `ganglion drain`: empties nodes, as the user. Cordons them, makes the actions, and follows them until nothing is left to do.
//!
//! What becomes of each pod is decided in `logic::workload_action::drain`. A drain keeps nothing but its actions, which it finds again
//! by their label: it may be interrupted at any time.

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
use ganglion_core::facts::{Identity, Key};

/// How often the nodes and actions are looked at.
const PACE: Duration = Duration::from_secs(1);

/// How long an action may wait for its admission where the drain has no end, in seconds: a day.
const QUEUE: i64 = 86_400;

/// The most failures of the API server in a row.
const MOST_FAILURES: u32 = 30;

/// Why nodes cannot be emptied.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no node {0}; look at `kubectl get nodes`")]
    NoNode(String),
    #[error("no node has the labels {0}; look at `kubectl get nodes --show-labels`")]
    NoneSelected(String),
    #[error("{what}: {words}")]
    NotAllowed { what: &'static str, words: String },
    #[error(
        "the cluster does not know the kind WorkloadAction: install the operator's CRDs with `kubectl apply --server-side -k crds`"
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

/// The nodes that are emptied, and how.
pub struct Drain {
    cluster: DrainClient,
    pub nodes: Vec<String>,
    pub wishes: DrainWishes,
    /// The actions that this run made or went on with.
    own: BTreeSet<Key>,
    refused: BTreeMap<MoveKey, String>,
    since: Timestamp,
    plan: DrainPlan,
    actions: Vec<WorkloadAction>,
}

impl Drain {
    /// A drain of these nodes, and of those with the labels of the selector.
    ///
    /// # Errors
    /// There is no such node, or nodes cannot be read.
    pub async fn new(
        client: Client,
        names: Vec<String>,
        selector: Option<&str>,
        wishes: DrainWishes,
    ) -> Result<Self, Error> {
        let cluster = DrainClient { client };
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        for name in names {
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

    /// The drain as it was last looked at.
    #[must_use]
    pub fn progress(&self) -> DrainProgress<'_> {
        DrainProgress {
            nodes: &self.nodes,
            wishes: &self.wishes,
            plan: &self.plan,
            actions: &self.actions,
            refused: &self.refused,
        }
    }

    /// When it began.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// What would be done, with the operator's own plans where they can be made. Changes nothing.
    ///
    /// # Errors
    /// The pods of the nodes cannot be read.
    pub async fn preview(&mut self) -> Result<(DrainReport, BTreeMap<MoveKey, ActionPreview>), Error> {
        self.look().await?;
        let seed = self.seed(0);
        let new = self.progress().next_moves();
        let keys: Vec<MoveKey> = new.iter().map(|new| new.of.key()).collect();
        let documents: Vec<Value> = new.iter().map(|new| manifest(new, QUEUE, &seed)).collect();
        let client = &self.cluster.client;
        let basis = PlanBasis { cordoned: &self.nodes, is_maker: true };
        let previews = match plan::plan(client, "default", &Settings::default(), &documents, basis).await {
            Ok(previews) => keys.into_iter().zip(previews).collect(),
            Err(plan::Error::NoKind) => return Err(Error::NoKind),
            // Who may not read what the operator reads is told less.
            Err(_) => BTreeMap::new(),
        };
        let stays = stays_of_plan(&self.progress(), &previews);
        let report = DrainReport { stays, ..self.progress().report(false, SignedDuration::ZERO) };
        Ok((report.judged(), previews))
    }

    /// Cordons the nodes, and goes on with what an interrupted drain of them left open.
    ///
    /// # Errors
    /// A node cannot be cordoned, or actions cannot be read.
    pub async fn begin(&mut self) -> Result<usize, Error> {
        for node in &self.nodes {
            self.cluster.cordon(node, true).await?;
        }
        let found = self.cluster.actions(&self.nodes).await?;
        self.own = found.iter().filter(|action| is_open(action)).map(key).collect();
        Ok(self.own.len())
    }

    /// Looks at actions and pods, and makes the actions whose turn it is. Whether the drain is over.
    ///
    /// # Errors
    /// The API server does not answer, or refuses to be read.
    pub async fn step(&mut self, queue_seconds: Option<i64>) -> Result<bool, Error> {
        self.look().await?;
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

    /// Steps until the drain is over, or until this time. Tells the state after each step. Whether it was over in time.
    ///
    /// # Errors
    /// As for [`Self::step`], many times in a row.
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

    /// Aborts the open actions of a drain of the nodes, and uncordons them. The actions that were open.
    ///
    /// # Errors
    /// An action or a node cannot be changed.
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

    /// Actions before pods: a pod that an ended action has moved is not on the node any more.
    async fn look(&mut self) -> Result<(), Error> {
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
