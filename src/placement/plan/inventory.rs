//! The records of all nodes, the pods on their way to them, and the demand learned from created pods. A refresh applies
//! the changes since the previous one.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::answered::AnsweredPods;
use super::learned::DemandLearner;
use super::pigeon::PigeonNode;
use super::record::NodeRecord;
use crate::world::PlacementWorld;
use ganglion_core::facts::{Key, NodeFact, NodeName, Requests};
use ganglion_core::world::World;

/// Records of all nodes, with learned demand.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    clock: u64,
    records: Vec<Option<NodeRecord>>,
    /// Data that `pigeon` reads of every node for every pod, at the same index as in `records`. Free indexes hold a row
    /// that does not count.
    rows: Vec<PigeonNode>,
    places: HashMap<NodeName, usize, RandomState>,
    free: Vec<usize>,
    pub answered: AnsweredPods,
    pub learned: DemandLearner,
}

impl Inventory {
    /// Whether the world has changed since the last refresh, or the time of an answered pod is over.
    pub fn is_behind(&self, world: &World, now: Timestamp) -> bool {
        self.clock != world.placement_clock() || self.learned.is_behind(world) || self.answered.is_behind(world, now)
    }

    /// Applies all changes of the world since the last refresh.
    pub fn refresh(&mut self, world: &World, now: Timestamp) {
        match world.nodes_changed_since(self.clock).filter(|_| self.clock > 0) {
            Some(changed) => changed.for_each(|name| self.update(world, name)),
            None => self.rebuild(world),
        }
        self.learned.follow(world, self.clock);
        // A pod stops being on its way in the same step in which its node's record includes it.
        self.answered.forget_settled(world, self.clock, now);
        self.clock = world.placement_clock();
    }

    fn rebuild(&mut self, world: &World) {
        self.records.clear();
        self.rows.clear();
        self.places.clear();
        self.free.clear();
        self.answered.clear();
        for node in world.nodes() {
            self.update(world, &node.name());
        }
    }

    fn update(&mut self, world: &World, name: &NodeName) {
        let mut record =
            world.table::<NodeFact>().get(&Key::new("", name.as_str())).map(|node| NodeRecord::from_world(world, node));
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
        if let Some(record) = &mut record {
            record.place = place;
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

    /// The record at an index.
    pub fn at(&self, place: usize) -> Option<&NodeRecord> {
        self.records.get(place)?.as_ref()
    }

    /// Adds pods that have been on their way to the node since this time; see [`NodeRecord::add`].
    pub fn add(&mut self, name: &NodeName, pods: i64, requests: Requests, cores: i64, since: Timestamp) {
        let Some(place) = self.places.get(name).copied() else { return };
        if let (Some(Some(record)), Some(row)) = (self.records.get_mut(place), self.rows.get_mut(place)) {
            record.add(pods, requests, cores, since);
            *row = record.row;
        }
    }
}
