//! Properties of the handover: no job runs twice, and the handover ends.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::simulation::{Event, Pool};
use crate::file::{JobList, ListedJob, Published};
use crate::handover::{HandoverInput, HandoverRules, WorkerPod, plan_handover};
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};

/// An event of a pool that somebody may delete and create again.
fn event_of_former() -> impl Strategy<Value = Event> {
    prop_oneof![15 => event(), 1 => Just(Event::Recreate)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Look),
        4 => Just(Event::Pass),
        1 => Just(Event::Crash),
        6 => (0..6_usize).prop_map(Event::Read),
        1 => (0..6_usize).prop_map(Event::Delete),
        4 => (0..6_usize).prop_map(Event::End),
        1 => (0..6_usize).prop_map(Event::Scale),
        1 => (0..20_usize).prop_map(Event::Jobs),
        1 => (0..10_i64).prop_map(Event::Wait),
    ]
}

/// Runs the events. After each event, no job may run twice; at the end, the pool must converge.
fn check(mut pool: Pool, events: &[Event], looks_first: bool) -> Result<(), TestCaseError> {
    for event in events {
        if looks_first {
            pool.happen(&Event::Look);
        }
        pool.happen(event);
        prop_assert!(pool.doubled().is_empty(), "{event:?}: {:?} twice\n{:?}", pool.doubled(), pool.processes);
    }
    pool.settle();
    prop_assert!(pool.doubled().is_empty());
    prop_assert!(pool.is_settled(), "{:#?}\n{:#?}", pool.file, pool.processes);
    let before = pool.writes;
    (0..10).for_each(|_| pool.run_round());
    prop_assert_eq!(pool.writes, before, "nothing is written once all is as it should be");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_two_workers_that_reload_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::HotReload, true), &events, false)?;
    }

    #[test]
    fn no_two_workers_that_restart_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::Restart, true), &events, false)?;
    }

    /// A new pool starts above the versions of the former one, and takes no job as free that a worker may still run.
    #[test]
    fn no_two_workers_run_one_job_after_the_pool_is_created_again(
        events in prop::collection::vec(event_of_former(), 0..150)
    ) {
        check(Pool::new(RefreshPolicy::HotReload, true), &events, false)?;
        check(Pool::new(RefreshPolicy::Restart, true), &events, false)?;
    }

    /// Without reports, only the uid shows that a pod was restarted. That requires a cache that is not stale.
    #[test]
    fn no_two_workers_that_restart_without_a_report_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::Restart, false), &events, true)?;
    }
}

/// The pool converges although it is scaled between its first look and its first pass.
#[test]
fn a_pool_that_is_scaled_before_its_first_pass_converges() {
    let events = [Event::Look, Event::Scale(4), Event::Pass];
    check(Pool::new(RefreshPolicy::HotReload, true), &events, false).unwrap();
    check(Pool::new(RefreshPolicy::Restart, true), &events, false).unwrap();
    check(Pool::new(RefreshPolicy::Restart, false), &events, true).unwrap();
}

/// Returns the workers that are restarted at once, of three that need a restart and of which some are not Ready.
fn restarts(ready: [bool; 3], max_unavailable: usize) -> Vec<String> {
    let pod =
        |nth: usize| WorkerPod { uid: format!("u{nth}").into(), runs: true, ready: ready[nth], ..WorkerPod::default() };
    let list = |nth: usize| JobList {
        version: 1,
        jobs: vec![ListedJob { name: format!("job-{nth}").into(), since: 1 }],
        pod: Some(format!("u{nth}").into()),
        ..JobList::default()
    };
    let (names, all) = (["w-0", "w-1", "w-2"].map(str::to_owned), [0, 1, 2]);
    let published =
        Published { lists: names.clone().into_iter().zip(all.map(list)).collect(), version: 1, ..Published::default() };
    let desired = names.clone().into_iter().zip(all.map(|nth| vec![format!("job-{nth}").into()])).collect();
    let rules = HandoverRules {
        handover: HandoverPolicy::Strict,
        refresh: RefreshPolicy::Restart,
        max_unavailable,
        reports: false,
        confirmed: BTreeMap::new(),
        patience: SignedDuration::ZERO,
    };
    let input = HandoverInput {
        published: &published,
        desired: &desired,
        pods: &names.into_iter().zip(all.map(pod)).collect(),
        stopped: &BTreeMap::new(),
        rules: &rules,
        now: Timestamp::UNIX_EPOCH,
    };
    plan_handover(&input).restart.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn no_more_are_restarted_at_once_than_may_be_unavailable() {
    assert_eq!(restarts([true; 3], 1), ["w-0"]);
    assert_eq!(restarts([true; 3], 2), ["w-0", "w-1"]);
    assert_eq!(restarts([true, false, true], 1), ["w-1"], "one that is not Ready can be restarted");
    assert_eq!(restarts([true, false, true], 2), ["w-0", "w-1"]);
    assert_eq!(restarts([false, false, true], 1), ["w-0", "w-1"]);
}
