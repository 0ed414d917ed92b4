//! Objects of other kinds that own ReplicaSets, as last read by the controller of WorkloadActions. They are not
//! watched, so they may be stale; they are read again before each plan that depends on them.

use std::collections::HashMap;

use jiff::Timestamp;

use ganglion_api::reasons::Reason;
use ganglion_core::facts::{OwnerFact, Uid};

/// Maximum number of cached objects. Beyond it, the cache is cleared and the objects are read again.
const REMEMBERED: usize = 1024;

/// Outcome of reading an object.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerReading {
    Known(Box<OwnerFact>),
    /// The replicas of the object cannot be changed.
    Unfit {
        reason: Reason,
        message: String,
    },
}

/// By uid, with the time of the reading.
#[derive(Default)]
pub struct Owners(HashMap<Uid, (Timestamp, OwnerReading)>);

impl Owners {
    pub fn get(&self, uid: &Uid) -> Option<&OwnerReading> {
        self.0.get(uid).map(|(_, reading)| reading)
    }

    pub fn read_at(&self, uid: &Uid) -> Option<Timestamp> {
        self.0.get(uid).map(|(at, _)| *at)
    }

    /// Stores a reading unless the stored version is newer.
    pub fn put(&mut self, uid: &Uid, reading: OwnerReading, now: Timestamp) {
        let order = |reading: &OwnerReading| match reading {
            OwnerReading::Known(fact) => Some(fact.id.order()),
            OwnerReading::Unfit { .. } => None,
        };
        let stored = self.get(uid).and_then(order);
        if stored.zip(order(&reading)).is_some_and(|(stored, new)| new < stored) {
            return;
        }
        if self.0.len() >= REMEMBERED && !self.0.contains_key(uid) {
            self.0.clear();
        }
        self.0.insert(uid.clone(), (now, reading));
    }

    pub fn remove(&mut self, uid: &Uid) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganglion_core::facts::Identity;

    fn known(version: u64) -> OwnerReading {
        let id = Identity { uid: "u".into(), version: version.to_string(), ..Identity::default() };
        OwnerReading::Known(Box::new(OwnerFact { id, ..OwnerFact::default() }))
    }

    #[test]
    fn a_late_reading_does_not_hide_the_answer_to_a_write_and_they_are_bounded() {
        let (mut owners, now) = (Owners::default(), Timestamp::UNIX_EPOCH);
        owners.put(&"u".into(), known(9), now);
        owners.put(&"u".into(), known(7), now);
        assert_eq!(owners.get(&"u".into()), Some(&known(9)));
        let unfit = OwnerReading::Unfit { reason: Reason::NotSupported, message: String::new() };
        owners.put(&"u".into(), unfit.clone(), now);
        assert_eq!(owners.get(&"u".into()), Some(&unfit));
        for other in 0..3 * REMEMBERED {
            owners.put(&other.to_string().into(), known(1), now);
            assert!(owners.0.len() <= REMEMBERED);
        }
    }
}
