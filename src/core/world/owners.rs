//! Objects of other kinds that own ReplicaSets: what the controller of WorkloadActions last read of each. They are not watched,
//! so what is here may be old; it is read again before each plan that depends on it.

use std::collections::HashMap;

use jiff::Timestamp;

use super::World;
use crate::facts::OwnerFact;
use ganglion_api::reasons::Reason;

/// How many are kept. Of more, all are forgotten, and read again.
const REMEMBERED: usize = 1024;

/// The outcome of reading an object.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerReading {
    Known(Box<OwnerFact>),
    /// Its replicas cannot be changed.
    Unfit {
        reason: Reason,
        message: String,
    },
}

/// By uid, each with the time of its reading.
pub type Owners = HashMap<String, (Timestamp, OwnerReading)>;

impl World {
    /// What was last read of the object with this uid.
    #[must_use]
    pub fn owner(&self, uid: &str) -> Option<&OwnerReading> {
        self.owners.get(uid).map(|(_, reading)| reading)
    }

    /// When it was last read.
    #[must_use]
    pub fn owner_read_at(&self, uid: &str) -> Option<Timestamp> {
        self.owners.get(uid).map(|(at, _)| *at)
    }

    /// Takes in a reading, or the answer to a write. One that is older than what is known is ignored.
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

    /// A request found the object gone.
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
