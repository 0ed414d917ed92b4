//! The objects that a change requeues, by kind.

use std::collections::BTreeSet;

use super::table::Fact;
use crate::facts::Key;

/// Objects to reconcile again: name of the kind, as in [`Fact::KIND`], and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requeue(BTreeSet<(&'static str, Key)>);

impl Requeue {
    /// No object.
    pub fn none() -> Self {
        Self::default()
    }

    /// One object of this kind.
    pub fn one<F: Fact>(key: Key) -> Self {
        Self([(F::KIND, key)].into())
    }

    /// These objects of this kind.
    pub fn all<F: Fact>(keys: impl IntoIterator<Item = Key>) -> Self {
        Self(keys.into_iter().map(|key| (F::KIND, key)).collect())
    }

    /// The union of both.
    pub fn and(mut self, others: Self) -> Self {
        self.extend(others);
        self
    }

    /// Adds other objects.
    pub fn extend(&mut self, others: Self) {
        if self.0.is_empty() {
            self.0 = others.0;
        } else {
            self.0.extend(others.0);
        }
    }

    /// Removes this object: its own reconcile is running and plans again anyway.
    pub fn without<F: Fact>(mut self, key: &Key) -> Self {
        self.0.retain(|(kind, one)| *kind != F::KIND || one != key);
        self
    }

    /// The keys of one kind, sorted.
    pub fn of<F: Fact>(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(|(kind, _)| *kind == F::KIND).map(|(_, key)| key)
    }

    /// Whether no object is requeued.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl IntoIterator for Requeue {
    type Item = (&'static str, Key);
    type IntoIter = std::collections::btree_set::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
