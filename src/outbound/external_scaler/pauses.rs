//! Pauses between two attempts to open a stream: from 2 s to 1 min, as in KEDA.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// Jitter: at most this fraction of a pause (1/10), so that the streams of a server that restarts do not all open at
/// the same time.
const JITTER_PART: u32 = 10;

/// Pauses that double while nothing arrives.
#[derive(Debug)]
pub struct ReconnectPauses(Duration);

impl Default for ReconnectPauses {
    fn default() -> Self {
        Self(SHORTEST)
    }
}

impl ReconnectPauses {
    /// Starts again with the shortest pause, since a message has arrived. A stream that opens and ends without one does
    /// not count.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = pause.saturating_mul(2).min(LONGEST);
        pause + (pause / JITTER_PART).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_something_arrives() {
        let mut pauses = ReconnectPauses::default();
        let seconds: Vec<u64> = (0..7).map(|_| pauses.pause().as_millis() as u64 / 100 * 100).collect();
        for (found, expected) in seconds.iter().zip([2, 4, 8, 16, 32, 60, 60]) {
            assert!((expected * 1000..=expected * 1100).contains(found), "{found} ms instead of {expected} s");
        }
        pauses.reset();
        assert!(pauses.pause() < Duration::from_millis(2300));
    }
}
