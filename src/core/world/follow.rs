//! Followers: what a product derives from facts, and the objects that it requeues when they change.
//!
//! A changed fact has two phases: all followers update their states, then each determines its objects to requeue. So a
//! requeue reads indexes that agree with the tables, no matter in which order the followers were registered.

use std::any::{Any, TypeId};
use std::collections::HashMap;

use kube::Resource;

use super::World;
use super::requeue::Requeue;
use super::table::Fact;

/// State that a follower derives from facts, or records beside them.
pub trait State: Default + Send + Sync + 'static {
    /// A shared empty state, which a query finds in a world where the follower is not registered. So a query cannot
    /// fail, and a test that forgets to register finds nothing. Generic code cannot have a static for each type, so
    /// each state provides its own.
    fn empty() -> &'static Self;
}

/// The reaction of a follower to changes of one kind. At least one of `old` and `new` is set.
pub trait Follows<F: Fact>: State {
    /// Updates the state.
    fn update(&mut self, _old: Option<&F>, _new: Option<&F>) {}

    /// Objects to requeue. The world already has the new fact, and all states are updated.
    fn requeue(_world: &World, _old: Option<&F>, _new: Option<&F>) -> Requeue {
        Requeue::none()
    }
}

/// Whether the object was created, deleted, marked for deletion or recreated, or its owners changed.
pub fn is_another<K: Resource>(old: Option<&K>, new: Option<&K>) -> bool {
    let (Some(old), Some(new)) = (old.map(K::meta), new.map(K::meta)) else { return true };
    old.uid != new.uid
        || old.deletion_timestamp != new.deletion_timestamp
        || old.owner_references != new.owner_references
}

/// The followers of one kind.
pub struct Followers<F>(Vec<Follower<F>>);

struct Follower<F> {
    state: TypeId,
    update: fn(&mut ByType, Option<&F>, Option<&F>),
    requeue: fn(&World, Option<&F>, Option<&F>) -> Requeue,
}

impl<F> Default for Followers<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Fact> Followers<F> {
    pub fn add<S: Follows<F>>(&mut self) {
        let state = TypeId::of::<S>();
        if self.0.iter().all(|follower| follower.state != state) {
            self.0.push(Follower { state, update: update::<S, F>, requeue: S::requeue });
        }
    }

    pub fn update(&self, states: &mut ByType, old: Option<&F>, new: Option<&F>) {
        for follower in &self.0 {
            (follower.update)(states, old, new);
        }
    }

    pub fn requeue(&self, world: &World, old: Option<&F>, new: Option<&F>) -> Requeue {
        let mut requeue = Requeue::none();
        for follower in &self.0 {
            requeue.extend((follower.requeue)(world, old, new));
        }
        requeue
    }
}

fn update<S: Follows<F>, F: Fact>(states: &mut ByType, old: Option<&F>, new: Option<&F>) {
    if let Some(state) = states.get_mut::<S>() {
        state.update(old, new);
    }
}

/// Values that are found by their type.
#[derive(Default)]
pub struct ByType(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl ByType {
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.get_mut(&TypeId::of::<T>())?.downcast_mut()
    }

    /// The value of this type, created if it is missing.
    pub fn ensure<T: Any + Default + Send + Sync>(&mut self) -> Option<&mut T> {
        self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default()).downcast_mut()
    }
}
