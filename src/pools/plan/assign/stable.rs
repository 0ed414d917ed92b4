//! The strategy Stable for jobs of equal weight: few jobs move when workers or jobs are added or removed.
//!
//! Jobs are assigned to slots 0, 1, 2, … as if the slots had been added one by one.
//!
//! Step k adds slot k to the k existing slots. The new slot takes jobs from each of them, until all sizes differ by at
//! most one. Each step orders the jobs differently, and that order decides which jobs move:
//!
//! - A job is a candidate in a fixed, pseudo-random sequence of steps: in step k with probability 2 / (k + 1). In each
//!   step, twice as many jobs are candidates as are taken.
//! - Step k orders jobs by their next candidate step (k or later), then by the hash of job and step, then by name.
//! - A slot that must give n jobs gives its first n. If only some slots must give one more, the slots whose next job
//!   comes first in the order give it.
//!
//! Therefore the assignment to n + 1 slots differs from that to n slots only by the jobs that the last slot takes, and
//! adding or removing a job changes little in each step. Jobs are bucketed by their next candidate step: a step costs
//! about as many operations as it has candidates, and all steps together cost about 2 J ln(n) if slots have some
//! hundreds of jobs.
//!
//! # Slots without a worker
//!
//! A slot has no worker if its worker was lost, is drained, or has a dedicated job. Its jobs, and no other jobs, move
//! to existing workers.

use super::hashed::{HashedJob, index, mix};

/// Returns the worker of each job. There must be at least one worker, and all weights must be equal.
pub fn assign(items: &[HashedJob], workers: &[u32]) -> Vec<u32> {
    let present = Present::new(workers, items.len());
    let weight = items.first().map_or(1, |item| item.weight);
    let hashes: Vec<u64> = items.iter().map(|item| mix(item.hash, weight.into())).collect();
    // The weight enters the hashes for the sake of existing pools, which must not change.
    let new_slot = if weight == 1 { NewSlotSize::Least } else { NewSlotSize::Drawn(mix(weight.into(), 0)) };
    move_to_workers(assign_to_slots(&hashes, present.slots(), new_slot), &hashes, &present)
}

/// Number of jobs that a new slot takes if the number of jobs is no multiple of the number of slots.
#[derive(Clone, Copy, Debug)]
pub enum NewSlotSize {
    /// The smaller number. Adding a slot moves exactly the minimum number of jobs, and the first slots have one job
    /// more.
    Least,
    /// The smaller or the larger number, drawn from this hash.
    Drawn(u64),
}

/// Returns the slot of each job. Jobs are given as hashes in the order of their names. There must be at least one slot.
pub fn assign_to_slots(hashes: &[u64], slots: u32, new_slot: NewSlotSize) -> Vec<u32> {
    let mut chain = Chain::new(hashes, slots);
    for step in 1..slots {
        let taken = chain.jobs_to_take(step, new_slot);
        chain.move_jobs(step, taken);
        chain.redraw(step);
    }
    chain.owners()
}

/// A job in the bucket of its next candidate step.
#[derive(Clone, Copy, Debug)]
struct ChainJob {
    hash: u64,
    job: u32,
    owner: u32,
}

/// Number of jobs that the new slot of a step takes.
#[derive(Clone, Copy, Debug)]
struct JobsToTake {
    /// Smaller size after this step. Each slot has this number of jobs, or one more.
    floor: u32,
    /// Jobs to take from slots with more than `floor + 1` jobs.
    must: u32,
    /// Jobs to take from slots with `floor + 1` jobs, which could keep that number.
    may: u32,
}

impl JobsToTake {
    /// Minimum size of a slot that still has to give a job.
    fn least(self) -> u32 {
        if self.may > 0 { self.floor + 1 } else { self.floor + 2 }
    }
}

struct Chain {
    jobs: u32,
    sizes: Vec<u32>,
    /// Candidates by step. There are twice as many buckets as steps, so that a search for jobs usually ends within
    /// them.
    buckets: Vec<Vec<ChainJob>>,
    /// Candidates of later steps than there are buckets, with their step.
    later: Vec<(u32, ChainJob)>,
    /// Order within one bucket: half a hash, then the position in the bucket. A field only to reuse its allocation.
    order: Vec<u64>,
}

impl Chain {
    /// Starts with one slot that has all jobs. All jobs are candidates in step 1.
    fn new(hashes: &[u64], slots: u32) -> Self {
        let all = (0..).zip(hashes).map(|(job, hash)| ChainJob { hash: *hash, job, owner: 0 });
        let mut buckets = vec![Vec::new(); 2 * slots as usize];
        buckets[1].extend(all);
        let jobs = index(hashes.len());
        Self { jobs, sizes: vec![jobs], buckets, later: Vec::new(), order: Vec::new() }
    }

    fn jobs_to_take(&self, step: u32, new_slot: NewSlotSize) -> JobsToTake {
        let (before, more_before) = (self.jobs / step, self.jobs % step);
        let (floor, more) = (self.jobs / (step + 1), self.jobs % (step + 1));
        let size = match new_slot {
            NewSlotSize::Least => floor,
            NewSlotSize::Drawn(hash) => floor + u32::from(mix(hash, step.into()) % u64::from(step + 1) < more.into()),
        };
        // Jobs above `floor + 1`: first of the slots that had `before + 1` jobs, then of those that had `before`.
        let must = more_before * (before - floor) + (step - more_before) * before.saturating_sub(floor + 1);
        JobsToTake { floor, must, may: size - must }
    }

    /// Moves jobs to the new slot, in the order of this step.
    fn move_jobs(&mut self, step: u32, mut taken: JobsToTake) {
        self.sizes.push(0);
        for bucket in step as usize..=self.buckets.len() {
            if taken.must + taken.may == 0 {
                return;
            }
            self.sort(bucket, step, taken.least());
            for key in &self.order {
                let at = position(*key);
                let candidate = match self.buckets.get_mut(bucket) {
                    Some(bucket) => &mut bucket[at],
                    None => &mut self.later[at].1,
                };
                let size = &mut self.sizes[candidate.owner as usize];
                let kind = if *size > taken.floor + 1 { &mut taken.must } else { &mut taken.may };
                if *size > taken.floor && *kind > 0 {
                    (*size, *kind) = (*size - 1, *kind - 1);
                    candidate.owner = step;
                    self.sizes[step as usize] += 1;
                }
            }
        }
    }

    /// Sorts the candidates of a bucket whose slots have at least size `least`. The index behind the last bucket means
    /// `later`.
    fn sort(&mut self, bucket: usize, step: u32, least: u32) {
        let key = |(at, candidate): (u32, &ChainJob)| {
            // This also excludes the new slot: its size does not exceed `floor` before the step is done.
            let can_give = self.sizes[candidate.owner as usize] >= least;
            can_give.then(|| key(candidate.hash, step, at))
        };
        self.order.clear();
        if let Some(bucket) = self.buckets.get(bucket) {
            self.order.extend((0..).zip(bucket).filter_map(key));
            self.order.sort_unstable();
        } else {
            let later = self.later.iter().map(|(_, candidate)| candidate);
            self.order.extend((0..).zip(later).filter_map(key));
            self.order.sort_unstable_by_key(|key| (self.later[position(*key)].0, *key));
        }
    }

    /// Moves the candidates of this step to the buckets of their next candidate steps.
    fn redraw(&mut self, step: u32) {
        for candidate in std::mem::take(&mut self.buckets[step as usize]) {
            let next = next_candidate_step(candidate.hash, step);
            match self.buckets.get_mut(next as usize) {
                Some(bucket) => bucket.push(candidate),
                None => self.later.push((next, candidate)),
            }
        }
    }

    /// Returns the slot of each job.
    fn owners(self) -> Vec<u32> {
        let mut owners = vec![0; self.jobs as usize];
        let later = self.later.iter().map(|(_, candidate)| candidate);
        for candidate in self.buckets.iter().flatten().chain(later) {
            owners[candidate.job as usize] = candidate.owner;
        }
        owners
    }
}

/// Sort key of a candidate within one bucket: the upper half of its hash for this step, then its position. The order of
/// two positions does not depend on other jobs: the first came from an earlier step, or had the lower position there,
/// or has the lower name.
pub fn key(hash: u64, step: u32, at: u32) -> u64 {
    mix(hash, step.into()) >> 32 << 32 | u64::from(at)
}

fn position(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

/// Returns the candidate step after step k, drawn from the lower half of the hash for this step. It is later than m
/// with probability k (k + 1) / (m (m + 1)), which is the product of 1 - 2 / (i + 1) over all i from k + 1 to m.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
#[expect(clippy::cast_precision_loss, reason = "33 bits fit")]
pub fn next_candidate_step(hash: u64, step: u32) -> u32 {
    const HALF: f64 = (1_u64 << 32) as f64;
    let drawn = ((mix(hash, step.into()) & u64::from(u32::MAX)) + 1) as f64 / HALF;
    let step = f64::from(step);
    // The smallest m with m (m + 1) drawn > k (k + 1). Division and square root round identically on every machine.
    let root = ((4.0 * step * (step + 1.0) / drawn + 1.0).sqrt() - 1.0) / 2.0;
    (root as u32).saturating_add(1)
}

/// Number of slots that a job of a missing slot draws before it tries one worker after the other.
const DRAWS: u64 = 16;

/// Maximum number of slots that the chain assigns jobs to. Workers of further slots take jobs from workers with too
/// many.
const MOST_SLOTS: usize = 1 << 14;

/// Value in `Present::at` for a slot without a worker.
const MISSING: u32 = u32::MAX;

/// Existing workers, by slot.
#[derive(Debug)]
struct Present<'a> {
    /// Slot of each worker, ascending.
    workers: &'a [u32],
    /// Index of the worker of each slot, or [`MISSING`].
    at: Vec<u32>,
}

impl<'a> Present<'a> {
    /// Requires at least one worker. The number of slots reaches to the last worker, but does not exceed the number of
    /// jobs.
    fn new(workers: &'a [u32], jobs: usize) -> Self {
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
    fn slots(&self) -> u32 {
        index(self.at.len())
    }

    fn worker(&self, slot: u32) -> Option<u32> {
        self.at.get(slot as usize).copied().filter(|worker| *worker != MISSING)
    }
}

/// Returns the worker of each job, given the slot of each job. The sizes of slots must differ by at most one job; the
/// sizes of workers then do, too.
fn move_to_workers(mut owner: Vec<u32>, hashes: &[u64], present: &Present) -> Vec<u32> {
    let mut rooms = WorkerSizes::new(present, owner.len());
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
struct WorkerSizes<'a> {
    present: &'a Present<'a>,
    sizes: Vec<u32>,
    floor: u32,
    /// Number of workers that may still exceed `floor` by one.
    more: u32,
}

impl<'a> WorkerSizes<'a> {
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
