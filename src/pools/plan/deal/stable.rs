//! The strategy Stable: few jobs move when workers or jobs are added or removed.
//!
//! Jobs of each weight are assigned separately, so that the number of them per worker differs by at most one. The
//! differences of all weights may add up, so the loads are balanced afterwards.

use super::chain::{self, Newcomer};
use super::even::even_out;
use super::item::{Item, index, mix};
use super::limit::limit;
use super::present::{Present, settle};

/// Returns the worker of each job. There must be at least one worker, and room for all jobs.
pub fn deal(items: &[Item], workers: &[u32], max_jobs: usize) -> Vec<u32> {
    let present = Present::new(workers, items.len());
    let mut jobs: Vec<u32> = (0..index(items.len())).collect();
    jobs.sort_by_key(|job| items[*job as usize].weight);
    let mut owner = vec![0; items.len()];
    for class in jobs.chunk_by(|a, b| items[*a as usize].weight == items[*b as usize].weight) {
        let weight = items[class[0] as usize].weight;
        let hashes: Vec<u64> = class.iter().map(|job| mix(items[*job as usize].hash, weight.into())).collect();
        // Each weight must give one job more to different slots, so that the differences do not add up.
        let newcomer = if weight == 1 { Newcomer::Least } else { Newcomer::Drawn(mix(weight.into(), 0)) };
        let slots = chain::deal(&hashes, present.slots(), newcomer);
        for (job, worker) in class.iter().zip(settle(slots, &hashes, &present)) {
            owner[*job as usize] = worker;
        }
    }
    if items.iter().any(|item| item.weight != items[0].weight) {
        even_out(items, workers, &mut owner);
        limit(items, workers, max_jobs, &mut owner);
    }
    owner
}
