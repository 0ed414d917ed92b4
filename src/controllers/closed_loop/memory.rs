//! What one pass over a loop leaves to the next: statuses that were not worth a write, and what was looked at when.
//!
//! All of it may be lost. What was not written is only believed as long as the stored status is the one that it grew from.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::object::HasStatus;

use super::assessed::Assessed;
use crate::api::decision::Decision;
use crate::api::monitoring::{Monitoring, MonitoringSpec};
use crate::api::sample::Sample;

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// What the loop was last found to be.
    pub assessed: Option<Arc<Assessed>>,
    pub monitoring: Held<Monitoring>,
    pub decision: Held<Decision>,
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

/// A status as it is, beside the stored object from whose status it grew.
#[derive(Debug)]
pub struct Held<K: HasStatus> {
    stored: Option<Arc<K>>,
    now: Arc<K::Status>,
}

impl<K: HasStatus<Status: Default>> Default for Held<K> {
    fn default() -> Self {
        Self { stored: None, now: Arc::default() }
    }
}

impl<K: HasStatus<Status: Clone + PartialEq + Default> + ResourceExt> Held<K> {
    /// The status as it is: what was not written, unless somebody has written another one meanwhile.
    pub fn of(&self, object: &Arc<K>) -> Arc<K::Status> {
        match object.status() {
            Some(_) if self.stored.as_ref().is_some_and(|stored| same(stored, object)) => Arc::clone(&self.now),
            status => Arc::new(status.cloned().unwrap_or_default()),
        }
    }

    /// From now on it is this; none where it is as it is stored.
    pub fn keep(&mut self, object: &Arc<K>, now: Option<Arc<K::Status>>) {
        let now = now.unwrap_or_else(|| Arc::new(object.status().cloned().unwrap_or_default()));
        *self = Self { stored: Some(Arc::clone(object)), now };
    }

    /// As it is.
    pub fn now(&self) -> &Arc<K::Status> {
        &self.now
    }
}

/// The same object, with the same status.
fn same<K: HasStatus<Status: PartialEq> + ResourceExt>(one: &Arc<K>, other: &Arc<K>) -> bool {
    Arc::ptr_eq(one, other) || (one.meta().uid == other.meta().uid && one.status() == other.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::execution::{Execution, ExecutionStatus};

    fn object(uid: &str, seq: i64) -> Arc<Execution> {
        let mut object = Execution::new("one", Default::default());
        object.metadata.uid = Some(uid.to_owned());
        object.status = Some(ExecutionStatus { seq: Some(seq), ..ExecutionStatus::default() });
        Arc::new(object)
    }

    #[test]
    fn what_was_not_written_counts_only_beside_what_it_grew_from() {
        let mut held = Held::default();
        let unwritten = object("a", 2).status.clone().map(Arc::new);
        held.keep(&object("a", 1), unwritten);
        assert_eq!(held.of(&object("a", 1)).seq, Some(2));
        assert_eq!(held.of(&object("a", 3)).seq, Some(3), "somebody else wrote");
        assert_eq!(held.of(&object("b", 1)).seq, Some(1), "another object of that name");
        held.keep(&object("a", 4), None);
        assert_eq!(held.now().seq, Some(4));
    }
}
