//! Objects of other kinds that own ReplicaSets, as last read by the controller of WorkloadActions. They are not
//! watched, so they may be stale; they are read again before each plan that depends on them.

use std::collections::HashMap;

use jiff::Timestamp;

use super::World;
use crate::facts::OwnerFact;
use ganglion_api::reasons::Reason;

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
pub type Owners = HashMap<String, (Timestamp, OwnerReading)>;

impl World {
    /// The last reading of the object with this uid.
    pub fn owner(&self, uid: &str) -> Option<&OwnerReading> {
        self.owners.get(uid).map(|(_, reading)| reading)
    }

    /// Time of the last reading.
    pub fn owner_read_at(&self, uid: &str) -> Option<Timestamp> {
        self.owners.get(uid).map(|(at, _)| *at)
    }

    /// Stores a reading, or the answer to a write, unless the stored version is newer.
    pub fn put_owner(&mut self, uid: &str, reading: OwnerReading, now: Timestamp) {
        let order = |reading: &OwnerReading| match reading {
            OwnerReading::Known(fact) => Some(fact.id.order()),
            OwnerReading::Unfit { .. } => None,
        };
        let known = self.owner(uid).and_then(order);
        if known.zip(order(&reading)).is_some_and(|(known, new)| new < known) {
            return;
        }
        if self.owners.len() >= REMEMBERED && !self.owners.contains_key(uid) {
            self.owners.clear();
        }
        self.owners.insert(uid.to_owned(), (now, reading));
    }

    /// Removes an object that a request found deleted.
    pub fn drop_owner(&mut self, uid: &str) {
        self.owners.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Identity;

    fn known(version: u64) -> OwnerReading {
        let id = Identity { uid: "u".into(), version: version.to_string(), ..Identity::default() };
        OwnerReading::Known(Box::new(OwnerFact { id, ..OwnerFact::default() }))
    }

    #[test]
    fn a_late_reading_does_not_hide_the_answer_to_a_write_and_they_are_bounded() {
        let (mut world, now) = (World::default(), Timestamp::UNIX_EPOCH);
        world.put_owner("u", known(9), now);
        world.put_owner("u", known(7), now);
        assert_eq!(world.owner("u"), Some(&known(9)));
        let unfit = OwnerReading::Unfit { reason: Reason::NotSupported, message: String::new() };
        world.put_owner("u", unfit.clone(), now);
        assert_eq!(world.owner("u"), Some(&unfit));
        for other in 0..3 * REMEMBERED {
            world.put_owner(&other.to_string(), known(1), now);
            assert!(world.owners.len() <= REMEMBERED);
        }
    }
}
