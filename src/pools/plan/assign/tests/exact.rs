//! For any numbers: no job is lost, none is assigned twice, and loads are balanced.

use std::fmt;

use proptest::prelude::*;

use super::*;

/// Checks the guarantees of an assignment for one input.
#[track_caller]
fn check(jobs: &[Job], workers: &[u32], rules: AssignmentRules) {
    let assignment = assign(jobs, workers, rules);
    // Formatted only if a check fails: most of the inputs are large.
    let case = fmt::from_fn(|f| write!(f, "{jobs:?} {workers:?} {rules:?} {assignment:?}"));
    let max = rules.max_jobs.unwrap_or(usize::MAX);
    let (count, dedicated) = (workers.len(), jobs.iter().filter(|job| job.dedicated).count());
    let others = dedicated < jobs.len() || dedicated > count;
    let alone = if max == 0 { 0 } else { dedicated.min(count.saturating_sub(usize::from(others))) };
    assert_eq!(assignment.sharing, dedicated - alone, "{case}");
    assert_eq!(assignment.owner.len(), jobs.len(), "{case}");
    let room = (count - alone).saturating_mul(max);
    let assigned = alone + (jobs.len() - alone).min(room);
    assert_eq!(assignment.owner.iter().flatten().count(), assigned, "{case}");
    let mut of: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (job, owner) in assignment.owner.iter().enumerate() {
        if let Some(owner) = owner {
            of[*owner as usize].push(job);
        }
    }
    assert!(of.iter().all(|jobs| jobs.len() <= max), "more than the maximum: {case}");
    let lonely = |of: &&Vec<usize>| of.len() == 1 && jobs[of[0]].dedicated;
    assert!(of.iter().filter(lonely).count() >= alone, "not alone: {case}");
    if assignment.sharing == 0 {
        // If dedicated jobs share, at most one worker is left for all other jobs.
        let shared: Vec<_> = of.into_iter().filter(|of| !of.iter().any(|job| jobs[*job].dedicated)).collect();
        assert_eq!(shared.len(), count - alone, "{case}");
        balanced(jobs, &shared, rules, &case);
    }
}

fn balanced(jobs: &[Job], shared: &[Vec<usize>], rules: AssignmentRules, case: &impl fmt::Display) {
    let weights = || shared.iter().flatten().map(|job| jobs[*job].weight);
    let widest = weights().max().unwrap_or(0);
    let equal = weights().all(|weight| weight == widest);
    let loads = shared.iter().map(|of| of.iter().map(|job| u64::from(jobs[*job].weight)).sum::<u64>());
    let difference = loads.clone().max().unwrap_or(0) - loads.min().unwrap_or(0);
    let limited = rules.max_jobs.is_some() && rules.strategy == AssignmentStrategy::Contiguous;
    assert!(limited && !equal || difference <= widest.into(), "not balanced: {case}");
    if rules.strategy == AssignmentStrategy::Contiguous {
        let mut assigned: Vec<usize> = shared.iter().flatten().copied().collect();
        assigned.sort_unstable();
        for of in shared.iter().filter(|of| !of.is_empty()) {
            let start = assigned.binary_search(&of[0]).unwrap();
            assert_eq!(&assigned[start..start + of.len()], of, "not one block: {case}");
        }
    }
}

#[test]
fn all_small_sizes() {
    for (count, workers, strategy) in
        (0..=60).flat_map(|jobs| (0..=12).flat_map(move |workers| STRATEGIES.map(|strategy| (jobs, workers, strategy))))
    {
        check(&plain(count), &slots(workers), rules(strategy));
        for max in [0, 1, 4, 5, 6] {
            check(&plain(count), &slots(workers), AssignmentRules { strategy, max_jobs: Some(max) });
        }
    }
}

#[test]
fn all_small_sizes_with_dedicated_jobs() {
    for (jobs, workers, dedicated) in (0..=16)
        .flat_map(|jobs| (0..=8).flat_map(move |workers| (0..=jobs).map(move |dedicated| (jobs, workers, dedicated))))
    {
        let jobs: Vec<Job> = (0..jobs).map(|number| job(number, 1, number * 7 % jobs < dedicated)).collect();
        for (strategy, max_jobs) in STRATEGIES.into_iter().flat_map(|strategy| [(strategy, None), (strategy, Some(2))])
        {
            check(&jobs, &slots(workers), AssignmentRules { strategy, max_jobs });
        }
    }
}

#[test]
fn many_slots_that_are_missing() {
    for strategy in STRATEGIES {
        check(&plain(300), &[0, 5, 5_000, u32::MAX], rules(strategy));
        check(&plain(17_000), &[7, 16_383, 16_384, 16_999, u32::MAX], rules(strategy));
        check(&plain(17_000), &slots(17_000), rules(strategy));
        check(&plain(1), &[u32::MAX], rules(strategy));
    }
}

#[test]
fn many_weights() {
    for strategy in STRATEGIES {
        let jobs: Vec<Job> = (0..20_000).map(|number| job(number, (number as u32 * 7919) % 1000 + 1, false)).collect();
        check(&jobs, &slots(300), rules(strategy));
        // A few heavy jobs among many light ones.
        let jobs: Vec<Job> = (0..5_000)
            .map(|number| job(number, if number % 100 == 0 { 1000 - number as u32 / 100 } else { 1 }, false))
            .collect();
        check(&jobs, &slots(33), rules(strategy));
    }
}

/// Weights: all 1, few different ones, many different ones, and invalid ones.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![Just(1..=1_u32), Just(1..=3), Just(1..=1000), Just(0..=2), Just(u32::MAX - 1..=u32::MAX)];
    weight.prop_flat_map(|weight| prop::collection::vec(weight, 0..200))
}

fn workers() -> impl Strategy<Value = Vec<u32>> {
    let all = (0..20_u32).prop_map(slots);
    prop_oneof![all, prop::collection::btree_set(0..40_u32, 0..20).prop_map(Vec::from_iter)]
}

fn any_rules() -> impl Strategy<Value = AssignmentRules> {
    let max_jobs = prop_oneof![Just(None), (0..30_usize).prop_map(Some)];
    (prop::sample::select(&STRATEGIES[..]), max_jobs)
        .prop_map(|(strategy, max_jobs)| AssignmentRules { strategy, max_jobs })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_job_once_and_loads_balanced(
        weights in weights(), numbers in any::<u64>(), dedicated in 0..30_usize, workers in workers(),
            rules in any_rules()
    ) {
        let start = usize::try_from(numbers % 90_000).unwrap();
        let some = numbers.is_multiple_of(2) && dedicated > 0;
        let dedicated = |at: usize| some && at.is_multiple_of(30 / dedicated + 1);
        let numbered = weights.iter().enumerate();
        let jobs: Vec<Job> = numbered.map(|(at, weight)| job(start + at, *weight, dedicated(at))).collect();
        check(&jobs, &workers, rules);
        prop_assert_eq!(assign(&jobs, &workers, rules), assign(&jobs.clone(), &workers.clone(), rules));
    }

    #[test]
    fn nothing_at_all_panics(
        jobs in prop::collection::vec(("[ab]{0,2}", any::<u32>(), any::<bool>()), 0..30),
        workers in prop::collection::vec(prop_oneof![0..5_u32, any::<u32>()], 0..8),
        rules in any_rules()
    ) {
        let job = |(name, weight, dedicated): (String, u32, bool)| Job { name: name.into(), weight, dedicated };
        let jobs: Vec<Job> = jobs.into_iter().map(job).collect();
        prop_assert_eq!(assign(&jobs, &workers, rules).owner.len(), jobs.len());
    }
}
