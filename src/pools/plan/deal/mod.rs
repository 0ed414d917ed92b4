//! Assigns jobs to workers.
//!
//! | file | description |
//! |---|---|
//! | `item` | a job without its name, and the hash functions |
//! | `dedicated` | chooses the workers of dedicated jobs |
//! | `stable`, `contiguous` | the two strategies |
//! | `chain` | assigns jobs of equal weight to slots 0, 1, 2, … |
//! | `present` | moves jobs of slots without a worker to existing workers |
//! | `even` | balances loads if jobs differ in weight |
//! | `keep` | keeps jobs with their previous workers |
//! | `limit` | enforces the maximum number of jobs per worker |
//!
//! The first assignment depends only on the names and weights of the jobs and the slots of the workers, and is the same
//! in every version of the operator. Later assignments keep jobs with their workers where possible.

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

/// Rules of the assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DealRules {
    pub strategy: AssignmentStrategy,
    /// Maximum number of jobs per worker; unlimited if None.
    pub max_jobs: Option<usize>,
}

/// Assignment of jobs to workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Index of the worker of each job; None if all workers have the maximum number of jobs.
    pub owner: Vec<Option<u32>>,
    /// Number of dedicated jobs without a worker of their own, because there are too few workers. They are assigned
    /// like others.
    pub sharing: usize,
}

/// Assigns jobs to workers without a history. Jobs are sorted by name; workers are given as slots in ascending order.
/// Names and slots are unique.
///
/// - Every job has one worker, unless all workers have the maximum number of jobs.
/// - Loads of workers differ by at most the largest weight; if weights are equal, by at most one job. `max_jobs` takes
///   precedence. Workers of dedicated jobs have no other job.
/// - Adding or removing the worker of the last slot moves few jobs: the minimum number, if weights are 1 and the
///   strategy is Stable. If the worker of another slot is removed, its jobs move, and as many as the balance requires.
/// - Adding or removing a job moves others. Contiguous: at most one per worker. Stable: a multiple of that, and nearly
///   every worker has a different job afterwards: 15 of 1,000 jobs with 10 workers, 400 of 100,000 with 100, 16,000 of
///   a million with 1,000. If workers have few jobs, a large share moves: 370 of 1,000 with 100 workers.
///
/// Jobs of slots beyond the 16,384th, and jobs that missing workers would have, move more often.
pub fn deal(jobs: &[Job], workers: &[u32], rules: DealRules) -> Deal {
    deal_from(jobs, workers, rules, &vec![None; jobs.len()])
}

/// Assigns jobs of which some already have a worker, given as its index in `workers`. With the strategy Stable, jobs
/// keep their worker as far as the balance allows. If weights are equal, the minimum number of jobs moves, no matter
/// what was added or removed. If only workers were added or removed, the result is that of [`deal`].
pub fn deal_from(jobs: &[Job], workers: &[u32], rules: DealRules, previous: &[Option<u32>]) -> Deal {
    let items: Vec<Item> = jobs.iter().map(Item::of).collect();
    let (dedicated, shared): (Vec<u32>, Vec<u32>) =
        (0..index(jobs.len())).partition(|job| jobs[*job as usize].dedicated);
    let max_jobs = rules.max_jobs.unwrap_or(usize::MAX);
    let mut owner = vec![None; jobs.len()];
    if workers.is_empty() || max_jobs == 0 {
        return Deal { owner, sharing: dedicated.len() };
    }
    // If there are shared jobs, or more dedicated jobs than workers, one worker must be left for them.
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

/// Index of a worker among the free ones, which are sorted.
fn held_in(free: &[u32], worker: Option<u32>) -> Option<u32> {
    free.binary_search(&worker?).ok().map(index)
}

/// Merges two lists of jobs in the order of names.
fn merged(mut jobs: Vec<u32>, more: &[u32]) -> Vec<u32> {
    jobs.extend(more);
    jobs.sort_unstable();
    jobs
}
