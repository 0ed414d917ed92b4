//! The state of the cluster as the planners see it: all facts, with indexes.
//!
//! Owns the facts of the process, which come from watches and from the answers to our own writes, and determines which objects a
//! change requeues. Does not know the origin of facts: the caches feed it from a cluster, the model from a simulated one.
//!
//! **Reads see our own writes.** The answer to a write is applied at once ([`Origin::Own`]). Watch events and answers that are
//! older than the known version are ignored. So a planner does not repeat an effect because a watch lags. Writes of other
//! processes may still be missing, so every effect carries a precondition.
//!
//! | file | what it holds |
//! |---|---|
//! | `table`, `list` | the facts of one kind, which of two versions wins, which objects a complete list removes |
//! | `tables` | the list of kinds |
//! | `requeue` | which objects are requeued |
//! | `cluster`, `autoscalers`, `actions`, `loops`, `nodes`, `pools`, `placement`, `stateful` | which objects a change of each kind requeues, and the queries of planners |
//! | `owners` | what was read of objects of kinds that are not watched |
//! | `usage` | the usage of nodes by metrics.k8s.io, while an expression asks for it |
//! | `unreadable` | what is known of an object that does not parse |
//! | `index`, `slots`, `expressions` | data derived from WorkloadActions and pods |

mod actions;
mod autoscalers;
mod cluster;
mod expressions;
mod index;
mod list;
pub mod loops;
pub mod nodes;
mod owners;
mod placement;
mod pools;
mod requeue;
mod slots;
mod stateful;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod unreadable;
mod usage;

use std::collections::HashMap;

use jiff::Timestamp;

use crate::facts::{Identity, Key};
pub use actions::{application_of, loop_of, loop_of_ended};
use ganglion_api::workload_action::status::Slot;
use index::Index;
pub use list::Listing;
use nodes::NodeIndex;
pub use owners::OwnerReading;
use owners::Owners;
use placement::PlacementIndex;
pub use placement::{Arrival, PodFailure, is_placed, wants_place};
use pools::PoolIndex;
pub use requeue::Requeue;
use slots::Turns;
pub use table::{Fact, Origin, Table};
pub use tables::Stored;
use tables::Tables;
pub use unreadable::Unreadable;
use usage::MeasuredUsage;
pub use usage::NodeUse;

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    tables: Tables,
    /// Slots on their way into their actions' status.
    reserved: HashMap<Key, Vec<Slot>>,
    turns: Turns,
    /// When this process first planned each action, by uid.
    noticed: HashMap<String, Timestamp>,
    /// When a watch of workloads or their pods last broke off.
    broken: Option<Timestamp>,
    index: Index,
    owners: Owners,
    usage: MeasuredUsage,
    nodes: NodeIndex,
    pools: PoolIndex,
    placement: PlacementIndex,
}

/// A fact whose changes concern somebody.
pub trait Indexed: Stored {
    /// Updates the indexes and returns the objects to requeue. At least one of `old` and `new` is set.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue;

    /// Takes over what an older version of the object had and no newer one takes back.
    fn follow(&mut self, _known: &Self) {}

    /// The watch of this kind broke off at this time.
    fn interrupted(_world: &mut World, _at: Timestamp) {}
}

impl World {
    /// Takes in an object that was made or changed, and returns the objects to requeue: none where nothing changed that a
    /// planner reads.
    pub fn apply<F: Indexed>(&mut self, mut fact: F, origin: Origin) -> Requeue {
        if let Some(known) = F::table(self).get(&fact.id().key) {
            fact.follow(known);
        }
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
        for object in list.unreadable {
            requeue.extend(self.put_unreadable::<F>(object));
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

    /// The API server does not serve this kind, or not to the operator.
    pub fn unavailable<F: Stored>(&mut self) {
        F::table_mut(self).unavailable();
    }

    /// Takes in an object whose newest version does not parse, and returns the objects to requeue.
    pub fn put_unreadable<F: Stored>(&mut self, object: Unreadable) -> Requeue {
        F::table_mut(self).put_unreadable(object).map_or_else(Requeue::none, Requeue::one::<F>)
    }

    /// How many objects of each kind are known.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.counts()
    }
}
