//! The strategy Contiguous: each worker gets one block of jobs that are adjacent by name.
//!
//! No other blocks have a smaller largest load, and loads differ by at most the largest weight. Workers are ordered so
//! that few jobs move when the last worker is added or removed: it is in the middle, so each block moves by at most
//! half of its size.

use super::hashed::{HashedJob, index};

/// Returns the worker of each job. There must be at least one worker, and room for all jobs.
pub fn assign(items: &[HashedJob], workers: &[u32], max_jobs: usize) -> Vec<u32> {
    let ends = JobLine::new(items, workers.len(), max_jobs).ends();
    let mut owner = vec![0; items.len()];
    let mut start = 0;
    for (worker, end) in order(workers).into_iter().zip(ends) {
        owner[start..end].fill(worker);
        start = end;
    }
    owner
}

/// Order of the workers along the line: even slots ascending, then odd slots descending. An added slot is always
/// between the two.
fn order(workers: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..index(workers.len())).collect();
    order.sort_by_key(|worker| {
        let slot = i64::from(workers[*worker as usize]);
        if slot % 2 == 0 { (false, slot) } else { (true, -slot) }
    });
    order
}

/// Line of jobs that is cut into blocks. `widest` is the largest weight of a job.
///
/// Let `least` be the largest number such that all blocks, each with at least this weight, fit into the line. Then
/// there is a cut into blocks with weights from `least` to `least + widest`. Proof: the shortest such blocks end at or
/// before the end of the line, by definition of `least`. The longest such blocks reach the end: each of them is heavier
/// than `least`, and that many heavier blocks do not fit. All ends in between can be reached, too: one more job before
/// a block moves the first and the last possible end of that block by so little that no end is skipped.
///
/// Let `most` be the smallest number such that blocks, each with at most this weight, reach the end of the line. Then
/// there is a cut into blocks with weights from `most - widest` to `most`, by the same proof with exchanged roles. No
/// cut has a smaller largest block. The first cut is the better one if its largest block has this weight, too, because
/// no cut has a larger smallest block.
struct JobLine {
    /// Total weight of the jobs before each position.
    before: Vec<u64>,
    blocks: usize,
    max_jobs: usize,
    widest: u64,
}

impl JobLine {
    fn new(items: &[HashedJob], blocks: usize, max_jobs: usize) -> Self {
        let mut before = Vec::with_capacity(items.len() + 1);
        let mut sum = 0;
        before.push(sum);
        before.extend(items.iter().map(|item| {
            sum += u64::from(item.weight);
            sum
        }));
        let widest = items.iter().map(|item| item.weight).max().unwrap_or(0).into();
        Self { before, blocks, max_jobs, widest }
    }

    fn jobs(&self) -> usize {
        self.before.len() - 1
    }

    fn weight(&self) -> u64 {
        self.before[self.jobs()]
    }

    /// First position with at least this weight before it; a position behind the line if there is none.
    fn first(&self, weight: u64) -> usize {
        self.before.partition_point(|before| *before < weight)
    }

    /// Last position with at most this weight before it.
    fn last(&self, weight: u64) -> usize {
        self.before.partition_point(|before| *before <= weight) - 1
    }

    /// Largest weight that every block can have.
    fn least(&self) -> u64 {
        let (mut fits, mut too_much) = (0, self.weight() / (self.blocks.max(1) as u64) + 1);
        while too_much - fits > 1 {
            let middle = fits + (too_much - fits) / 2;
            let ends = (0..self.blocks).try_fold(0, |start, _| {
                let end = self.first(self.before[start] + middle);
                (end <= self.jobs()).then_some(end)
            });
            *(if ends.is_some() { &mut fits } else { &mut too_much }) = middle;
        }
        fits
    }

    /// Smallest maximum weight of a block.
    fn most(&self) -> u64 {
        let (mut too_little, mut fits) = (self.weight() / (self.blocks.max(1) as u64), self.weight());
        if self.reaches_end(too_little) {
            return too_little;
        }
        while fits - too_little > 1 {
            let middle = too_little + (fits - too_little) / 2;
            *(if self.reaches_end(middle) { &mut fits } else { &mut too_little }) = middle;
        }
        fits
    }

    /// Whether blocks with at most this weight reach the end of the line.
    fn reaches_end(&self, most: u64) -> bool {
        (0..self.blocks).fold(0, |start, _| self.last(self.before[start] + most)) == self.jobs()
    }

    /// Returns the end of each block.
    fn ends(&self) -> Vec<usize> {
        let (least, most) = (self.least(), self.most());
        let ends = self.cut(least, least + self.widest);
        let starts = std::iter::once(&0).chain(&ends);
        let fits = starts.zip(&ends).all(|(start, end)| self.before[*end] - self.before[*start] <= most);
        if fits { ends } else { self.cut(most.saturating_sub(self.widest), most) }
    }

    /// Returns the end of each block, given the smallest and the largest weight of a block. Chosen backwards from the
    /// last block, each as near as possible to its ideal end.
    fn cut(&self, least: u64, most: u64) -> Vec<usize> {
        let reach = |add: u64, position: fn(&Self, u64) -> usize| {
            let next = move |start: &usize| Some(position(self, self.before[*start] + add));
            std::iter::successors(Some(0), next).skip(1).take(self.blocks).collect::<Vec<_>>()
        };
        let (shortest, longest) = (reach(least, Self::first), reach(most, Self::last));
        let mut ends = vec![self.jobs(); self.blocks];
        for block in (1..self.blocks).rev() {
            let end = ends[block];
            let from = shortest[block - 1].max(self.first(self.before[end].saturating_sub(most)));
            let to = longest[block - 1].min(self.last(self.before[end].saturating_sub(least)));
            let chosen = self.ideal(block).clamp(from.min(to), to);
            ends[block - 1] = self.within_limit(chosen, block, end);
        }
        ends
    }

    /// Position nearest to the end that the first `blocks` blocks would have if jobs could be divided.
    fn ideal(&self, blocks: usize) -> usize {
        let wanted = u128::from(self.weight()) * blocks as u128;
        let scaled = |before: u64| u128::from(before) * self.blocks as u128;
        let above = self.before.partition_point(|before| scaled(*before) < wanted);
        match above.checked_sub(1) {
            Some(below) if wanted - scaled(self.before[below]) <= scaled(self.before[above]) - wanted => below,
            _ => above,
        }
    }

    /// Clamps a position so that neither the block that ends at `end` nor the `blocks` blocks before the position need
    /// more than `max_jobs` jobs each.
    fn within_limit(&self, position: usize, blocks: usize, end: usize) -> usize {
        let from = end.saturating_sub(self.max_jobs);
        let to = blocks.saturating_mul(self.max_jobs).min(end);
        position.clamp(from, to.max(from))
    }
}
