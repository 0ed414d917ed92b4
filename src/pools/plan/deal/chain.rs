//! Deals jobs of equal weight over slots 0, 1, 2, … as if the slots had come one by one.
//!
//! Step k adds slot k to k others: it takes jobs from each, down to sizes that differ by at most one. Which ones it takes is
//! decided by an order of the jobs that is another one in each step:
//!
//! - A job has a fixed, pseudo-random sequence of steps in which it is a candidate, step k with the probability 2 / (k + 1).
//!   In each step twice as many jobs are candidates as are taken.
//! - The order of step k is that of the next candidate step, k itself or later; then by hash of job and step; then by name.
//! - A slot that must give n jobs gives its first n. Where only some slots must give one more, those give whose next job is the
//!   first in the order.
//!
//! So the deal over n + 1 slots differs from that over n only by the jobs that the last slot takes, and a job more or less
//! changes little in each step. Jobs are kept by their next candidate step: a step costs about as many operations as it has
//! candidates, and all steps together about 2 J ln(n) where slots have some hundreds of jobs.

use super::item::{index, mix};

/// How many jobs a new slot takes where they are no multiple of the number of slots.
#[derive(Clone, Copy, Debug)]
pub enum Newcomer {
    /// The smaller number. Adding a slot moves exactly the least number of jobs; the first slots have one more.
    Least,
    /// One or the other, drawn from this hash: the slots that have one more differ by hash.
    Drawn(u64),
}

/// The slot of each job, given as hashes in the order of names. There is at least one slot.
pub fn deal(hashes: &[u64], slots: u32, newcomer: Newcomer) -> Vec<u32> {
    let mut chain = Chain::new(hashes, slots);
    for step in 1..slots {
        let taken = chain.taken(step, newcomer);
        chain.take(step, taken);
        chain.redraw(step);
    }
    chain.owners()
}

/// A job, in the bucket of its next candidate step.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hash: u64,
    job: u32,
    owner: u32,
}

/// How many jobs the new slot of a step takes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// The smaller size after this step; slots have this or one more.
    floor: u32,
    /// From slots that have more than one more.
    must: u32,
    /// From slots that have one more and could keep it.
    may: u32,
}

impl Taken {
    /// The least size of a slot from which something is still taken.
    fn least(self) -> u32 {
        if self.may > 0 { self.floor + 1 } else { self.floor + 2 }
    }
}

struct Chain {
    jobs: u32,
    sizes: Vec<u32>,
    /// By step; for twice as many as there are, so that a search for jobs ends within them.
    buckets: Vec<Vec<Candidate>>,
    /// Candidates of still later steps, with their step.
    later: Vec<(u32, Candidate)>,
    /// The order within one bucket, kept for its memory: half a hash, then the position in the bucket.
    order: Vec<u64>,
}

impl Chain {
    /// One slot has all jobs. All are candidates in step 1.
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
        // What is above floor + 1, of those that had `before + 1` and of those that had `before`.
        let must = more_before * (before - floor) + (step - more_before) * before.saturating_sub(floor + 1);
        Taken { floor, must, may: size - must }
    }

    /// Takes jobs for the new slot, in the order of this step.
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

    /// Puts those candidates of a bucket in order whose slots have at least this size. Behind the last bucket comes `later`.
    fn sort(&mut self, bucket: usize, step: u32, least: u32) {
        let key = |(at, candidate): (u32, &Candidate)| {
            // The new slot's size is not above the smaller one until the step is done.
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

    /// Moves the candidates of this step to the buckets of their next ones.
    fn redraw(&mut self, step: u32) {
        for candidate in std::mem::take(&mut self.buckets[step as usize]) {
            let next = next(candidate.hash, step);
            match self.buckets.get_mut(next as usize) {
                Some(bucket) => bucket.push(candidate),
                None => self.later.push((next, candidate)),
            }
        }
    }

    /// The slot of each job.
    fn owners(self) -> Vec<u32> {
        let mut owners = vec![0; self.jobs as usize];
        let later = self.later.iter().map(|(_, candidate)| candidate);
        for candidate in self.buckets.iter().flatten().chain(later) {
            owners[candidate.job as usize] = candidate.owner;
        }
        owners
    }
}

/// Sorts the candidates of one bucket: by the upper half of their hash for this step, then by their position. The latter does
/// not depend on other jobs: who comes first came from an earlier step, or was before the other there, or is so by name.
pub fn key(hash: u64, step: u32, at: u32) -> u64 {
    mix(hash, step.into()) >> 32 << 32 | u64::from(at)
}

fn position(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

/// The candidate step after this one, k, drawn from the lower half of the hash for this step. It is later than m with the
/// probability k (k + 1) / (m (m + 1)), which is the product of 1 - 2 / (i + 1) over all i from k + 1 to m.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
#[expect(clippy::cast_precision_loss, reason = "33 bits fit")]
pub fn next(hash: u64, step: u32) -> u32 {
    const HALF: f64 = (1_u64 << 32) as f64;
    let drawn = ((mix(hash, step.into()) & u64::from(u32::MAX)) + 1) as f64 / HALF;
    let step = f64::from(step);
    // The least m with m (m + 1) drawn > k (k + 1). Division and root are exact to the last bit on every machine.
    let root = ((4.0 * step * (step + 1.0) / drawn + 1.0).sqrt() - 1.0) / 2.0;
    (root as u32).saturating_add(1)
}
