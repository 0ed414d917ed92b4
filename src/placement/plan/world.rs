//! Placement in the [`World`]: logs of the nodes that changed and of the pods that were created or failed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;

use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{
    Key, NodeFact, NodeName, OutsidePodFact, PodFact, PodHold, PodRun, Requests, RunFailure, Uid,
};
use ganglion_core::world::{Fact, Follows, Requeue, State, World};

/// Maximum number of remembered nodes, each with its last change.
const MAX_CHANGES: usize = 20_000;

/// Maximum number of remembered created pods, of pods that were bound or have ended, and of failures.
const MAX_ARRIVALS: usize = 4096;

/// Logs of changes with a clock of their own, so that any number of readers can catch up.
#[derive(Default)]
struct PlacementIndex {
    clock: u64,
    /// Nodes by the clock of their last change.
    changes: BTreeMap<u64, NodeName>,
    last: HashMap<NodeName, u64>,
    /// Entries up to this clock may have been dropped.
    forgotten: u64,
    arrivals: VecDeque<Arrival>,
    /// Pods by the clock at which they stopped waiting for a node.
    settled: VecDeque<(u64, Uid)>,
    /// Entries of `settled` up to this clock may have been dropped.
    settled_forgotten: u64,
    failures: VecDeque<PodFailure>,
    /// Number of pods that kubelets have refused.
    refused: u64,
    /// Deleted pods, at most [`MAX_ARRIVALS`], and the order of their deletion.
    deleted: HashSet<Uid>,
    deletions: VecDeque<Uid>,
}

/// A pod that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of its creation, by the clock of [`PlacementWorld::placement_clock`].
    pub clock: u64,
    pub scheduler: String,
    pub requests: Requests,
}

/// Failures of a pod's containers or of the pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    /// Time at which it was recorded, by the clock of [`PlacementWorld::placement_clock`].
    pub clock: u64,
    pub scheduler: String,
    pub uid: Uid,
    pub pod_type: String,
    pub node: NodeName,
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
    fn node(&mut self, name: &NodeName) {
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

    fn holds(&mut self, old: Option<(&NodeName, PodHold)>, new: Option<(&NodeName, PodHold)>) {
        if old != new {
            for (node, _) in [old, new].into_iter().flatten() {
                self.node(node);
            }
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

    fn settled(&mut self, pod: &Uid) {
        self.clock += 1;
        self.settled.push_back((self.clock, pod.clone()));
        if self.settled.len() > MAX_ARRIVALS
            && let Some((clock, _)) = self.settled.pop_front()
        {
            self.settled_forgotten = clock;
        }
    }

    /// Logs a pod that does not wait for a node any more, or never did. The arguments say whether it waits.
    fn wait(&mut self, old: Option<(&Uid, bool)>, new: Option<(&Uid, bool)>) {
        if let Some((pod, false)) = new
            && old != new
        {
            self.settled(pod);
        }
    }

    fn deletion(&mut self, pod: &Uid) {
        self.settled(pod);
        if !self.deleted.insert(pod.clone()) {
            return;
        }
        self.deletions.push_back(pod.clone());
        if self.deletions.len() > MAX_ARRIVALS
            && let Some(oldest) = self.deletions.pop_front()
        {
            self.deleted.remove(&oldest);
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

/// A pod, and whether it waits for a node.
fn wait_of(pod: &PodFact) -> (&Uid, bool) {
    (&pod.id.uid, pod.node.is_none() && pod.is_active())
}

fn outside_wait_of(pod: &OutsidePodFact) -> (&Uid, bool) {
    (&pod.id.uid, pod.node.is_none() && !pod.finished)
}

/// Whether a pod waits for a node; None if it is not in the cache.
pub fn waits(world: &World, key: &Key, uid: &Uid) -> Option<bool> {
    let is_it = |(found, _): &(&Uid, bool)| *found == uid;
    let own = world.get::<PodFact>(key).map(wait_of).filter(is_it);
    let outside = || world.get::<OutsidePodFact>(key).map(outside_wait_of).filter(is_it);
    own.or_else(outside).map(|(_, waits)| waits)
}

/// Queries of placement.
pub trait PlacementWorld {
    /// Clock that grows with each change that placement reads.
    fn placement_clock(&self) -> u64;

    /// The nodes that were added, changed or removed after this clock; None if older entries were dropped.
    fn nodes_changed_since(&self, clock: u64) -> Option<impl Iterator<Item = &NodeName>>;

    /// The recently created pods after this clock.
    fn arrivals_since(&self, clock: u64) -> impl Iterator<Item = &Arrival>;

    /// The pods that were bound, have finished or were deleted after this clock; None if older entries were dropped.
    fn settled_since(&self, clock: u64) -> Option<impl Iterator<Item = &Uid>>;

    /// The recent failures after this clock.
    fn failures_since(&self, clock: u64) -> impl Iterator<Item = &PodFailure>;

    /// Number of pods that kubelets have refused since this process has seen them.
    fn refused_pods(&self) -> u64;

    /// Whether the pod was recently deleted.
    fn was_deleted(&self, pod: &Uid) -> bool;

    fn policy(&self, name: &str) -> Option<&Arc<PlacementPolicy>>;

    /// All policies, by name.
    fn policies(&self) -> impl Iterator<Item = &Arc<PlacementPolicy>>;
}

impl PlacementWorld for World {
    fn placement_clock(&self) -> u64 {
        index(self).clock
    }

    fn nodes_changed_since(&self, clock: u64) -> Option<impl Iterator<Item = &NodeName>> {
        let index = index(self);
        let later = index.changes.range(clock.saturating_add(1)..);
        (clock >= index.forgotten).then(|| later.map(|(_, name)| name))
    }

    fn arrivals_since(&self, clock: u64) -> impl Iterator<Item = &Arrival> {
        let arrivals = &index(self).arrivals;
        arrivals.range(arrivals.partition_point(|arrival| arrival.clock <= clock)..)
    }

    fn settled_since(&self, clock: u64) -> Option<impl Iterator<Item = &Uid>> {
        let PlacementIndex { settled, settled_forgotten, .. } = index(self);
        let later = settled.range(settled.partition_point(|(at, _)| *at <= clock)..);
        (clock >= *settled_forgotten).then(|| later.map(|(_, pod)| pod))
    }

    fn failures_since(&self, clock: u64) -> impl Iterator<Item = &PodFailure> {
        let failures = &index(self).failures;
        failures.range(failures.partition_point(|failure| failure.clock <= clock)..)
    }

    fn refused_pods(&self) -> u64 {
        index(self).refused
    }

    fn was_deleted(&self, pod: &Uid) -> bool {
        index(self).deleted.contains(pod)
    }

    fn policy(&self, name: &str) -> Option<&Arc<PlacementPolicy>> {
        self.table().get(&Key::new("", name))
    }

    fn policies(&self) -> impl Iterator<Item = &Arc<PlacementPolicy>> {
        self.table().values()
    }
}

fn index(world: &World) -> &PlacementIndex {
    world.state()
}

/// Registers the kinds that placement follows.
pub fn register(world: &mut World) {
    world.follow::<PlacementIndex, PodFact>();
    world.follow::<PlacementIndex, OutsidePodFact>();
    world.follow::<PlacementIndex, NodeFact>();
    world.follow::<PlacementIndex, NodeConfig>();
    world.follow::<PlacementIndex, PlacementPolicy>();
}

/// A world that only this product follows.
#[cfg(test)]
pub fn registered() -> World {
    let mut world = World::default();
    register(&mut world);
    world
}

impl State for PlacementIndex {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<PlacementIndex> = LazyLock::new(PlacementIndex::default);
        &EMPTY
    }
}

impl Follows<PodFact> for PlacementIndex {
    fn update(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        if let Some(pod) = old.filter(|old| new.is_none_or(|new| new.id.uid != old.id.uid)) {
            self.deletion(&pod.id.uid);
        }
        self.holds(old.and_then(PodFact::held), new.and_then(PodFact::held));
        self.wait(old.map(wait_of), new.map(wait_of));
        if let Some(pod) = new.filter(|new| old.is_none_or(|old| old.id.uid != new.id.uid) && wants_place(new)) {
            self.arrival(pod);
        }
        let is_news = |new: &&PodFact| old.is_none_or(|old| old.run != new.run);
        if let Some(failure) = new.filter(is_news).and_then(PodFailure::of) {
            self.failure(failure);
        }
        // A pod that was refused before this process has started is counted by an earlier one.
        let was_admitted = old.zip(new).is_some_and(|(old, new)| old.id.uid == new.id.uid && !old.refused);
        if was_admitted && new.is_some_and(|new| new.refused) {
            self.refused += 1;
        }
    }
}

impl Follows<OutsidePodFact> for PlacementIndex {
    fn update(&mut self, old: Option<&OutsidePodFact>, new: Option<&OutsidePodFact>) {
        if let Some(pod) = old.filter(|old| new.is_none_or(|new| new.id.uid != old.id.uid)) {
            self.deletion(&pod.id.uid);
        }
        self.holds(old.and_then(OutsidePodFact::held), new.and_then(OutsidePodFact::held));
        self.wait(old.map(outside_wait_of), new.map(outside_wait_of));
    }
}

impl Follows<NodeFact> for PlacementIndex {
    fn update(&mut self, old: Option<&NodeFact>, new: Option<&NodeFact>) {
        if let Some(node) = new.or(old) {
            self.node(&node.name());
        }
    }
}

impl Follows<NodeConfig> for PlacementIndex {
    fn update(&mut self, old: Option<&NodeConfig>, new: Option<&NodeConfig>) {
        for config in [old, new].into_iter().flatten() {
            self.node(&config.spec.node_name);
        }
    }
}

impl Follows<PlacementPolicy> for PlacementIndex {
    fn requeue(_world: &World, old: Option<&PlacementPolicy>, new: Option<&PlacementPolicy>) -> Requeue {
        Requeue::all::<PlacementPolicy>(new.or(old).map(|policy| policy.key().into_owned()))
    }
}
