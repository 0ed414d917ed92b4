//! Pods that schedulers got nodes for and that are not bound yet.
//!
//! kube-scheduler asks about the next pod before the binding of the previous one is in the cache, and never says which
//! node it chose: it adds the scores of its own plugins to those of the policy. Until a pod is seen bound, it may be on
//! any node that its answer left open. So a filter counts it on each of them, and no choice of the scheduler can exceed
//! a limit; a score counts it on the most likely one only.
//!
//! Pods are forgotten once they are bound, finished or gone, or when the scheduler asks again without result. Nodes are
//! named by their index in the inventory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Add, Sub};

use jiff::{SignedDuration, Timestamp};

use super::placed_pod::PlacedPod;
use super::world::{PlacementWorld, waits};
use ganglion_core::facts::{Key, NodeName, Requests, Uid};
use ganglion_core::world::World;

/// Maximum time from an answer to the binding. Binding takes milliseconds; volumes that are created for the pod take
/// longer. A pod that the scheduler gave up counts until it asks again, or for this time.
const BINDING: SignedDuration = SignedDuration::from_secs(30);

/// Maximum delay of the watch. A pod that is not in the cache by then does not exist.
const WATCH_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// Pods belong to a burst if another pod was answered for this recently.
const BURST: SignedDuration = SignedDuration::from_secs(1);

/// Time from an answer to the binding of most pods, even if etcd stands still for some seconds. Pods whose volumes are
/// created take longer, and nobody waits for them.
const SETTLING: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of remembered pods to preempt. For one pod, an eighth of it.
const MAX_PREEMPTED: usize = 8192;

/// Maximum length of a name in Kubernetes. Requests with longer names do not come from a scheduler.
const MAX_NAME: usize = 253;

/// Maximum amount of a resource: a thousand of them can be added up.
const MAX_AMOUNT: i64 = i64::MAX >> 12;

/// Pods and resources that count on a node besides those in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedLoad {
    pub pods: i64,
    pub requests: Requests,
    /// CPU in millicores of pods that do not run yet.
    pub cores: i64,
    /// Requests that measured usage does not include.
    pub unmeasured: Requests,
}

impl ExpectedLoad {
    /// Load of a pod that is on its way to a node. Amounts are bounded, so that sums are exact.
    pub fn of(pod: &PlacedPod) -> Self {
        let Requests { cpu, memory, gpu, storage } = pod.requests;
        let [cpu, memory, gpu, storage, cores] =
            [cpu, memory, gpu, storage, pod.cores].map(|amount| amount.min(MAX_AMOUNT));
        let requests = Requests { cpu, memory, gpu, storage };
        Self { pods: 1, requests, cores, unmeasured: requests }
    }
}

impl Add for ExpectedLoad {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            pods: self.pods.saturating_add(other.pods),
            requests: self.requests + other.requests,
            cores: self.cores.saturating_add(other.cores),
            unmeasured: self.unmeasured + other.unmeasured,
        }
    }
}

impl Sub for ExpectedLoad {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            pods: self.pods.saturating_sub(other.pods),
            requests: self.requests - other.requests,
            cores: self.cores.saturating_sub(other.cores),
            unmeasured: self.unmeasured - other.unmeasured,
        }
    }
}

/// A set of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    fn insert(&mut self, place: usize) {
        let (word, bit) = (place / 64, place % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    fn contains(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        let bits = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(bits)
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut set = Self::default();
        places.into_iter().for_each(|place| set.insert(place));
        set
    }
}

/// A pod that may be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptedPod {
    pub key: Key,
    pub uid: Uid,
    pub node: NodeName,
}

/// The last answer for a pod.
#[derive(Clone, Debug)]
struct AnsweredPod {
    key: Key,
    controller: Option<Uid>,
    load: ExpectedLoad,
    at: Timestamp,
    /// The pod was in the cache already.
    cached: bool,
    /// Nodes that the answer left open.
    nodes: NodeSet,
    /// The node on which the pod most likely is.
    likely: Option<usize>,
    /// Pods that the scheduler was allowed to preempt for it.
    preempted: Vec<PreemptedPod>,
}

/// Answered pods, and their sums by node.
#[derive(Clone, Debug, Default)]
pub struct AnsweredPods {
    pods: HashMap<Uid, AnsweredPod>,
    possible: Vec<ExpectedLoad>,
    likely: Vec<ExpectedLoad>,
    version: u64,
    /// The last two pods, the newest first.
    newest: Vec<(Uid, Timestamp)>,
    /// Pods that were recorded since the last call of [`Self::forget_settled`]: they may have been bound before.
    unchecked: HashSet<Uid>,
}

impl AnsweredPods {
    /// Grows with each pod that counts on more nodes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The answered pods other than this one.
    pub fn others(&self, pod: &Uid) -> OtherAnsweredPods<'_> {
        OtherAnsweredPods { all: self, own: self.pods.get(pod) }
    }

    /// Whether pods most likely are on their way to a node.
    pub fn is_expected(&self, place: usize) -> bool {
        self.likely.get(place).is_some_and(|load| load.pods > 0)
    }

    /// The most likely nodes of the other pods of a controller.
    pub fn siblings<'a>(&'a self, controller: &'a Uid, pod: &'a Uid) -> impl Iterator<Item = usize> + 'a {
        let others =
            self.pods.iter().filter(move |(uid, other)| *uid != pod && other.controller.as_ref() == Some(controller));
        others.filter_map(|(_, other)| other.likely)
    }

    /// Pods that the scheduler was allowed to preempt for this pod.
    pub fn preempted_for(&self, pod: &Uid) -> &[PreemptedPod] {
        self.pods.get(pod).map_or(&[], |answered| &answered.preempted)
    }

    /// Whether another pod was answered for shortly before `now`.
    pub fn is_burst(&self, pod: &Uid, now: Timestamp) -> bool {
        self.newest.iter().any(|(uid, at)| uid != pod && now.duration_since(*at).abs() <= BURST)
    }

    /// Namespaces of other pods that were answered for so recently that their bindings may not be in the cache.
    pub fn settling(&self, pod: &Uid, now: Timestamp) -> BTreeSet<String> {
        let others = self.pods.iter().filter(|(uid, other)| *uid != pod && other.likely.is_some());
        let settling = others.filter(|(_, other)| now.duration_since(other.at).abs() < SETTLING);
        settling.map(|(_, other)| other.key.namespace.clone()).collect()
    }

    /// Whether this answer was recorded for the pod a moment ago.
    pub fn is_recorded(&self, pod: &Uid, nodes: &NodeSet, likely: Option<usize>, now: Timestamp) -> bool {
        self.pods.get(pod).is_some_and(|old| {
            let likely = likely.or_else(|| nodes.places().next());
            old.nodes == *nodes && old.likely == likely && now.duration_since(old.at).abs() < BURST
        })
    }

    /// Records the nodes that an answer left open, instead of those of the previous answer. `likely` is the node on
    /// which the pod most likely is; None for the first of them. `cached` tells whether the pod is in the cache.
    pub fn record(&mut self, pod: &PlacedPod, nodes: NodeSet, likely: Option<usize>, cached: bool, now: Timestamp) {
        let likely = likely.or_else(|| nodes.places().next());
        if !can_exist(pod) {
            return;
        }
        if let Some(same) = self.pods.get_mut(&pod.uid).filter(|old| old.nodes == nodes && old.likely == likely) {
            same.at = now;
            return;
        }
        let preempted = self.remove(&pod.uid).map(|old| old.preempted).unwrap_or_default();
        if likely.is_none() && preempted.is_empty() {
            return;
        }
        if likely.is_some() {
            self.newest.retain(|(uid, _)| *uid != pod.uid);
            self.newest.insert(0, (pod.uid.clone(), now));
            self.newest.truncate(2);
        }
        self.insert(pod, AnsweredPod { nodes, likely, preempted, ..AnsweredPod::new(pod, cached, now) });
    }

    /// Records the pods that the scheduler may preempt for a pod. It counts on no node until the scheduler asks again.
    pub fn record_preempted(
        &mut self,
        pod: &PlacedPod,
        mut preempted: Vec<PreemptedPod>,
        cached: bool,
        now: Timestamp,
    ) {
        self.remove(&pod.uid);
        let others = self.pods.values().map(|pod| pod.preempted.len()).sum();
        preempted.truncate(MAX_PREEMPTED.saturating_sub(others).min(MAX_PREEMPTED / 8));
        if can_exist(pod) && !preempted.is_empty() {
            self.insert(pod, AnsweredPod { preempted, ..AnsweredPod::new(pod, cached, now) });
        }
    }

    fn insert(&mut self, pod: &PlacedPod, answered: AnsweredPod) {
        for place in answered.nodes.places() {
            change(&mut self.possible, place, |load| load + answered.load);
        }
        if let Some(place) = answered.likely {
            change(&mut self.likely, place, |load| load + answered.load);
        }
        self.pods.insert(pod.uid.clone(), answered);
        self.unchecked.insert(pod.uid.clone());
        self.version += 1;
    }

    fn remove(&mut self, pod: &Uid) -> Option<AnsweredPod> {
        let answered = self.pods.remove(pod)?;
        self.unchecked.remove(pod);
        for place in answered.nodes.places() {
            change(&mut self.possible, place, |load| load - answered.load);
        }
        if let Some(place) = answered.likely {
            change(&mut self.likely, place, |load| load - answered.load);
        }
        Some(answered)
    }

    /// Whether a pod can be forgotten, although the world is that of the last call of [`Self::forget_settled`].
    pub fn is_behind(&self, world: &World, now: Timestamp) -> bool {
        self.unchecked.iter().chain(self.late(now)).any(|uid| self.is_settled(uid, world, now))
    }

    /// Forgets the pods that are bound, finished or gone, and those whose time is over. `checked`: clock of the world
    /// at the last call. Without its log, each request about a pod would look up all pods of a burst.
    pub fn forget_settled(&mut self, world: &World, checked: u64, now: Timestamp) {
        let settled: Vec<Uid> = match world.settled_since(checked) {
            Some(changed) => changed.chain(&self.unchecked).chain(self.late(now)).cloned().collect(),
            None => self.pods.keys().cloned().collect(),
        };
        self.unchecked.clear();
        for uid in &settled {
            if self.is_settled(uid, world, now) {
                self.remove(uid);
            }
        }
    }

    fn is_settled(&self, uid: &Uid, world: &World, now: Timestamp) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.is_settled(uid, world, now))
    }

    /// Pods that may be forgotten without a change of the world.
    fn late(&self, now: Timestamp) -> impl Iterator<Item = &Uid> {
        self.pods.iter().filter(move |(_, pod)| pod.age(now) > WATCH_DELAY).map(|(uid, _)| uid)
    }

    /// Forgets all pods. Must be called when the indexes of nodes change.
    pub fn clear(&mut self) {
        *self = Self { version: self.version, ..Self::default() };
    }

    /// Number of pods.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there are no pods.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Namespace of each pod.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.pods.values().map(|pod| pod.key.namespace.as_str())
    }

    /// Forgets the oldest pod of a namespace.
    pub fn forget_oldest(&mut self, namespace: &str) {
        let pods = self.pods.iter().filter(|(_, pod)| pod.key.namespace == namespace);
        let oldest = pods.min_by_key(|(uid, pod)| (pod.at, *uid)).map(|(uid, _)| uid.clone());
        if let Some(uid) = oldest {
            self.remove(&uid);
        }
    }
}

/// The answered pods other than one, which is looked up only once.
#[derive(Clone, Copy, Debug)]
pub struct OtherAnsweredPods<'a> {
    all: &'a AnsweredPods,
    own: Option<&'a AnsweredPod>,
}

impl OtherAnsweredPods<'_> {
    /// Load of the pods that may be on a node.
    pub fn possible(&self, place: usize) -> ExpectedLoad {
        let load = self.all.possible.get(place).copied().unwrap_or_default();
        match self.own.filter(|own| own.nodes.contains(place)) {
            Some(own) => load - own.load,
            None => load,
        }
    }

    /// Load of the pods that most likely are on a node.
    pub fn likely(&self, place: usize) -> ExpectedLoad {
        let load = self.all.likely.get(place).copied().unwrap_or_default();
        match self.own.filter(|own| own.likely == Some(place)) {
            Some(own) => load - own.load,
            None => load,
        }
    }
}

/// Whether the names of a pod are short enough to be stored.
fn can_exist(pod: &PlacedPod) -> bool {
    let controller = pod.controller.as_ref().map_or("", |owner| owner.uid.as_str());
    [&pod.key.namespace, &pod.key.name, pod.uid.as_str(), controller].iter().all(|name| name.len() <= MAX_NAME)
}

/// Changes the load of a node.
fn change(loads: &mut Vec<ExpectedLoad>, place: usize, to: impl FnOnce(ExpectedLoad) -> ExpectedLoad) {
    if place >= loads.len() {
        loads.resize(place + 1, ExpectedLoad::default());
    }
    loads[place] = to(loads[place]);
}

impl AnsweredPod {
    fn new(pod: &PlacedPod, cached: bool, at: Timestamp) -> Self {
        Self {
            key: pod.key.clone(),
            controller: pod.controller.as_ref().map(|owner| owner.uid.clone()),
            load: ExpectedLoad::of(pod),
            at,
            cached,
            nodes: NodeSet::default(),
            likely: None,
            preempted: Vec::new(),
        }
    }

    fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.at).abs()
    }

    fn is_settled(&self, uid: &Uid, world: &World, now: Timestamp) -> bool {
        match waits(world, &self.key, uid) {
            Some(waits) => !waits || self.age(now) > BINDING,
            None => self.cached || self.age(now) > WATCH_DELAY || world.was_deleted(uid),
        }
    }
}
