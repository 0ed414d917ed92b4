//! The state of the cluster as the planners see it: all facts, with indexes.
//!
//! Owns the facts of the process, which come from watches and from the answers to our own writes, and determines the
//! objects that a change requeues. Independent of the origin of facts: the caches feed it from a cluster, the model
//! from a simulated one.
//!
//! **Reads see our own writes.** The answer to a write is applied at once ([`Origin::Own`]). Watch events and answers
//! that are older than the stored version are ignored, so a planner does not repeat an effect because a watch lags.
//! Writes of other processes may still be missing, so every effect carries a precondition.
//!
//! | file | content |
//! |---|---|
//! | `table`, `list` | facts of one kind, which of two versions wins, objects that a complete list removes |
//! | `tables` | the list of kinds |
//! | `requeue` | the set of objects to requeue |
//! | `cluster`, `stateful`, `autoscalers` | Kubernetes' own kinds: objects that a change requeues, and queries |
//! | `actions`, `loops`, `nodes`, `pools`, `placement` | our own kinds: the same, by product |
//! | `owners` | cached objects of kinds that are not watched |
//! | `usage` | node usage from metrics.k8s.io, while an expression needs it |
//! | `unreadable` | objects that do not parse |
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

/// The cached state of the cluster.
#[derive(Debug, Default)]
pub struct World {
    tables: Tables,
    /// Slots that are being written to the status of their action.
    reserved: HashMap<Key, Vec<Slot>>,
    turns: Turns,
    /// Time at which this process first planned each action, by uid.
    noticed: HashMap<String, Timestamp>,
    /// Time at which a watch of workloads or their pods last broke.
    broken: Option<Timestamp>,
    index: Index,
    owners: Owners,
    usage: MeasuredUsage,
    nodes: NodeIndex,
    pools: PoolIndex,
    placement: PlacementIndex,
}

/// A fact whose changes requeue objects.
pub trait Indexed: Stored {
    /// Updates the indexes and returns the objects to requeue. At least one of `old` and `new` is set.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue;

    /// Copies state of the stored version that a newer version of the object cannot undo.
    fn follow(&mut self, _known: &Self) {}

    /// Called when the watch of this kind broke.
    fn interrupted(_world: &mut World, _at: Timestamp) {}
}

impl World {
    /// Stores a created or changed object, and returns the objects to requeue: none if nothing changed that a planner
    /// reads.
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

    /// Removes an object that a watch reported deleted at this version, or that a request of ours found deleted (no
    /// version).
    pub fn remove<F: Indexed>(&mut self, id: &Identity) -> Requeue {
        let change = F::table_mut(self).take(id);
        match change.sides() {
            Some((old, new)) => F::changed(self, old, new),
            None => Requeue::none(),
        }
    }

    /// Starts a list of one kind, for one namespace or all. Call it before the request.
    pub fn begin_list<F: Indexed>(&self, namespace: Option<&str>) -> Listing<F> {
        F::table(self).begin_list(namespace)
    }

    /// Stores a complete list and removes objects that it does not contain: after a broken watch, the list is the only
    /// evidence of their deletion; see [`Listing`].
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
    pub fn table<F: Stored>(&self) -> &Table<F> {
        F::table(self)
    }

    /// Records that the API server does not serve this kind, or does not allow the operator to read it.
    pub fn unavailable<F: Stored>(&mut self) {
        F::table_mut(self).unavailable();
    }

    /// Stores an object whose newest version does not parse, and returns the objects to requeue.
    pub fn put_unreadable<F: Stored>(&mut self, object: Unreadable) -> Requeue {
        F::table_mut(self).put_unreadable(object).map_or_else(Requeue::none, Requeue::one::<F>)
    }

    /// Number of cached objects of each kind.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.counts()
    }
}
