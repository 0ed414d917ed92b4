//! What one pass over a loop leaves to the next: statuses that were not worth a write, and what was looked at when.
//!
//! All of it may be lost. What was not written is only believed as long as the stored status is the one that it grew from.

use jiff::Timestamp;

use crate::api::decision::DecisionStatus;
use crate::api::monitoring::{MonitoringSpec, MonitoringStatus};
use crate::api::sample::Sample;

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    pub monitoring: Held<MonitoringStatus>,
    pub decision: Held<DecisionStatus>,
    /// The sample that was taken, or refused, last.
    pub sample: Option<Sample>,
    /// What was watched when the levels were last looked at.
    pub watched: Option<MonitoringSpec>,
    /// The last write of Monitoring's status has had no answer.
    pub unclear: bool,
    /// When they were.
    pub looked: Option<Timestamp>,
    /// When time alone lets through an alarm that is held back.
    pub again: Option<Timestamp>,
    /// When the loop's own status was last written.
    pub told: Option<Timestamp>,
    /// When an event last told of what was done.
    pub boasted: Option<Timestamp>,
    /// Since when a right is missing.
    pub forbidden: Option<Timestamp>,
    /// What is in the way of the loop's children.
    pub strangers: Option<String>,
}

/// A status as it is, beside the stored one that it grew from.
#[derive(Debug, Default)]
pub struct Held<S> {
    uid: String,
    stored: S,
    now: S,
}

impl<S: Clone + PartialEq> Held<S> {
    /// The status as it is: what was not written, unless somebody has written another one meanwhile.
    pub fn of(&self, uid: &str, stored: Option<&S>) -> S
    where
        S: Default,
    {
        match stored {
            Some(stored) if self.uid == uid && self.stored == *stored => self.now.clone(),
            Some(stored) => stored.clone(),
            None => S::default(),
        }
    }

    /// From now on it is this.
    pub fn keep(&mut self, uid: &str, stored: Option<&S>, now: S)
    where
        S: Default,
    {
        *self = Self { uid: uid.to_owned(), stored: stored.cloned().unwrap_or_default(), now };
    }

    /// As it is.
    pub fn now(&self) -> &S {
        &self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_counts_only_beside_what_it_grew_from() {
        let mut held = Held::default();
        held.keep("a", Some(&1), 2);
        assert_eq!(held.of("a", Some(&1)), 2);
        assert_eq!(held.of("a", Some(&3)), 3, "somebody else wrote");
        assert_eq!(held.of("b", Some(&1)), 1, "another object of that name");
    }
}
