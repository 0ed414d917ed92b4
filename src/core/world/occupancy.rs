//! Memory that the objects of each namespace occupy, and its limits.
//!
//! One namespace must not fill the memory of all replicas. Custom resources count whole. Texts of users in other
//! objects count beyond 4 KiB ([`Reducible`](crate::facts::Reducible)). Each of these objects occupies at most 8 KiB
//! besides, and the cluster itself has to store it. The figures are estimates; `tests/memory` and
//! `tests/memory_facts.rs` compare them with the memory that is really allocated.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

/// Memory per byte of JSON of values without a type.
pub const UNTYPED: usize = 6;

/// Memory of an object in the indexes of products and controllers.
const INDEXES: usize = 1 << 10;

/// Memory of an item beside its content: an entry of a map of short texts, whose nodes may be half full, or a `String`
/// in a list that may have grown to twice its items.
const SMALL_ITEM: usize = 96;

/// Estimate for the largest object that is read: 64 KiB of metadata and spec, and 512 KiB of status, which occupy up to
/// ten times as much.
pub const LARGEST: usize = 6 << 20;

/// Maximum growth of an object by its deletion: two fields of the metadata.
pub const DELETION: usize = 1 << 10;

/// Limits of the memory of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupancyLimits {
    /// Maximum bytes in one namespace.
    pub per_namespace: usize,
    /// Maximum bytes in all namespaces. Beyond it, each namespace may use an equal share.
    pub in_all: usize,
}

impl Default for OccupancyLimits {
    fn default() -> Self {
        Self { per_namespace: 64 << 20, in_all: 256 << 20 }
    }
}

/// Memory by namespace.
#[derive(Debug, Default)]
pub struct Occupancy {
    pub limits: OccupancyLimits,
    by_namespace: HashMap<String, usize>,
    total: usize,
}

impl Occupancy {
    pub fn new(limits: OccupancyLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Bytes that a namespace may add.
    pub fn free(&self, namespace: &str) -> usize {
        let here = self.of(namespace);
        let share = self.limits.in_all.checked_div(self.by_namespace.len().max(1)).unwrap_or(0);
        let of_all = self.limits.in_all.saturating_sub(self.total).max(share.saturating_sub(here));
        self.limits.per_namespace.saturating_sub(here).min(of_all)
    }

    /// Whether an object of this namespace may grow from `old` to `new` bytes; 0 if it is not stored. An object that
    /// shrinks is always admitted.
    pub fn admits(&self, namespace: &str, old: usize, new: usize) -> bool {
        new <= old || new.saturating_sub(old) <= self.free(namespace)
    }

    /// Whether a namespace has a sixteenth of its share free, so that refused objects can be read again.
    pub fn has_room(&self, namespace: &str) -> bool {
        self.free(namespace) > self.limits.per_namespace / 16
    }

    /// Replaces the bytes of one object.
    pub fn replace(&mut self, namespace: &str, old: usize, new: usize) {
        if old == new {
            return;
        }
        self.total = self.total.saturating_sub(old).saturating_add(new);
        let here = self.of(namespace).saturating_sub(old).saturating_add(new);
        if here == 0 {
            self.by_namespace.remove(namespace);
        } else if let Some(bytes) = self.by_namespace.get_mut(namespace) {
            *bytes = here;
        } else {
            self.by_namespace.insert(namespace.to_owned(), here);
        }
    }

    /// Bytes of one namespace.
    pub fn of(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or(0)
    }

    /// Bytes of all namespaces, unsorted.
    pub fn all(&self) -> impl Iterator<Item = (&str, usize)> {
        self.by_namespace.iter().map(|(namespace, bytes)| (namespace.as_str(), *bytes))
    }
}

/// Estimates the memory of a value whose own type has `size` bytes, and whose content occupies `factor` bytes per byte
/// of JSON and [`SMALL_ITEM`] bytes per item. For lists with larger items, see [`room`].
pub fn estimate(size: usize, factor: usize, value: &impl Serialize) -> usize {
    let mut json = Json::default();
    // Only a key that is not a text fails, and no type of ours has one.
    let _ = serde_json::to_writer(&mut json, value);
    let content = json.bytes.saturating_mul(factor).saturating_add(json.items.saturating_mul(SMALL_ITEM));
    content.saturating_add(size).saturating_add(INDEXES)
}

/// Memory of a list without what its items refer to: `[{},{}]` has seven bytes, but each item may have a kilobyte. A
/// `Vec` doubles while it grows, and one with small items begins with four.
pub fn room<T>(list: &[T]) -> usize {
    let first = if size_of::<T>() > 1024 { 1 } else { 4 };
    let items = if list.is_empty() { 0 } else { list.len().next_power_of_two().max(first) };
    items.saturating_mul(size_of::<T>())
}

/// Measures the JSON that is written.
#[derive(Default)]
struct Json {
    bytes: usize,
    /// Number of commas: about the number of items of lists and maps.
    items: usize,
}

impl io::Write for Json {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.items = self.items.saturating_add(bytes.iter().filter(|byte| **byte == b',').count());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limits: (usize, usize), used: &[(&str, usize)]) -> Occupancy {
        let limits = OccupancyLimits { per_namespace: limits.0, in_all: limits.1 };
        let mut occupancy = Occupancy::new(limits);
        used.iter().for_each(|(namespace, bytes)| occupancy.replace(namespace, 0, *bytes));
        occupancy
    }

    #[test]
    fn a_full_namespace_takes_nothing_more_and_others_are_not_affected() {
        let occupancy = of((100, 1000), &[("full", 95)]);
        assert!(!occupancy.admits("full", 0, 6) && occupancy.admits("full", 0, 5) && occupancy.admits("other", 0, 100));
        assert!(occupancy.admits("full", 50, 55) && occupancy.admits("full", 96, 96), "growth counts, not the size");
    }

    #[test]
    fn the_largest_namespaces_lose_when_all_together_are_full() {
        let occupancy = of((100, 160), &[("large", 100), ("middle", 50), ("small", 10)]);
        assert!(!occupancy.admits("large", 10, 11) && !occupancy.admits("middle", 0, 10));
        assert!(occupancy.admits("small", 0, 43) && !occupancy.admits("small", 0, 44), "a third of 160");
    }

    #[test]
    fn what_is_deleted_is_free_again_and_leaves_nothing_behind() {
        let mut occupancy = of((100, 200), &[("a", 60), ("b", 100)]);
        occupancy.replace("a", 60, 0);
        assert!(occupancy.admits("a", 0, 100) && occupancy.all().eq([("b", 100)]));
    }

    #[test]
    fn the_estimate_grows_with_the_text() {
        let [short, long] = [1, 1000].map(|length| estimate(0, 3, &"a".repeat(length)));
        assert_eq!(long - short, 999 * 3);
    }
}
