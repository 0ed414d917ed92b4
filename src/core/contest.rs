//! When a controller gives up a field that somebody else sets again and again. Pure.

use jiff::{SignedDuration, Timestamp};

/// Number of reverted changes within [`PERIOD`] after which a controller gives up.
pub const MAX_REVERTS: usize = 3;

/// Period in which reverted changes count.
const PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// The rule, for messages.
pub const HOW_OFTEN: &str = "3 times within ten minutes";

/// Whether a change that was made or reverted at this time still counts.
pub fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < PERIOD
}

/// Time from which a change that was made or reverted at this time no longer counts.
pub fn forgotten_at(at: Timestamp) -> Option<Timestamp> {
    at.checked_add(PERIOD).ok()
}

/// Whether so many recent reverted changes show that somebody else controls the field.
pub fn is_lost(reverted: usize) -> bool {
    reverted >= MAX_REVERTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_reverted_change_of_ten_minutes_is_the_last() {
        assert_eq!([2, 3].map(is_lost), [false, true]);
        let at = Timestamp::UNIX_EPOCH;
        assert!(is_recent(at, at + SignedDuration::from_secs(599)));
        assert!(!is_recent(at, at + SignedDuration::from_secs(600)));
        assert_eq!(forgotten_at(at), Some(at + SignedDuration::from_secs(600)));
        assert!(HOW_OFTEN.starts_with(&MAX_REVERTS.to_string()));
    }
}
