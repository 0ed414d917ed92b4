//! All nodes as agents know them, kept up to date by the changes since it was last refreshed; and the demand of pods that was
//! learned from those that arrived.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::pigeon::demand::SMOOTHING;
use super::pigeon::{LearnedDemand, Row};
use super::record::{NodeRecord, RESOURCES};
use crate::logic::facts::{PodFact, Requests};
use crate::logic::world::{World, wants_place};

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
    places: HashMap<String, usize>,
    free: Vec<usize>,
    /// By the name of the scheduler; columns by [`RESOURCES`].
    learned: HashMap<String, LearnedDemand>,
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
            let learned = replay(world, &scheduler);
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
        self.places.clear();
        self.free.clear();
        for node in world.nodes() {
            self.update(world, &node.id.key.name);
        }
    }

    fn update(&mut self, world: &World, name: &str) {
        let record = world.shared_node(name).map(|node| NodeRecord::of(world, node));
        match (record, self.places.get(name).copied()) {
            (Some(record), Some(place)) => self.records[place] = Some(record),
            (Some(record), None) => {
                let place = self.free.pop().unwrap_or(self.records.len());
                if place == self.records.len() {
                    self.records.push(None);
                }
                self.records[place] = Some(record);
                self.places.insert(name.to_owned(), place);
            }
            (None, Some(place)) => {
                self.records[place] = None;
                self.places.remove(name);
                self.free.push(place);
            }
            (None, None) => {}
        }
    }

    /// Every node, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.iter().flatten()
    }

    /// A node; None if it is not known (yet).
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.records.get(*self.places.get(name)?)?.as_ref()
    }

    /// Counts pods for a node that are on their way to it since this time.
    pub fn add(&mut self, name: &str, pods: i64, requests: Requests, since: Timestamp) {
        let place = self.places.get(name).and_then(|place| self.records.get_mut(*place));
        if let Some(record) = place.and_then(Option::as_mut) {
            record.add(pods, requests, since);
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

/// The demand of the pods of a scheduler that there are.
fn replay(world: &World, scheduler: &str) -> LearnedDemand {
    let ours = world.pods().filter(|pod| pod.scheduler == scheduler && wants_place(pod));
    let mut pods: Vec<&PodFact> = ours.collect();
    pods.sort_by(|one, other| (one.created, &one.id.uid).cmp(&(other.created, &other.id.uid)));
    let mut learned = LearnedDemand::default();
    let first = pods.len().saturating_sub(REPLAYED);
    for pod in pods.iter().skip(first) {
        learned.learn(&demand(pod.hold.requests), SMOOTHING);
    }
    learned
}
