//! Hashes of jobs, from which all pseudo-random choices are drawn.
//!
//! The hashes must never change: an operator version with different hashes would move nearly all jobs of every pool.

use siphasher::sip::SipHasher24;

use crate::Job;

/// A job without its name. Items are always in the order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub hash: u64,
    pub weight: u32,
}

impl Item {
    pub fn of(job: &Job) -> Self {
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
pub fn index(of: usize) -> u32 {
    of as u32
}
