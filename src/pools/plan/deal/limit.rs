//! Enforces the maximum number of jobs per worker.

use std::collections::BTreeSet;

use super::even::{loads, place};
use super::item::{Item, index};

/// Splits jobs into `room` jobs with the lowest hashes, in the order of names, and the rest.
pub fn cut(items: &[Item], mut jobs: Vec<u32>, room: usize) -> (Vec<u32>, Vec<u32>) {
    if jobs.len() <= room {
        return (jobs, Vec::new());
    }
    jobs.select_nth_unstable_by_key(room, |job| (items[*job as usize].hash, *job));
    let rest = jobs.split_off(room);
    jobs.sort_unstable();
    (jobs, rest)
}

/// Moves the jobs with the highest hashes from workers above the maximum to the least loaded workers below it.
pub fn limit(items: &[Item], workers: &[u32], max_jobs: usize, owner: &mut [u32]) {
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
    let mut free: BTreeSet<_> = free.map(|worker| place(worker, loads[worker as usize], workers)).collect();
    for job in dropped.into_iter().rev() {
        let Some((load, _, worker)) = free.pop_first() else { return };
        owner[job as usize] = worker;
        counts[worker as usize] += 1;
        if counts[worker as usize] < max_jobs {
            free.insert(place(worker, load + u64::from(items[job as usize].weight), workers));
        }
    }
}
