//! Objects of one kind in the API server, the log of their changes, and views that follow the log at their own pace.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_core::facts::Key;

use super::object::{Action, Deployment, DisruptionBudget, Meta, Node, Pod, Receipt, Scaler, Service, Set};

/// Properties of a kind that the API server needs.
pub trait Stored: Clone + PartialEq {
    fn meta(&self) -> &Meta;
    fn meta_mut(&mut self) -> &mut Meta;
    /// Whether the spec differs, so that the generation increases.
    fn spec_differs(&self, _other: &Self) -> bool {
        false
    }
}

macro_rules! stored {
    ($($kind:ident $(, $a:ident, $b:ident => $differs:expr)?;)*) => {
        $(impl Stored for $kind {
            fn meta(&self) -> &Meta {
                &self.meta
            }
            fn meta_mut(&mut self) -> &mut Meta {
                &mut self.meta
            }
            $(fn spec_differs(&self, other: &Self) -> bool {
                let ($a, $b) = (self, other);
                $differs
            })?
        })*
    };
}
stored! {
    Pod;
    Node;
    Set, a, b => a.replicas != b.replicas;
    Deployment, a, b => a.replicas != b.replicas || !Arc::ptr_eq(&a.template, &b.template);
    DisruptionBudget, a, b => a.rule != b.rule;
    Service;
    Scaler;
    Receipt;
    Action, a, b => a.spec != b.spec;
}

/// A watch event.
#[derive(Clone, Debug)]
pub enum Event<T> {
    Put(Arc<T>),
    /// The object in its last state, with the version of its deletion.
    Gone(Arc<T>),
}

/// Objects of one kind.
#[derive(Clone, Debug)]
pub struct Store<T> {
    pub live: BTreeMap<Key, Arc<T>>,
    pub log: Vec<Event<T>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { live: BTreeMap::new(), log: Vec::new() }
    }
}

impl<T: Stored> Store<T> {
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.live.get(key)
    }

    pub fn by_uid(&self, uid: &str) -> Option<&Arc<T>> {
        self.live.values().find(|object| object.meta().uid == uid)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.live.values()
    }

    /// Objects that existed when the log had this length, by key.
    pub fn as_of(&self, at: usize) -> impl Iterator<Item = &Arc<T>> {
        let mut there = BTreeMap::new();
        for event in &self.log[..at] {
            match event {
                Event::Put(object) => there.insert(&object.meta().key, object),
                Event::Gone(object) => there.remove(&object.meta().key),
            };
        }
        there.into_values()
    }

    pub(super) fn put(&mut self, object: Arc<T>) {
        self.live.insert(object.meta().key.clone(), Arc::clone(&object));
        self.log.push(Event::Put(object));
    }

    pub(super) fn drop(&mut self, object: Arc<T>) {
        self.live.remove(&object.meta().key);
        self.log.push(Event::Gone(object));
    }
}

/// State before and after an event.
pub struct Turn<T> {
    pub old: Option<Arc<T>>,
    pub new: Option<Arc<T>>,
}

/// A controller's cache of one kind, which lags behind the log.
#[derive(Clone, Debug)]
pub struct View<T> {
    pub items: BTreeMap<Key, Arc<T>>,
    at: usize,
}

impl<T> Default for View<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), at: 0 }
    }
}

impl<T: Stored> View<T> {
    /// Receives the next event, if there is one.
    pub fn advance(&mut self, store: &Store<T>) -> Option<Turn<T>> {
        let event = store.log.get(self.at)?;
        self.at += 1;
        Some(match event {
            Event::Put(object) => {
                let old = self.items.insert(object.meta().key.clone(), Arc::clone(object));
                Turn { old, new: Some(Arc::clone(object)) }
            }
            Event::Gone(object) => {
                self.items.remove(&object.meta().key);
                Turn { old: Some(Arc::clone(object)), new: None }
            }
        })
    }

    pub fn behind(&self, store: &Store<T>) -> bool {
        self.at < store.log.len()
    }
}
