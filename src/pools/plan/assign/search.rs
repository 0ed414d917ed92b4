//! Search for the best assignment of a small pool (branch and bound).
//!
//! Depth first: jobs are placed heaviest first, each on its current worker, then on the others, least loaded first. A
//! branch ends if none of its assignments can be better than the best one so far. The number of steps is bounded.
//! Beyond it, the search ends with the best assignment so far.

use std::cmp::Reverse;

use super::hashed::{LoadRank, index, load_rank};
use super::pool::WeightedPool;

/// Maximum number of jobs. With more jobs, the search seldom ends within its steps.
pub const MAX_JOBS: usize = 20;

/// Maximum number of steps: a step looks at one worker for one job, in about 20 ns. A plan searches twice at most.
///
/// For 11 to 20 jobs with weights from 1 to 100 on 2 to 8 workers, the largest load exceeds its lower bound on average
/// by 1.67 percent without a search, 1.05 percent after 10,000 steps, 0.90 percent after 100,000 steps, and 0.85
/// percent after 1,300,000 steps.
pub const MAX_STEPS: usize = 100_000;

/// Number of jobs up to which the first assignment is the best one.
const EXACT_JOBS: usize = 10;

/// Sufficient for the first assignment of these jobs: the first jobs, from none to all ten, can be split in at most
/// 142,418 ways (sum of the Bell numbers from 0 to 10), and there are at most nine workers. Most branches end early: no
/// pool is known that takes 50,000 steps.
const EXACT_STEPS: usize = 1_300_000;

/// Assignment that a search improves, and its bounds.
#[derive(Clone, Copy)]
pub struct SearchStart<'a> {
    pub owner: &'a [u32],
    /// Current worker of each job; None if it has none.
    pub previous: &'a [Option<u32>],
    /// Maximum load of a worker.
    pub most: u64,
}

impl SearchStart<'_> {
    /// Number of jobs that are not on their current worker.
    fn moves(&self) -> usize {
        let pairs = self.previous.iter().zip(self.owner);
        pairs.filter(|(held, owner)| held.is_some_and(|held| held != **owner)).count()
    }

    /// Maximum number of steps for a pool.
    fn max_steps(&self) -> usize {
        let is_first = self.previous.iter().all(Option::is_none);
        if is_first && self.owner.len() <= EXACT_JOBS { EXACT_STEPS } else { MAX_STEPS }
    }

    /// Whether a search is pointless: any other assignment moves more jobs, or has the same largest load. In a small
    /// pool, the smallest load matters as well.
    fn is_good(&self, pool: WeightedPool<'_>) -> bool {
        let has_new_jobs = self.previous.iter().any(Option::is_none);
        let is_even = || self.owner.len() > EXACT_JOBS && pool.extreme_loads(self.owner).1 <= pool.lower_bound();
        self.moves() == 0 && (!has_new_jobs || is_even())
    }
}

/// Result of a search.
pub struct SearchResult {
    pub owner: Vec<u32>,
    /// Number of steps; None if there was no search.
    pub steps: Option<usize>,
    /// Maximum number of steps.
    max_steps: usize,
}

impl SearchResult {
    /// Whether the search shows that no other assignment is better.
    pub fn is_best(&self) -> bool {
        self.steps.is_some_and(|steps| steps <= self.max_steps)
    }
}

/// Rank of an assignment; the lowest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SearchScore {
    moves: usize,
    largest_load: u64,
    smallest_load: Reverse<u64>,
}

/// Returns the best assignment: with the fewest moves, then the smallest largest load, then the largest smallest load.
/// Its loads do not exceed `most`, and differ by at most the largest weight. Returns `start` if there is no better one.
pub fn improve(pool: WeightedPool<'_>, start: SearchStart<'_>) -> SearchResult {
    if pool.items.len() > MAX_JOBS || pool.items.len() <= pool.workers.len() || start.is_good(pool) {
        return SearchResult { owner: start.owner.to_vec(), steps: None, max_steps: 0 };
    }
    let mut search = Search::new(pool, start);
    let ranks = (0..index(pool.workers.len())).map(|worker| load_rank(worker, 0, pool.workers));
    let mut order: Vec<LoadRank> = ranks.collect();
    order.sort_unstable();
    search.extend(PartialAssignment { placed: 0, moves: 0, order: &order });
    SearchResult { owner: search.best_owner, steps: Some(search.steps), max_steps: search.max_steps }
}

/// Assignments in which the first jobs have the same workers.
#[derive(Clone, Copy)]
struct PartialAssignment<'a> {
    /// Number of jobs that are placed.
    placed: usize,
    /// Number of these that are not on their current worker.
    moves: usize,
    /// Loads of all workers, ascending.
    order: &'a [LoadRank],
}

struct Search<'a> {
    pool: WeightedPool<'a>,
    previous: &'a [Option<u32>],
    /// Jobs, heaviest first.
    jobs: Vec<u32>,
    /// Total weight of the jobs that are not yet placed.
    weight_left: u64,
    /// Lower bound of the largest load.
    lower_bound: u64,
    most: u64,
    /// Maximum difference of two loads.
    difference: u64,
    /// Number of placed jobs of each worker.
    counts: Vec<usize>,
    /// Number of jobs of each worker that are not yet placed.
    waiting: Vec<usize>,
    /// Worker of each placed job.
    owner: Vec<u32>,
    best: SearchScore,
    best_owner: Vec<u32>,
    steps: usize,
    max_steps: usize,
}

impl<'a> Search<'a> {
    fn new(pool: WeightedPool<'a>, start: SearchStart<'a>) -> Self {
        let mut jobs: Vec<u32> = (0..index(pool.items.len())).collect();
        jobs.sort_unstable_by_key(|job| pool.weight_rank(*job));
        let mut waiting = vec![0; pool.workers.len()];
        start.previous.iter().flatten().for_each(|worker| waiting[*worker as usize] += 1);
        let (smallest, largest) = pool.extreme_loads(start.owner);
        Self {
            pool,
            previous: start.previous,
            jobs,
            weight_left: pool.items.iter().map(|item| u64::from(item.weight)).sum(),
            lower_bound: pool.lower_bound(),
            most: start.most,
            difference: pool.largest_weight(),
            counts: vec![0; pool.workers.len()],
            waiting,
            owner: start.owner.to_vec(),
            best: SearchScore { moves: start.moves(), largest_load: largest, smallest_load: Reverse(smallest) },
            best_owner: start.owner.to_vec(),
            steps: 0,
            max_steps: start.max_steps(),
        }
    }

    /// Places the remaining jobs in all ways that may be better than the best assignment so far.
    fn extend(&mut self, branch: PartialAssignment<'_>) {
        if self.steps > self.max_steps {
            return;
        }
        self.steps += branch.order.len();
        let Some(score) = self.best_possible(branch).filter(|score| *score < self.best) else { return };
        let Some(job) = self.jobs.get(branch.placed).copied() else {
            self.best = score;
            self.best_owner.clone_from(&self.owner);
            return;
        };
        let held = self.previous[job as usize];
        let is_held = |rank: &LoadRank| held == Some(rank.2);
        if let Some(at) = branch.order.iter().position(is_held) {
            self.place(job, at, branch);
        }
        let moves = branch.moves + usize::from(held.is_some());
        for (at, rank) in branch.order.iter().enumerate() {
            let mut equally_loaded = branch.order[..at].iter().rev().take_while(|other| other.0 == rank.0);
            if !is_held(rank) && !equally_loaded.any(|other| self.are_alike(other.2, rank.2)) {
                self.place(job, at, PartialAssignment { moves, ..branch });
            }
        }
    }

    /// Places the next job on the worker at this position of the order, and extends the branch.
    fn place(&mut self, job: u32, at: usize, branch: PartialAssignment<'_>) {
        let (load, slot, worker) = branch.order[at];
        if self.counts[worker as usize] >= self.pool.max_jobs {
            return;
        }
        let weight = u64::from(self.pool.items[job as usize].weight);
        let raised = (load + weight, slot, worker);
        let mut order = branch.order.to_vec();
        let end = at + order[at + 1..].partition_point(|other| *other < raised);
        order.copy_within(at + 1..=end, at);
        order[end] = raised;

        let held = self.previous[job as usize];
        self.counts[worker as usize] += 1;
        held.iter().for_each(|held| self.waiting[*held as usize] -= 1);
        self.weight_left -= weight;
        self.owner[job as usize] = worker;
        self.extend(PartialAssignment { placed: branch.placed + 1, order: &order, ..branch });
        self.weight_left += weight;
        held.iter().for_each(|held| self.waiting[*held as usize] += 1);
        self.counts[worker as usize] -= 1;
    }

    /// Whether the rest of the search is the same if two workers of equal load are exchanged.
    fn are_alike(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|worker| worker as usize);
        self.counts[one] == self.counts[other] && self.waiting[one] + self.waiting[other] == 0
    }

    /// SearchScore that no assignment of this branch can be better than; None if all exceed the bounds. If all jobs are
    /// placed, the score of the assignment.
    fn best_possible(&self, branch: PartialAssignment<'_>) -> Option<SearchScore> {
        let largest = self.lower_bound.max(branch.order.last()?.0);
        // The smallest load is at most the mean of the k smallest loads after they got all remaining jobs.
        let mut sum = self.weight_left;
        let means = (1..).zip(branch.order).map(|(count, (load, ..))| {
            sum += load;
            sum / count
        });
        let smallest = means.min()?;
        let within = largest <= self.most && largest.saturating_sub(smallest) <= self.difference;
        within.then_some(SearchScore { moves: branch.moves, largest_load: largest, smallest_load: Reverse(smallest) })
    }
}
