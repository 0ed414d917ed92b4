//! The facts of one kind, by key: which of two versions wins, and which objects a complete list removes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use super::World;
use super::unreadable::{Unreadable, UnreadableBytes, UnreadableObjects};
use crate::facts::{Identity, Key, Uid, order};

/// Source of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A watch event. Watch events arrive in the order of their versions.
    Watch,
    /// A list that is not complete. Deletions up to the version of the object may be unknown.
    List,
    /// The answer to a request of ours. It may arrive before or after the watch event.
    Own,
}

/// A fact with a table in the [`World`].
pub trait Fact: Clone + PartialEq + Send + Sync + 'static {
    /// Name of the kind in metrics, logs and [`Requeue`](super::Requeue).
    const KIND: &'static str;
    /// The fact is stored even if its namespace has no room, after [`Fact::reduce`]. So are receipts, without which an
    /// action could run again, and facts of foreign kinds, without which a node could look empty.
    const IS_ALWAYS_STORED: bool = false;
    /// Key of the object.
    fn key(&self) -> Cow<'_, Key>;
    /// uid of the object. Not `uid`, which kube uses for objects.
    fn unique_id(&self) -> Cow<'_, Uid>;
    /// Version of the object; empty if it has none.
    fn version(&self) -> &str;
    /// Version of the object, mutable.
    fn version_mut(&mut self) -> &mut String;
    /// Identity and version of the object.
    fn id(&self) -> Identity {
        Identity {
            key: self.key().into_owned(),
            uid: self.unique_id().into_owned(),
            version: self.version().to_owned(),
        }
    }
    /// Drops data that is not used.
    fn slim(&mut self) {}
    /// Memory that the fact occupies, in bytes, as an estimate without its version; 0 if it does not count for the
    /// limits of its namespace.
    fn bytes(&self) -> usize {
        0
    }
    /// Removes the texts of users, since the namespace has no room for them.
    fn reduce(&mut self) {}
    /// Whether the texts of users were removed.
    fn is_reduced(&self) -> bool {
        false
    }
    /// Metadata and conditions of the object, if its kind has them.
    fn head(&self) -> (ObjectMeta, Vec<Condition>) {
        let Identity { key: Key { namespace, name }, uid, version } = self.id();
        let metadata = ObjectMeta {
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid.to_string()),
            resource_version: Some(version),
            ..ObjectMeta::default()
        };
        (metadata, Vec::new())
    }
    /// Copies state of the stored version that a newer version of the object cannot undo.
    fn follow(&mut self, _stored: &Self) {}
    /// Notes the time at which this version arrived.
    fn see(&mut self, _now: Timestamp) {}
    /// Table of the kind.
    fn table(world: &World) -> &Table<Self>;
    /// Table of the kind, mutable.
    fn table_mut(world: &mut World) -> &mut Table<Self>;
}

/// Effect of a new version on the table.
#[derive(Debug)]
pub enum Change<T> {
    /// No relevant change.
    None,
    /// The old and the new fact; at least one exists.
    Sides(Option<Arc<T>>, Option<Arc<T>>),
}

impl<T> Change<T> {
    /// The old and the new fact, if there was a change.
    pub fn sides(&self) -> Option<(Option<&T>, Option<&T>)> {
        match self {
            Self::None => None,
            Self::Sides(old, new) => Some((old.as_deref(), new.as_deref())),
        }
    }
}

/// Number of namespaces in `seen`, and of objects in `gone`, that remain after pruning. Pruning starts at twice the
/// number and drops the oldest entries. An entry guards against late answers and watch events.
const REMEMBERED: usize = 2048;

/// An object that our own requests found deleted.
#[derive(Debug)]
struct Gone {
    uid: Uid,
    /// The last stored version, as a number.
    version: u64,
}

/// Drops the oldest entries if there are too many.
fn bound<K: Eq + Hash, V>(entries: &mut HashMap<K, V>, version: impl Fn(&V) -> u64) {
    if entries.len() < 2 * REMEMBERED {
        return;
    }
    let mut versions: Vec<u64> = entries.values().map(&version).collect();
    versions.sort_unstable();
    let least = versions.get(versions.len().saturating_sub(REMEMBERED)).copied().unwrap_or(0);
    entries.retain(|_, entry| version(entry) >= least);
}

/// Whether the facts differ only in their version.
fn alike<T: Fact>(old: &T, new: &mut T) -> bool {
    let version = std::mem::replace(new.version_mut(), old.version().to_owned());
    let alike = old == new;
    *new.version_mut() = version;
    alike
}

/// The facts of one kind.
///
/// # Examples
///
/// ```
/// use ganglion_core::facts::{Identity, Key, PodFact};
/// use ganglion_core::world::{Origin, Table};
///
/// let key = Key::new("shop", "web-0");
/// let pod = |uid: &str, version: &str, terminating| PodFact {
///     id: Identity { key: key.clone(), uid: uid.into(), version: version.into() },
///     terminating,
///     ..PodFact::default()
/// };
/// let mut pods = Table::default();
/// pods.put(pod("1", "5", false), Origin::Watch);
/// // The answer to a request of ours arrives before the watch event of the same change.
/// pods.put(pod("1", "8", true), Origin::Own);
/// // An older watch event does not replace it.
/// pods.put(pod("1", "6", false), Origin::Watch);
/// assert!(pods.get(&key).unwrap().terminating);
///
/// // A request of ours found the pod deleted, so a late event does not bring it back.
/// pods.take(&pod("1", "8", true).id.unversioned());
/// pods.put(pod("1", "7", false), Origin::Watch);
/// assert!(pods.is_empty());
/// ```
#[derive(Debug)]
pub struct Table<T> {
    items: BTreeMap<Key, Arc<T>>,
    /// The newest version that a watch has reported, by namespace. All changes up to it are known, including deletions.
    /// Each namespace may have its own watch, and one watch may be ahead of another.
    seen: HashMap<String, u64>,
    /// Objects that our own requests found deleted, until the watch reports the deletion.
    gone: HashMap<Key, Gone>,
    /// Objects whose version comes from our own requests and has not been reported by the watch.
    unconfirmed: BTreeSet<Key>,
    /// Objects whose newest version does not parse.
    unreadable: UnreadableObjects,
    /// Number of versions of objects for which there was not even room for a stub. They get no condition.
    unreported: u64,
    /// The API server does not serve the kind, or does not allow the operator to read it.
    unavailable: bool,
    /// Time at which a watch of the kind last broke.
    broken: Option<Timestamp>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            seen: HashMap::new(),
            gone: HashMap::new(),
            unconfirmed: BTreeSet::new(),
            unreadable: UnreadableObjects::default(),
            unreported: 0,
            unavailable: false,
            broken: None,
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

    /// The facts of one namespace.
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

    /// All facts with their keys, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        self.items.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.items.keys()
    }

    /// Objects whose newest version does not parse, by key.
    pub fn unreadable(&self) -> &BTreeMap<Key, Arc<Unreadable>> {
        self.unreadable.by_key()
    }

    /// Bytes of these objects.
    pub(super) fn unreadable_bytes(&self, namespace: &str) -> UnreadableBytes {
        self.unreadable.bytes(namespace)
    }

    /// Number of versions of objects that get no condition.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported
    }

    /// Counts versions of objects that get no condition.
    pub(super) fn count_unreported(&mut self, versions: u64) {
        self.unreported = self.unreported.saturating_add(versions);
    }

    /// Whether the objects are unknown: the API server does not serve the kind, or does not allow the operator to read
    /// it.
    pub fn is_unavailable(&self) -> bool {
        self.unavailable
    }

    /// Records that the API server does not serve the kind, or does not allow the operator to read it.
    pub fn unavailable(&mut self) {
        self.unavailable = true;
    }

    /// Records that a watch of the kind broke.
    pub(super) fn watch_broke(&mut self, at: Timestamp) {
        self.broken = self.broken.max(Some(at));
    }

    /// Time at which a watch of the kind last broke.
    pub fn watch_broke_at(&self) -> Option<Timestamp> {
        self.broken
    }

    /// Removes the earlier version of an object whose newest version is not kept. Returns false if a newer version is
    /// stored.
    pub(super) fn remove_older_unreadable(&mut self, id: &Identity) -> bool {
        let known = self.unreadable.get(&id.key).map(|known| known.id().order());
        let fact = self.items.get(&id.key).map(|fact| order(fact.version()));
        if known.max(fact).is_some_and(|known| known > id.order()) {
            return false;
        }
        self.unreadable.remove(&id.key);
        true
    }

    /// Stores an object whose newest version is not kept. Its last fact stays.
    pub(super) fn put_unreadable(&mut self, object: Unreadable) {
        self.unreadable.insert(object);
    }

    /// Objects of one namespace, or of all, whose version comes only from our own requests. The watch may never report
    /// them after a list: they may have been created and deleted before the snapshot of the list.
    pub fn unconfirmed(&self, namespace: Option<&str>) -> Vec<Identity> {
        let keys = self.unconfirmed.iter().filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
        keys.filter_map(|key| self.items.get(key)).map(|item| item.id()).collect()
    }

    /// Starts a list; call it before the request. See [`Listing`].
    pub(super) fn begin_list(&self, namespace: Option<&str>) -> Listing<T> {
        let within = |key: &&Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        let known = self.items.iter().filter(|(key, _)| within(key));
        let known = known.map(|(key, item)| (key.clone(), item.version().to_owned())).collect();
        let gone = self.gone.iter().filter(|(key, _)| within(key)).map(|(key, gone)| (key.clone(), gone.uid.clone()));
        Listing::new(namespace.map(str::to_owned), known, gone.collect())
    }

    /// The objects that have certainly been deleted: they are missing in the complete list and unchanged since before
    /// its request. Objects that changed since then stay, since the list may be older.
    pub(super) fn vanished(&mut self, list: &Listing<T>) -> Vec<Identity> {
        let within = |key: &Key| list.namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace);
        self.unavailable = false;
        self.unreadable.retain(|key| !within(key) || list.has(key));
        // The list is newer than those answers, so these objects cannot reappear.
        self.gone.retain(|key, gone| list.gone.get(key) != Some(&gone.uid));
        let unlisted = list.known.iter().filter(|(key, _)| !list.has(key));
        let same = |(key, version): (&Key, &String)| self.items.get(key).filter(|item| item.version() == version);
        unlisted.filter_map(same).map(|item| item.id()).collect()
    }

    /// Records that a complete list has reported all changes up to its versions.
    pub(super) fn see_list(&mut self, list: &Listing<T>) {
        for (namespace, version) in &list.newest {
            self.see(namespace, *version);
        }
    }

    /// Records that the watch has reported all changes in this namespace up to this version.
    fn see(&mut self, namespace: &str, version: u64) {
        match self.seen.get_mut(namespace) {
            Some(seen) => *seen = version.max(*seen),
            None => {
                self.seen.insert(namespace.to_owned(), version);
                bound(&mut self.seen, |seen| *seen);
            }
        }
    }

    fn seen_in(&self, namespace: &str) -> u64 {
        self.seen.get(namespace).copied().unwrap_or(0)
    }

    /// Stores a fact unless a newer version is stored.
    pub fn put(&mut self, mut fact: T, origin: Origin) -> Change<T> {
        let id = fact.id();
        let old = self.items.get(&id.key).cloned();
        match origin {
            // The watch is past this version and the object is not stored, so the watch has reported its deletion.
            Origin::Own if old.is_none() && id.order() <= self.seen_in(&id.key.namespace) => return Change::None,
            Origin::Own | Origin::List => {}
            Origin::Watch => self.see(&id.key.namespace, id.order()),
        }
        let is_read = |unreadable: &Arc<Unreadable>| origin != Origin::Own || unreadable.id().order() < id.order();
        if self.unreadable.get(&id.key).is_some_and(is_read) {
            self.unreadable.remove(&id.key);
        }
        // This also covers another uid: an answer about a deleted object may arrive after the watch event of its
        // successor.
        if old.as_ref().is_some_and(|old| order(old.version()) > id.order()) {
            return Change::None;
        }
        // The object is known to be deleted; the watch lags.
        if self.gone.get(&id.key).is_some_and(|gone| gone.uid == id.uid) {
            return Change::None;
        }
        match origin {
            Origin::Watch | Origin::List => {
                self.unconfirmed.remove(&id.key);
            }
            Origin::Own if old.as_ref().is_none_or(|old| old.version() != id.version) => {
                self.unconfirmed.insert(id.key.clone());
            }
            Origin::Own => {}
        }
        let unchanged = old.as_ref().is_some_and(|old| alike(&**old, &mut fact));
        if unchanged && old.as_ref().is_some_and(|old| old.version() == id.version) {
            // The watch event of our own write: keep the stored fact, which is shared.
            return Change::None;
        }
        let new = Arc::new(fact);
        self.items.insert(id.key, Arc::clone(&new));
        if unchanged { Change::None } else { Change::Sides(old, Some(new)) }
    }

    /// Removes an object that the watch reported deleted, or that a request of ours found deleted (no version).
    pub fn take(&mut self, id: &Identity) -> Change<T> {
        self.see(&id.key.namespace, id.order());
        self.unreadable.remove(&id.key);
        if id.version.is_empty() {
            // Not needed if the watch has already reported the deletion.
            if let Some(item) = self.items.get(&id.key).filter(|item| *item.unique_id() == id.uid) {
                let version = order(item.version());
                self.gone.insert(id.key.clone(), Gone { uid: id.uid.clone(), version });
                bound(&mut self.gone, |gone| gone.version);
            }
        } else if self.gone.get(&id.key).is_some_and(|gone| gone.uid == id.uid) {
            self.gone.remove(&id.key);
        }
        match self.items.get(&id.key) {
            // The object was deleted and recreated, and the new one is already stored from our own write.
            Some(item) if *item.unique_id() != id.uid && order(item.version()) > id.order() => Change::None,
            Some(_) => {
                self.unconfirmed.remove(&id.key);
                Change::Sides(self.items.remove(&id.key), None)
            }
            None => Change::None,
        }
    }
}

/// A list of one kind in progress: the objects cached before the request, and the keys of those received so far.
///
/// `kube::runtime::watcher` reports neither the version of a list nor the time of its snapshot. So the list is compared
/// with the objects cached before the request: an object that was cached then, has not changed since and is missing in
/// the list, has been deleted. Objects that our own requests changed meanwhile stay, and are looked up once the list is
/// complete ([`Table::unconfirmed`]).
///
/// Objects are stored as they arrive. Otherwise, the lists of all kinds at the start would need the memory a second
/// time.
#[derive(Debug)]
pub struct Listing<F> {
    /// The listed namespace; None for all namespaces.
    namespace: Option<String>,
    /// Versions of the objects that were cached before the request.
    known: HashMap<Key, String>,
    /// uids of the objects that our own requests had found deleted.
    gone: HashMap<Key, Uid>,
    listed: HashSet<Key>,
    /// The newest version received so far, by namespace.
    newest: HashMap<String, u64>,
    kind: PhantomData<fn() -> F>,
}

impl<F> Listing<F> {
    fn new(namespace: Option<String>, known: HashMap<Key, String>, gone: HashMap<Key, Uid>) -> Self {
        Self { namespace, known, gone, listed: HashSet::new(), newest: HashMap::new(), kind: PhantomData }
    }

    /// Notes that the list contains this object.
    pub(super) fn note(&mut self, object: &Identity) {
        let newest = self.newest.entry(object.key.namespace.clone()).or_default();
        *newest = object.order().max(*newest);
        self.listed.insert(object.key.clone());
    }

    fn has(&self, key: &Key) -> bool {
        self.listed.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::PodFact;

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
        table.take(&pod("a", "one", "1", 0).id.unversioned());
        assert!(!is_there(&table, "a", "one"));
        table.put(pod("a", "two", "2", 40), Origin::Own);
        assert!(is_there(&table, "a", "two"));
    }

    #[test]
    fn what_is_remembered_of_namespaces_and_objects_that_went_is_bounded() {
        let mut table = Table::default();
        let number = |index: usize| u64::try_from(index).unwrap();
        for index in 1..REMEMBERED * 5 {
            let (namespace, uid) = (format!("review-{index}"), index.to_string());
            table.put(pod(&namespace, "one", &uid, number(index * 10)), Origin::Watch);
            table.take(&pod(&namespace, "one", &uid, number(index * 10 + 1)).id);
            // A ghost: the watch reported its deletion before it was stored.
            table.put(pod("ghosts", &uid, &uid, number(index * 10 + 2)), Origin::Own);
            table.take(&pod("ghosts", &uid, &uid, 0).id.unversioned());
        }
        assert!(table.is_empty());
        assert!(table.seen.len() <= 2 * REMEMBERED && table.gone.len() <= 2 * REMEMBERED);
        for index in REMEMBERED * 4..REMEMBERED * 5 {
            let (namespace, uid) = (format!("review-{index}"), index.to_string());
            table.put(pod(&namespace, "one", &uid, number(index * 10)), Origin::Own);
            table.put(pod("ghosts", &uid, &uid, number(index * 10 + 2)), Origin::Watch);
        }
        assert!(table.is_empty(), "late answers and events about the newest objects are still recognized");
    }
}
