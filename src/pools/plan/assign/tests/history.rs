//! Assignments with a history: few jobs move, and all other guarantees hold.

use proptest::prelude::*;

use super::*;

/// Computes the next assignment from the slots of the previous one. Slots that no longer exist count as no worker.
fn next(
    jobs: &[Job],
    workers: &[u32],
    max_jobs: Option<usize>,
    before: &BTreeMap<Arc<str>, u32>,
) -> BTreeMap<Arc<str>, u32> {
    let index_of = |slot: u32| workers.binary_search(&slot).ok().map(index);
    let previous: Vec<Option<u32>> = jobs.iter().map(|job| index_of(*before.get(&job.name)?)).collect();
    let rules = AssignmentRules { strategy: AssignmentStrategy::Stable, max_jobs };
    let owner = reassign(jobs, workers, rules, &previous).owner;
    let assigned = jobs.iter().zip(owner).filter_map(|(job, owner)| Some((job.name.clone(), workers[owner? as usize])));
    assigned.collect()
}

fn loads(jobs: &[Job], workers: &[u32], assigned: &BTreeMap<Arc<str>, u32>) -> Vec<u64> {
    let of = |slot: &u32| jobs.iter().filter(|job| assigned[&job.name] == *slot).map(|job| u64::from(job.weight)).sum();
    workers.iter().map(of).collect()
}

#[test]
fn as_long_as_only_workers_come_and_go_the_deal_is_the_stateless_one() {
    for jobs in [0, 1, 7, 30, 100, 101] {
        let jobs = plain(jobs);
        let stateless = |count| by_name(&jobs, &slots(count), rules(AssignmentStrategy::Stable));
        let mut assigned = stateless(3);
        for workers in [4, 5, 6, 5, 4, 3, 2, 1, 2, 3] {
            assigned = next(&jobs, &slots(workers), None, &assigned);
            assert_eq!(assigned, stateless(workers), "{} jobs, {workers} workers", jobs.len());
        }
    }
}

#[test]
fn one_job_more_moves_no_other_and_one_less_at_most_one() {
    let jobs = plain(1001);
    for workers in [1, 2, 10, 100, 999] {
        let workers = slots(workers);
        let before = by_name(&jobs[..1000], &workers, rules(AssignmentStrategy::Stable));
        let more = next(&jobs, &workers, None, &before);
        assert_eq!((moved(&before, &more), more.len()), (0, 1001));
        let less = next(&jobs[1..1000], &workers, None, &before);
        assert!(moved(&before, &less) <= 1);
    }
}

proptest! {
    /// For any history, the minimum number of jobs moves if weights are equal.
    #[test]
    fn of_equal_weights_the_least_moves(
        owners in prop::collection::vec(prop::option::of(0..8_u32), 0..80),
        workers in prop::collection::btree_set(0..8_u32, 1..8),
    ) {
        let (jobs, workers) = (plain(owners.len()), Vec::from_iter(workers));
        let held = jobs.iter().zip(&owners).filter_map(|(job, slot)| Some((job.name.clone(), (*slot)?)));
        let before: BTreeMap<Arc<str>, u32> = held.collect();
        let after = next(&jobs, &workers, None, &before);
        prop_assert_eq!(after.len(), jobs.len());
        let (floor, more) = (jobs.len() / workers.len(), jobs.len() % workers.len());
        let sizes = loads(&jobs, &workers, &after);
        prop_assert!(sizes.iter().all(|size| (floor as u64..=(floor + usize::from(more > 0)) as u64).contains(size)));
        // Maximum number of jobs that can stay: each worker keeps up to its share, and `more` workers keep one more.
        let has = |slot: &u32| before.values().filter(|held| *held == slot).count();
        let mut kept: usize = workers.iter().map(|slot| has(slot).min(floor)).sum();
        kept += workers.iter().filter(|slot| has(slot) > floor).count().min(more);
        let stayed = before.iter().filter(|(name, slot)| after[*name] == **slot).count();
        prop_assert_eq!(stayed, kept);
        prop_assert_eq!(&next(&jobs, &workers, None, &after), &after, "nothing changed, and nothing moves");
    }

    /// With weights and dedicated jobs, the assignment is balanced, and is stable if nothing changes.
    #[test]
    fn of_any_jobs_the_balance_holds(
        jobs in prop::collection::vec((1..6_u32, 0..8_u8, prop::option::of(0..6_u32)), 0..60),
        workers in 1..7_u32,
    ) {
        let workers = slots(workers);
        let all: Vec<Job> = jobs.iter().enumerate().map(|(at, (weight, dedicated, _))| job(at, *weight,
            *dedicated == 0)).collect();
        let held = all.iter().zip(&jobs).filter_map(|(job, (.., slot))| Some((job.name.clone(), (*slot)?)));
        let after = next(&all, &workers, None, &held.collect());
        prop_assert_eq!(after.len(), all.len());
        let shared: Vec<Job> = all.iter().filter(|job| !job.dedicated).cloned().collect();
        let alone: Vec<u32> = all.iter().filter(|job| job.dedicated).map(|job| after[&job.name]).collect();
        if shared.len() == all.len() {
            let sizes = loads(&all, &workers, &after);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= all.iter().map(|job| u64::from(job.weight)).max().unwrap_or(0));
        } else if alone.len() < workers.len() {
            for slot in &alone {
                prop_assert_eq!(after.values().filter(|owner| *owner == slot).count(), 1, "a worker of its own");
            }
        }
        prop_assert_eq!(&next(&all, &workers, None, &after), &after);
        let limited = next(&all, &workers, Some(3), &after);
        for slot in &workers {
            prop_assert!(limited.values().filter(|owner| *owner == slot).count() <= 3);
        }
    }
}
