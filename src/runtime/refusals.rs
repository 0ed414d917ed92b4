//! Refusals that may be passing. An API server that has just started answers 403 until it has loaded its roles, so a
//! missing permission is believed only after requests have been forbidden for some time.

use jiff::{SignedDuration, Timestamp};

use crate::error::Error;

/// Forbidden requests of one object since the last request that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// Time for which requests must be forbidden before the refusal is believed.
    believed_after: SignedDuration,
    /// Time of the first refusal.
    since: Option<Timestamp>,
}

impl Refusals {
    /// No refusal yet.
    pub const fn new(believed_after: SignedDuration) -> Self {
        Self { believed_after, since: None }
    }

    /// Notes that a request was forbidden, with the API server's message. Returns [`Error::Doubtful`], which is
    /// retried, until the refusal is believed.
    pub fn note_forbidden(&mut self, message: &str, now: Timestamp) -> Result<(), Error> {
        // If the clock was set back, the time counts from now.
        let since = self.since.unwrap_or(now).min(now);
        self.since = Some(since);
        if now.duration_since(since) < self.believed_after {
            return Err(Error::Doubtful(message.to_owned()));
        }
        Ok(())
    }

    /// Notes that a request was allowed: the next refusal may be passing again.
    pub fn clear_forbidden(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_refusal_is_believed_once_it_has_lasted() {
        let mut refusals = Refusals::new(SignedDuration::from_secs(10));
        assert!(matches!(refusals.note_forbidden("no", at(100)), Err(Error::Doubtful(message)) if message == "no"));
        assert!(refusals.note_forbidden("no", at(109)).is_err());
        assert!(refusals.note_forbidden("no", at(110)).is_ok());
        refusals.clear_forbidden();
        assert!(refusals.note_forbidden("no", at(111)).is_err());
    }

    #[test]
    fn after_the_clock_was_set_back_the_time_counts_from_then() {
        let mut refusals = Refusals::new(SignedDuration::from_secs(10));
        assert!(refusals.note_forbidden("no", at(100)).is_err());
        assert!(refusals.note_forbidden("no", at(50)).is_err());
        assert!(refusals.note_forbidden("no", at(60)).is_ok());
    }
}
