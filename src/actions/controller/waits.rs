//! Waits: their duration, and when the status reports them.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_core::facts::Key;
use ganglion_runtime::fairness::TenantCounts;

/// Minimum duration of a wait before the status reports it. Nobody reads a status more often.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Number of waits reported per second, of which each namespace gets an equal share. The reports of hundreds of waits
/// would slow down the writes that they wait for.
const REPORTS_PER_SECOND: u32 = 40;

/// Maximum pause. Users may set a time at the end of the calendar.
const FAR: SignedDuration = SignedDuration::from_hours(24);

/// The current wait of each action, with its start.
#[derive(Debug, Default)]
pub struct Waits {
    begun: HashMap<Key, (u64, Timestamp)>,
    by_namespace: TenantCounts<String>,
}

impl Waits {
    /// Forgets the action's unreported wait.
    pub fn forget(&mut self, key: &Key) {
        if self.begun.remove(key).is_some() {
            self.by_namespace.remove(key.namespace.as_str());
        }
    }

    /// Remaining time before this wait is reported; None if it is due.
    pub fn remaining(&mut self, key: &Key, report: &WorkloadActionStatus, now: Timestamp) -> Option<Duration> {
        let what = essence(report);
        let since = match self.begun.get(key) {
            // A start in the future means that the clock was set back. The wait then counts from now.
            Some((same, since)) if *same == what && *since <= now => *since,
            _ => {
                if self.begun.insert(key.clone(), (what, now)).is_none() {
                    self.by_namespace.add(key.namespace.clone());
                }
                now
            }
        };
        let interval = self.by_namespace.interval(key.namespace.as_str(), REPORTS_PER_SECOND);
        let report_after = REPORT_AFTER.max(interval);
        let left = report_after.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO));
        (!left.is_zero()).then_some(left)
    }
}

/// Hash that identifies a wait: steps and reasons, without messages and times.
fn essence(report: &WorkloadActionStatus) -> u64 {
    let mut hash = DefaultHasher::new();
    for slot in &report.slots {
        (slot.index, slot.attempt, slot.step, slot.reason).hash(&mut hash);
    }
    for condition in &report.conditions {
        (&condition.type_, &condition.status, &condition.reason, condition.observed_generation).hash(&mut hash);
    }
    hash.finish()
}

/// End of the wait: the deadline or the resync, whichever is sooner. None if only a change matters. `random` is from 0
/// to 1.
pub fn wake_at(now: Timestamp, until: Option<Timestamp>, resync: Option<Duration>, random: f64) -> Option<Timestamp> {
    let until = until.map(|until| until.min(now + FAR));
    let resync = resync.and_then(|resync| SignedDuration::try_from(resync.mul_f64(0.9 + 0.2 * random)).ok());
    let resync_at = resync.and_then(|resync| now.checked_add(resync).ok());
    [until, resync_at].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    fn report(reason: &str, message: &str) -> WorkloadActionStatus {
        WorkloadActionStatus {
            conditions: vec![Condition {
                type_: "Ready".into(),
                status: "Unknown".into(),
                reason: reason.into(),
                message: message.into(),
                observed_generation: Some(1),
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }],
            ..WorkloadActionStatus::default()
        }
    }

    #[test]
    fn a_wait_is_reported_once_it_has_lasted_and_another_reason_begins_anew() {
        let (mut waits, key, begun) = (Waits::default(), Key::new("a", "b"), Timestamp::UNIX_EPOCH);
        assert_eq!(waits.remaining(&key, &report("Creating", ""), begun), Some(REPORT_AFTER));
        let later = begun + Duration::from_millis(960);
        assert_eq!(waits.remaining(&key, &report("Creating", "1 of 2"), later), Some(Duration::from_millis(40)));
        assert_eq!(waits.remaining(&key, &report("Readying", ""), later), Some(REPORT_AFTER));
        assert_eq!(waits.remaining(&key, &report("Readying", ""), later + REPORT_AFTER), None);
        waits.forget(&key);
        assert_eq!(waits.remaining(&key, &report("Readying", ""), later + REPORT_AFTER), Some(REPORT_AFTER));
    }

    #[test]
    fn a_wait_that_begins_ahead_of_the_clock_is_counted_anew() {
        let (mut waits, key, begun) = (Waits::default(), Key::new("a", "b"), Timestamp::UNIX_EPOCH);
        waits.remaining(&key, &report("Creating", ""), begun + Duration::from_secs(3600));
        assert_eq!(waits.remaining(&key, &report("Creating", ""), begun), Some(REPORT_AFTER));
        assert_eq!(waits.remaining(&key, &report("Creating", ""), begun + REPORT_AFTER), None);
    }

    #[test]
    fn among_many_waits_each_lasts_longer_before_it_is_reported() {
        let (mut waits, begun) = (Waits::default(), Timestamp::UNIX_EPOCH);
        for other in 0..99 {
            waits.remaining(&Key::new("a", other.to_string()), &report("Readying", ""), begun);
        }
        let longer = Duration::from_millis(2500);
        assert_eq!(waits.remaining(&Key::new("a", "b"), &report("Readying", ""), begun), Some(longer));
        assert_eq!(waits.remaining(&Key::new("a", "b"), &report("Readying", ""), begun + longer), None);
        let elsewhere = waits.remaining(&Key::new("other", "b"), &report("Readying", ""), begun);
        assert_eq!(elsewhere, Some(REPORT_AFTER), "a namespace with one wait");
    }

    #[test]
    fn the_sooner_of_deadline_and_resync_counts() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |seconds| Some(Timestamp::from_second(seconds).unwrap());
        let every = Some(Duration::from_secs(300));
        assert_eq!(wake_at(now, None, None, 0.5), None);
        assert_eq!(wake_at(now, at(10), every, 1.0), at(10));
        assert_eq!(wake_at(now, at(1000), every, 0.5), at(300));
        assert_eq!(wake_at(now, Some(Timestamp::MAX), None, 0.0), at(86_400));
        assert_eq!(wake_at(now, None, Some(Duration::from_secs(1 << 40)), 0.5), None, "after the end of the calendar");
    }
}
