//! A list of one kind under way: what was known when it was asked for, and what has come of it so far.
//!
//! `kube::runtime::watcher` tells neither the version of a list nor when the server took it. So the list is compared with
//! what was known when it was asked for: whatever was known then, has not changed since and is not in the list, is gone.
//! What our own requests changed meanwhile stays, and is looked up when the list is complete
//! ([`Table::unconfirmed`](super::Table::unconfirmed)).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::table::Fact;
use crate::logic::facts::Key;

/// See the module.
#[derive(Debug)]
pub struct Listing<F> {
    /// The namespace that is listed; None: all.
    pub(super) namespace: Option<String>,
    /// Versions of the objects that were known.
    pub(super) known: HashMap<Key, String>,
    /// uids of the objects that a request of ours had found gone.
    pub(super) gone: HashMap<Key, String>,
    pub(super) unreadable: BTreeSet<Key>,
    pub(super) facts: Vec<F>,
    listed: HashSet<Key>,
}

impl<F: Fact> Listing<F> {
    pub(super) fn new(namespace: Option<String>, known: HashMap<Key, String>, gone: HashMap<Key, String>) -> Self {
        Self { namespace, known, gone, unreadable: BTreeSet::new(), facts: Vec::new(), listed: HashSet::new() }
    }

    /// The list has this object.
    pub fn add(&mut self, fact: F) {
        self.listed.insert(fact.id().key);
        self.facts.push(fact);
    }

    /// The list has an object of this key, which does not parse.
    pub fn add_unreadable(&mut self, key: Key) {
        self.listed.insert(key.clone());
        self.unreadable.insert(key);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.listed.contains(key)
    }
}
