//! Jobs and workers of an assignment by weights: loads, and bounds of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::hashed::{HashedJob, LoadRank, index, load_rank, loads};

/// Jobs and workers of an assignment. There must be at least one worker, and room for all jobs.
#[derive(Clone, Copy, Debug)]
pub struct WeightedPool<'a> {
    pub items: &'a [HashedJob],
    /// Slots of the workers.
    pub workers: &'a [u32],
    pub max_jobs: usize,
}

impl WeightedPool<'_> {
    /// Smallest and largest load.
    pub fn extreme_loads(self, owner: &[u32]) -> (u64, u64) {
        let loads = loads(self.items, self.workers, owner);
        (loads.iter().min().copied().unwrap_or(0), loads.iter().max().copied().unwrap_or(0))
    }

    pub fn largest_weight(self) -> u64 {
        self.items.iter().map(|item| item.weight).max().unwrap_or(0).into()
    }

    /// Lower bound of the largest load: the mean load, the largest weight, or the two lightest of the m + 1 heaviest
    /// jobs, two of which share one of the m workers.
    pub fn lower_bound(self) -> u64 {
        let mut weights: Vec<u64> = self.items.iter().map(|item| item.weight.into()).collect();
        let mean = weights.iter().sum::<u64>().div_ceil(self.workers.len().max(1) as u64);
        let largest = self.largest_weight();
        if weights.len() <= self.workers.len() {
            return mean.max(largest);
        }
        let (heavier, weight, _) = weights.select_nth_unstable_by_key(self.workers.len(), |weight| Reverse(*weight));
        mean.max(largest).max(heavier.iter().min().unwrap_or(&0) + *weight)
    }

    /// Whether the loads are within the bounds.
    pub fn is_balanced(self, owner: &[u32], most: u64) -> bool {
        let (smallest, largest) = self.extreme_loads(owner);
        largest <= most && largest - smallest <= self.largest_weight()
    }

    /// Takes the jobs with the highest hashes from workers above the maximum.
    pub fn drop_above_limit(self, previous: &[Option<u32>]) -> Vec<Option<u32>> {
        let mut kept = vec![None; previous.len()];
        let mut counts = vec![0; self.workers.len()];
        let mut jobs: Vec<usize> = (0..previous.len()).collect();
        jobs.sort_unstable_by_key(|job| (self.items[*job].hash, *job));
        for job in jobs {
            if let Some(worker) = previous[job]
                && counts[worker as usize] < self.max_jobs
            {
                counts[worker as usize] += 1;
                kept[job] = Some(worker);
            }
        }
        kept
    }

    /// Places jobs without a worker, heaviest first, each on the least loaded worker with fewer jobs than the maximum.
    pub fn place(self, previous: &[Option<u32>]) -> Vec<u32> {
        let mut owner: Vec<u32> = previous.iter().map(|worker| worker.unwrap_or_default()).collect();
        let mut loads = vec![0; self.workers.len()];
        let mut counts = vec![0_usize; self.workers.len()];
        for (item, worker) in self.items.iter().zip(previous) {
            if let Some(worker) = worker {
                loads[*worker as usize] += u64::from(item.weight);
                counts[*worker as usize] += 1;
            }
        }
        let free = (0..index(self.workers.len())).filter(|worker| counts[*worker as usize] < self.max_jobs);
        let ranks = free.map(|worker| Reverse(load_rank(worker, loads[worker as usize], self.workers)));
        let mut order: BinaryHeap<Reverse<LoadRank>> = ranks.collect();
        let mut homeless: Vec<u32> =
            (0..index(self.items.len())).filter(|job| previous[*job as usize].is_none()).collect();
        homeless.sort_unstable_by_key(|job| self.weight_rank(*job));
        for job in homeless {
            let Some(mut first) = order.peek_mut() else { return owner };
            let (load, hash, worker) = first.0;
            owner[job as usize] = worker;
            counts[worker as usize] += 1;
            if counts[worker as usize] < self.max_jobs {
                first.0 = (load + u64::from(self.items[job as usize].weight), hash, worker);
            } else {
                PeekMut::pop(first);
            }
        }
        owner
    }

    /// Sort key of a job: heaviest first, then by hash and name.
    pub fn weight_rank(self, job: u32) -> (Reverse<u32>, u64, u32) {
        let item = self.items[job as usize];
        (Reverse(item.weight), item.hash, job)
    }
}
