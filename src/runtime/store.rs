//! The shared state of the process behind its lock, and the queues that changes feed.
//!
//! Owns the lock and the queues of the controllers. The world is accessible only in closures, so that no lock guard
//! lives across an await.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::queue::Queue;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::{Fact, Listing, Origin, Requeue, Unreadable, World};

/// The shared state. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    world: RwLock<World>,
    /// Queues by the kind that a controller reconciles.
    queues: Mutex<HashMap<&'static str, Arc<Queue>>>,
}

impl Store {
    /// Creates a store with this world, which decides by its followers what a change requeues.
    pub fn new(world: World) -> Self {
        Self(Arc::new(Inner { world: RwLock::new(world), queues: Mutex::default() }))
    }

    /// Reads the world. A poisoned lock is ignored: a panic elsewhere does not invalidate facts. `look` must not use
    /// the store: it would wait for itself if another thread waits to write.
    pub fn read<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        let _alone = Alone::new();
        look(&self.0.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the world without requeueing objects. `change` must not use the store.
    pub fn write<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let _alone = Alone::new();
        change(&mut self.0.world.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores an object and requeues the objects that the change affects.
    pub fn apply<F: Fact>(&self, fact: F, origin: Origin) {
        self.requeue(self.write(|world| world.apply(fact, origin)));
    }

    /// Stores an object that does not parse, and requeues it.
    pub fn put_unreadable<F: Fact>(&self, object: Unreadable) {
        self.requeue(self.write(|world| world.put_unreadable::<F>(object)));
    }

    /// Stores an object that was refused for want of room and was read again.
    pub fn readmit<F: Fact>(&self, fact: F) {
        self.requeue(self.write(|world| world.readmit(fact)));
    }

    /// Removes an object and requeues the objects that this affects.
    pub fn remove<F: Fact>(&self, id: &Identity) {
        self.requeue(self.write(|world| world.remove::<F>(id)));
    }

    /// Stores an object of a list and requeues the objects that the change affects.
    pub fn apply_listed<F: Fact>(&self, list: &mut Listing<F>, fact: F) {
        self.requeue(self.write(|world| world.apply_listed(list, fact)));
    }

    /// Stores an object of a list that is not kept, and requeues it.
    pub fn put_listed<F: Fact>(&self, list: &mut Listing<F>, object: Unreadable) {
        self.requeue(self.write(|world| world.put_listed(list, object)));
    }

    /// Completes a list and requeues the objects that the deletions affect.
    pub fn end_list<F: Fact>(&self, list: &Listing<F>) {
        self.requeue(self.write(|world| world.end_list(list)));
    }

    /// Stores the answer to a request of the controller of `C`, without requeueing the object that it reconciles.
    pub fn apply_own<C: Fact, F: Fact>(&self, key: &Key, fact: F) {
        self.requeue(self.write(|world| world.apply(fact, Origin::Own)).without::<C>(key));
    }

    /// The queue of the controller that reconciles this kind.
    pub fn queue<F: Fact>(&self) -> Arc<Queue> {
        self.queue_of(F::KIND)
    }

    fn queue_of(&self, kind: &'static str) -> Arc<Queue> {
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(kind).or_default())
    }

    /// Adds these objects to the queues of their controllers, if those run.
    pub fn requeue(&self, requeue: Requeue) {
        let mut keys = requeue.into_iter().peekable();
        while let Some((kind, key)) = keys.next() {
            let same = std::iter::from_fn(|| keys.next_if(|(other, _)| *other == kind));
            self.queue_of(kind).add(std::iter::once(key).chain(same.map(|(_, key)| key)));
        }
    }
}

thread_local! {
    /// Whether this thread holds the lock of a store.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Use of a store by this thread. Without optimizations, a use within another one panics; it would rarely be seen to
/// hang.
struct Alone;

impl Alone {
    fn new() -> Self {
        debug_assert!(!HOLDS.replace(true), "a store is used within a closure of a store");
        Self
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        HOLDS.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a store is used within a closure")]
    #[cfg(debug_assertions)]
    fn a_use_within_another_one_is_found() {
        let store = Store::new(World::default());
        store.read(|_| store.read(|_| ()));
    }

    #[test]
    fn uses_one_after_the_other_are_allowed() {
        let store = Store::new(World::default());
        store.read(|_| ());
        store.write(|_| ());
        store.read(|_| ());
    }
}
