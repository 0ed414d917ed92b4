//! Maps slots to workers: moves the jobs of slots without a worker to existing workers, and no other jobs.
//!
//! A slot has no worker if its worker was lost, is drained, or has a dedicated job.

use super::item::{index, mix};

/// Number of slots that a job of a missing slot draws before it tries one worker after the other.
const DRAWS: u64 = 16;

/// Maximum number of slots that the chain assigns jobs to. Workers of further slots take jobs from workers with too
/// many.
const MOST_SLOTS: usize = 1 << 14;

/// Value in `Present::at` for a slot without a worker.
const MISSING: u32 = u32::MAX;

/// Existing workers, by slot.
#[derive(Debug)]
pub struct Present<'a> {
    /// Slot of each worker, ascending.
    workers: &'a [u32],
    /// Index of the worker of each slot, or [`MISSING`].
    at: Vec<u32>,
}

impl<'a> Present<'a> {
    /// Requires at least one worker. The number of slots reaches to the last worker, but does not exceed the number of
    /// jobs.
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

    /// Number of slots that the chain assigns jobs to.
    pub fn slots(&self) -> u32 {
        index(self.at.len())
    }

    fn worker(&self, slot: u32) -> Option<u32> {
        self.at.get(slot as usize).copied().filter(|worker| *worker != MISSING)
    }
}

/// Returns the worker of each job, given the slot of each job. The sizes of slots must differ by at most one job; the
/// sizes of workers then do, too.
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

/// Number of jobs that each worker has and may have.
struct Rooms<'a> {
    present: &'a Present<'a>,
    sizes: Vec<u32>,
    floor: u32,
    /// Number of workers that may still exceed `floor` by one.
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

    /// Draws slots until the worker of one has room; after [`DRAWS`] attempts, returns the next worker with room.
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

/// Maps a hash to a slot. If one slot is added, a hash keeps its slot or moves to the new one.
fn nested(hash: u64, slots: u32) -> u32 {
    let mask = slots.max(1).next_power_of_two() - 1;
    let slot = (hash >> 32) as u32 & mask;
    if slot < slots { slot } else { slot & mask >> 1 }
}
