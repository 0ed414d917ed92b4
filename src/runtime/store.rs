//! What the whole process knows, behind its lock, and which controllers a change requeues.
//!
//! Owns the lock and the queues of the controllers. Only closures get at the world, so that no guard can live across an await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::queue::Queue;
use crate::logic::facts::{Identity, Key};
use crate::logic::world::{Fact, Indexed, Listing, Origin, Requeue, World};

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    world: RwLock<World>,
    /// By the kind that a controller reconciles.
    queues: Mutex<HashMap<&'static str, Arc<Queue>>>,
}

impl Store {
    /// Looks at the world. Poison is passed over: a panic elsewhere does not make facts untrue.
    pub fn read<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        look(&self.0.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the world. Requeues nothing.
    pub fn write<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        change(&mut self.0.world.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in an object, and requeues the objects that the change concerns.
    pub fn apply<F: Indexed>(&self, fact: F, origin: Origin) {
        self.requeue(self.write(|world| world.apply(fact, origin)));
    }

    /// Takes out an object, and requeues the objects that this concerns.
    pub fn remove<F: Indexed>(&self, id: &Identity) {
        self.requeue(self.write(|world| world.remove::<F>(id)));
    }

    /// Takes in a whole list, and requeues the objects that the changes concern.
    pub fn end_list<F: Indexed>(&self, list: Listing<F>) {
        self.requeue(self.write(|world| world.end_list(list)));
    }

    /// Takes in what came of a request of the controller of `C`, which goes on with this object anyway.
    pub fn apply_own<C: Fact, F: Indexed>(&self, key: &Key, fact: F) {
        self.requeue(self.write(|world| world.apply(fact, Origin::Own)).without::<C>(key));
    }

    /// The queue of the controller that reconciles this kind.
    #[must_use]
    pub fn queue<F: Fact>(&self) -> Arc<Queue> {
        self.queue_of(F::KIND)
    }

    fn queue_of(&self, kind: &'static str) -> Arc<Queue> {
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(kind).or_default())
    }

    /// Puts these objects into their controllers' queues; a controller that does not run drops them.
    pub fn requeue(&self, requeue: Requeue) {
        let mut keys = requeue.into_iter().peekable();
        while let Some((kind, key)) = keys.next() {
            let same = std::iter::from_fn(|| keys.next_if(|(other, _)| *other == kind));
            self.queue_of(kind).add(std::iter::once(key).chain(same.map(|(_, key)| key)));
        }
    }
}
