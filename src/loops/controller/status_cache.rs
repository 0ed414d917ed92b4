//! Cache for a status that is newer than the stored one but not worth a write. The controller keeps it between
//! reconciles.
//!
//! The cache may be lost. It is valid only while the stored status is the one from which it was derived.

use std::sync::Arc;

use kube::ResourceExt;
use kube::core::object::HasStatus;

use ganglion_api::monitoring::Monitoring;
use ganglion_loops_plan::monitoring::tag;

/// Current status, and the stored object from which it was derived.
#[derive(Debug)]
pub struct StatusCache<K: HasStatus> {
    stored: Option<Arc<K>>,
    last: Arc<K::Status>,
}

impl<K: HasStatus<Status: Default>> Default for StatusCache<K> {
    fn default() -> Self {
        Self { stored: None, last: Arc::default() }
    }
}

impl<K: HasStatus<Status: Clone + PartialEq + Default> + ResourceExt> StatusCache<K> {
    /// Returns the current status: the unwritten one, unless somebody has written another one since.
    pub fn current(&self, object: &Arc<K>) -> Arc<K::Status> {
        match object.status() {
            Some(_) if self.is_based_on(object) => Arc::clone(&self.last),
            status => Arc::new(status.cloned().unwrap_or_default()),
        }
    }

    fn is_based_on(&self, object: &Arc<K>) -> bool {
        self.stored.as_ref().is_some_and(|stored| same(stored, object))
    }

    /// Sets the current status. None stands for the status of `object`.
    pub fn set(&mut self, object: &Arc<K>, unwritten: Option<Arc<K::Status>>) {
        let last = unwritten.unwrap_or_else(|| Arc::new(object.status().cloned().unwrap_or_default()));
        *self = Self { stored: Some(Arc::clone(object)), last };
    }

    /// Object from which the current status was derived.
    pub fn stored(&self) -> Option<&Arc<K>> {
        self.stored.as_ref()
    }

    /// Last status that was set.
    pub fn last(&self) -> &Arc<K::Status> {
        &self.last
    }
}

impl StatusCache<Monitoring> {
    /// Whether somebody has restored an old status: the stored one belongs to another sample than the cached one, and
    /// is not newer.
    pub fn is_ahead_of(&self, object: &Arc<Monitoring>) -> bool {
        let is_this = self.stored.as_ref().is_some_and(|stored| stored.metadata.uid == object.metadata.uid);
        let (cached, stored) = (self.last.tag.as_ref(), object.status.as_ref().and_then(|status| status.tag.as_ref()));
        is_this && !self.is_based_on(object) && cached != stored && !tag::is_after(stored, cached)
    }
}

/// Whether both are the same object with the same status.
fn same<K: HasStatus<Status: PartialEq> + ResourceExt>(one: &Arc<K>, other: &Arc<K>) -> bool {
    Arc::ptr_eq(one, other) || (one.meta().uid == other.meta().uid && one.status() == other.status())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use jiff::Timestamp;

    use super::*;
    use ganglion_api::execution::{Execution, ExecutionStatus};
    use ganglion_api::monitoring::Tag;
    use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus};

    fn object(uid: &str, seq: i64) -> Arc<Execution> {
        let mut object = Execution::new("one", Default::default());
        object.metadata.uid = Some(uid.to_owned());
        object.status = Some(ExecutionStatus { seq: Some(seq), ..ExecutionStatus::default() });
        Arc::new(object)
    }

    #[test]
    fn what_was_not_written_counts_only_beside_what_it_is_based_on() {
        let mut held = StatusCache::default();
        let unwritten = object("a", 2).status.clone().map(Arc::new);
        held.set(&object("a", 1), unwritten);
        assert_eq!(held.current(&object("a", 1)).seq, Some(2));
        assert_eq!(held.current(&object("a", 3)).seq, Some(3), "somebody else wrote");
        assert_eq!(held.current(&object("b", 1)).seq, Some(1), "another object of that name");
        held.set(&object("a", 4), None);
        assert_eq!(held.last().seq, Some(4));
    }

    fn monitoring(uid: &str, sequence: i64, second: i64) -> Arc<Monitoring> {
        let mut object = Monitoring::new("one", MonitoringSpec::default());
        object.metadata.uid = Some(uid.to_owned());
        let time = MicroTime(Timestamp::from_second(second).expect("a time"));
        let tag = Tag { time, sequence, pushed: None };
        object.status = Some(MonitoringStatus { tag: Some(tag), ..MonitoringStatus::default() });
        Arc::new(object)
    }

    #[test]
    fn a_status_that_was_put_back_is_told_from_one_that_was_written_later() {
        let mut held = StatusCache::default();
        assert!(!held.is_ahead_of(&monitoring("a", 1, 1)), "nothing is known");
        let unwritten = monitoring("a", 4, 4).status.clone().map(Arc::new);
        held.set(&monitoring("a", 3, 3), unwritten);
        assert!(!held.is_ahead_of(&monitoring("a", 3, 3)), "it grew from this");
        assert!(held.is_ahead_of(&monitoring("a", 2, 2)));
        assert!(held.is_ahead_of(&monitoring("a", 4, 3)), "another process numbered another sample so");
        assert!(!held.is_ahead_of(&monitoring("a", 5, 5)));
        assert!(!held.is_ahead_of(&monitoring("b", 2, 2)), "another object of that name");
    }
}
