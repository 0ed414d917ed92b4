//! Keeps the labels of nodes for policies with the delivery `Labels`.
//!
//! | step | what |
//! |---|---|
//! | plan | scores all nodes for the typical pod of each policy, and selects the nodes to write ([`ganglion_placement_plan::labels`]) |
//! | act | writes the labels of a node, of all policies together, and their histories |
//! | report | how many nodes have the label, and until when it is valid; the next reconcile of the policy writes it |
//!
//! A pass follows each change of nodes and pods, at most every half second, so that new nodes and nodes that fill get
//! their labels in time. All state in memory may be lost: labels are compared with those on the nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use tokio::time::Instant;
use tracing::info;

use crate::cache::PlacementCache;
use ganglion_api::marks;
use ganglion_api::placement_policy::labels::TypicalRequest;
use ganglion_api::placement_policy::{PlacementPolicy, PolicyDelivery, PolicyMode};
use ganglion_core::facts::{Key, NodeFact, NodeName};
use ganglion_core::world::{Fact, Origin, World};
use ganglion_outbound::client::objects::api_words;
use ganglion_placement_plan::labels::contest::LabelContests;
use ganglion_placement_plan::labels::plan::{LabelPlan, LabelWrite, MinorWrites, WantedLabels, plan};
use ganglion_placement_plan::labels::report::LabelReport;
use ganglion_placement_plan::labels::typical::PlacedRequests;
use ganglion_placement_plan::labels::{LabelValue, key};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Minimum time between two passes, and its minimum as a multiple of the time that a pass takes.
const PAUSE: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;

/// Maximum time after which nodes are scored again without a change, since values expire.
const EXPIRY: Duration = Duration::from_secs(10);

/// Number of passes without a change within the maximum age of the labels: each confirms them.
const CONFIRMATIONS: u32 = 4;

/// Pause after a failed write.
const REFUSED: Duration = Duration::from_secs(10);

/// Maximum number of concurrent writes.
const WRITERS: usize = 8;

/// Keeps the labels of nodes.
pub struct Labeler {
    ctx: Context,
    placement: PlacementCache,
    state: Mutex<LabelerState>,
}

#[derive(Default)]
struct LabelerState {
    /// Score from which on nodes have the best level, by policy.
    best: HashMap<String, f64>,
    /// Requests of the typical pod, by policy.
    typical: HashMap<String, TypicalRequest>,
    reports: HashMap<String, LabelReport>,
    minor: MinorWrites,
    contests: LabelContests,
    /// Number of pods of each node when its labels were written, or when it was first seen.
    pods: HashMap<NodeName, i64>,
}

/// Time until the next pass after a change, and without one.
struct LabelPauses {
    least: Duration,
    most: Duration,
}

/// A policy whose labels are kept.
struct LabelPolicy {
    name: String,
    generation: i64,
    /// None if its spec is invalid at present.
    compiled: Option<Arc<CompiledPolicy>>,
    /// Requests of the typical pod of the process before.
    typical: Option<TypicalRequest>,
}

impl Labeler {
    pub fn new(ctx: Context, placement: PlacementCache) -> Self {
        Self { ctx, placement, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, LabelerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the labels of a policy; None before the first pass with this policy.
    pub fn report(&self, policy: &str) -> Option<LabelReport> {
        self.state().reports.get(policy).cloned()
    }

    /// Policies whose labels nodes must have. Without the admission policies of the kind, anybody may have written
    /// them, so the labels stay as they are.
    fn policies(&self) -> Vec<LabelPolicy> {
        self.ctx.store.read(|world| {
            let is_guarded = world.policy_problem(PlacementPolicy::KIND).is_none();
            let labeled = world.policies().filter(|policy| {
                policy.metadata.deletion_timestamp.is_none()
                    && policy.spec.mode == PolicyMode::Active
                    && policy.spec.is_delivered_by(PolicyDelivery::Labels)
            });
            let read = labeled.map(|policy| {
                let name = policy.metadata.name.clone().unwrap_or_default();
                let compiled = if is_guarded { self.placement.compile(policy).ok() } else { None };
                let status = policy.status.as_ref().and_then(|status| status.labels.as_ref());
                let typical = status.map(|labels| labels.typical_request.clone());
                LabelPolicy { name, generation: policy.metadata.generation.unwrap_or_default(), compiled, typical }
            });
            read.collect()
        })
    }

    /// Scores all nodes and compares their labels.
    fn plan(&self, policies: &[LabelPolicy], now: Timestamp) -> LabelPlan {
        let placed = self.ctx.store.read(PlacedRequests::of);
        let wanted: Vec<WantedLabels> = policies
            .iter()
            .map(|policy| {
                let compiled = policy.compiled.as_ref();
                let values = compiled.and_then(|compiled| self.wanted(compiled, &placed, policy.typical.as_ref(), now));
                WantedLabels { key: key(&policy.name), values }
            })
            .collect();
        let pods = self.placement.pods();
        let mut state = self.state();
        state.pods.retain(|node, _| pods.contains_key(node));
        for (node, count) in &pods {
            let known = state.pods.entry(node.clone()).or_insert(*count);
            *known = (*known).min(*count);
        }
        let LabelerState { pods: labeled, contests, .. } = &mut *state;
        let is_filling = |node: &NodeName| pods.get(node) > labeled.get(node);
        let mut plan = self.ctx.store.read(|world| {
            contests.observe(world.nodes(), now);
            // An object that this version cannot read may be a policy with labels.
            let is_complete = PlacementPolicy::table(world).unreadable().keys().next().is_none();
            plan(world.nodes(), &wanted, is_complete, is_filling)
        });
        contests.forget_refusals(plan.nodes());
        plan.retain(|write| contests.may_write(&write.node.key.name, now));
        plan
    }

    /// Labels of all nodes for a policy. `typical`: requests of the typical pod of the process before.
    fn wanted(
        &self,
        policy: &CompiledPolicy,
        placed: &PlacedRequests,
        typical: Option<&TypicalRequest>,
        now: Timestamp,
    ) -> Option<HashMap<NodeName, LabelValue>> {
        let labels = policy.labels.as_ref()?;
        let former = self.state().typical.get(&policy.name).or(typical).cloned();
        let typical = labels.typical.pod(placed, former.as_ref());
        let verdicts = self.placement.verdicts(policy, &typical, now);
        self.state().typical.insert(policy.name.clone(), typical.request);
        let key = key(&policy.name);
        let present: HashMap<_, _> = self.ctx.store.read(|world| {
            let labeled = world.nodes().filter_map(|node| Some((node.name(), label(node, &key)?)));
            labeled.collect()
        });
        let mut state = self.state();
        let former = state.best.get(&policy.name).copied();
        let (values, best) = labels.rules.labels(&verdicts, |node| present.get(node).copied(), former);
        match best {
            Some(best) => state.best.insert(policy.name.clone(), best),
            None => state.best.remove(&policy.name),
        };
        Some(values)
    }

    /// Compares and writes the labels of all nodes. Returns the time until the next pass.
    async fn pass(self: &Arc<Self>, now: Timestamp) -> LabelPauses {
        let policies = self.policies();
        let begun = Instant::now();
        let (labeler, planned) = (Arc::clone(self), policies);
        let planning = tokio::task::spawn_blocking(move || {
            let plan = labeler.plan(&planned, now);
            (planned, plan)
        });
        let Ok((policies, LabelPlan { urgent, minor })) = planning.await else {
            // The panic is in the log; the process does not depend on labels.
            return LabelPauses { least: REFUSED, most: REFUSED };
        };
        let took = begun.elapsed();
        let left = {
            let mut state = self.state();
            let left = state.minor.left(self.ctx.store.read(|world| world.nodes().count()), now).min(minor.len());
            state.minor.record(left, now);
            left
        };
        let problem = self.write_all(urgent.into_iter().chain(minor.into_iter().take(left)), now).await;
        self.store_reports(&policies, problem.as_ref(), now);
        let ages = policies.iter().filter_map(|policy| Some(policy.compiled.as_ref()?.rules.max_age.unsigned_abs()));
        let most = ages.min().map_or(EXPIRY, |age| (age / CONFIRMATIONS).min(EXPIRY));
        LabelPauses { least: if problem.is_some() { REFUSED } else { PAUSE.max(took * SHARE) }, most }
    }

    /// Labels nodes, a few at a time. Returns the first problem that affects all nodes; it ends the writes.
    async fn write_all(&self, writes: impl Iterator<Item = LabelWrite> + Send, now: Timestamp) -> Option<String> {
        let ends = stream::iter(writes).map(|write| async move { (self.write(&write).await, write) });
        let mut ends = std::pin::pin!(ends.buffer_unordered(WRITERS));
        while let Some((end, write)) = ends.next().await {
            let node = &write.node.key;
            match end {
                Ok(()) => {
                    let mut state = self.state();
                    state.pods.remove(&NodeName::from(node.name.as_str()));
                    state.contests.record(&write);
                }
                // The node was deleted, or another node has its name now.
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                // A webhook, or the state of this node: others can be labeled.
                Err(error @ (Error::Denied(_) | Error::Malformed(_))) => {
                    info!(node = node.name, %error, "node not labeled");
                    self.state().contests.refuse(&node.name, api_words(&error), now);
                }
                Err(error) => {
                    info!(node = node.name, %error, "node not labeled");
                    return Some(message(node, &error));
                }
            }
        }
        None
    }

    async fn write(&self, write: &LabelWrite) -> Result<(), Error> {
        let patch = Patch::Merge(write.patch(self.ctx.now()));
        let write = self.ctx.writer.patch::<Node>(marks::LABEL_MANAGER, &write.node.key, &patch);
        let answer = self.ctx.writer.counted("LabelNode", write).await?;
        self.ctx.store.apply(NodeFact::from(answer), Origin::Own);
        Ok(())
    }

    /// Stores the state after a pass, and enqueues the policies whose status changes.
    fn store_reports(&self, policies: &[LabelPolicy], problem: Option<&String>, now: Timestamp) {
        let mut changed = Vec::new();
        let mut state = self.state();
        state.reports.retain(|name, _| policies.iter().any(|policy| policy.name == *name));
        state.best.retain(|name, _| policies.iter().any(|policy| policy.name == *name));
        state.typical.retain(|name, _| policies.iter().any(|policy| policy.name == *name));
        for policy in policies {
            let Some(compiled) = &policy.compiled else { continue };
            let aside = state.contests.aside(now);
            let typical = state.typical.get(&policy.name).cloned().unwrap_or_default();
            let report = self.ctx.store.read(|world| report(world, policy, problem, now));
            let current = LabelReport { aside, typical, ..report };
            let previous = state.reports.get(&policy.name);
            let next = LabelReport::next(previous, current, compiled.rules.max_age);
            if previous != Some(&next) {
                changed.push(Key::new("", policy.name.as_str()));
                state.reports.insert(policy.name.clone(), next);
            }
        }
        drop(state);
        self.ctx.store.queue::<PlacementPolicy>().add(changed);
    }
}

/// Present label of a node.
fn label(node: &NodeFact, key: &str) -> Option<LabelValue> {
    LabelValue::parse(node.labels.get(key)?)
}

fn report(world: &World, policy: &LabelPolicy, problem: Option<&String>, at: Timestamp) -> LabelReport {
    let key = key(&policy.name);
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let nodes = || world.nodes().filter(|node| !node.terminating);
    let labeled = || nodes().filter(|node| label(node, &key).is_some());
    LabelReport {
        generation: policy.generation,
        nodes: number(nodes().count()),
        labeled: number(labeled().count()),
        typical: TypicalRequest::default(),
        oldest: labeled().filter_map(|node| node.labeled_at).min(),
        problem: problem.cloned(),
        aside: None,
        at,
    }
}

fn message(node: &Key, error: &Error) -> String {
    let why = match error {
        Error::Forbidden(_) => {
            "the operator may not patch nodes: install kustomize/components/placement-labels, which grants it"
                .to_owned()
        }
        error => api_words(error),
    };
    format!("node {} cannot be labeled: {why}", node.name)
}

/// Keeps the labels until the process loses leadership or stops.
pub async fn run_labels(labeler: Arc<Labeler>) {
    let ctx = labeler.ctx.clone();
    let keep = async {
        let (mut seen, mut passed) = (None, Instant::now());
        let mut pauses = LabelPauses { least: PAUSE, most: EXPIRY };
        loop {
            tokio::time::sleep(PAUSE).await;
            let clock = ctx.store.read(PlacementWorld::placement_clock);
            let pause = if seen == Some(clock) { pauses.most } else { pauses.least };
            if passed.elapsed() >= pause {
                pauses = labeler.pass(ctx.now()).await;
                (seen, passed) = (Some(clock), Instant::now());
            }
        }
    };
    tokio::select! {
        () = ctx.writer.fenced() => {}
        () = ctx.stop.cancelled() => {}
        () = keep => {}
    }
}
