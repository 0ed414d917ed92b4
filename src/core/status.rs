//! When a changed status is worth a write. Pure: each kind says what changed, the policy says when to write it.
//!
//! A write costs the API server several milliseconds of CPU, and wakes everybody who watches the kind. So a change that
//! people and tools act on is written at once, and changes of numbers share a write.

use jiff::{SignedDuration, Timestamp};

/// Difference between the stored status and the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusChange {
    /// They are equal.
    None,
    /// Only details differ, such as counts, values or messages.
    Details,
    /// Something differs that people or tools act on, such as the status of a condition.
    Edge,
}

/// When to write a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusTiming {
    /// Not at all: nothing changed.
    Never,
    /// At this time, unless an edge comes first.
    At(Timestamp),
    /// Now.
    Now,
}

/// The rule of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPolicy {
    /// Minimum time between a write and the next write of details. Zero: details are written at once.
    pub details_after: SignedDuration,
    /// Maximum time between two writes, even of an unchanged status, which shows that the object is alive. None: an
    /// unchanged status is not written.
    pub heartbeat: Option<SignedDuration>,
}

impl StatusPolicy {
    /// Writes each change at once, and nothing else.
    pub const EACH_CHANGE: Self = Self { details_after: SignedDuration::ZERO, heartbeat: None };

    /// When to write a status with this change; `last` is the time of the last write, if this process knows it.
    #[must_use]
    pub fn timing(self, change: StatusChange, last: Option<Timestamp>, now: Timestamp) -> StatusTiming {
        let due = match change {
            StatusChange::Edge => return StatusTiming::Now,
            StatusChange::Details => after(last, self.details_after),
            StatusChange::None => match self.heartbeat {
                Some(heartbeat) => after(last, heartbeat),
                None => return StatusTiming::Never,
            },
        };
        match due {
            Some(due) if due > now => StatusTiming::At(due),
            _ => StatusTiming::Now,
        }
    }
}

/// `last` plus the interval. A time in the far future counts as "no such time".
fn after(last: Option<Timestamp>, interval: SignedDuration) -> Option<Timestamp> {
    last?.checked_add(interval).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn edges_are_written_at_once_and_details_share_a_write() {
        let policy = StatusPolicy { details_after: SignedDuration::from_secs(10), heartbeat: None };
        let timing = |change, now| policy.timing(change, Some(at(100)), at(now));
        assert_eq!(timing(StatusChange::Edge, 101), StatusTiming::Now);
        assert_eq!(timing(StatusChange::Details, 101), StatusTiming::At(at(110)));
        assert_eq!(timing(StatusChange::Details, 110), StatusTiming::Now);
        assert_eq!(timing(StatusChange::None, 999), StatusTiming::Never);
        assert_eq!(policy.timing(StatusChange::Details, None, at(0)), StatusTiming::Now, "no write is known");
        assert_eq!(StatusPolicy::EACH_CHANGE.timing(StatusChange::Details, Some(at(1)), at(1)), StatusTiming::Now);
    }

    #[test]
    fn an_unchanged_status_is_written_as_a_heartbeat_only() {
        let policy =
            StatusPolicy { details_after: SignedDuration::ZERO, heartbeat: Some(SignedDuration::from_secs(300)) };
        assert_eq!(policy.timing(StatusChange::None, Some(at(0)), at(299)), StatusTiming::At(at(300)));
        assert_eq!(policy.timing(StatusChange::None, Some(at(0)), at(300)), StatusTiming::Now);
    }
}
