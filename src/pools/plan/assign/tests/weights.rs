//! Jobs of different weights: balance compared with the best one, moves, and cost.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::assign::search::{MAX_JOBS, MAX_STEPS, SearchResult, SearchStart, improve};

fn weighted(weights: &[u32]) -> Vec<Job> {
    weights.iter().enumerate().map(|(number, weight)| job(number, *weight, false)).collect()
}

/// Loads of all workers.
fn loads_of(weights: &[u32], workers: u32, owner: &[u32]) -> Vec<u64> {
    let mut loads = vec![0; workers as usize];
    for (weight, worker) in weights.iter().zip(owner) {
        loads[*worker as usize] += u64::from(*weight);
    }
    loads
}

/// Smallest and largest load.
fn extremes(weights: &[u32], workers: u32, owner: &[u32]) -> (u64, u64) {
    let loads = loads_of(weights, workers, owner);
    (*loads.iter().min().unwrap(), *loads.iter().max().unwrap())
}

/// Worker of each job, given the previous ones.
fn owners(weights: &[u32], workers: u32, rules: AssignmentRules, previous: &[Option<u32>]) -> Vec<u32> {
    let assignment = reassign(&weighted(weights), &slots(workers), rules, previous);
    assignment.owner.into_iter().map(|owner| owner.unwrap()).collect()
}

fn fresh(weights: &[u32], workers: u32) -> Vec<u32> {
    owners(weights, workers, AssignmentRules::default(), &vec![None; weights.len()])
}

fn moves(previous: &[Option<u32>], owner: &[u32]) -> usize {
    previous.iter().zip(owner).filter(|(previous, owner)| previous.is_some_and(|previous| previous != **owner)).count()
}

fn largest_weight(weights: &[u32]) -> u64 {
    weights.iter().max().copied().unwrap_or(0).into()
}

/// All assignments.
fn all_owners(jobs: usize, workers: u32) -> impl Iterator<Item = Vec<u32>> {
    let digit = move |number: u32, place: u32| number / workers.pow(place) % workers;
    (0..workers.pow(jobs as u32)).map(move |number| (0..jobs as u32).map(|place| digit(number, place)).collect())
}

/// Loads of the best assignment: the smallest largest load, then the largest smallest load.
fn best_loads(weights: &[u32], workers: u32) -> (u64, u64) {
    let all = all_owners(weights.len(), workers).map(|owner| extremes(weights, workers, &owner));
    all.min_by_key(|(smallest, largest)| (*largest, std::cmp::Reverse(*smallest))).unwrap()
}

/// Smallest largest load of blocks of adjacent jobs.
fn best_largest_block(weights: &[u32], workers: u32) -> u64 {
    let Some(fewer) = workers.checked_sub(1).filter(|fewer| *fewer > 0) else {
        return weights.iter().map(|weight| u64::from(*weight)).sum();
    };
    let last_block = |start: usize| weights[start..].iter().map(|weight| u64::from(*weight)).sum::<u64>();
    let largest = |start: usize| best_largest_block(&weights[..start], fewer).max(last_block(start));
    (0..=weights.len()).map(largest).min().unwrap()
}

#[rstest]
#[case(&[9, 1, 1, 1, 1, 1, 1, 1, 1, 1], 2, &[9, 9])]
#[case(&[10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], 3, &[10, 10, 10])]
#[case(&[8, 7, 6, 5, 4], 2, &[15, 15])]
#[case(&[5, 5, 4, 4, 3, 3, 3], 3, &[9, 9, 9])]
fn small_pools_have_the_best_loads(#[case] weights: &[u32], #[case] workers: u32, #[case] expected: &[u64]) {
    assert_eq!(loads_of(weights, workers, &fresh(weights, workers)), expected);
}

/// A cut into loads of 3, 4 and 6 has the same smallest load, but a larger largest one.
#[test]
fn blocks_have_the_best_loads() {
    let weights = [3, 5, 1, 4];
    let owner = owners(&weights, 3, rules(AssignmentStrategy::Contiguous), &[None; 4]);
    let mut loads = loads_of(&weights, 3, &owner);
    loads.sort_unstable();
    assert_eq!(loads, [3, 5, 5]);
}

/// With two workers, 12 and 18 are within the bounds, 22 and 8 are not.
#[rstest]
#[case(&[8, 7, 6, 5, 4], &[0, 1, 1, 1, 0], 0)]
#[case(&[8, 7, 6, 5, 4], &[0, 1, 0, 1, 0], 0)]
#[case(&[8, 7, 6, 5, 4], &[0, 0, 0, 0, 0], 2)]
#[case(&[9, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], 1)]
fn few_jobs_move_to_better_loads(#[case] weights: &[u32], #[case] previous: &[u32], #[case] expected: usize) {
    let previous: Vec<Option<u32>> = previous.iter().copied().map(Some).collect();
    let owner = owners(weights, 2, AssignmentRules::default(), &previous);
    assert_eq!(moves(&previous, &owner), expected, "{owner:?}");
}

#[test]
fn a_worker_more_moves_few_jobs() {
    let weights: Vec<u32> = (0..3_000).map(|number| number % 100 + 1).collect();
    let mut owner = fresh(&weights, 2);
    for workers in 3..=20 {
        let previous: Vec<Option<u32>> = owner.iter().copied().map(Some).collect();
        owner = owners(&weights, workers, AssignmentRules::default(), &previous);
        let (smallest, largest) = extremes(&weights, workers, &owner);
        assert!(largest - smallest <= 100);
        let moved = moves(&previous, &owner);
        assert!(moved <= 3_000 / workers as usize, "{moved} moves to {workers} workers");
    }
}

/// Searches for an assignment without a history.
fn search(weights: &[u32], workers: u32) -> SearchResult {
    let jobs = weighted(weights);
    let items: Vec<HashedJob> = jobs.iter().map(HashedJob::new).collect();
    let pool = WeightedPool { items: &items, workers: &slots(workers), max_jobs: usize::MAX };
    let (owner, previous) = (vec![0; jobs.len()], vec![None; jobs.len()]);
    improve(pool, SearchStart { owner: &owner, previous: &previous, most: u64::MAX })
}

#[test]
fn the_search_of_a_larger_pool_is_bounded() {
    // Hardly any two sets of these jobs have the same weight, so that branches end late.
    let weights: Vec<u32> = (0..MAX_JOBS).map(|number| 401 + (number * number) as u32).collect();
    for workers in 2..MAX_JOBS as u32 {
        let steps = search(&weights, workers).steps.unwrap();
        assert!(steps <= MAX_STEPS + workers as usize, "{steps} steps");
    }
    assert_eq!(search(&[7; MAX_JOBS + 1], 3).steps, None);
}

/// Steps of a search from these workers, of which all but the new ones are the current ones.
fn steps_from(weights: &[u32], owner: &[u32], new: usize) -> Option<usize> {
    let jobs = weighted(weights);
    let items: Vec<HashedJob> = jobs.iter().map(HashedJob::new).collect();
    let workers = slots(owner.iter().max().unwrap() + 1);
    let pool = WeightedPool { items: &items, workers: &workers, max_jobs: usize::MAX };
    let previous: Vec<Option<u32>> =
        owner.iter().enumerate().map(|(job, worker)| (job >= new).then_some(*worker)).collect();
    improve(pool, SearchStart { owner, previous: &previous, most: u64::MAX }).steps
}

#[rstest]
#[case::no_new_jobs(&[8, 7, 6, 5, 4], &[0, 1, 1, 0, 0], 0, false)]
#[case::new_jobs(&[8, 7, 6, 5, 4], &[0, 1, 1, 0, 0], 2, true)]
#[case::lower_bound(&[30, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3], &[0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2], 11, false)]
#[case::smallest_load_of_a_small_pool(&[30, 3, 3, 3, 3, 3, 3, 3], &[0, 1, 1, 1, 1, 1, 2, 2], 8, true)]
fn nothing_is_searched_if_nothing_can_be_better(
    #[case] weights: &[u32],
    #[case] owner: &[u32],
    #[case] new: usize,
    #[case] is_searched: bool,
) {
    assert_eq!(steps_from(weights, owner, new).is_some(), is_searched);
}

/// Two searches of at most 100,000 steps, whatever the history.
#[test]
fn a_plan_of_a_larger_pool_stays_balanced_within_its_steps() {
    for (jobs, workers) in (11..=MAX_JOBS).flat_map(|jobs| (2..8).map(move |workers| (jobs, workers))) {
        let weights: Vec<u32> = (0..jobs as u32).map(|number| 401 + number * number).collect();
        let (smallest, largest) = extremes(&weights, workers, &fresh(&weights, workers));
        assert!(largest - smallest <= largest_weight(&weights));
        let previous: Vec<Option<u32>> = (0..jobs as u32).map(|job| Some(job % 2)).collect();
        let owner = owners(&weights, workers, AssignmentRules::default(), &previous);
        assert!(3 * extremes(&weights, workers, &owner).1 <= 4 * largest);
    }
}

/// Weights for this number of workers that can be split into equal loads, and that load.
fn divisible() -> impl Strategy<Value = (Vec<u32>, u32, u64)> {
    (2..8_u32, 50..400_u32).prop_flat_map(|(workers, load)| {
        let cuts = prop::collection::vec(prop::collection::btree_set(1..load, 0..20), workers as usize);
        let weights = cuts.prop_map(move |cuts| {
            let blocks = cuts.iter().flat_map(|cuts| {
                let ends = cuts.iter().copied().chain([load]);
                std::iter::once(0).chain(cuts.iter().copied()).zip(ends).map(|(start, end)| end - start)
            });
            blocks.collect()
        });
        weights.prop_map(move |weights: Vec<u32>| (weights, workers, u64::from(load)))
    })
}

/// Random worker of each job; some have none.
fn random_workers(jobs: usize, workers: u32, seed: u64) -> Vec<Option<u32>> {
    let number = |job: usize| mix(seed, job as u64) % u64::from(workers + 1);
    (0..jobs).map(|job| u32::try_from(number(job)).unwrap().checked_sub(1)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_assignment_of_a_small_pool_is_better(
        weights in prop::collection::vec(1..100_u32, 1..=8), workers in 1..=3_u32
    ) {
        let equal = weights.iter().all(|weight| *weight == weights[0]);
        let owner = fresh(&weights, workers);
        prop_assert!(equal || extremes(&weights, workers, &owner) == best_loads(&weights, workers), "{owner:?}");
    }

    #[test]
    fn no_blocks_are_better(weights in prop::collection::vec(1..100_u32, 1..=8), workers in 1..=4_u32) {
        let owner = owners(&weights, workers, rules(AssignmentStrategy::Contiguous), &vec![None; weights.len()]);
        let (smallest, largest) = extremes(&weights, workers, &owner);
        prop_assert_eq!(largest, best_largest_block(&weights, workers));
        prop_assert!(largest - smallest <= largest_weight(&weights));
    }

    /// Guarantee of longest processing time first.
    #[test]
    fn the_largest_load_is_at_most_four_thirds_of_the_best((weights, workers, best) in divisible()) {
        let (smallest, largest) = extremes(&weights, workers, &fresh(&weights, workers));
        let workers = u64::from(workers);
        prop_assert!(3 * workers * largest <= (4 * workers - 1) * best, "{largest} instead of {best}");
        prop_assert!(largest - smallest <= largest_weight(&weights));
    }

    /// The bounds also hold for any history, and then nothing moves.
    #[test]
    fn of_any_history_the_bounds_hold(
        (weights, workers, best) in divisible(), seed in any::<u64>(), used in 1..8_u32
    ) {
        let previous = random_workers(weights.len(), used.min(workers), seed);
        let owner = owners(&weights, workers, AssignmentRules::default(), &previous);
        let (smallest, largest) = extremes(&weights, workers, &owner);
        prop_assert!(3 * largest <= 4 * best, "{largest} instead of {best}");
        prop_assert!(largest - smallest <= largest_weight(&weights));
        let again: Vec<Option<u32>> = owner.iter().copied().map(Some).collect();
        prop_assert_eq!(&owners(&weights, workers, AssignmentRules::default(), &again), &owner);
    }

    /// The maximum number of jobs per worker leaves as little room as possible.
    #[test]
    fn of_a_tight_maximum_the_loads_are_balanced(
        weights in prop::collection::vec(1..100_u32, 1..60), workers in 1..8_u32, seed in any::<u64>()
    ) {
        let max_jobs = weights.len().div_ceil(workers as usize);
        let rules = AssignmentRules { max_jobs: Some(max_jobs), ..AssignmentRules::default() };
        let previous = random_workers(weights.len(), workers, seed);
        let owner = owners(&weights, workers, rules, &previous);
        let (smallest, largest) = extremes(&weights, workers, &owner);
        prop_assert!(largest - smallest <= largest_weight(&weights), "{owner:?}");
        prop_assert!((0..workers).all(|worker| owner.iter().filter(|owner| **owner == worker).count() <= max_jobs));
        let again: Vec<Option<u32>> = owner.iter().copied().map(Some).collect();
        prop_assert_eq!(&owners(&weights, workers, rules, &again), &owner);
    }

    #[test]
    fn of_a_small_pool_the_least_moves(
        jobs in prop::collection::vec((1..30_u32, prop::option::of(0..3_u32)), 1..=7), workers in 1..=3_u32
    ) {
        let weights: Vec<u32> = jobs.iter().map(|job| job.0).collect();
        let previous: Vec<Option<u32>> = jobs.iter().map(|job| job.1.filter(|worker| *worker < workers)).collect();
        let has_history = previous.iter().any(Option::is_some);
        let equal = weights.iter().all(|weight| *weight == weights[0]);
        let owner = owners(&weights, workers, AssignmentRules::default(), &previous);
        let most = best_loads(&weights, workers).1 * 4 / 3;
        let within = |owner: &Vec<u32>| {
            let (smallest, largest) = extremes(&weights, workers, owner);
            largest <= most && largest - smallest <= largest_weight(&weights)
        };
        prop_assert!(equal || within(&owner), "{owner:?}");
        let least = all_owners(weights.len(), workers).filter(within).map(|owner| moves(&previous, &owner)).min();
        prop_assert!(equal || !has_history || Some(moves(&previous, &owner)) == least, "{owner:?}, {least:?} moves");
    }

    #[test]
    fn the_search_of_ten_jobs_ends(weights in prop::collection::vec(1..=1000_u32, 10), workers in 2..10_u32) {
        let found = search(&weights, workers);
        prop_assert!(found.is_best(), "{:?} steps", found.steps);
    }
}
