//! Delays of replies whose rejection may end in a moment. kube-scheduler asks about one pod at a time, so each delay
//! stops it: without a bound, pods that are never bound, of whatever namespace, would slow it down for ever.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum delay of a reply: half of the scheduler's timeout in `config/kube-scheduler.yaml`. If bindings take longer,
/// only as many pods are rejected too early as there are delays.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// Maximum total delay of consecutive replies: some seconds in which etcd stands still.
const BURST: Duration = Duration::from_secs(5);

/// Maximum fraction of the time that delays take: 1/FRACTION.
const FRACTION: u32 = 10;

/// Delays that are still allowed.
#[derive(Debug, Default)]
pub struct DelayBudget(Mutex<SpentDelay>);

#[derive(Debug, Default)]
struct SpentDelay {
    spent: Duration,
    /// Time of the last change.
    at: Option<Instant>,
}

impl DelayBudget {
    /// Maximum delay of a reply that begins now.
    pub fn allowed(&self, now: Instant) -> Duration {
        self.with(now, |spent| BURST.saturating_sub(*spent).min(MAX_DELAY))
    }

    /// Counts the delay of a reply.
    pub fn spend(&self, delay: Duration, now: Instant) {
        self.with(now, |spent| *spent = spent.saturating_add(delay).min(BURST));
    }

    fn with<R>(&self, now: Instant, change: impl FnOnce(&mut Duration) -> R) -> R {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = budget.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        budget.spent = budget.spent.saturating_sub(passed / FRACTION);
        budget.at = Some(now);
        change(&mut budget.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_take_a_tenth_of_the_time() {
        let (budget, mut now) = (DelayBudget::default(), Instant::now());
        let end = now + Duration::from_secs(1000);
        let mut delays = Vec::new();
        // Each reply would be delayed as long as it may be.
        while now < end {
            let delay = budget.allowed(now);
            now += delay;
            budget.spend(delay, now);
            delays.push(delay);
            now += Duration::from_millis(10);
        }
        assert_eq!(delays[..4], [MAX_DELAY; 4], "while etcd stands still");
        let all: Duration = delays.iter().sum();
        assert!((Duration::from_secs(100)..Duration::from_secs(107)).contains(&all), "{all:?} of 1000 s");
        assert_eq!(budget.allowed(now + BURST * FRACTION), MAX_DELAY);
    }
}
