//! The records of all nodes, and the demand learned from created pods. A refresh applies the changes since the previous
//! one.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::memory::SavedMemory;
use super::pigeon::demand::SMOOTHING;
use super::pigeon::{LearnedDemand, PigeonNode, Row};
use super::record::{NodeRecord, RESOURCES};
use crate::world::{PlacementWorld, wants_place};
use ganglion_core::facts::{Key, NodeFact, PodFact, Requests};
use ganglion_core::world::World;

/// Maximum number of existing pods, the newest ones, from which the demand of a new scheduler is learned. Older pods
/// hardly count: the weight of a demand is at most a hundredth once many have been learned, and shrinks with each later
/// one.
const REPLAYED: usize = 1000;

/// Maximum number of schedulers for which demand is learned. For other schedulers, each pod is handled as the first
/// one.
const MAX_SCHEDULERS: usize = 256;

/// Records of all nodes, with learned demand.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    clock: u64,
    records: Vec<Option<NodeRecord>>,
    /// Data that `pigeon` reads of every node for every pod, at the same index as in `records`. Free indexes hold a row
    /// that does not count.
    rows: Vec<PigeonNode>,
    places: HashMap<String, usize, RandomState>,
    free: Vec<usize>,
    /// Learned demand, by scheduler name; columns by [`RESOURCES`].
    learned: HashMap<String, LearnedDemand>,
    /// Demand restored from a previous process and the time of its save, by scheduler name.
    saved: HashMap<String, (Timestamp, LearnedDemand)>,
}

/// Converts the requests of a pod to its demand, by [`RESOURCES`].
pub fn demand(requests: Requests) -> Row {
    let Requests { cpu, memory, gpu, storage } = requests;
    let mut row = [cpu, memory, 1, gpu, storage].map(|amount| amount as f64);
    row.iter_mut().zip(RESOURCES).for_each(|(amount, resource)| *amount = resource.demand(*amount));
    row
}

impl Inventory {
    /// Restores saved demand for schedulers whose demand has not been learned yet. If several saves contain the same
    /// scheduler, the latest save wins.
    pub fn restore(&mut self, saved: &SavedMemory) {
        for (scheduler, demand) in &saved.demand {
            if self.saved.get(scheduler).is_none_or(|(at, _)| *at < saved.saved_at) {
                self.saved.insert(scheduler.clone(), (saved.saved_at, *demand));
            }
        }
    }

    /// Whether the world has changed since the last refresh.
    pub fn is_behind(&self, world: &World) -> bool {
        self.clock != world.placement_clock() || self.unlearned(world).next().is_some()
    }

    /// Applies all changes of the world since the last refresh.
    pub fn refresh(&mut self, world: &World) {
        match world.nodes_changed_since(self.clock).filter(|_| self.clock > 0) {
            Some(changed) => changed.for_each(|name| self.update(world, name)),
            None => self.rebuild(world),
        }
        for arrival in world.arrivals_since(self.clock) {
            if let Some(learned) = self.learned.get_mut(&arrival.scheduler) {
                learned.learn(&demand(arrival.requests), SMOOTHING);
            }
        }
        self.clock = world.placement_clock();
        let new: BTreeSet<String> = self.unlearned(world).map(str::to_owned).collect();
        for scheduler in new.into_iter().take(MAX_SCHEDULERS.saturating_sub(self.learned.len())) {
            let learned = replay(world, &scheduler, self.saved.remove(&scheduler));
            self.learned.insert(scheduler, learned);
        }
    }

    /// Schedulers named by policies whose demand has not been learned yet; none once [`MAX_SCHEDULERS`] is reached.
    fn unlearned<'w>(&'w self, world: &'w World) -> impl Iterator<Item = &'w str> {
        let policies = world.policies().filter(|_| self.learned.len() < MAX_SCHEDULERS);
        let named = policies.flat_map(|policy| policy.spec.schedulers());
        named.filter(|scheduler| !self.learned.contains_key(*scheduler))
    }

    fn rebuild(&mut self, world: &World) {
        self.records.clear();
        self.rows.clear();
        self.places.clear();
        self.free.clear();
        for node in world.nodes() {
            self.update(world, &node.id.key.name);
        }
    }

    fn update(&mut self, world: &World, name: &str) {
        let record = world.table::<NodeFact>().get(&Key::new("", name)).map(|node| NodeRecord::of(world, node));
        let known = self.places.get(name).copied();
        if record.is_none() && known.is_none() {
            return;
        }
        let place = known.or_else(|| self.free.pop()).unwrap_or(self.records.len());
        if place == self.records.len() {
            self.records.push(None);
            self.rows.push(PigeonNode::default());
        }
        if record.is_none() {
            self.places.remove(name);
            self.free.push(place);
        } else if known.is_none() {
            self.places.insert(name.to_owned(), place);
        }
        self.rows[place] = record.as_ref().map(|record| record.row).unwrap_or_default();
        self.records[place] = record;
    }

    /// Records of all nodes, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.iter().flatten()
    }

    /// Allocatable and requested amounts of all nodes, in no particular order. Rows of free indexes have `counted:
    /// false`.
    pub fn rows(&self) -> &[PigeonNode] {
        &self.rows
    }

    /// The record of a node; None if the node is not (yet) in the cache.
    pub fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.records.get(*self.places.get(name)?)?.as_ref()
    }

    /// Adds pods that have been on their way to the node since this time; see [`NodeRecord::add`].
    pub fn add(&mut self, name: &str, pods: i64, requests: Requests, cores: i64, since: Timestamp) {
        let Some(place) = self.places.get(name).copied() else { return };
        if let (Some(Some(record)), Some(row)) = (self.records.get_mut(place), self.rows.get_mut(place)) {
            record.add(pods, requests, cores, since);
            *row = record.row;
        }
    }

    /// Learned demand of the pods of a scheduler, including one more pod with these requests.
    pub fn learned_with(&self, scheduler: &str, requests: Requests) -> LearnedDemand {
        let mut learned = self.learned(scheduler);
        learned.learn(&demand(requests), SMOOTHING);
        learned
    }

    /// Learned demand of the pods of a scheduler.
    pub fn learned(&self, scheduler: &str) -> LearnedDemand {
        self.learned.get(scheduler).copied().unwrap_or_default()
    }
}

/// Learns the demand of a scheduler from its existing pods. If saved demand exists, only pods created after the save
/// are added to it.
fn replay(world: &World, scheduler: &str, saved: Option<(Timestamp, LearnedDemand)>) -> LearnedDemand {
    let (since, mut learned) = saved.unwrap_or((Timestamp::MIN, LearnedDemand::default()));
    let ours =
        world.all::<PodFact>().filter(|pod| pod.scheduler == scheduler && wants_place(pod) && pod.created > since);
    let mut pods: Vec<&PodFact> = ours.collect();
    pods.sort_by(|one, other| (one.created, &one.id.uid).cmp(&(other.created, &other.id.uid)));
    let first = pods.len().saturating_sub(REPLAYED);
    for pod in pods.iter().skip(first) {
        learned.learn(&demand(pod.hold.requests), SMOOTHING);
    }
    learned
}
