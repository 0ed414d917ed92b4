//! Tests of the clock of a handover and of manual confirmations: a worker hangs while jobs change all the time.

use super::simulation::{Event, Pool};
use ganglion_api::swarm_pool::RefreshPolicy;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::Health;

/// Seconds until a handover times out.
const TIMEOUT: i64 = 10;

/// The worker that hangs.
const STUCK: &str = "w-1";

/// A converged pool of three workers.
fn settled() -> Pool {
    let mut pool = Pool::new(RefreshPolicy::HotReload, true);
    pool.settle();
    pool
}

/// A second passes, and the jobs change. These workers read the file.
fn change(pool: &mut Pool, nth: usize, readers: &[usize]) {
    pool.happen(&Event::Jobs(10 + nth));
    step(pool, readers);
}

fn step(pool: &mut Pool, readers: &[usize]) {
    pool.happen(&Event::Wait(1));
    for _ in 0..3 {
        pool.happen(&Event::Look);
        pool.happen(&Event::Pass);
        readers.iter().for_each(|nth| pool.happen(&Event::Read(*nth)));
    }
    pool.happen(&Event::Look);
    assert!(pool.doubled().is_empty(), "{:?}", pool.doubled());
}

/// Reason and message of a health.
fn said(pool: &Pool) -> (PoolReason, String) {
    match pool.health(TIMEOUT) {
        Health::Good(reason, message) | Health::Suspended(reason, message) => (reason, message),
        Health::Retrying(reason, message) | Health::Stalled(reason, message) => (reason, message),
        Health::Working { reason, message, .. } => (reason, message),
    }
}

#[test]
fn the_clock_of_a_handover_starts_once_whatever_else_changes() {
    let mut pool = settled();
    for nth in 1..=100 {
        change(&mut pool, nth, &[0, 2]);
        let (reason, message) = said(&pool);
        // If all its jobs are its own again, it has nothing to release.
        let is_overdue = matches!(reason, PoolReason::HandoverTimedOut | PoolReason::WorkerOutdated);
        assert!((10..12).contains(&nth) || is_overdue == (nth >= 12), "{nth}: {message}");
    }
}

#[test]
fn a_worker_that_confirms_each_change_late_is_in_time() {
    let mut pool = settled();
    for nth in 1..=100 {
        let readers: &[usize] = if nth % 3 == 0 { &[0, 1, 2] } else { &[0, 2] };
        // The jobs change between the moment at which the worker reads them and its next report.
        change(&mut pool, nth, &[0, 2]);
        readers.iter().for_each(|reader| pool.happen(&Event::Read(*reader)));
        let (reason, message) = said(&pool);
        assert!(!matches!(reason, PoolReason::HandoverTimedOut | PoolReason::WorkerOutdated), "{nth}: {message}");
    }
}

/// Version in `set handover.confirmed: [{worker: w-1, version: 7}]`.
fn advised(pool: &Pool) -> i64 {
    let (reason, message) = said(pool);
    assert_eq!(reason, PoolReason::HandoverTimedOut, "{message}");
    let (_, rest) = message.split_once(&format!("{{worker: {STUCK}, version: ")).expect("an advice");
    rest.split('}').next().unwrap().parse().unwrap()
}

#[test]
fn a_confirmation_counts_for_the_jobs_of_its_version_after_later_changes() {
    let mut pool = settled();
    (1..=15).for_each(|nth| change(&mut pool, nth, &[0, 2]));
    let version = advised(&pool);
    (16..=23).for_each(|nth| change(&mut pool, nth, &[0, 2]));
    // Without those that it got again and lost again meanwhile.
    let releasing = pool.file.lists[STUCK].releasing.clone().into_iter();
    let waiting: Vec<_> = releasing.filter(|(_, removed)| *removed <= version).map(|(job, _)| job).collect();
    assert!(!waiting.is_empty());
    // The operator believes the user: the process no longer runs them.
    let process = pool.processes.get_mut(STUCK).unwrap();
    process.running.retain(|job| !waiting.contains(job));
    pool.rules.confirmed = [(STUCK.to_owned(), version)].into();
    (0..8).for_each(|_| step(&mut pool, &[0, 2]));
    let others = || pool.file.lists.iter().filter(|(name, _)| *name != STUCK);
    let desired = pool.desired();
    for job in waiting {
        let is_given = others().any(|(_, list)| list.jobs.iter().any(|held| held.name == job));
        let is_own = desired[STUCK].contains(&job) || !desired.values().flatten().any(|wanted| *wanted == job);
        assert!(is_given || is_own, "{job} is not given: {:#?}", pool.file);
    }
}

/// A confirmation of an earlier pool, or one in advance, says nothing about a later version of that number.
#[test]
fn a_confirmation_that_was_there_before_its_version_does_not_count() {
    // No pool writes the largest versions, so these are not skipped.
    for ahead in [5, 1 << 53, i64::MAX / 2] {
        let mut pool = settled();
        pool.rules.confirmed = [(STUCK.to_owned(), pool.file.version + ahead)].into();
        for nth in 1..=30 {
            // Fails if a job is given while its worker still runs it.
            change(&mut pool, nth, &[0, 2]);
            assert!(nth < 13 || said(&pool).0 == PoolReason::HandoverTimedOut, "{nth}: {:?}", said(&pool));
        }
    }
}
