//! Keys of objects by what they belong to: the shape of most indexes.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::facts::Key;

/// Keys of objects, by the uid or name of what they belong to.
#[derive(Debug)]
pub struct KeysBy<I>(HashMap<I, BTreeSet<Key>>);

impl<I> Default for KeysBy<I> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<I: Eq + Hash> KeysBy<I> {
    /// The keys of this owner, sorted.
    pub fn of<'a, Q: Eq + Hash + ?Sized>(&'a self, owner: &Q) -> impl Iterator<Item = &'a Key> + use<'a, I, Q>
    where
        I: Borrow<Q>,
    {
        self.0.get(owner).into_iter().flatten()
    }

    /// All owners.
    pub fn owners(&self) -> impl Iterator<Item = &I> {
        self.0.keys()
    }

    /// All keys, by owner.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.values().flatten()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this owner has keys.
    pub fn contains<Q: Eq + Hash + ?Sized>(&self, owner: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        self.0.contains_key(owner)
    }

    /// Adds the key to its owner.
    pub fn add<Q: ToOwned<Owned = I> + ?Sized>(&mut self, owner: &Q, key: &Key) {
        self.0.entry(owner.to_owned()).or_default().insert(key.clone());
    }

    /// Removes the key from its owner.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, owner: &Q, key: &Key)
    where
        I: Borrow<Q>,
    {
        if let Some(keys) = self.0.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(owner);
            }
        }
    }

    /// Moves the key from its old owner to the new one, if they differ.
    pub fn update<Q: Eq + Hash + ToOwned<Owned = I> + ?Sized>(&mut self, key: &Key, old: Option<&Q>, new: Option<&Q>)
    where
        I: Borrow<Q>,
    {
        if old == new {
            return;
        }
        if let Some(owner) = old {
            self.remove(owner, key);
        }
        if let Some(owner) = new {
            self.add(owner, key);
        }
    }
}
