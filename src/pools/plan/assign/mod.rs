//! Assigns jobs to workers.
//!
//! | file | description |
//! |---|---|
//! | `mod` | assigns dedicated jobs, then the others by a strategy; keeps jobs of equal weight with their workers |
//! | `stable`, `weighted` | the strategy Stable for jobs of equal weight and of different weights |
//! | `repair`, `search` | moves towards better loads, and the best assignment of small pools |
//! | `contiguous` | the strategy Contiguous |
//! | `pool` | jobs and workers for `weighted`, `repair` and `search` |
//! | `hashed` | jobs as hashes, and loads of workers |
//!
//! The first assignment depends only on the names and weights of the jobs and the slots of the workers, and is the same
//! in every version of the operator. Later assignments keep jobs with their workers where possible.

mod contiguous;
mod hashed;
mod pool;
mod repair;
mod search;
mod stable;
#[cfg(test)]
mod tests;
mod weighted;

use std::cmp::Reverse;

use super::Job;
use ganglion_api::swarm_pool::AssignmentStrategy;
use hashed::{HashedJob, index, mix, split_by_hash};
use pool::WeightedPool;

/// Rules of the assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssignmentRules {
    pub strategy: AssignmentStrategy,
    /// Maximum number of jobs per worker; unlimited if None.
    pub max_jobs: Option<usize>,
}

/// Assignment of jobs to workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAssignment {
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
/// - Loads of workers differ by at most the largest weight; if weights are equal, by at most one job. Workers of
///   dedicated jobs have no other job.
/// - The largest load of the shared jobs is the smallest possible one if there are at most ten of them, and at most 4/3
///   of it otherwise. With the strategy Contiguous, it is the smallest that blocks of adjacent names can have.
/// - `max_jobs` takes precedence over the balance.
///
/// If weights are equal:
///
/// - Adding or removing the worker of the last slot moves few jobs: the minimum number, if weights are 1 and the
///   strategy is Stable. If the worker of another slot is removed, its jobs move, and as many as the balance requires.
/// - Adding or removing a job moves others. Contiguous: at most one per worker. Stable: a multiple of that, and nearly
///   every worker has a different job afterwards: 15 of 1,000 jobs with 10 workers, 400 of 100,000 with 100, 16,000 of
///   a million with 1,000. If workers have few jobs, a large share moves: 370 of 1,000 with 100 workers.
///
/// If weights differ and the strategy is Stable, nearly all jobs may move. [`reassign`] moves few.
///
/// Jobs of slots beyond the 16,384th, and jobs that missing workers would have, move more often.
pub fn assign(jobs: &[Job], workers: &[u32], rules: AssignmentRules) -> JobAssignment {
    reassign(jobs, workers, rules, &vec![None; jobs.len()])
}

/// Assigns jobs of which some already have a worker, given as its index in `workers`. With the strategy Stable, jobs
/// keep their worker as far as the balance allows.
///
/// - If weights are equal, the minimum number of jobs moves, no matter what was added or removed. If only workers were
///   added or removed, the result is that of [`assign`].
/// - If weights differ, no job moves as long as loads differ by at most the largest weight, and the largest load is at
///   most 4/3 of the smallest possible one. Otherwise, as few jobs move as necessary: nearly always the minimum number
///   for up to 20 jobs, few for larger pools. With `max_jobs`, the largest load may be that of [`assign`] if that is
///   more.
pub fn reassign(jobs: &[Job], workers: &[u32], rules: AssignmentRules, previous: &[Option<u32>]) -> JobAssignment {
    let items: Vec<HashedJob> = jobs.iter().map(HashedJob::new).collect();
    let (dedicated, shared): (Vec<u32>, Vec<u32>) =
        (0..index(jobs.len())).partition(|job| jobs[*job as usize].dedicated);
    let max_jobs = rules.max_jobs.unwrap_or(usize::MAX);
    let mut owner = vec![None; jobs.len()];
    if workers.is_empty() || max_jobs == 0 {
        return JobAssignment { owner, sharing: dedicated.len() };
    }
    // If there are shared jobs, or more dedicated jobs than workers, one worker must be left for them.
    let others = !shared.is_empty() || dedicated.len() > workers.len();
    let (dedicated, sharing) = split_by_hash(&items, dedicated, workers.len() - usize::from(others));
    let (chosen, free) = choose_dedicated_workers(&items, dedicated, workers, previous);
    for (job, worker) in chosen {
        owner[job as usize] = Some(worker);
    }
    let shared = if sharing.is_empty() { shared } else { merge_sorted(shared, &sharing) };
    let (shared, _) = split_by_hash(&items, shared, free.len().saturating_mul(max_jobs));
    if !shared.is_empty() {
        let items: Vec<HashedJob> = shared.iter().map(|job| items[*job as usize]).collect();
        let slots: Vec<u32> = free.iter().map(|worker| workers[*worker as usize]).collect();
        let assigned = match rules.strategy {
            AssignmentStrategy::Stable => {
                let held: Vec<Option<u32>> =
                    shared.iter().map(|job| index_among(&free, previous[*job as usize])).collect();
                assign_stably(&items, &slots, max_jobs, &held)
            }
            AssignmentStrategy::Contiguous => contiguous::assign(&items, &slots, max_jobs),
        };
        for (job, worker) in shared.into_iter().zip(assigned) {
            owner[job as usize] = Some(free[worker as usize]);
        }
    }
    JobAssignment { owner, sharing: sharing.len() }
}

/// Index of a worker among the free ones, which are sorted.
fn index_among(free: &[u32], worker: Option<u32>) -> Option<u32> {
    free.binary_search(&worker?).ok().map(index)
}

/// Merges two lists of jobs in the order of names.
fn merge_sorted(mut jobs: Vec<u32>, more: &[u32]) -> Vec<u32> {
    jobs.extend(more);
    jobs.sort_unstable();
    jobs
}

/// Separates the draw of a worker from other uses of the hash.
const DEDICATED_SALT: u64 = 0x6465_6469_6361_7465;

/// Returns each of these jobs with the index of its worker, and the remaining free workers. There must be enough
/// workers.
///
/// Jobs keep their previous worker. The others choose in the order of their hashes: each job takes the free worker for
/// which it draws the highest number. Therefore few jobs choose differently when a job or a worker is added or removed.
fn choose_dedicated_workers(
    items: &[HashedJob],
    mut jobs: Vec<u32>,
    workers: &[u32],
    previous: &[Option<u32>],
) -> (Vec<(u32, u32)>, Vec<u32>) {
    jobs.sort_unstable_by_key(|job| (items[*job as usize].hash, *job));
    let mut free: Vec<u32> = (0..index(workers.len())).collect();
    let mut chosen = Vec::with_capacity(jobs.len());
    jobs.retain(|job| {
        let held = previous[*job as usize].and_then(|held| free.iter().position(|worker| *worker == held));
        if let Some(at) = held {
            chosen.push((*job, free.swap_remove(at)));
        }
        held.is_none()
    });
    for job in jobs {
        let hash = items[job as usize].hash ^ DEDICATED_SALT;
        let drawn = |at: &usize| (mix(hash, workers[free[*at] as usize].into()), free[*at]);
        let Some(best) = (0..free.len()).max_by_key(drawn) else { break };
        chosen.push((job, free.swap_remove(best)));
    }
    free.sort_unstable();
    (chosen, free)
}

/// Assigns jobs by the strategy Stable. Returns the worker of each job. `previous`: the current worker of each job, if
/// any.
fn assign_stably(items: &[HashedJob], workers: &[u32], max_jobs: usize, previous: &[Option<u32>]) -> Vec<u32> {
    if items.iter().any(|item| item.weight != items[0].weight) {
        return weighted::assign(WeightedPool { items, workers, max_jobs }, previous);
    }
    let stateless = stable::assign(items, workers);
    if previous.iter().all(Option::is_none) {
        stateless
    } else {
        keep_workers(items, workers.len(), &stateless, previous)
    }
}

/// Keeps jobs of equal weight with their previous workers: every worker gets its share, and the minimum number of jobs
/// moves. Returns the worker of each job.
///
/// The stateless assignment, which depends only on jobs and workers, moves about as many jobs as there are workers when
/// one job is added or removed, and more in large pools. Therefore jobs keep their worker, and only as many move as
/// necessary. If there is a choice, jobs move to their worker in the stateless assignment: if only workers are added
/// and removed, the result is the stateless assignment.
fn keep_workers(items: &[HashedJob], workers: usize, stateless: &[u32], previous: &[Option<u32>]) -> Vec<u32> {
    let mut left = worker_sizes(items.len(), workers, stateless, previous);
    // First the jobs that the stateless assignment leaves with their worker, too; then by hash.
    let mut held: Vec<u32> = (0..index(items.len())).filter(|job| previous[*job as usize].is_some()).collect();
    let stays = |job: &u32| previous[*job as usize] == Some(stateless[*job as usize]);
    held.sort_unstable_by_key(|job| (!stays(job), Reverse(items[*job as usize].hash), *job));
    let mut owner: Vec<Option<u32>> = vec![None; items.len()];
    let mut try_assign = |job: u32, worker: u32| {
        let room = &mut left[worker as usize];
        let fits = *room > 0;
        if fits {
            *room -= 1;
            owner[job as usize] = Some(worker);
        }
        fits
    };
    let mut homeless: Vec<u32> = (0..index(items.len())).filter(|job| previous[*job as usize].is_none()).collect();
    homeless
        .extend(held.into_iter().filter(|job| !previous[*job as usize].is_some_and(|worker| try_assign(*job, worker))));
    homeless.sort_unstable_by_key(|job| (items[*job as usize].hash, *job));
    homeless.retain(|job| !try_assign(*job, stateless[*job as usize]));
    let mut free = (0..index(workers)).flat_map(|worker| std::iter::repeat_n(worker, left[worker as usize]));
    for job in homeless {
        owner[job as usize] = free.next();
    }
    owner.into_iter().map(Option::unwrap_or_default).collect()
}

/// Number of jobs for each worker: the same for all, or one more. Workers that already have one more come first, then
/// workers with more jobs in the stateless assignment.
fn worker_sizes(jobs: usize, workers: usize, stateless: &[u32], previous: &[Option<u32>]) -> Vec<usize> {
    let count = |owners: &mut dyn Iterator<Item = u32>| {
        let mut counts = vec![0_usize; workers];
        owners.for_each(|worker| counts[worker as usize] += 1);
        counts
    };
    let (has, wants) = (count(&mut previous.iter().flatten().copied()), count(&mut stateless.iter().copied()));
    let (floor, more) = (jobs / workers, jobs % workers);
    let mut order: Vec<usize> = (0..workers).collect();
    order.sort_by_key(|worker| (has[*worker] <= floor, Reverse(wants[*worker]), *worker));
    let mut sizes = vec![floor; workers];
    order.into_iter().take(more).for_each(|worker| sizes[worker] += 1);
    sizes
}
