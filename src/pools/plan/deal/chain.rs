//! Assigns jobs of equal weight to slots 0, 1, 2, … as if the slots had been added one by one.
//!
//! Step k adds slot k to the k existing slots. The new slot takes jobs from each of them, until all sizes differ by at
//! most one. Each step orders the jobs differently, and that order decides which jobs move:
//!
//! - A job is a candidate in a fixed, pseudo-random sequence of steps: in step k with probability 2 / (k + 1). In each
//!   step, twice as many jobs are candidates as are taken.
//! - Step k orders jobs by their next candidate step (k or later), then by the hash of job and step, then by name.
//! - A slot that must give n jobs gives its first n. If only some slots must give one more, the slots whose next job
//!   comes first in the order give it.
//!
//! Therefore the assignment to n + 1 slots differs from that to n slots only by the jobs that the last slot takes, and
//! adding or removing a job changes little in each step. Jobs are bucketed by their next candidate step: a step costs
//! about as many operations as it has candidates, and all steps together cost about 2 J ln(n) if slots have some
//! hundreds of jobs.

use super::item::{index, mix};

/// Number of jobs that a new slot takes if the number of jobs is no multiple of the number of slots.
#[derive(Clone, Copy, Debug)]
pub enum Newcomer {
    /// The smaller number. Adding a slot moves exactly the minimum number of jobs, and the first slots have one job
    /// more.
    Least,
    /// The smaller or the larger number, drawn from this hash, so that different slots have one job more for different
    /// hashes.
    Drawn(u64),
}

/// Returns the slot of each job. Jobs are given as hashes in the order of their names. There must be at least one slot.
pub fn deal(hashes: &[u64], slots: u32, newcomer: Newcomer) -> Vec<u32> {
    let mut chain = Chain::new(hashes, slots);
    for step in 1..slots {
        let taken = chain.taken(step, newcomer);
        chain.take(step, taken);
        chain.redraw(step);
    }
    chain.owners()
}

/// A job in the bucket of its next candidate step.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hash: u64,
    job: u32,
    owner: u32,
}

/// Number of jobs that the new slot of a step takes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Smaller size after this step. Each slot has this number of jobs, or one more.
    floor: u32,
    /// Jobs to take from slots with more than `floor + 1` jobs.
    must: u32,
    /// Jobs to take from slots with `floor + 1` jobs, which could keep that number.
    may: u32,
}

impl Taken {
    /// Minimum size of a slot that still has to give a job.
    fn least(self) -> u32 {
        if self.may > 0 { self.floor + 1 } else { self.floor + 2 }
    }
}

struct Chain {
    jobs: u32,
    sizes: Vec<u32>,
    /// Candidates by step. There are twice as many buckets as steps, so that a search for jobs usually ends within
    /// them.
    buckets: Vec<Vec<Candidate>>,
    /// Candidates of later steps than there are buckets, with their step.
    later: Vec<(u32, Candidate)>,
    /// Order within one bucket: half a hash, then the position in the bucket. A field only to reuse its allocation.
    order: Vec<u64>,
}

impl Chain {
    /// Starts with one slot that has all jobs. All jobs are candidates in step 1.
    fn new(hashes: &[u64], slots: u32) -> Self {
        let all = (0..).zip(hashes).map(|(job, hash)| Candidate { hash: *hash, job, owner: 0 });
        let mut buckets = vec![Vec::new(); 2 * slots as usize];
        buckets[1].extend(all);
        let jobs = index(hashes.len());
        Self { jobs, sizes: vec![jobs], buckets, later: Vec::new(), order: Vec::new() }
    }

    fn taken(&self, step: u32, newcomer: Newcomer) -> Taken {
        let (before, more_before) = (self.jobs / step, self.jobs % step);
        let (floor, more) = (self.jobs / (step + 1), self.jobs % (step + 1));
        let size = match newcomer {
            Newcomer::Least => floor,
            Newcomer::Drawn(hash) => floor + u32::from(mix(hash, step.into()) % u64::from(step + 1) < more.into()),
        };
        // Jobs above `floor + 1`: first of the slots that had `before + 1` jobs, then of those that had `before`.
        let must = more_before * (before - floor) + (step - more_before) * before.saturating_sub(floor + 1);
        Taken { floor, must, may: size - must }
    }

    /// Moves jobs to the new slot, in the order of this step.
    fn take(&mut self, step: u32, mut taken: Taken) {
        self.sizes.push(0);
        for bucket in step as usize..=self.buckets.len() {
            if taken.must + taken.may == 0 {
                return;
            }
            self.sort(bucket, step, taken.least());
            for key in &self.order {
                let at = position(*key);
                let candidate = match self.buckets.get_mut(bucket) {
                    Some(bucket) => &mut bucket[at],
                    None => &mut self.later[at].1,
                };
                let size = &mut self.sizes[candidate.owner as usize];
                let kind = if *size > taken.floor + 1 { &mut taken.must } else { &mut taken.may };
                if *size > taken.floor && *kind > 0 {
                    (*size, *kind) = (*size - 1, *kind - 1);
                    candidate.owner = step;
                    self.sizes[step as usize] += 1;
                }
            }
        }
    }

    /// Sorts the candidates of a bucket whose slots have at least size `least`. The index behind the last bucket means
    /// `later`.
    fn sort(&mut self, bucket: usize, step: u32, least: u32) {
        let key = |(at, candidate): (u32, &Candidate)| {
            // This also excludes the new slot: its size does not exceed `floor` before the step is done.
            let can_give = self.sizes[candidate.owner as usize] >= least;
            can_give.then(|| key(candidate.hash, step, at))
        };
        self.order.clear();
        if let Some(bucket) = self.buckets.get(bucket) {
            self.order.extend((0..).zip(bucket).filter_map(key));
            self.order.sort_unstable();
        } else {
            let later = self.later.iter().map(|(_, candidate)| candidate);
            self.order.extend((0..).zip(later).filter_map(key));
            self.order.sort_unstable_by_key(|key| (self.later[position(*key)].0, *key));
        }
    }

    /// Moves the candidates of this step to the buckets of their next candidate steps.
    fn redraw(&mut self, step: u32) {
        for candidate in std::mem::take(&mut self.buckets[step as usize]) {
            let next = next(candidate.hash, step);
            match self.buckets.get_mut(next as usize) {
                Some(bucket) => bucket.push(candidate),
                None => self.later.push((next, candidate)),
            }
        }
    }

    /// Returns the slot of each job.
    fn owners(self) -> Vec<u32> {
        let mut owners = vec![0; self.jobs as usize];
        let later = self.later.iter().map(|(_, candidate)| candidate);
        for candidate in self.buckets.iter().flatten().chain(later) {
            owners[candidate.job as usize] = candidate.owner;
        }
        owners
    }
}

/// Sort key of a candidate within one bucket: the upper half of its hash for this step, then its position. The order of
/// two positions does not depend on other jobs: the first came from an earlier step, or had the lower position there,
/// or has the lower name.
pub fn key(hash: u64, step: u32, at: u32) -> u64 {
    mix(hash, step.into()) >> 32 << 32 | u64::from(at)
}

fn position(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

/// Returns the candidate step after step k, drawn from the lower half of the hash for this step. It is later than m
/// with probability k (k + 1) / (m (m + 1)), which is the product of 1 - 2 / (i + 1) over all i from k + 1 to m.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
#[expect(clippy::cast_precision_loss, reason = "33 bits fit")]
pub fn next(hash: u64, step: u32) -> u32 {
    const HALF: f64 = (1_u64 << 32) as f64;
    let drawn = ((mix(hash, step.into()) & u64::from(u32::MAX)) + 1) as f64 / HALF;
    let step = f64::from(step);
    // The smallest m with m (m + 1) drawn > k (k + 1). Division and square root round identically on every machine.
    let root = ((4.0 * step * (step + 1.0) / drawn + 1.0).sqrt() - 1.0) / 2.0;
    (root as u32).saturating_add(1)
}
