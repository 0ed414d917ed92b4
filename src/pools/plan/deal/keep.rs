//! Keeps jobs with their previous workers, as far as the balance allows.
//!
//! The stateless assignment, which depends only on jobs and workers, moves about as many jobs as there are workers when
//! one job is added or removed, and more in large pools. Therefore jobs keep their worker, and only as many move as
//! necessary. If there is a choice, jobs move to their worker in the stateless assignment: if only workers are added
//! and removed, the result is the stateless assignment.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::even::{even_out, loads, place};
use super::item::{Item, index};
use super::limit::limit;

/// Returns the worker of each job. `stateless`: the assignment without history. `previous`: the current worker of each
/// job, if any.
pub fn keep(
    items: &[Item],
    workers: &[u32],
    stateless: Vec<u32>,
    previous: &[Option<u32>],
    max_jobs: usize,
) -> Vec<u32> {
    if previous.iter().all(Option::is_none) {
        return stateless;
    }
    if items.iter().all(|item| item.weight == items[0].weight) {
        return equal(items, workers.len(), &stateless, previous);
    }
    let mut owner = filled(items, workers, &stateless, previous);
    even_out(items, workers, &mut owner);
    limit(items, workers, max_jobs, &mut owner);
    owner
}

/// Assigns jobs of equal weight: every worker gets its share, and the minimum number of jobs moves.
fn equal(items: &[Item], workers: usize, stateless: &[u32], previous: &[Option<u32>]) -> Vec<u32> {
    let sizes = sizes(items.len(), workers, stateless, previous);
    let mut left = sizes;
    // First the jobs that the stateless assignment leaves with their worker, too; then by hash.
    let mut held: Vec<u32> = (0..index(items.len())).filter(|job| previous[*job as usize].is_some()).collect();
    let stays = |job: &u32| previous[*job as usize] == Some(stateless[*job as usize]);
    held.sort_unstable_by_key(|job| (!stays(job), Reverse(items[*job as usize].hash), *job));
    let mut owner: Vec<Option<u32>> = vec![None; items.len()];
    let mut take = |job: u32, worker: u32| {
        let room = &mut left[worker as usize];
        let fits = *room > 0;
        if fits {
            *room -= 1;
            owner[job as usize] = Some(worker);
        }
        fits
    };
    let mut homeless: Vec<u32> = (0..index(items.len())).filter(|job| previous[*job as usize].is_none()).collect();
    homeless.extend(held.into_iter().filter(|job| !previous[*job as usize].is_some_and(|worker| take(*job, worker))));
    homeless.sort_unstable_by_key(|job| (items[*job as usize].hash, *job));
    homeless.retain(|job| !take(*job, stateless[*job as usize]));
    let mut free = (0..index(workers)).flat_map(|worker| std::iter::repeat_n(worker, left[worker as usize]));
    for job in homeless {
        owner[job as usize] = free.next();
    }
    owner.into_iter().map(Option::unwrap_or_default).collect()
}

/// Number of jobs for each worker: the same for all, or one more. Workers that already have one more come first, then
/// workers with more jobs in the stateless assignment.
fn sizes(jobs: usize, workers: usize, stateless: &[u32], previous: &[Option<u32>]) -> Vec<usize> {
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

/// Leaves jobs with their worker, and assigns the others to the least loaded worker, heaviest first.
fn filled(items: &[Item], workers: &[u32], stateless: &[u32], previous: &[Option<u32>]) -> Vec<u32> {
    let mut owner: Vec<u32> = previous.iter().zip(stateless).map(|(held, dealt)| held.unwrap_or(*dealt)).collect();
    let (mut held, mut known) = (Vec::new(), Vec::new());
    for (item, worker) in items.iter().zip(previous) {
        if let Some(worker) = worker {
            held.push(*item);
            known.push(*worker);
        }
    }
    let loads = loads(&held, workers, &known);
    let mut order: BTreeSet<_> = (0..).zip(loads).map(|(worker, load)| place(worker, load, workers)).collect();
    let mut homeless: Vec<u32> = (0..index(items.len())).filter(|job| previous[*job as usize].is_none()).collect();
    homeless.sort_unstable_by_key(|job| {
        let item = items[*job as usize];
        (Reverse(item.weight), item.hash, *job)
    });
    for job in homeless {
        let Some((load, _, worker)) = order.pop_first() else { return owner };
        owner[job as usize] = worker;
        order.insert(place(worker, load + u64::from(items[job as usize].weight), workers));
    }
    owner
}
