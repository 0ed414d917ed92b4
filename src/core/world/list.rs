//! A list of one kind in progress: the objects cached before the request, and the objects received so far.
//!
//! `kube::runtime::watcher` reports neither the version of a list nor the time of its snapshot. So the list is compared
//! with the objects cached before the request: an object that was cached then, has not changed since and is missing in
//! the list, has been deleted. Objects that our own requests changed meanwhile stay, and are looked up once the list is
//! complete ([`Table::unconfirmed`](super::Table::unconfirmed)).

use std::collections::{HashMap, HashSet};

use super::Unreadable;
use super::table::Fact;
use crate::facts::Key;

/// A list in progress.
#[derive(Debug)]
pub struct Listing<F> {
    /// The listed namespace; None for all namespaces.
    pub(super) namespace: Option<String>,
    /// Versions of the objects that were cached before the request.
    pub(super) known: HashMap<Key, String>,
    /// uids of the objects that our own requests had found deleted.
    pub(super) gone: HashMap<Key, String>,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) facts: Vec<F>,
    listed: HashSet<Key>,
}

impl<F: Fact> Listing<F> {
    pub(super) fn new(namespace: Option<String>, known: HashMap<Key, String>, gone: HashMap<Key, String>) -> Self {
        Self { namespace, known, gone, unreadable: Vec::new(), facts: Vec::new(), listed: HashSet::new() }
    }

    /// Adds an object of the list.
    pub fn add(&mut self, fact: F) {
        self.listed.insert(fact.id().key);
        self.facts.push(fact);
    }

    /// Adds an object of the list that does not parse.
    pub fn add_unreadable(&mut self, object: Unreadable) {
        self.listed.insert(object.id().key);
        self.unreadable.push(object);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.listed.contains(key)
    }
}
