//! Jobs as hashes and weights, and the functions that keep the loads of workers within their limits.
//!
//! All pseudo-random choices are drawn from the hashes. These must never change: an operator version with different
//! hashes would move nearly all jobs of every pool.

use std::collections::BTreeSet;

use siphasher::sip::SipHasher24;

use crate::Job;

/// A job without its name. Items are always in the order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedJob {
    pub hash: u64,
    pub weight: u32,
}

impl HashedJob {
    pub fn new(job: &Job) -> Self {
        Self { hash: hash(&job.name), weight: job.weight }
    }
}

/// SipHash-2-4 with an all-zero key.
pub fn hash(name: &str) -> u64 {
    SipHasher24::new().hash(name.as_bytes())
}

/// Derives a different hash for each salt, with the output function of SplitMix64.
pub fn mix(hash: u64, salt: u64) -> u64 {
    let mut mixed = hash.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Converts an index or a count to 32 bits, which hold any number of jobs or workers.
#[expect(clippy::cast_possible_truncation, reason = "memory ends earlier")]
pub fn index(count: usize) -> u32 {
    count as u32
}

/// Sort key of a worker: its load, then the hash of its slot, then its index.
type LoadRank = (u64, u64, u32);

/// Sort key of a job of a worker: weight, then hash, then index, which is the order of names.
type JobRank = (u32, u64, u32);

/// Loads of all workers, by index.
pub fn loads(items: &[HashedJob], workers: &[u32], owner: &[u32]) -> Vec<u64> {
    let mut loads = vec![0; workers.len()];
    for (item, worker) in items.iter().zip(owner) {
        loads[*worker as usize] += u64::from(item.weight);
    }
    loads
}

/// Sort key of a worker with this load.
pub fn load_rank(worker: u32, load: u64, workers: &[u32]) -> LoadRank {
    (load, mix(workers[worker as usize].into(), 0), worker)
}

/// Moves jobs from the most to the least loaded worker, until their loads differ by at most the largest weight. This
/// ends, because each move brings the two loads closer to each other.
pub fn even_out(items: &[HashedJob], workers: &[u32], owner: &mut [u32]) {
    let allowed = items.iter().map(|item| item.weight).max().unwrap_or(0).into();
    let loads = loads(items, workers, owner);
    let mut order: BTreeSet<LoadRank> =
        (0..).zip(&loads).map(|(worker, load)| load_rank(worker, *load, workers)).collect();
    let mut jobs = None;
    while let (Some(&least), Some(&most)) = (order.first(), order.last()) {
        let difference = most.0 - least.0;
        if difference <= allowed {
            return;
        }
        let jobs = jobs.get_or_insert_with(|| jobs_by_worker(items, workers, owner));
        let Some(moved) = best_move(&jobs[most.2 as usize], difference) else { return };
        jobs[most.2 as usize].remove(&moved);
        jobs[least.2 as usize].insert(moved);
        owner[moved.2 as usize] = least.2;
        for (old, load) in [(least, least.0 + u64::from(moved.0)), (most, most.0 - u64::from(moved.0))] {
            order.remove(&old);
            order.insert(load_rank(old.2, load, workers));
        }
    }
}

fn jobs_by_worker(items: &[HashedJob], workers: &[u32], owner: &[u32]) -> Vec<BTreeSet<JobRank>> {
    let mut jobs = vec![Vec::new(); workers.len()];
    for (job, (item, worker)) in items.iter().zip(owner).enumerate() {
        jobs[*worker as usize].push((item.weight, item.hash, index(job)));
    }
    jobs.into_iter().map(BTreeSet::from_iter).collect()
}

/// The job whose move makes the difference smallest: its weight is about half of the difference. All weights must be
/// smaller than the difference.
fn best_move(jobs: &BTreeSet<JobRank>, difference: u64) -> Option<JobRank> {
    let half = u32::try_from(difference / 2).unwrap_or(u32::MAX);
    let first_of = |weight: u32| jobs.range((weight, 0, 0)..).next().copied();
    let below = jobs.range(..=(half, u64::MAX, u32::MAX)).next_back().filter(|rank| rank.0 > 0);
    let below = below.and_then(|rank| first_of(rank.0));
    let above = half.checked_add(1).and_then(first_of);
    let leaves = |rank: &JobRank| difference.abs_diff(2 * u64::from(rank.0));
    below.into_iter().chain(above).min_by_key(leaves)
}

/// Splits jobs into `room` jobs with the lowest hashes, in the order of names, and the rest.
pub fn split_by_hash(items: &[HashedJob], mut jobs: Vec<u32>, room: usize) -> (Vec<u32>, Vec<u32>) {
    if jobs.len() <= room {
        return (jobs, Vec::new());
    }
    jobs.select_nth_unstable_by_key(room, |job| (items[*job as usize].hash, *job));
    let rest = jobs.split_off(room);
    jobs.sort_unstable();
    (jobs, rest)
}

/// Moves the jobs with the highest hashes from workers above the maximum to the least loaded workers below it.
pub fn enforce_limit(items: &[HashedJob], workers: &[u32], max_jobs: usize, owner: &mut [u32]) {
    let mut counts = vec![0_usize; workers.len()];
    for worker in &*owner {
        counts[*worker as usize] += 1;
    }
    if counts.iter().all(|count| *count <= max_jobs) {
        return;
    }
    let mut loads = loads(items, workers, owner);
    let mut jobs: Vec<u32> = (0..index(items.len())).collect();
    jobs.sort_unstable_by_key(|job| (items[*job as usize].hash, *job));
    let mut dropped = Vec::new();
    for job in jobs.into_iter().rev() {
        let (item, worker) = (items[job as usize], owner[job as usize] as usize);
        if counts[worker] > max_jobs {
            counts[worker] -= 1;
            loads[worker] -= u64::from(item.weight);
            dropped.push(job);
        }
    }
    let free = (0..index(workers.len())).filter(|worker| counts[*worker as usize] < max_jobs);
    let mut free: BTreeSet<_> = free.map(|worker| load_rank(worker, loads[worker as usize], workers)).collect();
    for job in dropped.into_iter().rev() {
        let Some((load, _, worker)) = free.pop_first() else { return };
        owner[job as usize] = worker;
        counts[worker as usize] += 1;
        if counts[worker as usize] < max_jobs {
            free.insert(load_rank(worker, load + u64::from(items[job as usize].weight), workers));
        }
    }
}
