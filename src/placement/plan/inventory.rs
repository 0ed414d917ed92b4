//! All nodes as agents know them, kept up to date by the changes since it was last refreshed; and the demand of pods that was
//! learned from those that arrived.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::memory::SavedMemory;
use super::pigeon::demand::SMOOTHING;
use super::pigeon::{LearnedDemand, PigeonNode, Row};
use super::record::{NodeRecord, RESOURCES};
use ganglion_core::facts::{PodFact, Requests};
use ganglion_core::world::{World, wants_place};

/// From how many pods, the last made first, the demand of a scheduler is learned that was not known before. More hardly count: a
/// demand's weight is a hundredth when it arrives, and falls.
const REPLAYED: usize = 1000;

/// For how many schedulers demand is learned. For the pods of others, every pod is the first.
const MAX_SCHEDULERS: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    clock: u64,
    records: Vec<Option<NodeRecord>>,
    /// What `pigeon` reads of every node for every pod, in the places of the records; of no node, none that counts.
    rows: Vec<PigeonNode>,
    places: HashMap<String, usize, RandomState>,
    free: Vec<usize>,
    /// By the name of the scheduler; columns by [`RESOURCES`].
    learned: HashMap<String, LearnedDemand>,
    /// What was learned before this process began, and when it was saved.
    saved: HashMap<String, (Timestamp, LearnedDemand)>,
}

/// The demand of a pod, by [`RESOURCES`].
#[must_use]
pub fn demand(requests: Requests) -> Row {
    let Requests { cpu, memory, gpu, storage } = requests;
    let mut row = [cpu, memory, 1, gpu, storage].map(|amount| amount as f64);
    row.iter_mut().zip(RESOURCES).for_each(|(amount, resource)| *amount = resource.demand(*amount));
    row
}

impl Inventory {
    /// Begins with the demand that was saved, for schedulers of which none was learned yet. Where several were saved for one
    /// scheduler, the last counts.
    pub fn restore(&mut self, saved: &SavedMemory) {
        for (scheduler, demand) in &saved.demand {
            if self.saved.get(scheduler).is_none_or(|(at, _)| *at < saved.saved_at) {
                self.saved.insert(scheduler.clone(), (saved.saved_at, *demand));
            }
        }
    }

    /// Whether the world has changed since the last refresh.
    #[must_use]
    pub fn is_behind(&self, world: &World) -> bool {
        self.clock != world.placement_clock() || self.unlearned(world).next().is_some()
    }

    /// Takes in what has changed since the last refresh.
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

    /// The schedulers of policies of which no demand was learned yet; none once there is no room for more.
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
        let record = world.shared_node(name).map(|node| NodeRecord::of(world, node));
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

    /// Every node, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.iter().flatten()
    }

    /// What nodes have and what of it is requested, in no order. Those of no node do not count.
    #[must_use]
    pub fn rows(&self) -> &[PigeonNode] {
        &self.rows
    }

    /// A node; None if it is not known (yet).
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.records.get(*self.places.get(name)?)?.as_ref()
    }

    /// Counts pods for a node that are on their way to it since this time; see [`NodeRecord::add`].
    pub fn add(&mut self, name: &str, pods: i64, requests: Requests, cores: i64, since: Timestamp) {
        let Some(place) = self.places.get(name).copied() else { return };
        if let (Some(Some(record)), Some(row)) = (self.records.get_mut(place), self.rows.get_mut(place)) {
            record.add(pods, requests, cores, since);
            *row = record.row;
        }
    }

    /// The demand of the pods of a scheduler, with one more that requests this.
    #[must_use]
    pub fn learned_with(&self, scheduler: &str, requests: Requests) -> LearnedDemand {
        let mut learned = self.learned(scheduler);
        learned.learn(&demand(requests), SMOOTHING);
        learned
    }

    /// The demand of the pods of a scheduler.
    #[must_use]
    pub fn learned(&self, scheduler: &str) -> LearnedDemand {
        self.learned.get(scheduler).copied().unwrap_or_default()
    }
}

/// The demand of the pods of a scheduler that there are; where it was saved, with those that were made later.
fn replay(world: &World, scheduler: &str, saved: Option<(Timestamp, LearnedDemand)>) -> LearnedDemand {
    let (since, mut learned) = saved.unwrap_or((Timestamp::MIN, LearnedDemand::default()));
    let ours = world.pods().filter(|pod| pod.scheduler == scheduler && wants_place(pod) && pod.created > since);
    let mut pods: Vec<&PodFact> = ours.collect();
    pods.sort_by(|one, other| (one.created, &one.id.uid).cmp(&(other.created, &other.id.uid)));
    let first = pods.len().saturating_sub(REPLAYED);
    for pod in pods.iter().skip(first) {
        learned.learn(&demand(pod.hold.requests), SMOOTHING);
    }
    learned
}
