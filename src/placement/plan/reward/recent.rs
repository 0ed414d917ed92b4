//! A map of bounded size that drops the least recently updated entry.

use std::collections::BTreeMap;

/// Values by group and name. With two levels, the values of one group are looked up without copying names.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent<V> {
    groups: BTreeMap<String, BTreeMap<String, Stamped<V>>>,
    /// Group and name of each entry, by the number of its last update.
    order: BTreeMap<u64, (String, String)>,
    updates: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), order: BTreeMap::new(), updates: 0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Stamped<V> {
    update: u64,
    value: V,
}

/// Values of a group; empty if the group does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a, V>(Option<&'a BTreeMap<String, Stamped<V>>>);

impl<'a, V> Group<'a, V> {
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    pub fn get(&self, name: &str) -> Option<&'a V> {
        self.0?.get(name).map(|stamped| &stamped.value)
    }
}

impl<V> Recent<V> {
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn get(&self, group: &str, name: &str) -> Option<&V> {
        self.group(group).get(name)
    }

    /// Values of a group, for look-ups of many names.
    pub fn group(&self, group: &str) -> Group<'_, V> {
        Group(self.groups.get(group))
    }

    /// Sets a value and drops the least recently updated entries beyond `most`.
    pub fn set(&mut self, group: &str, name: &str, value: V, most: usize) {
        self.updates = self.updates.saturating_add(1);
        let stamped = Stamped { update: self.updates, value };
        let old = match self.groups.get_mut(group) {
            Some(values) => values.insert(name.to_owned(), stamped),
            None => {
                self.groups.insert(group.to_owned(), BTreeMap::from([(name.to_owned(), stamped)]));
                None
            }
        };
        old.and_then(|old| self.order.remove(&old.update));
        self.order.insert(self.updates, (group.to_owned(), name.to_owned()));
        while self.order.len() > most && self.forget() {}
    }

    /// Drops the least recently updated entry; false if the map is empty.
    fn forget(&mut self) -> bool {
        let Some((_, (group, name))) = self.order.pop_first() else { return false };
        self.drop_value(&group, &name);
        true
    }

    /// Removes an entry.
    pub fn remove(&mut self, group: &str, name: &str) {
        if let Some(stamped) = self.drop_value(group, name) {
            self.order.remove(&stamped.update);
        }
    }

    fn drop_value(&mut self, group: &str, name: &str) -> Option<Stamped<V>> {
        let values = self.groups.get_mut(group)?;
        let dropped = values.remove(name);
        if values.is_empty() {
            self.groups.remove(group);
        }
        dropped
    }

    /// All entries, the least recently updated first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str, &V)> {
        self.order.values().filter_map(|(group, name)| Some((group.as_str(), name.as_str(), self.get(group, name)?)))
    }
}
