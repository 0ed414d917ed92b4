//! Memory of own raises and lowerings: what policies count in their periods.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::rules::MAX_PERIOD;

/// Maximum number of changes of a direction in memory: one each second of the longest period.
const MAX_CHANGES: usize = 1800;

/// Raise or lowering, or several of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnChange {
    /// Number of replicas, above 0.
    pub replicas: u32,
    /// When it happened, at the earliest and at the latest. Both are the same unless changes were merged, or their
    /// times were rounded for a status.
    pub first: Timestamp,
    pub last: Timestamp,
}

/// Own changes of the last [`MAX_PERIOD`], oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChanges {
    pub(super) raises: VecDeque<OwnChange>,
    pub(super) lowerings: VecDeque<OwnChange>,
}

/// Time of a change that counts: the later it is, the longer the change counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeTime {
    First,
    Last,
}

impl OwnChange {
    pub(super) fn time(&self, which: ChangeTime) -> Timestamp {
        match which {
            ChangeTime::First => self.first,
            ChangeTime::Last => self.last,
        }
    }
}

impl OwnChanges {
    pub fn is_empty(&self) -> bool {
        self.raises.is_empty() && self.lowerings.is_empty()
    }

    /// Number of remembered changes.
    pub fn len(&self) -> usize {
        self.raises.len() + self.lowerings.len()
    }

    /// Records that the number of replicas was changed.
    pub(super) fn record(&mut self, before: i32, after: i32, now: Timestamp) {
        let replicas = before.abs_diff(after);
        let changes = if after > before { &mut self.raises } else { &mut self.lowerings };
        if replicas > 0 {
            changes.push_back(OwnChange { replicas, first: now, last: now });
            merge(changes, MAX_CHANGES);
        }
    }

    /// Forgets changes that no policy counts.
    pub(super) fn forget(&mut self, now: Timestamp) {
        for changes in [&mut self.raises, &mut self.lowerings] {
            changes.retain(|change| now.duration_since(change.last) < MAX_PERIOD);
        }
    }

    /// Moves changes of the future to now: the clock was set back.
    pub(super) fn correct(&mut self, now: Timestamp) {
        for change in self.raises.iter_mut().chain(&mut self.lowerings) {
            change.first = change.first.min(now);
            change.last = change.last.min(now);
        }
    }
}

/// Sum of the changes in the period that ends now. A change as old as the period is out of it.
pub(super) fn sum(changes: &VecDeque<OwnChange>, which: ChangeTime, period: SignedDuration, now: Timestamp) -> i64 {
    let recent = changes.iter().filter(|change| now.duration_since(change.time(which)) < period);
    recent.map(|change| i64::from(change.replicas)).sum()
}

/// Merges neighbors until at most this many changes remain: those that are closest in time first.
pub(super) fn merge(changes: &mut VecDeque<OwnChange>, limit: usize) {
    while changes.len() > limit.max(1) {
        let span = |at: usize| Some(changes.get(at + 1)?.last.duration_since(changes.get(at)?.first));
        let Some(at) = (0..changes.len() - 1).min_by_key(|at| span(*at)) else { return };
        let Some(next) = changes.remove(at + 1) else { return };
        if let Some(merged) = changes.get_mut(at) {
            merged.replicas = merged.replicas.saturating_add(next.replicas);
            merged.last = merged.last.max(next.last);
            merged.first = merged.first.min(next.first);
        }
    }
}
