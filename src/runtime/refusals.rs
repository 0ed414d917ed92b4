//! Refusals that may be passing. An API server that has just started answers 403 until it has loaded its roles, so a
//! missing permission is believed only after requests have been forbidden for some time.

use jiff::{SignedDuration, Timestamp};

use crate::error::Error;

/// Time for which requests must be forbidden before the refusal is believed.
pub const BELIEVED_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Time without a request after which the next refusal may be passing again.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Forbidden requests of one object since the last request that was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Times of the first and of the last refusal.
    span: Option<(Timestamp, Timestamp)>,
}

impl Refusals {
    /// Believes the first refusal. For a command that ends before a refusal could be confirmed.
    pub fn believed(now: Timestamp) -> Self {
        Self { span: now.checked_sub(BELIEVED_AFTER).ok().map(|since| (since, now)) }
    }

    /// Notes that a request was forbidden, with the API server's message. Returns [`Error::Doubtful`], which is
    /// retried, until the refusal is believed.
    pub fn note_forbidden(&mut self, message: &str, now: Timestamp) -> Result<(), Error> {
        let since = match self.span {
            // If the clock was set back, the time counts from now.
            Some((since, last)) if now.duration_since(last) < FORGOTTEN_AFTER => since.min(now),
            Some(_) | None => now,
        };
        self.span = Some((since, now));
        if now.duration_since(since) < BELIEVED_AFTER {
            return Err(Error::Doubtful(message.to_owned()));
        }
        Ok(())
    }

    /// Notes that a request was allowed: the next refusal may be passing again.
    pub fn clear_forbidden(&mut self) {
        self.span = None;
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
        let mut refusals = Refusals::default();
        assert!(matches!(refusals.note_forbidden("no", at(100)), Err(Error::Doubtful(message)) if message == "no"));
        assert!(refusals.note_forbidden("no", at(109)).is_err());
        assert!(refusals.note_forbidden("no", at(110)).is_ok());
        refusals.clear_forbidden();
        assert!(refusals.note_forbidden("no", at(111)).is_err());
        assert!(Refusals::believed(at(111)).note_forbidden("no", at(111)).is_ok());
    }

    #[test]
    fn a_refusal_after_a_long_time_may_be_passing_again() {
        let mut refusals = Refusals::believed(at(100));
        assert!(refusals.note_forbidden("no", at(699)).is_ok(), "asked within ten minutes");
        assert!(refusals.note_forbidden("no", at(1298)).is_ok());
        assert!(refusals.note_forbidden("no", at(1898)).is_err());
    }

    #[test]
    fn after_the_clock_was_set_back_the_time_counts_from_then() {
        let mut refusals = Refusals::default();
        assert!(refusals.note_forbidden("no", at(100)).is_err());
        assert!(refusals.note_forbidden("no", at(50)).is_err());
        assert!(refusals.note_forbidden("no", at(60)).is_ok());
    }
}
