//! Balances the loads of workers if jobs differ in weight: afterwards loads differ by at most the largest weight.

use std::collections::BTreeSet;

use super::item::{Item, index, mix};

/// Sort key of a worker: its load, then the hash of its slot, then its index.
type Place = (u64, u64, u32);

/// Sort key of a job of a worker: weight, then hash, then index, which is the order of names.
type Rank = (u32, u64, u32);

/// Loads of all workers, by index.
pub fn loads(items: &[Item], workers: &[u32], owner: &[u32]) -> Vec<u64> {
    let mut loads = vec![0; workers.len()];
    for (item, worker) in items.iter().zip(owner) {
        loads[*worker as usize] += u64::from(item.weight);
    }
    loads
}

/// Sort key of a worker with this load.
pub fn place(worker: u32, load: u64, workers: &[u32]) -> Place {
    (load, mix(workers[worker as usize].into(), 0), worker)
}

/// Moves jobs from the most to the least loaded worker, until their loads differ by at most the largest weight. This
/// ends, because each move brings the two loads closer to each other.
pub fn even_out(items: &[Item], workers: &[u32], owner: &mut [u32]) {
    let allowed = items.iter().map(|item| item.weight).max().unwrap_or(0).into();
    let loads = loads(items, workers, owner);
    let mut order: BTreeSet<Place> = (0..).zip(&loads).map(|(worker, load)| place(worker, *load, workers)).collect();
    let mut jobs = None;
    while let (Some(&least), Some(&most)) = (order.first(), order.last()) {
        let difference = most.0 - least.0;
        if difference <= allowed {
            return;
        }
        let jobs = jobs.get_or_insert_with(|| jobs_of(items, workers, owner));
        let Some(moved) = helps(&jobs[most.2 as usize], difference) else { return };
        jobs[most.2 as usize].remove(&moved);
        jobs[least.2 as usize].insert(moved);
        owner[moved.2 as usize] = least.2;
        for (old, load) in [(least, least.0 + u64::from(moved.0)), (most, most.0 - u64::from(moved.0))] {
            order.remove(&old);
            order.insert(place(old.2, load, workers));
        }
    }
}

fn jobs_of(items: &[Item], workers: &[u32], owner: &[u32]) -> Vec<BTreeSet<Rank>> {
    let mut jobs = vec![Vec::new(); workers.len()];
    for (job, (item, worker)) in items.iter().zip(owner).enumerate() {
        jobs[*worker as usize].push((item.weight, item.hash, index(job)));
    }
    jobs.into_iter().map(BTreeSet::from_iter).collect()
}

/// The job whose move makes the difference smallest: its weight is about half of the difference. All weights must be
/// smaller than the difference.
fn helps(jobs: &BTreeSet<Rank>, difference: u64) -> Option<Rank> {
    let half = u32::try_from(difference / 2).unwrap_or(u32::MAX);
    let first_of = |weight: u32| jobs.range((weight, 0, 0)..).next().copied();
    let below = jobs.range(..=(half, u64::MAX, u32::MAX)).next_back().filter(|rank| rank.0 > 0);
    let below = below.and_then(|rank| first_of(rank.0));
    let above = half.checked_add(1).and_then(first_of);
    let leaves = |rank: &Rank| difference.abs_diff(2 * u64::from(rank.0));
    below.into_iter().chain(above).min_by_key(leaves)
}
