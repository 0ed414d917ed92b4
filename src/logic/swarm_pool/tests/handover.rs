//! Properties of the handover: no job twice, and an end.

use proptest::prelude::*;

use super::workers::{Event, Pool};
use crate::api::swarm_pool::handover::RefreshPolicy;

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

/// Runs the events. After each, no job may run twice; at the end, all is as it should be.
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
    pool.settle();
    prop_assert_eq!(pool.writes, before, "nothing is written once all is as it should be");
    Ok(())
}

proptest! {
    #[test]
    fn no_two_workers_that_reload_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::HotReload, true), &events, false)?;
    }

    #[test]
    fn no_two_workers_that_restart_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::Restart, true), &events, false)?;
    }

    /// Without reports, a restarted pod is known by its uid: only a view that is not late can tell.
    #[test]
    fn no_two_workers_that_restart_without_a_report_run_one_job(events in prop::collection::vec(event(), 0..150)) {
        check(Pool::new(RefreshPolicy::Restart, false), &events, true)?;
    }
}
