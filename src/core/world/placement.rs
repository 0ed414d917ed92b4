//! State for placement: the policies, the resources that pods occupy on nodes, and logs of the nodes that changed and
//! the pods that were created or failed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::{Fact, Indexed, Requeue, World};
use crate::facts::{Key, NodeFact, OutsidePodFact, PodFact, PodHold, PodRun, Requests, RunFailure};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;

/// Maximum number of remembered nodes, each with its last change.
const MAX_CHANGES: usize = 20_000;

/// Maximum number of remembered created pods, and of remembered failures.
const MAX_ARRIVALS: usize = 4096;

/// Logs of changes with a clock of their own, so that any number of readers can catch up.
#[derive(Debug, Default)]
pub struct PlacementIndex {
    clock: u64,
    /// Nodes by the clock of their last change.
    changes: BTreeMap<u64, String>,
    last: HashMap<String, u64>,
    /// Entries up to this clock may have been dropped.
    forgotten: u64,
    arrivals: VecDeque<Arrival>,
    failures: VecDeque<PodFailure>,
}

/// A pod that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of its creation, by the clock of [`World::placement_clock`].
    pub clock: u64,
    pub scheduler: String,
    pub requests: Requests,
}

/// Failures of a pod's containers or of the pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    /// Time at which it was recorded, by the clock of [`World::placement_clock`].
    pub clock: u64,
    pub scheduler: String,
    pub uid: String,
    pub pod_type: String,
    pub node: String,
    pub failures: Box<[RunFailure]>,
    pub created: Timestamp,
}

impl PodFailure {
    /// The failures of a pod. None if there are none, or if they say nothing about its node: containers also fail when
    /// they are stopped.
    pub fn of(pod: &PodFact) -> Option<Self> {
        let PodRun::Failing(failures) = &pod.run else { return None };
        let node = pod.node.clone().filter(|_| !pod.terminating && is_placed(pod))?;
        Some(Self {
            clock: 0,
            scheduler: pod.scheduler.clone(),
            uid: pod.id.uid.clone(),
            pod_type: pod.pod_type().to_owned(),
            node,
            failures: failures.clone(),
            created: pod.created,
        })
    }
}

impl PlacementIndex {
    fn node(&mut self, name: &str) {
        self.clock += 1;
        if let Some(before) = self.last.insert(name.to_owned(), self.clock) {
            self.changes.remove(&before);
        }
        self.changes.insert(self.clock, name.to_owned());
        if self.changes.len() > MAX_CHANGES
            && let Some((clock, name)) = self.changes.pop_first()
        {
            self.forgotten = clock;
            self.last.remove(&name);
        }
    }

    fn arrival(&mut self, pod: &PodFact) {
        self.clock += 1;
        let (scheduler, requests) = (pod.scheduler.clone(), pod.hold.requests);
        self.arrivals.push_back(Arrival { clock: self.clock, scheduler, requests });
        if self.arrivals.len() > MAX_ARRIVALS {
            self.arrivals.pop_front();
        }
    }

    fn failure(&mut self, failure: PodFailure) {
        self.clock += 1;
        self.failures.push_back(PodFailure { clock: self.clock, ..failure });
        if self.failures.len() > MAX_ARRIVALS {
            self.failures.pop_front();
        }
    }
}

/// Whether a scheduler must choose a node for the pod, and the pod has not finished.
pub fn wants_place(pod: &PodFact) -> bool {
    is_placed(pod) && !pod.finished
}

/// Whether a scheduler chooses the node of the pod. Pods of DaemonSets and static pods have fixed nodes.
pub fn is_placed(pod: &PodFact) -> bool {
    !pod.mirror && pod.controller.as_ref().is_none_or(|owner| owner.kind != "DaemonSet")
}

impl Indexed for PlacementPolicy {
    fn changed(_world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        new.or(old).map_or_else(Requeue::none, |policy| Requeue::one::<Self>(policy.id().key))
    }
}

/// Recording of changes.
impl World {
    pub(super) fn note_pod(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        self.note_holds(old.and_then(PodFact::held), new.and_then(PodFact::held));
        if let Some(pod) = new.filter(|new| old.is_none_or(|old| old.id.uid != new.id.uid) && wants_place(new)) {
            self.placement.arrival(pod);
        }
        let is_news = |new: &&PodFact| old.is_none_or(|old| old.run != new.run);
        if let Some(failure) = new.filter(is_news).and_then(PodFailure::of) {
            self.placement.failure(failure);
        }
    }

    pub(super) fn note_outside_pod(&mut self, old: Option<&OutsidePodFact>, new: Option<&OutsidePodFact>) {
        self.note_holds(old.and_then(OutsidePodFact::held), new.and_then(OutsidePodFact::held));
    }

    fn note_holds(&mut self, old: Option<(&str, PodHold)>, new: Option<(&str, PodHold)>) {
        if old != new {
            for (node, _) in [old, new].into_iter().flatten() {
                self.placement.node(node);
            }
        }
    }

    pub(super) fn note_node(&mut self, old: Option<&NodeFact>, new: Option<&NodeFact>) {
        let same = |(old, new): (&NodeFact, &NodeFact)| {
            let mut as_new = old.clone();
            as_new.id.version.clone_from(&new.id.version);
            as_new == *new
        };
        if let Some(node) = new.or(old).filter(|_| !old.zip(new).is_some_and(same)) {
            self.placement.node(&node.id.key.name);
        }
    }

    pub(super) fn note_node_config(&mut self, old: Option<&NodeConfig>, new: Option<&NodeConfig>) {
        for config in [old, new].into_iter().flatten() {
            self.placement.node(&config.spec.node_name);
        }
    }
}

/// Queries of placement.
impl World {
    /// Clock that grows with each change that placement reads.
    pub fn placement_clock(&self) -> u64 {
        self.placement.clock
    }

    /// The nodes that were added, changed or removed after this clock; None if older entries were dropped.
    pub fn nodes_changed_since(&self, clock: u64) -> Option<impl Iterator<Item = &str>> {
        let later = self.placement.changes.range(clock.saturating_add(1)..);
        (clock >= self.placement.forgotten).then(|| later.map(|(_, name)| name.as_str()))
    }

    /// The recently created pods after this clock.
    pub fn arrivals_since(&self, clock: u64) -> impl Iterator<Item = &Arrival> {
        let index = self.placement.arrivals.partition_point(|arrival| arrival.clock <= clock);
        self.placement.arrivals.range(index..)
    }

    /// The recent failures after this clock.
    pub fn failures_since(&self, clock: u64) -> impl Iterator<Item = &PodFailure> {
        let index = self.placement.failures.partition_point(|failure| failure.clock <= clock);
        self.placement.failures.range(index..)
    }

    /// Resources that each pod occupies on this node.
    pub fn holds(&self, node: &str) -> &[PodHold] {
        self.index.holds(node)
    }

    /// A node, shared.
    pub fn shared_node(&self, name: &str) -> Option<&Arc<NodeFact>> {
        self.tables.nodes.get(&Key::new("", name))
    }

    /// All pods, by key.
    pub fn pods(&self) -> impl Iterator<Item = &PodFact> {
        self.tables.pods.values().map(Arc::as_ref)
    }

    pub fn policy(&self, name: &str) -> Option<&Arc<PlacementPolicy>> {
        self.tables.placement_policies.get(&Key::new("", name))
    }

    /// All policies, by name.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<PlacementPolicy>> {
        self.tables.placement_policies.values()
    }
}
