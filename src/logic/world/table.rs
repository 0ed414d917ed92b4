//! One kind's facts, by key, and which of two versions wins.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;

use crate::api::workload_action::WorkloadAction;
use crate::logic::facts::{
    BudgetFact, DeploymentFact, Identity, Key, NodeFact, PodFact, ReceiptFact, ScalerFact, ServiceFact, SetFact,
};

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A watch, which tells of every object in the order of the versions.
    Watch,
    /// The answer to a write of our own, which may come before or after the watch tells of it.
    Own,
}

/// A fact that a [`Table`] can hold.
pub trait Fact: Clone + PartialEq {
    /// Which object it speaks of, and in which version.
    fn id(&self) -> Identity;
    /// The same fact as of another version, for telling whether anything but the version changed.
    fn with_version(&self, version: &str) -> Self;
}

macro_rules! plain_facts {
    ($($fact:ty),*) => {
        $(impl Fact for $fact {
            fn id(&self) -> Identity {
                self.id.clone()
            }
            fn with_version(&self, version: &str) -> Self {
                let mut same = self.clone();
                version.clone_into(&mut same.id.version);
                same
            }
        })*
    };
}
plain_facts!(PodFact, NodeFact, SetFact, DeploymentFact, BudgetFact, ServiceFact, ScalerFact, ReceiptFact);

impl Fact for WorkloadAction {
    fn id(&self) -> Identity {
        self.meta().into()
    }
    fn with_version(&self, version: &str) -> Self {
        let mut same = self.clone();
        same.metadata.resource_version = Some(version.to_owned());
        same
    }
}

/// What became of a fact.
#[derive(Debug)]
pub enum Change<T> {
    /// Nothing that anybody reads.
    None,
    /// Was, and is; at least one is there.
    Sides(Option<Arc<T>>, Option<Arc<T>>),
}

impl<T> Change<T> {
    /// What was and what is, if anything changed.
    pub fn sides(&self) -> Option<(Option<&T>, Option<&T>)> {
        match self {
            Self::None => None,
            Self::Sides(old, new) => Some((old.as_deref(), new.as_deref())),
        }
    }
}

/// One kind's facts.
#[derive(Debug)]
pub struct Table<T> {
    items: HashMap<Key, Arc<T>>,
    /// The newest version that the watch has told of. What it told up to here is complete, deletions included.
    seen: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), seen: 0 }
    }
}

impl<T: Fact> Table<T> {
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.items.get(key)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.items.values()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn identities(&self) -> Vec<Identity> {
        self.items.values().map(|item| item.id()).collect()
    }

    /// Takes in a fact, unless something newer is known.
    pub fn put(&mut self, fact: T, source: Source) -> Change<T> {
        let id = fact.id();
        match source {
            // The watch is past this version: it told of this write, and maybe of the object's deletion since.
            Source::Own if id.order() < self.seen => return Change::None,
            Source::Own => {}
            Source::Watch => self.seen = self.seen.max(id.order()),
        }
        let old = self.items.get(&id.key).cloned();
        if old.as_ref().is_some_and(|old| old.id().uid == id.uid && old.id().order() > id.order()) {
            return Change::None;
        }
        let new = Arc::new(fact);
        self.items.insert(id.key, Arc::clone(&new));
        match old {
            Some(old) if old.with_version(&id.version) == *new => Change::None,
            old => Change::Sides(old, Some(new)),
        }
    }

    /// Takes out an object that the watch reported deleted.
    pub fn take(&mut self, id: &Identity) -> Change<T> {
        self.seen = self.seen.max(id.order());
        match self.items.get(&id.key) {
            // Deleted and made again under the same name, and we heard of the new one first (from our own write).
            Some(item) if item.id().uid != id.uid && item.id().order() > id.order() => Change::None,
            Some(_) => Change::Sides(self.items.remove(&id.key), None),
            None => Change::None,
        }
    }
}
