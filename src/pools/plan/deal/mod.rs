//! Which worker gets which job.
//!
//! | file | what it owns |
//! |---|---|
//! | `item` | a job without its name, and the hashes |
//! | `dedicated` | the workers of dedicated jobs |
//! | `stable`, `contiguous` | the two strategies |
//! | `chain` | jobs of equal weight over slots 0, 1, 2, … |
//! | `present` | the jobs of slots that no worker has |
//! | `even` | loads of jobs that differ in weight |
//! | `keep` | the jobs that stay where they are |
//! | `limit` | the most jobs of one worker |
//!
//! The first deal depends on the names and weights of the jobs and on the slots of the workers, and is the same in every version of
//! the operator. A later one keeps what workers have, where it can.

mod chain;
mod contiguous;
mod dedicated;
mod even;
mod item;
mod keep;
mod limit;
mod present;
mod stable;
#[cfg(test)]
mod tests;

use super::Job;
use ganglion_api::swarm_pool::assignment::AssignmentStrategy;
use item::{Item, index};

/// How jobs are dealt out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DealRules {
    pub strategy: AssignmentStrategy,
    /// The most jobs of one worker; unlimited if None.
    pub max_jobs: Option<usize>,
}

/// Who has which job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Of each job the index of its worker; None if no worker may have it.
    pub owner: Vec<Option<u32>>,
    /// How many dedicated jobs have no worker of their own, because there are too few. They are dealt like others.
    pub sharing: usize,
}

/// The deal without a history. Deals jobs, which are in the order of their names, to workers, given as slots in ascending order. Names and slots are unique.
///
/// - Every job has one worker, unless all workers have as many jobs as they may.
/// - Loads of workers differ by at most the largest weight: by one job where weights are equal. Where `max_jobs` forbids that,
///   it takes precedence. Workers of dedicated jobs have no other job.
/// - The worker of the last slot can come or go with few moves: with the least number, where weights are 1 and the strategy is
///   Stable. When another slot's worker goes, only its jobs move, and what the change of the balance needs.
/// - A job more or less moves others. Contiguous: at most as many as there are workers. Stable: some times as many, and nearly
///   every worker has another job afterwards: 15 of 1,000 jobs over 10 workers, 400 of 100,000 over 100, 16,000 of a million
///   over 1,000; a share of all jobs where workers have few: 370 of 1,000 over 100.
///
/// Slots beyond the 16,384th, and those of missing workers, get their share from jobs that move more often.
#[must_use]
pub fn deal(jobs: &[Job], workers: &[u32], rules: DealRules) -> Deal {
    deal_from(jobs, workers, rules, &vec![None; jobs.len()])
}

/// Deals jobs of which some have a worker already, given as its index in `workers`: with the strategy Stable they keep it, as far as
/// the balance allows. Then the least possible number of jobs moves where weights are equal, whatever came or went; and as long
/// as only workers came and went, the deal is that of [`deal`].
#[must_use]
pub fn deal_from(jobs: &[Job], workers: &[u32], rules: DealRules, previous: &[Option<u32>]) -> Deal {
    let items: Vec<Item> = jobs.iter().map(Item::of).collect();
    let (dedicated, shared): (Vec<u32>, Vec<u32>) =
        (0..index(jobs.len())).partition(|job| jobs[*job as usize].dedicated);
    let max_jobs = rules.max_jobs.unwrap_or(usize::MAX);
    let mut owner = vec![None; jobs.len()];
    if workers.is_empty() || max_jobs == 0 {
        return Deal { owner, sharing: dedicated.len() };
    }
    // What is not dedicated, or cannot be, needs a worker, too.
    let others = !shared.is_empty() || dedicated.len() > workers.len();
    let (dedicated, sharing) = limit::cut(&items, dedicated, workers.len() - usize::from(others));
    let (chosen, free) = dedicated::choose(&items, dedicated, workers, previous);
    for (job, worker) in chosen {
        owner[job as usize] = Some(worker);
    }
    let shared = if sharing.is_empty() { shared } else { merged(shared, &sharing) };
    let (shared, _) = limit::cut(&items, shared, free.len().saturating_mul(max_jobs));
    if !shared.is_empty() {
        let items: Vec<Item> = shared.iter().map(|job| items[*job as usize]).collect();
        let slots: Vec<u32> = free.iter().map(|worker| workers[*worker as usize]).collect();
        let dealt = match rules.strategy {
            AssignmentStrategy::Stable => {
                let held: Vec<Option<u32>> = shared.iter().map(|job| held_in(&free, previous[*job as usize])).collect();
                keep::keep(&items, &slots, stable::deal(&items, &slots, max_jobs), &held, max_jobs)
            }
            AssignmentStrategy::Contiguous => contiguous::deal(&items, &slots, max_jobs),
        };
        for (job, worker) in shared.into_iter().zip(dealt) {
            owner[job as usize] = Some(free[worker as usize]);
        }
    }
    Deal { owner, sharing: sharing.len() }
}

/// Where a worker is among those that are free, in ascending order.
fn held_in(free: &[u32], worker: Option<u32>) -> Option<u32> {
    free.binary_search(&worker?).ok().map(index)
}

/// In order of name.
fn merged(mut jobs: Vec<u32>, more: &[u32]) -> Vec<u32> {
    jobs.extend(more);
    jobs.sort_unstable();
    jobs
}
