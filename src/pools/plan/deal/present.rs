//! From slots to workers: the jobs of slots that no worker has go to the workers that there are, and nobody else's move.
//!
//! Slots are missing where a worker was lost or drained, or works for a dedicated job.

use super::item::{index, mix};

/// How many slots a job of a missing slot draws before it looks at one worker after the other.
const DRAWS: u64 = 16;

/// The most slots that jobs are dealt over; jobs of further ones are taken from those that have too many.
const MOST_SLOTS: usize = 1 << 14;

/// In `Present::at`: no worker has this slot.
const MISSING: u32 = u32::MAX;

/// The workers, by their slots.
#[derive(Debug)]
pub struct Present<'a> {
    /// Slots, in order.
    workers: &'a [u32],
    /// Index of the worker of each slot that jobs are dealt over.
    at: Vec<u32>,
}

impl<'a> Present<'a> {
    /// At least one worker. There are as many slots as the last worker needs; as many as jobs are enough.
    pub fn new(workers: &'a [u32], jobs: usize) -> Self {
        let last = workers.iter().max().map_or(0, |last| *last as usize);
        let mut at = vec![MISSING; last.min(jobs.saturating_sub(1)).min(MOST_SLOTS - 1) + 1];
        for (worker, slot) in workers.iter().enumerate() {
            if let Some(at) = at.get_mut(*slot as usize) {
                *at = index(worker);
            }
        }
        Self { workers, at }
    }

    /// How many slots jobs are dealt over.
    pub fn slots(&self) -> u32 {
        index(self.at.len())
    }

    fn worker(&self, slot: u32) -> Option<u32> {
        self.at.get(slot as usize).copied().filter(|worker| *worker != MISSING)
    }
}

/// The worker of each job, given the slot of each. Slots differ by at most one job, and so do the workers afterwards.
pub fn settle(mut owner: Vec<u32>, hashes: &[u64], present: &Present) -> Vec<u32> {
    let mut rooms = Rooms::new(present, owner.len());
    let mut homeless = Vec::new();
    for (job, owner) in owner.iter_mut().enumerate() {
        match present.worker(*owner).filter(|worker| rooms.has_room(*worker)) {
            Some(worker) => {
                rooms.add(worker);
                *owner = worker;
            }
            None => homeless.push(job),
        }
    }
    homeless.sort_unstable_by_key(|job| (hashes[*job], *job));
    for job in homeless {
        let worker = rooms.find(hashes[job]);
        rooms.add(worker);
        owner[job] = worker;
    }
    owner
}

/// How many jobs each worker has, and may have.
struct Rooms<'a> {
    present: &'a Present<'a>,
    sizes: Vec<u32>,
    floor: u32,
    /// How many more workers may have one more than `floor`.
    more: u32,
}

impl<'a> Rooms<'a> {
    fn new(present: &'a Present, jobs: usize) -> Self {
        let workers = present.workers.len().max(1);
        Self { present, sizes: vec![0; workers], floor: index(jobs / workers), more: index(jobs % workers) }
    }

    fn add(&mut self, worker: u32) {
        let size = &mut self.sizes[worker as usize];
        if *size >= self.floor {
            self.more = self.more.saturating_sub(1);
        }
        *size += 1;
    }

    fn has_room(&self, worker: u32) -> bool {
        let size = self.sizes[worker as usize];
        size < self.floor || size == self.floor && self.more > 0
    }

    /// The first slot drawn whose worker has room; else the next worker that has.
    fn find(&self, hash: u64) -> u32 {
        let mut slot = 0;
        for draw in 0..DRAWS {
            slot = nested(mix(hash, u64::MAX - draw), self.present.slots());
            if let Some(worker) = self.present.worker(slot).filter(|worker| self.has_room(*worker)) {
                return worker;
            }
        }
        let workers = index(self.present.workers.len());
        let first = index(self.present.workers.partition_point(|worker| *worker < slot));
        (first..workers).chain(0..first).find(|worker| self.has_room(*worker)).unwrap_or_default()
    }
}

/// A slot for a hash. With one slot more, a hash stays where it is or goes to that one.
fn nested(hash: u64, slots: u32) -> u32 {
    let mask = slots.max(1).next_power_of_two() - 1;
    let slot = (hash >> 32) as u32 & mask;
    if slot < slots { slot } else { slot & mask >> 1 }
}
