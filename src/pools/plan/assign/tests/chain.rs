//! Compares the chain with a slow implementation of its description.

use proptest::prelude::*;

use crate::assign::hashed::mix;
use crate::assign::stable::{NewSlotSize, assign_to_slots, key, next_candidate_step};

/// Next candidate step, `step` itself or later.
fn candidate(hash: u64, step: u32) -> u32 {
    let mut at = 1;
    while at < step {
        at = next_candidate_step(hash, at);
    }
    at
}

/// Reference implementation: sorts all jobs in each step.
fn described(hashes: &[u64], slots: u32, new_slot: NewSlotSize) -> Vec<u32> {
    let (jobs, mut owner) = (hashes.len() as u32, vec![0; hashes.len()]);
    for step in 1..slots {
        let (floor, more) = (jobs / (step + 1), jobs % (step + 1));
        let drawn = match new_slot {
            NewSlotSize::Least => false,
            NewSlotSize::Drawn(hash) => mix(hash, step.into()) % u64::from(step + 1) < more.into(),
        };
        let mut sizes = vec![0; slots as usize];
        owner.iter().for_each(|slot| sizes[*slot as usize] += 1);
        let mut missing = floor + u32::from(drawn);
        let must: u32 = sizes.iter().map(|size: &u32| size.saturating_sub(floor + 1)).sum();
        let mut may = missing - must;
        let mut order: Vec<u32> = (0..jobs).collect();
        order.sort_by_key(|job| {
            let hash = hashes[*job as usize];
            (candidate(hash, step), key(hash, step, 0), *job)
        });
        for job in order {
            let size = &mut sizes[owner[job as usize] as usize];
            if missing > 0 && (*size > floor + 1 || *size == floor + 1 && may > 0) {
                may -= u32::from(*size == floor + 1);
                (*size, missing) = (*size - 1, missing - 1);
                owner[job as usize] = step;
            }
        }
    }
    owner
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_chain_is_what_is_described(
        seed in any::<u64>(), jobs in 0..200_u64, slots in 1..40_u32, drawn in any::<bool>()
    ) {
        let hashes: Vec<u64> = (0..jobs).map(|job| mix(seed, job)).collect();
        let new_slot = if drawn { NewSlotSize::Drawn(seed) } else { NewSlotSize::Least };
        prop_assert_eq!(assign_to_slots(&hashes, slots, new_slot), described(&hashes, slots, new_slot));
    }

    /// Few jobs, so that the search continues behind the last bucket.
    #[test]
    fn few_jobs_are_dealt_as_described(seed in any::<u64>()) {
        let hashes: Vec<u64> = (0..16).map(|job| mix(seed, job)).collect();
        for (jobs, slots) in (1..=16).flat_map(|jobs| (2..=jobs).map(move |slots| (jobs, slots as u32))) {
            let hashes = &hashes[..jobs];
            let assigned = assign_to_slots(hashes, slots, NewSlotSize::Least);
            prop_assert_eq!(assigned, described(hashes, slots, NewSlotSize::Least));
        }
    }

    #[test]
    fn equal_hashes_are_dealt_by_name(jobs in 0..50_usize, slots in 1..20_u32) {
        let hashes = vec![1; jobs];
        let assigned = assign_to_slots(&hashes, slots, NewSlotSize::Least);
        prop_assert_eq!(assigned, described(&hashes, slots, NewSlotSize::Least));
    }
}

/// Each step has twice as many candidates as a new slot takes.
#[test]
fn candidates_are_as_frequent_as_they_should_be() {
    for step in [1, 2, 3, 10, 50] {
        let found = (0..30_000).filter(|job| candidate(mix(*job, 1), step) == step).count();
        let wanted = 30_000.0 * 2.0 / f64::from(step + 1);
        assert!((found as f64 - wanted).abs() < 5.0 * wanted.sqrt(), "{found} of {wanted} in step {step}");
    }
}
