//! One kind's facts, by key, and which of two versions wins.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::list::Listing;
use crate::logic::facts::{Identity, Key};

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A watch, which tells of every object in the order of the versions.
    Watch,
    /// The answer to a write of our own, which may come before or after the watch tells of it.
    Own,
}

/// A fact that a [`Table`] can hold.
pub trait Fact: Clone + PartialEq + Send + Sync + 'static {
    /// Name of its kind, in metrics, logs and [`Requeue`](super::Requeue).
    const KIND: &'static str;
    /// Which object it describes, and in which version.
    fn id(&self) -> Identity;
    /// Its version, to be changed.
    fn version_mut(&mut self) -> &mut String;
    /// Drops what nobody reads.
    fn slim(&mut self) {}
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

/// Whether nothing but the version is new.
fn alike<T: Fact>(old: &T, new: &mut T) -> bool {
    let version = std::mem::replace(new.version_mut(), old.id().version);
    let alike = old == new;
    *new.version_mut() = version;
    alike
}

/// One kind's facts.
#[derive(Debug)]
pub struct Table<T> {
    items: BTreeMap<Key, Arc<T>>,
    /// For each namespace, the newest version that a watch has told of. What it told up to here is complete, deletions
    /// included. By namespace, since each may have a watch of its own, and one may be ahead of another.
    seen: HashMap<String, u64>,
    /// Objects (uid by key) that a request of ours found gone, until the watch tells so.
    gone: HashMap<Key, String>,
    /// Objects whose version is known from answers to our own requests and was not yet told by the watch.
    unconfirmed: BTreeSet<Key>,
    /// Objects whose last version does not parse: what they say is not known.
    unreadable: BTreeSet<Key>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            seen: HashMap::new(),
            gone: HashMap::new(),
            unconfirmed: BTreeSet::new(),
            unreadable: BTreeSet::new(),
        }
    }
}

impl<T: Fact> Table<T> {
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.items.get(key)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.items.values()
    }

    /// Those of one namespace.
    pub fn within(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        let from = Key::new(namespace, "");
        let in_it = move |key: &Key| key.namespace == from.namespace;
        self.items.range(Key::new(namespace, "")..).take_while(move |(key, _)| in_it(key)).map(|(_, item)| item)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Every fact with its key, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        self.items.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.items.keys()
    }

    /// Whether the last version of some object does not parse.
    pub fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// The object's newest version does not parse; what is known of an earlier one stays.
    pub fn unreadable(&mut self, key: Key) {
        self.unreadable.insert(key);
    }

    /// The objects of one namespace, or of all, that only answers to our own requests told of in their version. After a
    /// list the watch may never tell of them: they were written, and deleted, before the list was taken.
    pub fn unconfirmed(&self, namespace: Option<&str>) -> Vec<Identity> {
        let keys = self.unconfirmed.iter().filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
        keys.filter_map(|key| self.items.get(key)).map(|item| item.id()).collect()
    }

    /// A list is about to be asked for; see [`Listing`].
    pub(super) fn begin_list(&self, namespace: Option<&str>) -> Listing<T> {
        let within = |key: &&Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        let known = self.items.iter().filter(|(key, _)| within(key));
        let known = known.map(|(key, item)| (key.clone(), item.id().version)).collect();
        let gone = self.gone.iter().filter(|(key, _)| within(key)).map(|(key, uid)| (key.clone(), uid.clone()));
        Listing::new(namespace.map(str::to_owned), known, gone.collect())
    }

    /// The objects that a whole list did not have and that are gone for certain, each as it was known when the list was
    /// asked for. What has changed since stays: the list may be older.
    pub(super) fn vanished(&mut self, list: &Listing<T>) -> Vec<Identity> {
        let within = |key: &Key| list.namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace);
        self.unreadable.retain(|key| !within(key));
        self.unreadable.extend(list.unreadable.iter().cloned());
        // The list is younger than those answers: what they found gone cannot come back.
        self.gone.retain(|key, uid| list.gone.get(key) != Some(uid));
        let unlisted = list.known.iter().filter(|(key, _)| !list.has(key));
        let same =
            |(key, version): (&Key, &String)| Some(self.items.get(key)?.id()).filter(|id| id.version == *version);
        unlisted.filter_map(same).collect()
    }

    /// The watch has told of everything in this namespace up to this version.
    fn see(&mut self, namespace: &str, version: u64) {
        match self.seen.get_mut(namespace) {
            Some(seen) => *seen = version.max(*seen),
            None => {
                self.seen.insert(namespace.to_owned(), version);
            }
        }
    }

    fn seen_in(&self, namespace: &str) -> u64 {
        self.seen.get(namespace).copied().unwrap_or(0)
    }

    /// Takes in a fact, unless something newer is known.
    pub fn put(&mut self, mut fact: T, origin: Origin) -> Change<T> {
        fact.slim();
        let id = fact.id();
        let old = self.items.get(&id.key).cloned();
        match origin {
            // The watch is past this version and knows no such object: it told of its deletion.
            Origin::Own if old.is_none() && id.order() <= self.seen_in(&id.key.namespace) => return Change::None,
            Origin::Own => {}
            Origin::Watch => {
                self.see(&id.key.namespace, id.order());
                self.unreadable.remove(&id.key);
            }
        }
        // Also of another object of that name: the answer about one that is deleted may come after the watch told of the
        // one made in its place.
        if old.as_ref().is_some_and(|old| old.id().order() > id.order()) {
            return Change::None;
        }
        // We know that it is gone; the watch still tells of earlier times.
        if self.gone.get(&id.key).is_some_and(|uid| *uid == id.uid) {
            return Change::None;
        }
        match origin {
            Origin::Watch => {
                self.unconfirmed.remove(&id.key);
            }
            Origin::Own if old.as_ref().is_none_or(|old| old.id().version != id.version) => {
                self.unconfirmed.insert(id.key.clone());
            }
            Origin::Own => {}
        }
        let unchanged = old.as_ref().is_some_and(|old| alike(&**old, &mut fact));
        if unchanged && old.as_ref().is_some_and(|old| old.id().version == id.version) {
            // The echo of our own write: whoever holds the one that is known goes on sharing it.
            return Change::None;
        }
        let new = Arc::new(fact);
        self.items.insert(id.key, Arc::clone(&new));
        if unchanged { Change::None } else { Change::Sides(old, Some(new)) }
    }

    /// Takes out an object that the watch reported deleted.
    pub fn take(&mut self, id: &Identity) -> Change<T> {
        self.see(&id.key.namespace, id.order());
        self.unreadable.remove(&id.key);
        if id.version.is_empty() {
            // What the watch has told of already needs no remembering.
            if self.items.get(&id.key).is_some_and(|item| item.id().uid == id.uid) {
                self.gone.insert(id.key.clone(), id.uid.clone());
            }
        } else if self.gone.get(&id.key).is_some_and(|uid| *uid == id.uid) {
            self.gone.remove(&id.key);
        }
        match self.items.get(&id.key) {
            // Deleted and made again under the same name, and we heard of the new one first (from our own write).
            Some(item) if item.id().uid != id.uid && item.id().order() > id.order() => Change::None,
            Some(_) => {
                self.unconfirmed.remove(&id.key);
                Change::Sides(self.items.remove(&id.key), None)
            }
            None => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::facts::PodFact;

    fn pod(namespace: &str, name: &str, uid: &str, version: u64) -> PodFact {
        PodFact {
            id: Identity { key: Key::new(namespace, name), uid: uid.into(), version: version.to_string() },
            ..PodFact::default()
        }
    }

    fn is_there(table: &Table<PodFact>, namespace: &str, name: &str) -> bool {
        table.get(&Key::new(namespace, name)).is_some()
    }

    #[test]
    fn an_answer_refines_the_version_that_is_known_though_the_watch_is_ahead_with_others() {
        let mut table = Table::default();
        table.put(pod("a", "one", "1", 5), Origin::Watch);
        table.put(pod("a", "two", "2", 9), Origin::Watch);
        let ending = PodFact { terminating: true, ..pod("a", "one", "1", 5) };
        assert!(table.put(ending, Origin::Own).sides().is_some());
        assert!(table.get(&Key::new("a", "one")).unwrap().terminating);
    }

    #[test]
    fn a_late_answer_about_a_deleted_object_does_not_hide_the_one_made_in_its_place() {
        let mut table = Table::default();
        table.put(pod("a", "one", "1", 5), Origin::Watch);
        table.put(pod("a", "one", "2", 9), Origin::Watch);
        table.put(pod("a", "one", "1", 7), Origin::Own);
        assert_eq!(table.get(&Key::new("a", "one")).unwrap().id.uid, "2");
    }

    #[test]
    fn an_answer_does_not_bring_back_what_the_watch_reported_deleted() {
        let mut table = Table::default();
        table.put(pod("a", "one", "1", 5), Origin::Watch);
        table.take(&pod("a", "one", "1", 8).id);
        table.put(pod("a", "one", "1", 7), Origin::Own);
        assert!(!is_there(&table, "a", "one"));
    }

    #[test]
    fn an_answer_counts_where_only_the_watch_of_another_namespace_is_ahead() {
        let mut table = Table::default();
        table.put(pod("a", "one", "1", 100), Origin::Watch);
        table.put(pod("b", "two", "2", 70), Origin::Own);
        assert!(is_there(&table, "b", "two"));
    }

    #[test]
    fn taking_out_without_a_version_is_no_word_of_the_watch() {
        let mut table = Table::default();
        table.put(pod("a", "one", "1", 50), Origin::Own);
        table.take(&Identity { version: String::new(), ..pod("a", "one", "1", 0).id });
        assert!(!is_there(&table, "a", "one"));
        table.put(pod("a", "two", "2", 40), Origin::Own);
        assert!(is_there(&table, "a", "two"));
    }
}
