//! Moves and exchanges of jobs that bring the loads of workers closer to each other.

use std::collections::BTreeSet;

use super::hashed::{LoadRank, index, load_rank, loads};
use super::pool::WeightedPool;

/// Sort key of a job of a worker: weight, then hash, then index, which is the order of names.
type JobRank = (u32, u64, u32);

/// Moves jobs until the loads are within the bounds.
pub struct Repair<'a> {
    pool: WeightedPool<'a>,
    order: BTreeSet<LoadRank>,
    jobs: Vec<BTreeSet<JobRank>>,
}

impl<'a> Repair<'a> {
    pub fn new(pool: WeightedPool<'a>, owner: &[u32]) -> Self {
        let loads = loads(pool.items, pool.workers, owner);
        let ranks = (0..).zip(loads).map(|(worker, load)| load_rank(worker, load, pool.workers));
        let mut jobs = vec![Vec::new(); pool.workers.len()];
        for (job, (item, worker)) in pool.items.iter().zip(owner).enumerate() {
            jobs[*worker as usize].push((item.weight, item.hash, index(job)));
        }
        Self { pool, order: ranks.collect(), jobs: jobs.into_iter().map(BTreeSet::from_iter).collect() }
    }

    /// Moves jobs between the most and the least loaded worker, until the largest load is at most `most`, and loads
    /// differ by at most the largest weight. Returns whether this is so.
    ///
    /// Each round brings two loads closer to each other. The rounds end if none does, or after one for each job.
    pub fn run(mut self, owner: &mut [u32], most: u64) -> bool {
        let allowed = self.pool.largest_weight();
        for _ in 0..=self.pool.items.len() {
            let (Some(&low), Some(&high)) = (self.order.first(), self.order.last()) else { return true };
            let difference = high.0 - low.0;
            if high.0 <= most && difference <= allowed {
                return true;
            }
            let Some((down, up)) = self.find_change(low.2, high.2, difference) else { return false };
            let shift = u64::from(down.0) - up.map_or(0, |job| u64::from(job.0));
            self.move_job(owner, down, [high.2, low.2]);
            if let Some(up) = up {
                self.move_job(owner, up, [low.2, high.2]);
            }
            for (old, load) in [(low, low.0 + shift), (high, high.0 - shift)] {
                self.order.remove(&old);
                self.order.insert(load_rank(old.2, load, self.pool.workers));
            }
        }
        false
    }

    /// Returns the job to move to the worker `low`, and, if no move makes the difference smaller, the job to move back
    /// in exchange.
    ///
    /// There is one if the difference exceeds the largest weight: if `low` has the maximum number of jobs, `high` has
    /// as many at most, so that its heaviest job is heavier than the lightest one of `low`.
    fn find_change(&self, low: u32, high: u32, difference: u64) -> Option<(JobRank, Option<JobRank>)> {
        let [low, high] = [low, high].map(|worker| &self.jobs[worker as usize]);
        if low.len() < self.pool.max_jobs
            && let Some(job) = nearest(high, 0, difference)
        {
            return Some((job, None));
        }
        let mut best: Option<(u64, JobRank, JobRank)> = None;
        let mut next = low.first();
        while let Some(up) = next {
            if let Some(down) = nearest(high, up.0, difference) {
                let left = difference.abs_diff(2 * u64::from(down.0 - up.0));
                if best.is_none_or(|best| left < best.0) {
                    best = Some((left, down, *up));
                }
                // All further jobs are heavier, and shift less.
                let is_heaviest = high.last().is_none_or(|last| last.0 == down.0);
                if is_heaviest && 2 * u64::from(down.0 - up.0) <= difference {
                    break;
                }
            }
            next = up.0.checked_add(1).and_then(|weight| low.range((weight, 0, 0)..).next());
        }
        best.map(|(_, down, up)| (down, Some(up)))
    }

    fn move_job(&mut self, owner: &mut [u32], job: JobRank, [from, to]: [u32; 2]) {
        self.jobs[from as usize].remove(&job);
        self.jobs[to as usize].insert(job);
        owner[job.2 as usize] = to;
    }
}

/// The job that leaves the smallest difference of two loads if it is exchanged for one of weight `up`: it is heavier by
/// about half of the difference. None if no job makes the difference smaller.
fn nearest(jobs: &BTreeSet<JobRank>, up: u32, difference: u64) -> Option<JobRank> {
    let first_of = |weight: u32| jobs.range((weight, 0, 0)..).next().copied();
    let half = up.saturating_add(u32::try_from(difference / 2).unwrap_or(u32::MAX));
    let below = jobs.range(..=(half, u64::MAX, u32::MAX)).next_back().and_then(|rank| first_of(rank.0));
    let above = half.checked_add(1).and_then(first_of);
    let shift = |rank: &JobRank| u64::from(rank.0.saturating_sub(up));
    let helps = |rank: &JobRank| (1..difference).contains(&shift(rank));
    below.into_iter().chain(above).filter(helps).min_by_key(|rank| difference.abs_diff(2 * shift(rank)))
}
