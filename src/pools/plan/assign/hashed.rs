//! Jobs as hashes and weights, and loads of workers.
//!
//! All pseudo-random choices are drawn from the hashes. These must never change: an operator version with different
//! hashes would move nearly all jobs of every pool.

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
pub type LoadRank = (u64, u64, u32);

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
