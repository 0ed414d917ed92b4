//! The world as the planners see it: every fact, indexed by what they ask.
//!
//! Owns the facts of one process, fed by watches and by the answers to our own writes, and answers which objects a change
//! concerns. Knows nothing of how facts get here: the caches feed it from a cluster, the model from a simulated one.
//!
//! **Reads see our own writes.** The answer to a write is applied at once ([`Origin::Own`]); watch events that are older
//! than what is known are passed over, and an answer that the watch has overtaken is, too. So a planner never repeats what
//! it did because a watch lags. Another process' writes may still be missing: every effect carries a precondition.
//!
//! | file | what it holds |
//! |---|---|
//! | `table`, `list` | one kind's facts, which of two versions wins, what a whole list takes out |
//! | `tables` | the list of kinds |
//! | `requeue` | the objects that a change requeues |
//! | `cluster`, `autoscalers`, `actions`, `loops` | what a change of each kind means, and what planners ask |
//! | `index`, `slots`, `expressions` | what is derived from WorkloadActions and pods |

mod actions;
mod autoscalers;
mod cluster;
mod expressions;
mod index;
mod list;
pub mod loops;
mod requeue;
mod slots;
mod table;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use jiff::Timestamp;

use crate::api::workload_action::status::Slot;
use crate::logic::facts::{Identity, Key};
pub use actions::{loop_of, loop_of_ended};
use index::Index;
pub use list::Listing;
pub use requeue::Requeue;
pub use table::{Fact, Origin, Table};
pub use tables::Stored;
use tables::Tables;

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    tables: Tables,
    /// Slots on their way into their actions' status.
    reserved: HashMap<Key, Vec<Slot>>,
    /// When a watch of workloads or their pods last broke off.
    broken: Option<Timestamp>,
    index: Index,
}

/// A fact whose changes concern somebody.
pub trait Indexed: Stored {
    /// Updates the indexes and returns the objects to requeue. At least one of `old` and `new` is set.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue;

    /// The watch of this kind broke off at this time.
    fn interrupted(_world: &mut World, _at: Timestamp) {}
}

impl World {
    /// Takes in an object that was made or changed, and returns the objects to requeue: none where nothing changed that a
    /// planner reads.
    pub fn apply<F: Indexed>(&mut self, fact: F, origin: Origin) -> Requeue {
        let change = F::table_mut(self).put(fact, origin);
        match change.sides() {
            Some((old, new)) => F::changed(self, old, new),
            None => Requeue::none(),
        }
    }

    /// Takes out an object that a watch reported deleted at this version, or that a request of ours found gone (no version).
    pub fn remove<F: Indexed>(&mut self, id: &Identity) -> Requeue {
        let change = F::table_mut(self).take(id);
        match change.sides() {
            Some((old, new)) => F::changed(self, old, new),
            None => Requeue::none(),
        }
    }

    /// A list of one kind is about to be asked for, of one namespace or of all.
    #[must_use]
    pub fn begin_list<F: Indexed>(&self, namespace: Option<&str>) -> Listing<F> {
        F::table(self).begin_list(namespace)
    }

    /// The list is complete: what it does not have is gone, since a list that follows a broken watch comes without
    /// deletions; see [`Listing`].
    pub fn end_list<F: Indexed>(&mut self, list: Listing<F>) -> Requeue {
        let mut requeue = Requeue::none();
        for id in F::table_mut(self).vanished(&list) {
            requeue.extend(self.remove::<F>(&id));
        }
        for fact in list.facts {
            requeue.extend(self.apply(fact, Origin::Watch));
        }
        requeue
    }

    /// The facts of one kind.
    #[must_use]
    pub fn table<F: Stored>(&self) -> &Table<F> {
        F::table(self)
    }

    /// The object's newest version does not parse.
    pub fn unreadable<F: Stored>(&mut self, key: Key) {
        F::table_mut(self).unreadable(key);
    }

    /// How many objects of each kind are known.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.counts()
    }
}
