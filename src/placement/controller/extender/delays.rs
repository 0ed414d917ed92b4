//! Delays of replies whose rejection may end in a moment. kube-scheduler asks about one pod at a time, so each delay
//! stops it: without a bound, pods that are never bound, of whatever namespace, would slow it down for ever.
//!
//! A reply waits for the bindings of other pods, whose namespaces share the allowed delay. A namespace may spend as
//! much as all namespaces together leave: the first one at most half of the burst, the next one half of the rest. So
//! none can spend all, and something is left for one that was waited for little. Spent delays are given back at a fixed
//! rate, in equal parts: namespaces that are waited for all the time get equal delays.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum delay of a reply: half of the scheduler's timeout in `config/kube-scheduler.yaml`. If bindings take longer,
/// only as many pods are rejected too early as there are delays.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// Maximum total delay of consecutive replies: some seconds in which etcd stands still.
const BURST: Duration = Duration::from_secs(5);

/// Maximum fraction of the time that delays take: 1/FRACTION.
const FRACTION: u32 = 10;

/// Maximum number of namespaces with a share of their own. All others have one share together.
const MAX_NAMESPACES: usize = 64;

/// Name under which the other namespaces are counted.
const OTHERS: &str = "";

/// Delays that are still allowed.
#[derive(Debug, Default)]
pub struct DelayBudget(Mutex<SpentDelays>);

/// Delays by the namespace of the pods that were waited for. Forgets namespaces that spent nothing lately.
#[derive(Debug, Default)]
struct SpentDelays {
    spent: HashMap<String, Duration>,
    /// Time of the last change.
    at: Option<Instant>,
}

impl DelayBudget {
    /// Counts a delay that waits for pods of these namespaces. Returns false and counts nothing if none of them may
    /// spend as much. The one that has spent the least pays.
    pub fn spend(&self, awaited: &BTreeSet<String>, delay: Duration, now: Instant) -> bool {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delays.give_back(now);
        let shares = awaited.iter().map(|namespace| delays.share(namespace));
        let Some((spent, share)) = shares.map(|share| (delays.of(share), share)).min() else { return false };
        let spent = spent.saturating_add(delay);
        if spent > delays.left().saturating_sub(delay) {
            return false;
        }
        let share = share.to_owned();
        delays.spent.insert(share, spent);
        true
    }
}

impl SpentDelays {
    fn left(&self) -> Duration {
        BURST.saturating_sub(self.spent.values().sum())
    }

    fn of(&self, share: &str) -> Duration {
        self.spent.get(share).copied().unwrap_or_default()
    }

    /// Name of the share of a namespace.
    fn share<'a>(&self, namespace: &'a str) -> &'a str {
        let has_own = self.spent.contains_key(namespace) || self.spent.len() < MAX_NAMESPACES;
        if has_own { namespace } else { OTHERS }
    }

    /// Gives back a fraction of the time since the last change, in equal parts. The rest of one is for the others.
    fn give_back(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        let mut back = passed / FRACTION;
        while let Some(least) = self.spent.values().min().copied() {
            // At most MAX_NAMESPACES and the others.
            let count = u32::try_from(self.spent.len()).unwrap_or(u32::MAX);
            let each = least.min(back / count);
            self.spent.values_mut().for_each(|spent| *spent = spent.saturating_sub(each));
            if each < least {
                return;
            }
            back = back.saturating_sub(each.saturating_mul(count));
            self.spent.retain(|_, spent| !spent.is_zero());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Delay of one pause.
    const PAUSE: Duration = Duration::from_millis(20);

    /// A serial scheduler, and its time.
    struct Clock {
        budget: DelayBudget,
        now: Instant,
    }

    impl Clock {
        fn new() -> Self {
            Self { budget: DelayBudget::default(), now: Instant::now() }
        }

        /// Delays a reply by at most `most`, and returns its delay.
        fn reply(&mut self, awaited: &[&str], most: Duration) -> Duration {
            let awaited = awaited.iter().map(|namespace| (*namespace).to_owned()).collect();
            let mut delay = Duration::ZERO;
            while delay < most && self.budget.spend(&awaited, PAUSE, self.now) {
                delay += PAUSE;
                self.now += PAUSE;
            }
            self.now += Duration::from_millis(10);
            delay
        }

        fn namespaces(&self) -> usize {
            self.budget.0.lock().unwrap().spent.len()
        }
    }

    #[test]
    fn delays_take_a_tenth_of_the_time_even_for_one_namespace() {
        let mut clock = Clock::new();
        let end = clock.now + Duration::from_secs(1000);
        let mut delays = Vec::new();
        while clock.now < end {
            delays.push(clock.reply(&["a"], MAX_DELAY));
        }
        assert_eq!(delays[..2], [MAX_DELAY; 2], "while etcd stands still");
        let all: Duration = delays.iter().sum();
        assert!((Duration::from_secs(100)..Duration::from_secs(107)).contains(&all), "{all:?} of 1000 s");
        clock.now += BURST * FRACTION;
        assert_eq!(clock.reply(&["a"], MAX_DELAY), MAX_DELAY);
        assert_eq!(clock.namespaces(), 1);
    }

    #[test]
    fn the_namespace_that_spent_the_least_pays() {
        let mut clock = Clock::new();
        while !clock.reply(&["stuck"], MAX_DELAY).is_zero() {}
        assert_eq!(clock.reply(&["busy", "stuck"], MAX_DELAY), MAX_DELAY);
        assert_eq!(clock.reply(&["stuck"], MAX_DELAY), Duration::ZERO);
        assert_eq!(clock.reply(&[], MAX_DELAY), Duration::ZERO, "nobody is waited for");
    }

    /// Delays of namespaces that are waited for all the time.
    fn delays_of(names: &[String], clock: &mut Clock) -> Vec<Duration> {
        let mut delays = vec![Duration::ZERO; names.len()];
        let end = clock.now + Duration::from_secs(600);
        while clock.now < end {
            for (name, delay) in names.iter().zip(&mut delays) {
                *delay += clock.reply(&[name], MAX_DELAY);
            }
            assert!(clock.namespaces() <= MAX_NAMESPACES + 1);
        }
        delays
    }

    #[test]
    fn namespaces_that_are_waited_for_all_the_time_get_equal_delays() {
        let mut clock = Clock::new();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"].map(str::to_owned);
        let delays = delays_of(&names, &mut clock);
        let all: Duration = delays.iter().sum();
        assert!((Duration::from_secs(60)..Duration::from_secs(66)).contains(&all), "{all:?} of 600 s");
        assert!(delays.iter().all(|delay| *delay > all / 11 && *delay < all / 6), "{delays:?}");
        assert!(clock.reply(&["new"], MAX_DELAY) > Duration::from_millis(200));
    }

    #[test]
    fn more_namespaces_than_shares_are_all_delayed_within_the_memory() {
        let mut clock = Clock::new();
        let names: Vec<String> = (0..2 * MAX_NAMESPACES).map(|number| format!("n{number}")).collect();
        let delays = delays_of(&names, &mut clock);
        let all: Duration = delays.iter().sum();
        assert!(all > Duration::from_secs(50), "{all:?} of 600 s");
        assert!(delays.iter().all(|delay| *delay < all / 16), "{delays:?}");
    }

    proptest! {
        /// For any sequence of replies, and at any time.
        #[test]
        fn all_delays_together_are_bounded(
            replies in prop::collection::vec(
                (prop::collection::btree_set(0..100_u8, 0..4), 0..1200_u64, 0..5000_u64), 0..300
            ),
        ) {
            let mut clock = Clock::new();
            let (begun, mut all) = (clock.now, Duration::ZERO);
            for (awaited, delay, pause) in replies {
                let (awaited, delay) = (awaited.iter().map(u8::to_string).collect(), Duration::from_millis(delay));
                if clock.budget.spend(&awaited, delay, clock.now) {
                    all += delay;
                    clock.now += delay;
                }
                prop_assert!(all <= BURST + (clock.now - begun) / FRACTION);
                prop_assert!(clock.namespaces() <= MAX_NAMESPACES + 1);
                clock.now += Duration::from_millis(pause);
            }
        }

        /// Others are waited for at any times, alone or together.
        #[test]
        fn a_namespace_that_waited_little_gets_its_delay(
            others in prop::collection::vec(prop::collection::btree_set(0..4_usize, 1..3), 1..400),
        ) {
            let names = ["a", "b", "c", "d"];
            let mut clock = Clock::new();
            for awaited in &others {
                let awaited: Vec<&str> = awaited.iter().map(|other| names[*other]).collect();
                clock.reply(&awaited, MAX_DELAY);
            }
            let used: BTreeSet<&usize> = others.iter().flatten().collect();
            // Half of the rest for each of them.
            let least = used.iter().fold(BURST / 2, |left, _| left / 2);
            let delay = clock.reply(&["little"], MAX_DELAY);
            prop_assert!(delay + 2 * PAUSE >= least.min(MAX_DELAY), "{delay:?} of {least:?}");
        }
    }
}
