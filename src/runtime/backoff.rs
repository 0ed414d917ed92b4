//! Exponential backoff per object, with a cap and jitter.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// First delay; it doubles with each failure.
const FIRST: Duration = Duration::from_millis(20);

/// Maximum delay.
const LONGEST: Duration = Duration::from_secs(30);

/// Number of consecutive failures per object. A success or the deletion of the object resets it.
#[derive(Debug)]
pub struct Backoff<K>(HashMap<K, u32>);

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Backoff<K> {
    /// Records a failure of the object and returns the delay before the next attempt. `random` is from 0 to 1.
    pub fn failed(&mut self, key: K, random: f64) -> Duration {
        let failures = self.0.entry(key).or_insert(0);
        let pause = FIRST.saturating_mul(2_u32.saturating_pow((*failures).min(16))).min(LONGEST);
        *failures = failures.saturating_add(1);
        pause.mul_f64(0.75 + 0.25 * random.clamp(0.0, 1.0))
    }

    /// Resets the failures of an object that succeeded or was deleted.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_up_to_its_cap_and_starts_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.failed("a", 1.0)).collect();
        assert_eq!(pauses[0], FIRST);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses[39], LONGEST);
        assert_eq!(backoff.failed("b", 0.0), FIRST.mul_f64(0.75), "objects are counted separately");
        backoff.forget(&"a");
        assert_eq!(backoff.failed("a", 1.0), FIRST);
    }
}
