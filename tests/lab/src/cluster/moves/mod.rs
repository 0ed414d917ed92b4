//! Moves of replicas, decided by the shipped code: each service has a ClosedLoop, whose stages decide when, and the
//! planner of WorkloadActions chooses the replica and the node.
//!
//! Owns the facts that they read, and the actions. The simulation starts the replacement, lets it serve, and evicts the
//! replica: these steps of the protocol take the time that a start takes, and nothing else. Pods of jobs do not move.

mod ranker;
mod service_loop;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ganglion_actions_plan::effect::{Effect, NextStep};
use ganglion_actions_plan::world::{ActionsWorld, NodeUse};
use ganglion_actions_plan::{Limits, next};
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::{DeploymentFact, Identity, Key, Owner, ReplicaSetFact, ScaleFact, Selector, TemplateFact};
use ganglion_core::world::World;
use ganglion_placement::cache::PlacementCache;
use serde_json::{Value, json};

use super::facts::{
    BoundPod, LabFacts, SITE, identity, pod_index, pod_labels, pod_name, requests, service_name, set_identity,
};
use super::node::{LabNode, STEP};
use super::request::PodRequest;
use super::service::time;
use ranker::LabRanker;
use service_loop::{ServiceLoop, ServiceMetrics};

/// Maximum number of writes to an action at one time.
const MAX_WRITES: usize = 8;

/// Reasons for moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveRules {
    None,
    /// Takes a replica off a node that is overloaded for half a minute.
    Relief,
    /// The same; besides, takes replicas to the servers that need least power per core.
    Consolidation,
}

/// A service whose replicas may move.
#[derive(Clone, Debug, PartialEq)]
pub struct MovableService {
    pub service: usize,
    /// Requests of a replica; `pod` is not used.
    pub request: PodRequest,
    /// Index of its site.
    pub site: usize,
}

/// A move that has begun: the replacement must be created now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunMove {
    pub action: Key,
    /// Index of the replica, and the name of its replacement.
    pub pod: usize,
    pub replacement: String,
    /// Index of the target node.
    pub node: usize,
}

/// The operator of the lab: loops, actions, and the facts that they read.
pub struct LabOperator {
    facts: LabFacts,
    ranker: LabRanker,
    services: Vec<(MovableService, ServiceLoop)>,
    /// Number of bound replicas by service.
    replicas: BTreeMap<usize, i32>,
    /// Services whose Deployments do not have that number yet.
    changed: Vec<usize>,
    /// Actions that wait, the oldest first.
    waiting: Vec<Key>,
    /// Actions that move a replica, and those that have ended.
    admitted: Vec<Key>,
    /// Names of replacements by pod, and pods by these names.
    names: BTreeMap<usize, String>,
    pods: BTreeMap<String, usize>,
    /// Action of each replacement that does not serve yet, by pod.
    starting: BTreeMap<usize, Key>,
    /// The model that needs least power per core, if there are others.
    best: Option<String>,
}

/// Limits of the operator's settings: two replicas move at a time, one from each node and one to each.
fn limits() -> Limits {
    Limits { in_all: Some(2), per_source_node: Some(1), per_target_node: Some(1), ..Limits::default() }
}

impl LabOperator {
    /// `agents`: those of the contender's policy, which then ranks the nodes.
    pub fn new(
        rules: MoveRules,
        agents: Option<&Value>,
        movable: Vec<MovableService>,
        nodes: &[LabNode],
    ) -> Result<Self> {
        let mut world = World::default();
        ganglion_placement_plan::world::register(&mut world);
        ganglion_actions_plan::world::register(&mut world);
        let facts = LabFacts::new(world, nodes);
        agents.map(|agents| facts.put_policy(agents)).transpose()?;
        let best = best_model(nodes);
        let with_loop = |service: MovableService| {
            let store = facts.store.clone();
            let watched = ServiceLoop::new(service.service, rules, agents.is_some(), best.as_deref(), store)?;
            anyhow::Ok((service, watched))
        };
        let services = movable.into_iter().map(with_loop).collect::<Result<_>>()?;
        let ranker = LabRanker(PlacementCache::new(facts.store.clone()));
        let (replicas, changed, waiting, admitted) = Default::default();
        let (names, pods, starting) = Default::default();
        Ok(Self { facts, ranker, services, replicas, changed, waiting, admitted, names, pods, starting, best })
    }

    /// Usage of all nodes has been measured; inlet temperatures in degrees Celsius.
    pub fn sampled(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) {
        self.facts.sample(nodes, inlets, now);
        let usage = |node: &LabNode| NodeUse {
            cpu: Some(node.usage()),
            memory: Some(node.requested_memory / node.memory()),
            at: time(now),
            since: time(now - STEP),
        };
        let of_nodes = self.facts.names().iter().cloned().zip(nodes.iter().map(usage)).collect();
        self.facts.store.write(|world| world.put_usage(of_nodes, time(now)));
    }

    /// A pod was bound to a node.
    pub fn bound(&mut self, pod: &PodRequest, node: usize, now: i64) {
        self.put_pod(pod, BoundPod { node, since: now, runs: false });
        self.count(pod, 1);
    }

    /// A pod that was bound at this time runs.
    pub fn started(&mut self, pod: &PodRequest, node: usize, bound: i64) {
        self.put_pod(pod, BoundPod { node, since: bound, runs: true });
    }

    /// A bound pod has left its node.
    pub fn ended(&mut self, pod: &PodRequest) {
        self.facts.remove_pod(&self.name(pod.pod));
        self.count(pod, -1);
        self.starting.remove(&pod.pod);
        if let Some(name) = self.names.remove(&pod.pod) {
            self.pods.remove(&name);
        }
    }

    fn name(&self, pod: usize) -> String {
        self.names.get(&pod).cloned().unwrap_or_else(|| pod_name(pod))
    }

    /// A replacement is not one of the service's replicas before it serves.
    fn put_pod(&mut self, pod: &PodRequest, place: BoundPod) {
        let service = pod.service.filter(|_| !self.starting.contains_key(&pod.pod));
        let name = self.name(pod.pod);
        self.facts.put_pod(&name, pod, service, place);
    }

    fn count(&mut self, pod: &PodRequest, change: i32) {
        let Some(service) = pod.service.filter(|_| !self.starting.contains_key(&pod.pod)) else { return };
        *self.replicas.entry(service).or_default() += change;
        self.changed.push(service);
    }
}

/// Position of an action after its next writes.
enum LabProgress {
    Waits,
    Ended,
    Begins(BegunMove),
}

/// Decisions, and their execution.
impl LabOperator {
    /// Lets all loops and actions go on. Returns the moves that begin, in their order.
    pub fn step(&mut self, nodes: &[LabNode], now: i64) -> Result<Vec<BegunMove>> {
        self.put_workloads()?;
        for (service, watched) in &mut self.services {
            let measured = metrics(service.service, nodes, self.best.as_deref());
            self.waiting.extend(watched.step(measured, now)?);
        }
        // The loops have read the results.
        let facts = &self.facts;
        self.admitted.retain(|key| !remove_ended(facts, key));
        let mut begun = Vec::new();
        for key in std::mem::take(&mut self.waiting) {
            match self.advance(&key, now).with_context(|| format!("WorkloadAction {}", key.name))? {
                LabProgress::Waits => self.waiting.push(key),
                LabProgress::Ended => self.admitted.push(key),
                LabProgress::Begins(one) => {
                    begun.push(one);
                    self.admitted.push(key);
                }
            }
        }
        Ok(begun)
    }

    /// Announces the pod of a replacement, before it is bound.
    pub fn replace(&mut self, begun: &BegunMove, pod: &PodRequest) {
        self.names.insert(pod.pod, begun.replacement.clone());
        self.pods.insert(begun.replacement.clone(), pod.pod);
        self.starting.insert(pod.pod, begun.action.clone());
    }

    /// A replacement, bound since this time, serves from now on: it becomes a replica, and the move succeeds.
    pub fn hand_over(&mut self, pod: &PodRequest, node: usize, since: i64, now: i64) -> Result<()> {
        let Some(action) = self.starting.remove(&pod.pod) else { return Ok(()) };
        self.put_pod(pod, BoundPod { node, since, runs: true });
        self.count(pod, 1);
        self.conclude(&action, Step::Succeeded, now)
    }

    /// The replica of a move has left by itself: its replacement is not needed.
    pub fn cancel(&mut self, pod: &PodRequest, now: i64) -> Result<()> {
        let Some(action) = self.starting.get(&pod.pod).cloned() else { return Ok(()) };
        self.conclude(&action, Step::RolledBack, now)
    }

    /// Performs the writes of an action until it waits, ends or begins.
    fn advance(&mut self, key: &Key, now: i64) -> Result<LabProgress> {
        for _ in 0..MAX_WRITES {
            match self.next(key, now) {
                NextStep::Do(Effect::AddFinalizer { finalizers, .. }) => {
                    self.edit(key, |action| action.metadata.finalizers = Some(finalizers))?;
                }
                NextStep::Do(Effect::Admit { status, .. }) => {
                    let begun = self.begun(key, status.slots.first())?;
                    self.edit(key, |action| action.status = Some(*status))?;
                    return Ok(LabProgress::Begins(begun));
                }
                NextStep::Do(Effect::Record { status, .. }) => {
                    if self.record(key, *status)? {
                        return Ok(LabProgress::Ended);
                    }
                }
                NextStep::Wait { report, .. } => {
                    report.map(|status| self.record(key, *status)).transpose()?;
                    return Ok(LabProgress::Waits);
                }
                other => bail!("unexpected step: {other:?}"),
            }
        }
        bail!("it does not rest")
    }

    /// Ends an action whose only slot has ended so.
    fn conclude(&mut self, key: &Key, end: Step, now: i64) -> Result<()> {
        self.edit(key, |action| {
            action.status.iter_mut().flat_map(|status| &mut status.slots).for_each(|slot| slot.step = end);
        })?;
        match self.next(key, now) {
            NextStep::Do(Effect::Record { status, .. }) if self.record(key, (*status).clone())? => Ok(()),
            other => bail!("WorkloadAction {} does not end: {other:?}", key.name),
        }
    }

    fn next(&self, key: &Key, now: i64) -> NextStep {
        self.facts.store.read(|world| next(key, world, time(now), &limits(), &self.ranker))
    }

    /// Writes a status. Returns whether the action has ended.
    fn record(&mut self, key: &Key, status: WorkloadActionStatus) -> Result<bool> {
        let has_ended = status.finished_at.is_some();
        self.edit(key, |action| action.status = Some(status))?;
        Ok(has_ended)
    }

    fn edit(&mut self, key: &Key, change: impl FnOnce(&mut WorkloadAction)) -> Result<()> {
        let stored = self.facts.store.read(|world| world.table::<WorkloadAction>().get(key).cloned());
        let mut action = WorkloadAction::clone(&*stored.context("it does not exist")?);
        action.metadata.resource_version = Some(self.facts.next_version());
        change(&mut action);
        self.facts.put(action);
        Ok(())
    }

    fn begun(&self, key: &Key, slot: Option<&Slot>) -> Result<BegunMove> {
        let slot = slot.context("no slot")?;
        let (victim, replacement) =
            slot.victim.as_ref().zip(slot.replacement.as_ref()).context("a replica moves to a chosen node")?;
        let pod = self.pods.get(&victim.name).copied().or_else(|| pod_index(&victim.name)).context("no such pod")?;
        let node = self.facts.names().iter().position(|name| *name == replacement.node).context("no such node")?;
        Ok(BegunMove { action: key.clone(), pod, replacement: replacement.name.clone(), node })
    }

    /// Brings the Deployments up to date whose replicas have changed.
    fn put_workloads(&mut self) -> Result<()> {
        self.changed.sort_unstable();
        self.changed.dedup();
        for service in std::mem::take(&mut self.changed) {
            let replicas = self.replicas.get(&service).copied().unwrap_or(0);
            let found = self.services.iter().find(|(movable, _)| movable.service == service);
            let Some(movable) = found.map(|(movable, _)| movable.clone()) else { continue };
            let (deployment, set) = self.workload(&movable, replicas)?;
            self.facts.put(deployment);
            self.facts.put(set);
        }
        Ok(())
    }

    fn workload(&mut self, movable: &MovableService, replicas: i32) -> Result<(DeploymentFact, ReplicaSetFact)> {
        let MovableService { service, request, site } = movable;
        let name = service_name(*service);
        let id = Identity { version: self.facts.next_version(), ..identity(&name) };
        let controller = Owner { kind: "Deployment".to_owned(), name, uid: id.uid.clone() };
        let scale = ScaleFact { replicas, ..ScaleFact::default() };
        let deployment = DeploymentFact {
            id,
            scale: scale.clone(),
            status_replicas: replicas,
            updated_replicas: replicas,
            revision: Some("1".to_owned()),
            ..DeploymentFact::default()
        };
        let set = ReplicaSetFact {
            id: Identity { version: self.facts.next_version(), ..set_identity(*service) },
            scale,
            controller: Some(controller),
            controller_version: "apps/v1".to_owned(),
            selector: Selector { labels: pod_labels(*service), ..Selector::default() },
            revision: Some("1".to_owned()),
            template: Some(Arc::new(template(*service, request, *site)?)),
            ..ReplicaSetFact::default()
        };
        Ok((deployment, set))
    }
}

/// The pod template of a service: its pods run on its site only.
fn template(service: usize, request: &PodRequest, site: usize) -> Result<TemplateFact, serde_json::Error> {
    let amounts = requests(request);
    let resources = json!({"requests": {"cpu": format!("{}m", amounts.cpu), "memory": amounts.memory.to_string()}});
    let template = json!({
        "metadata": {"labels": pod_labels(service)},
        "spec": {"nodeSelector": {SITE: site.to_string()}, "containers": [{"name": "app", "resources": resources}]},
    });
    serde_json::from_str(&template.to_string())
}

/// Removes an action that has ended. Returns whether it has.
fn remove_ended(facts: &LabFacts, key: &Key) -> bool {
    let stored = facts.store.read(|world| world.table::<WorkloadAction>().get(key).cloned());
    let Some(action) = stored else { return true };
    let has_ended = action.status.as_ref().is_some_and(|status| status.finished_at.is_some());
    if has_ended {
        facts.store.remove::<WorkloadAction>(&Identity::from(&action.metadata));
    }
    has_ended
}

fn metrics(service: usize, nodes: &[LabNode], best: Option<&str>) -> ServiceMetrics {
    let with_replica = || nodes.iter().filter(|node| node.replicas_of(service) > 0);
    let is_best = |node: &&LabNode| best.is_none_or(|best| node.server.model.name == best);
    ServiceMetrics {
        busiest: with_replica().map(|node| 100.0 * node.usage()).fold(0.0, f64::max),
        inefficient: with_replica().filter(|node| !is_best(node)).map(|node| node.replicas_of(service)).sum(),
    }
}

/// The model that adds least watts per core, if there are others.
fn best_model(nodes: &[LabNode]) -> Option<String> {
    let watts = |node: &LabNode| node.server.model.watts_per_core();
    let best = nodes.iter().min_by(|one, other| watts(one).total_cmp(&watts(other)))?;
    let name = &best.server.model.name;
    nodes.iter().any(|node| node.server.model.name != *name).then(|| name.clone())
}
