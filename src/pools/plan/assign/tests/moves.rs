//! Number of jobs that move when workers and jobs are added or removed.

use proptest::prelude::*;

use super::*;

/// Minimum number of moves between n and n + 1 blocks of equal size. Old block i, the interval [i/n, (i+1)/n), overlaps
/// most with new block i or i + 1. Therefore at least 1 - sum max(n - i, i + 1) / (n (n + 1)) of a line of length 1
/// moves.
fn least_by_blocks(jobs: usize, workers: u32) -> f64 {
    let kept: u32 = (0..workers).map(|block| (workers - block).max(block + 1)).sum();
    jobs as f64 * (1.0 - f64::from(kept) / f64::from(workers * (workers + 1)))
}

/// Number of jobs that move when one worker is added.
fn moved_by_one_more(jobs: &[Job], workers: u32, strategy: AssignmentStrategy) -> usize {
    let [before, after] = [workers, workers + 1].map(|workers| by_name(jobs, &slots(workers), rules(strategy)));
    moved(&before, &after)
}

#[test]
fn the_last_worker_comes_and_goes_with_the_least_moves() {
    for jobs in (0..=60).chain([500, 1_000, 4_321]).map(plain) {
        for workers in 1..=14 {
            // The new worker needs at least this number of jobs in every balanced assignment.
            let least = jobs.len() / (workers as usize + 1);
            let stable = moved_by_one_more(&jobs, workers, AssignmentStrategy::Stable);
            assert_eq!(stable, least, "{} jobs, {workers} workers", jobs.len());
            let most = 1.1 * least_by_blocks(jobs.len(), workers) + f64::from(workers);
            let contiguous = moved_by_one_more(&jobs, workers, AssignmentStrategy::Contiguous);
            assert!(contiguous as f64 <= most, "{contiguous} > {most}: {} jobs, {workers} workers", jobs.len());
        }
    }
}

#[test]
fn a_lost_worker_moves_only_its_own_jobs() {
    for count in [0, 1, 5, 12, 59, 60, 61, 1_000] {
        let jobs = plain(count);
        for workers in 2..=12 {
            let all = slots(workers);
            let before = by_name(&jobs, &all, AssignmentRules::default());
            for lost in 0..workers {
                let left: Vec<u32> = all.iter().copied().filter(|slot| *slot != lost).collect();
                let after = by_name(&jobs, &left, AssignmentRules::default());
                let others = before.iter().filter(|(name, slot)| **slot != lost && after[*name] != **slot);
                assert_eq!(others.count(), 0, "{count} jobs, {workers} workers, {lost} lost");
            }
        }
    }
}

#[test]
fn a_dedicated_job_more_moves_what_its_worker_had_and_little_else() {
    for dedicated in 0..6 {
        let jobs = |dedicated| -> Vec<Job> {
            (0..600).map(|number| job(number, 1, number % 97 < 1 && number / 97 < dedicated)).collect()
        };
        let [before, after] =
            [dedicated, dedicated + 1].map(|count| by_name(&jobs(count), &slots(12), AssignmentRules::default()));
        let moves = moved(&before, &after);
        assert!(moves <= 600 / (12 - dedicated) + 6 * 12, "{moves} moves for {dedicated} dedicated jobs and one more");
    }
}

/// A dedicated job that newly gets a worker of its own chooses after those that have one.
#[test]
fn a_worker_more_than_there_are_for_dedicated_jobs_is_for_one_more() {
    let jobs: Vec<Job> = (0..60).map(|number| job(number, 1, number > 0)).collect();
    let alone = |workers: u32| {
        let all = by_name(&jobs, &slots(workers), AssignmentRules::default());
        let mut sizes = BTreeMap::<u32, usize>::new();
        all.values().for_each(|slot| *sizes.entry(*slot).or_default() += 1);
        all.into_iter().filter(|(_, slot)| sizes[slot] == 1).collect::<BTreeMap<_, _>>()
    };
    let moves: Vec<usize> = (10..50).map(|workers| moved(&alone(workers), &alone(workers + 1))).collect();
    assert!(moves.iter().sum::<usize>() <= 3 * moves.len(), "{moves:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_job_more_or_less_moves_few(
        numbers in prop::collection::btree_set(0..90_000_usize, 2..1_000),
        gone in any::<prop::sample::Index>(),
        workers in 1..13_u32
    ) {
        let all: Vec<Job> = numbers.into_iter().map(|number| job(number, 1, false)).collect();
        let mut less = all.clone();
        less.remove(gone.index(all.len()));
        for (strategy, times) in [(AssignmentStrategy::Stable, 4), (AssignmentStrategy::Contiguous, 1)] {
            let [before, after] = [&all, &less].map(|jobs| by_name(jobs, &slots(workers), rules(strategy)));
            let moves = moved(&before, &after);
            prop_assert!(moves <= times * workers as usize, "{moves} moves");
        }
    }

    #[test]
    fn the_maximum_leaves_out_the_same_jobs_whoever_has_the_others(
        count in 1..200_usize, workers in 1..10_u32, max in 1..10_usize
    ) {
        let jobs = plain(count);
        let limited =
            |strategy, max| by_name(&jobs, &slots(workers), AssignmentRules { strategy, max_jobs: Some(max) });
        let stable = limited(AssignmentStrategy::Stable, max);
        prop_assert!(stable.keys().eq(limited(AssignmentStrategy::Contiguous, max).keys()));
        let more = limited(AssignmentStrategy::Stable, max + 1);
        prop_assert!(stable.keys().all(|name| more.contains_key(name)));
    }
}
