//! Memory for the jobs of a pool.
//!
//! A megabyte of text can list hundreds of thousands of jobs, each of which occupies many times its text.

use super::Job;

/// Memory of a job besides its name, in bytes: in the table of its source and of the pool, in the desired and the
/// published lists, and while they are merged.
const JOB: usize = 480;

/// Estimate of the memory that jobs occupy, in bytes.
pub fn bytes(jobs: &[Job]) -> usize {
    let names = jobs.iter().map(|job| job.name.len()).fold(0, usize::saturating_add);
    jobs.len().saturating_mul(JOB).saturating_add(names)
}

/// Memory for the jobs of the pools of one namespace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRoom {
    /// Bytes that the namespace may add.
    pub free: usize,
    /// Maximum bytes of the namespace.
    pub per_namespace: usize,
}
