//! The strategy Stable: few jobs move when workers or jobs come and go.
//!
//! Jobs of each weight are dealt by themselves, so that every worker has as many of them as any other, or one more. What these
//! ones add up to is then evened out.

use super::chain::{self, Newcomer};
use super::even::even_out;
use super::item::{Item, index, mix};
use super::limit::limit;
use super::present::{Present, settle};

/// The worker of each job. At least one worker; there is room for all jobs.
pub fn deal(items: &[Item], workers: &[u32], max_jobs: usize) -> Vec<u32> {
    let present = Present::new(workers, items.len());
    let mut jobs: Vec<u32> = (0..index(items.len())).collect();
    jobs.sort_by_key(|job| items[*job as usize].weight);
    let mut owner = vec![0; items.len()];
    for class in jobs.chunk_by(|a, b| items[*a as usize].weight == items[*b as usize].weight) {
        let weight = items[class[0] as usize].weight;
        let hashes: Vec<u64> = class.iter().map(|job| mix(items[*job as usize].hash, weight.into())).collect();
        // Of several weights, each has to have other slots with one more.
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
