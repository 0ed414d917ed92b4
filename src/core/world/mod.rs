//! The state of the cluster: facts of all kinds, and what products derive from them.
//!
//! Owns the facts of the process, which come from watches and from the answers to our own writes. Independent of the
//! origin of facts: the caches feed it from a cluster, the model from a simulated one. Knows no product: a product
//! registers the kinds that it follows, keeps its indexes in a state of its own, determines the objects that a change
//! requeues, and adds its queries by a trait (`src/*/plan/world.rs`). Here are only the queries that several products
//! use.
//!
//! **Reads see our own writes.** The answer to a write is applied at once ([`Origin::Own`]). Watch events and answers
//! that are older than the stored version are ignored, so a planner does not repeat an effect because a watch lags.
//! Writes of other processes may still be missing, so every effect carries a precondition.
//!
//! | file | content |
//! |---|---|
//! | `table` | facts of one kind, which of two versions wins, objects that a complete list removes |
//! | `tables` | the list of kinds |
//! | `follow` | followers of changed facts, and their states |
//! | `requeue` | the set of objects to requeue |
//! | `cluster` | pods, ReplicaSets, nodes and autoscalers: indexes and queries that several products use |
//! | `keys` | an index: keys of objects by what they belong to |
//! | `occupancy` | memory of each namespace, and its limits |
//! | `unreadable` | objects that do not parse or are not kept |

mod cluster;
mod follow;
mod keys;
mod occupancy;
mod requeue;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod unreadable;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::facts::{Identity, Key};
use follow::{ByType, Followers};
pub use follow::{Follows, State, is_another};
pub use keys::KeysBy;
pub use occupancy::{Occupancy, OccupancyLimits};
pub use requeue::Requeue;
use table::Change;
pub use table::{Fact, Listing, Origin, Table};
use tables::Tables;
pub use tables::WINDOW_BYTES;
pub use unreadable::{StatusPart, Unreadable, UnreadableCause, head};

/// The cached state of the cluster.
pub struct World {
    tables: Tables,
    occupancy: Occupancy,
    /// [`Followers`] of each kind.
    followers: ByType,
    /// States of the followers.
    states: ByType,
    /// Clock of this process, if facts note the time at which they arrive.
    clock: Option<fn() -> Timestamp>,
}

impl Default for World {
    /// An empty world that no product follows.
    fn default() -> Self {
        let mut world = Self {
            tables: Tables::default(),
            occupancy: Occupancy::default(),
            followers: ByType::default(),
            states: ByType::default(),
            clock: None,
        };
        cluster::register(&mut world);
        world
    }
}

impl fmt::Debug for World {
    /// Prints no content: it may be as large as a cluster.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// Facts and their versions.
impl World {
    /// Stores a created or changed object, and returns the objects to requeue: none if nothing changed that a planner
    /// reads. If its namespace has no room for it, only its identity is stored, or the fact without the texts of users.
    pub fn apply<F: Fact>(&mut self, mut fact: F, origin: Origin) -> Requeue {
        fact.slim();
        let stored = F::table(self).get(&fact.key());
        let has_room = self.has_room_for(stored.map(Arc::as_ref), &fact);
        if F::IS_ALWAYS_STORED {
            if !has_room {
                fact.reduce();
            }
        } else if !has_room && (origin != Origin::Own || stored.is_none()) {
            // The answer to a write to a stored object is always stored: the next plan must see it.
            let (metadata, conditions) = fact.head();
            let most = self.occupancy.limits.per_namespace;
            return self.put_unreadable::<F>(Unreadable::without_room(&metadata, conditions, most));
        }
        if let Some(stored) = stored {
            fact.follow(stored);
        }
        if let Some(clock) = self.clock {
            fact.see(clock());
        }
        let change = F::table_mut(self).put(fact, origin);
        self.changed(&change)
    }

    /// Removes an object that a watch reported deleted at this version, or that a request of ours found deleted (no
    /// version).
    pub fn remove<F: Fact>(&mut self, id: &Identity) -> Requeue {
        let change = F::table_mut(self).take(id);
        self.changed(&change)
    }

    /// Starts a list of one kind, for one namespace or all. Call it before the request.
    pub fn begin_list<F: Fact>(&self, namespace: Option<&str>) -> Listing<F> {
        F::table(self).begin_list(namespace)
    }

    /// Stores an object of a list.
    pub fn apply_listed<F: Fact>(&mut self, list: &mut Listing<F>, fact: F) -> Requeue {
        list.note(&fact.id());
        self.apply(fact, Origin::List)
    }

    /// Stores an object of a list that is not kept.
    pub fn put_listed<F: Fact>(&mut self, list: &mut Listing<F>, object: Unreadable) -> Requeue {
        list.note(&object.id());
        self.put_unreadable::<F>(object)
    }

    /// Completes a list: removes objects that it does not contain. After a broken watch, the list is the only evidence
    /// of their deletion; see [`Listing`].
    pub fn end_list<F: Fact>(&mut self, list: &Listing<F>) -> Requeue {
        let mut requeue = Requeue::none();
        for id in F::table_mut(self).vanished(list) {
            requeue.extend(self.remove::<F>(&id));
        }
        F::table_mut(self).see_list(list);
        requeue
    }

    /// The facts of one kind.
    pub fn table<F: Fact>(&self) -> &Table<F> {
        F::table(self)
    }

    /// The fact with this key. [`Table::get`] returns it shared.
    pub fn get<F: Fact>(&self, key: &Key) -> Option<&F> {
        F::table(self).get(key).map(Arc::as_ref)
    }

    /// The facts of one kind, by key.
    pub fn all<F: Fact>(&self) -> impl Iterator<Item = &F> {
        F::table(self).values().map(Arc::as_ref)
    }

    /// The facts of one kind in one namespace, by name.
    pub fn within<F: Fact>(&self, namespace: &str) -> impl Iterator<Item = &F> {
        F::table(self).within(namespace).map(Arc::as_ref)
    }

    /// Records that the API server does not serve this kind, or does not allow the operator to read it.
    pub fn unavailable<F: Fact>(&mut self) {
        F::table_mut(self).unavailable();
    }

    /// Records that a watch of this kind broke: the watches of other controllers may have broken, too.
    pub fn watch_broke<F: Fact>(&mut self, at: Timestamp) {
        F::table_mut(self).watch_broke(at);
    }

    fn has_room_for<F: Fact>(&self, stored: Option<&F>, fact: &F) -> bool {
        let namespace = &fact.key().namespace;
        // Usually there is room for any object, so that its size need not be computed.
        if !F::IS_ALWAYS_STORED && self.occupancy.free(namespace) > occupancy::LARGEST {
            return true;
        }
        let bytes = fact.bytes();
        let before = stored.map_or(0, Fact::bytes);
        // The deletion of an object adds its time. The operator must see it to remove its own finalizer.
        let begins_to_end = || {
            let is_terminating = |fact: &F| fact.head().0.deletion_timestamp.is_some();
            stored.is_some_and(|stored| !is_terminating(stored)) && is_terminating(fact)
        };
        bytes == 0
            || self.occupancy.admits(namespace, before, bytes)
            || (bytes <= before.saturating_add(occupancy::DELETION) && begins_to_end())
    }

    /// Sets the clock by which facts note the time at which they arrive.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the limits of the memory of custom resources.
    #[must_use]
    pub fn with_limits(mut self, limits: OccupancyLimits) -> Self {
        self.occupancy.limits = limits;
        self
    }

    /// Bytes that count for each namespace, as an estimate. Unsorted.
    pub fn occupancy(&self) -> impl Iterator<Item = (&str, usize)> {
        self.occupancy.all()
    }

    /// Objects that were not stored, or reduced, for want of room, in namespaces that have room now. At most `most`.
    pub fn readmissible<F: Fact>(&self, namespace: Option<&str>, most: usize) -> Vec<Identity> {
        let refused = F::table(self).unreadable().values().filter(|object| object.cause == UnreadableCause::NoRoom);
        let reduced = F::table(self).values().filter(|fact| fact.is_reduced()).map(|fact| fact.id());
        let within = refused
            .map(|object| object.id())
            .chain(reduced)
            .filter(|id| namespace.is_none_or(|one| id.key.namespace == one));
        within.filter(|id| self.occupancy.has_room(&id.key.namespace)).take(most).collect()
    }

    /// Stores an object that was read again, unless the watch has reported a newer version or its deletion.
    pub fn readmit<F: Fact>(&mut self, fact: F) -> Requeue {
        let id = fact.id();
        let reduced = || self.get::<F>(&id.key).filter(|fact| fact.is_reduced()).map(Fact::id);
        let refused = F::table(self).unreadable().get(&id.key).map(|object| object.id()).or_else(reduced);
        match refused.filter(|refused| refused.uid == id.uid && refused.order() <= id.order()) {
            Some(_) => self.apply(fact, Origin::Watch),
            None => Requeue::none(),
        }
    }

    /// Stores an object whose newest version is not kept, or its stub if its namespace has many such objects, and
    /// returns the objects to requeue.
    pub fn put_unreadable<F: Fact>(&mut self, object: Unreadable) -> Requeue {
        let id = object.id();
        if !F::table_mut(self).remove_older_unreadable(&id) {
            return Requeue::none();
        }
        let Some(object) = self.tables.unreadable_bytes(&id.key.namespace).admit(object) else {
            F::table_mut(self).count_unreported(1);
            return Requeue::none();
        };
        F::table_mut(self).put_unreadable(object);
        Requeue::one::<F>(id.key)
    }

    /// Number of versions of objects that get no condition, by kind: their namespace has too many objects that are not
    /// kept.
    pub fn unreported(&self) -> Vec<(&'static str, u64)> {
        self.tables.unreported()
    }

    /// Number of cached objects of each kind.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.counts()
    }
}

/// Followers and their states.
impl World {
    /// Registers a follower of this kind. Registering it twice has no effect.
    pub fn follow<S: Follows<F>, F: Fact>(&mut self) {
        self.states.ensure::<S>();
        if let Some(followers) = self.followers.ensure::<Followers<F>>() {
            followers.add::<S>();
        }
    }

    /// The state of a follower; empty if the follower is not registered.
    pub fn state<S: State>(&self) -> &S {
        self.states.get().unwrap_or_else(|| S::empty())
    }

    /// The state of a follower, mutable; None if the follower is not registered.
    pub fn state_mut<S: State>(&mut self) -> Option<&mut S> {
        self.states.get_mut()
    }

    /// The state, mutable. Registers it, if no follower of a kind has.
    pub(crate) fn ensure_state<S: State>(&mut self) -> Option<&mut S> {
        self.states.ensure()
    }

    /// Updates the states of all followers, and returns the objects to requeue.
    fn changed<F: Fact>(&mut self, change: &Change<F>) -> Requeue {
        let Some((old, new)) = change.sides() else { return Requeue::none() };
        if let Some(fact) = new.or(old) {
            let (old, new) = (old.map_or(0, Fact::bytes), new.map_or(0, Fact::bytes));
            self.occupancy.replace(&fact.key().namespace, old, new);
        }
        let Some(followers) = self.followers.get::<Followers<F>>() else { return Requeue::none() };
        followers.update(&mut self.states, old, new);
        followers.requeue(self, old, new)
    }
}
