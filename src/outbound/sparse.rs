//! Rate limit for log lines that many requests could write.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two log lines about servers that do not answer.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Allows at most one log line per [`LOG_PAUSE`].
#[derive(Default)]
pub struct Sparse(Mutex<(Option<Instant>, u64)>);

impl Sparse {
    /// Returns the number of suppressed lines if a line may be logged now.
    pub fn turn(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = &mut *state;
        if last.is_some_and(|last| now.duration_since(last) < LOG_PAUSE) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}
