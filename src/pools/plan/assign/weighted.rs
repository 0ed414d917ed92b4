//! The strategy Stable for jobs of different weights: loads are balanced, and few jobs move.
//!
//! # Without a history
//!
//! Jobs are placed heaviest first, each on the least loaded worker (longest processing time first). The largest load is
//! then at most 4/3 - 1/(3m) of the best one for m workers (R. L. Graham, Bounds on multiprocessing timing anomalies,
//! 1969). `repair` and, for small pools, `search` improve on it.
//!
//! # With a history
//!
//! New jobs are placed heaviest first, and no other job moves, as long as
//!
//! - loads differ by at most the largest weight, and
//! - the largest load is at most a third above the best one, or not above that of the assignment without a history.
//!
//! If the best largest load is not known because the search was not complete, a lower bound takes its place.
//!
//! Outside these bounds, `repair` moves jobs from the most to the least loaded worker, and `search` looks for fewer
//! moves. If `repair` does not reach the bounds, the assignment without a history applies, with its workers renamed so
//! that few jobs move.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::hashed::index;
use super::pool::WeightedPool;
use super::repair::Repair;
use super::search::{SearchStart, improve};

/// Assignment without a history.
struct FreshAssignment {
    owner: Vec<u32>,
    /// Lower bound of the largest load.
    lower_bound: u64,
}

/// Returns the worker of each job. `previous`: the current worker of each job, if any.
pub fn assign(pool: WeightedPool<'_>, previous: &[Option<u32>]) -> Vec<u32> {
    let previous = &pool.drop_above_limit(previous);
    if previous.iter().all(Option::is_none) {
        return assign_afresh(pool).owner;
    }
    let mut owner = pool.place(previous);
    let mut most = with_tolerance(pool.lower_bound());
    if !pool.is_balanced(&owner, most) {
        let fresh = assign_afresh(pool);
        let (_, largest) = pool.extreme_loads(&fresh.owner);
        most = largest.max(with_tolerance(fresh.lower_bound));
        if !Repair::new(pool, &owner).run(&mut owner, most) {
            owner = rename_workers(&fresh.owner, previous, pool.workers.len());
        }
    }
    improve(pool, SearchStart { owner: &owner, previous, most }).owner
}

fn assign_afresh(pool: WeightedPool<'_>) -> FreshAssignment {
    let previous = &vec![None; pool.items.len()];
    let mut owner = pool.place(previous);
    let lower_bound = pool.lower_bound();
    Repair::new(pool, &owner).run(&mut owner, lower_bound);
    let (_, most) = pool.extreme_loads(&owner);
    let found = improve(pool, SearchStart { owner: &owner, previous, most });
    let (_, largest) = pool.extreme_loads(&found.owner);
    let lower_bound = if found.is_best() { largest } else { lower_bound };
    FreshAssignment { owner: found.owner, lower_bound }
}

/// Maximum load at which jobs stay with their workers.
fn with_tolerance(lower_bound: u64) -> u64 {
    lower_bound + lower_bound / 3
}

/// Names the workers of an assignment after those that have most of their jobs. All workers are alike, so any names do.
fn rename_workers(owner: &[u32], previous: &[Option<u32>], workers: usize) -> Vec<u32> {
    let mut shared = BTreeMap::<(u32, u32), usize>::new();
    for (worker, held) in owner.iter().zip(previous) {
        if let Some(held) = held {
            *shared.entry((*worker, *held)).or_default() += 1;
        }
    }
    let mut pairs: Vec<((u32, u32), usize)> = shared.into_iter().collect();
    pairs.sort_by_key(|(_, jobs)| Reverse(*jobs));
    let mut names: Vec<Option<u32>> = vec![None; workers];
    let mut is_free = vec![true; workers];
    for ((worker, held), _) in pairs {
        if names[worker as usize].is_none() && std::mem::take(&mut is_free[held as usize]) {
            names[worker as usize] = Some(held);
        }
    }
    let mut rest = (0..index(workers)).filter(|worker| is_free[*worker as usize]);
    let names: Vec<u32> = names.into_iter().map(|name| name.or_else(|| rest.next()).unwrap_or_default()).collect();
    owner.iter().map(|worker| names[*worker as usize]).collect()
}
