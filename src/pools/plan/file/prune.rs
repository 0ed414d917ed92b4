//! Limits the recorded changes to those that a job or a list refers to, and to a maximum number.

use std::collections::BTreeSet;

use super::published::Published;

/// Maximum number of recorded changes.
pub const MOST_CHANGES: usize = 32;

/// Versions that something refers to: those at which jobs were added to lists, and those of the lists, whose time is
/// the start of each wait for a worker.
pub fn named(published: &Published) -> BTreeSet<i64> {
    let mut named = BTreeSet::new();
    for holding in published.holdings.values() {
        named.insert(holding.version);
        let mut last = None;
        for job in &holding.jobs {
            // Neighbours were mostly added together.
            if last.replace(job.since) != Some(job.since) {
                named.insert(job.since);
            }
        }
    }
    named
}

/// Drops changes that nothing refers to, and all but the latest [`MOST_CHANGES`] of the others. Older jobs then count
/// as added with the oldest recorded change, but at most with the version of their list, because the worker would not
/// report a later one.
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
