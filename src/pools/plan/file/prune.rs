//! Which changes are remembered: those that a job or a worker's list refers to, and not too many.

use std::collections::BTreeSet;

use super::published::Published;

/// How many changes are remembered.
pub const MOST_CHANGES: usize = 32;

/// The versions that something refers to: those at which jobs came to their workers, and those of the workers' lists, by which
/// waiting for a worker is measured.
pub fn named(published: &Published) -> BTreeSet<i64> {
    let mut named = BTreeSet::new();
    for holding in published.holdings.values() {
        named.insert(holding.version);
        let mut last = None;
        for job in &holding.jobs {
            // Neighbours mostly came together.
            if last.replace(job.since) != Some(job.since) {
                named.insert(job.since);
            }
        }
    }
    named
}

/// Forgets changes that nothing refers to, and of the others all but the last [`MOST_CHANGES`]. Jobs that came before the oldest
/// of these count as come with it, but never with a later version than that of their worker, which it would not report.
pub fn prune(published: &mut Published) {
    let named = named(published);
    published.changes.retain(|version, _| named.contains(version));
    let Some(surplus) = published.changes.len().checked_sub(MOST_CHANGES).filter(|surplus| *surplus > 0) else {
        return;
    };
    let Some(oldest) = published.changes.keys().nth(surplus).copied() else { return };
    published.changes = published.changes.split_off(&oldest);
    for holding in published.holdings.values_mut() {
        let earliest = oldest.min(holding.version);
        for job in &mut holding.jobs {
            job.since = job.since.max(earliest);
        }
    }
}
