//! Properties of the handover: no job runs twice, and the handover ends.

use std::collections::{BTreeMap, BTreeSet};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The jobs of a pod that is gone move in one write, whatever happens between the read that shows it and the write.
    #[test]
    fn no_two_workers_of_a_deployment_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::of_deployment(), &events, false)?;
    }
}

/// Reconciles until nothing more happens without the workers. Returns the number of writes.
fn reconcile(pool: &mut Pool) -> usize {
    let before = pool.writes;
    for _ in 0..5 {
        pool.happen(&Event::Look);
        pool.happen(&Event::Pass);
    }
    pool.writes - before
}

/// Nothing is taken from anybody: the first lists are one write, and so are those of the successor of a pod that is
/// gone.
#[test]
fn jobs_that_nobody_runs_are_given_in_one_write() {
    let mut pool = Pool::of_deployment();
    assert_eq!((reconcile(&mut pool), pool.annotations), (1, 3));
    pool.settle();
    assert!(pool.is_settled());
    let names: Vec<String> = pool.processes.keys().cloned().collect();
    // Its successor is Ready once the pod is gone.
    [Event::Delete(2), Event::End(2)].iter().for_each(|event| pool.happen(event));
    assert_eq!((reconcile(&mut pool), pool.annotations), (1, 4));
    assert!(!pool.file.lists.contains_key(&names[2]), "{:#?}", pool.file);
    (0..3).for_each(|nth| pool.happen(&Event::Read(nth)));
    assert_eq!(reconcile(&mut pool), 0);
    assert!(pool.is_settled(), "{:#?}", pool.file);
}

/// A pod of a StatefulSet comes back between the read that does not find it and the write, unnoticed by the cache.
#[test]
fn jobs_of_a_name_that_may_return_need_two_writes() {
    let mut pool = Pool::new(RefreshPolicy::HotReload, true);
    pool.settle();
    let reads = [Event::Read(0), Event::Read(1)];
    let goes = [Event::Scale(2), Event::End(2), Event::Look, Event::Pass];
    let returns = [Event::Look, Event::Pass, Event::Scale(3), Event::Scale(2), Event::Pass];
    for event in goes.iter().chain(&reads).chain(&returns).chain(&reads) {
        pool.happen(event);
        assert!(pool.doubled().is_empty(), "{event:?}: {:?}", pool.doubled());
    }
    pool.settle();
    assert!(pool.is_settled(), "{:#?}", pool.file);
}

/// Jobs of a pod that is gone stay on record while its slot waits for another pod.
#[test]
fn jobs_of_a_slot_without_a_pod_stay_on_record() {
    let mut pool = Pool::of_deployment();
    pool.settle();
    let jobs = |pool: &Pool| pool.file.lists.values().flat_map(|list| &list.jobs).count();
    let name = pool.processes.keys().next_back().cloned().expect("a worker");
    drop(pool.processes.remove(&name));
    assert_eq!((reconcile(&mut pool), jobs(&pool)), (0, 10));
    // The operator restarts, and the next pod comes up.
    pool.happen(&Event::Crash);
    assert_eq!((reconcile(&mut pool), jobs(&pool)), (0, 10));
    pool.start("w-9");
    assert_eq!((reconcile(&mut pool), jobs(&pool)), (1, 10));
    assert_eq!(pool.file.lists.keys().next_back().map(String::as_str), Some("w-9"));
}

/// A new worker gets jobs of others: one write takes them, one gives them, and each pod that has to read is changed
/// once.
#[test]
fn a_new_worker_costs_two_writes_and_one_annotation_per_changed_list() {
    let mut pool = Pool::new(RefreshPolicy::HotReload, true);
    pool.happen(&Event::Scale(9));
    pool.happen(&Event::Jobs(90));
    pool.settle();
    assert!(pool.is_settled());
    pool.annotations = 0;
    // Each of the nine gives one of its ten jobs.
    let mut desired = pool.desired();
    let given = desired.values_mut().filter_map(Vec::pop).collect::<BTreeSet<_>>();
    desired.insert("w-9".to_owned(), given.into_iter().collect());
    pool.fixed = Some(desired);
    pool.happen(&Event::Scale(10));
    assert_eq!((reconcile(&mut pool), pool.annotations), (1, 9), "the others release");
    for nth in 0..9 {
        pool.happen(&Event::Read(nth));
        assert_eq!(reconcile(&mut pool), usize::from(nth == 8), "jobs are given together, after worker {nth}");
    }
    assert_eq!(pool.annotations, 10);
    pool.happen(&Event::Read(9));
    assert_eq!((reconcile(&mut pool), pool.annotations), (0, 10));
    assert!(pool.is_settled(), "{:#?}", pool.file);
}

/// Without reports, a pod is annotated once per version of its list.
#[test]
fn workers_that_do_not_report_are_annotated_once() {
    let mut pool = Pool::new(RefreshPolicy::HotReload, false);
    pool.rules.handover = HandoverPolicy::Immediate;
    assert_eq!((reconcile(&mut pool), pool.annotations), (1, 3));
    pool.happen(&Event::Jobs(13));
    assert_eq!((reconcile(&mut pool), pool.annotations), (1, 6));
    assert_eq!((reconcile(&mut pool), pool.annotations), (0, 6));
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
        names_return: true,
    };
    let input = HandoverInput {
        published: &published,
        desired: &desired,
        pods: &names.into_iter().zip(all.map(pod)).collect(),
        stopped: &BTreeMap::new(),
        gone: &BTreeMap::new(),
        reserved: &BTreeSet::new(),
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
