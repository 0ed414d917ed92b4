//! The slow loop's rule: who was served often and who fell behind, so that the latter goes up one rank.
//!
//! It counts from when the other loop's rank last changed, by that loop's own counters, which only grow: what was missed in
//! between is not lost. Once some metric was served `window` times, the one that was served least of those below it, and
//! was wanted at all, is found. One that was never served counts like any other, so that nobody starves.

use crate::api::decision::{Counter, DecisionStatus};
use crate::api::monitoring::{LastServed, Share};

/// After how many times served the rule looks where the spec does not say.
pub const DEFAULT_WINDOW: i64 = 10;

/// What is found, given what was found before, the other loop's rank and what it decided.
#[must_use]
pub fn find_least_served(
    metric: &str,
    before: Option<&LastServed>,
    rank: &[String],
    other: &DecisionStatus,
    window: i64,
) -> LastServed {
    let window = window.max(1);
    let base = base(before, rank, &other.counters);
    let shares: Vec<Share> = rank.iter().map(|name| since_base(name, &base, &other.counters)).collect();
    let least = least_served(rank, &shares, &other.counters, window);
    let found = match (&least, before) {
        (None, _) => Vec::new(),
        // The time after a change is counted from when it was found to be due, not from when it happened.
        (Some(least), Some(before)) if before.rank == rank && before.least_served.as_ref() == Some(least) => {
            before.found.clone()
        }
        (Some(_), _) => totals(rank, &other.counters),
    };
    LastServed { metric: metric.to_owned(), rank: rank.to_vec(), base, shares, least_served: least, found }
}

/// How far the least served metric is behind; 0 where nothing is to change.
#[must_use]
pub fn imbalance(found: &LastServed) -> i64 {
    let Some(least) = &found.least_served else { return 0 };
    let served = |share: &Share| share.served;
    let most = found.shares.iter().map(served).max().unwrap_or(0);
    let own = found.shares.iter().find(|share| &share.metric == least).map_or(0, served);
    most.saturating_sub(own)
}

/// The rank with this metric one place further up; nothing where it is first already, or not there.
#[must_use]
pub fn raise_rank(rank: &[String], metric: &str) -> Option<Vec<String>> {
    let place = rank.iter().position(|name| name == metric)?;
    let above = place.checked_sub(1)?;
    let mut rank = rank.to_vec();
    rank.swap(above, place);
    Some(rank)
}

/// The counters from which the present rank is judged.
fn base(before: Option<&LastServed>, rank: &[String], counters: &[Counter]) -> Vec<Share> {
    match before {
        Some(before) if before.rank == rank => restarted(&before.base, counters),
        Some(before) if !before.found.is_empty() => restarted(&before.found, counters),
        Some(_) => totals(rank, counters),
        // Seen for the first time: all that the other loop ever did counts.
        None => Vec::new(),
    }
}

/// Counters that went back belong to a Decision that was made anew: they count from nothing.
fn restarted(base: &[Share], counters: &[Counter]) -> Vec<Share> {
    let went_back = |share: &Share| {
        let now = counters.iter().find(|counter| counter.metric == share.metric);
        now.map_or(share.served > 0, |now| now.served < share.served || now.wanted < share.wanted)
    };
    if base.iter().any(went_back) { Vec::new() } else { base.to_vec() }
}

fn totals(rank: &[String], counters: &[Counter]) -> Vec<Share> {
    rank.iter().map(|name| since_base(name, &[], counters)).collect()
}

fn since_base(name: &str, base: &[Share], counters: &[Counter]) -> Share {
    let total = counters.iter().find(|counter| counter.metric == name);
    let base = base.iter().find(|share| share.metric == name);
    let part = |total: Option<i64>, base: Option<i64>| total.unwrap_or(0).saturating_sub(base.unwrap_or(0)).max(0);
    Share {
        metric: name.to_owned(),
        wanted: part(total.map(|total| total.wanted), base.map(|base| base.wanted)),
        served: part(total.map(|total| total.served), base.map(|base| base.served)),
    }
}

/// The metric that is to go up: of those that stand below one that was served `window` times, were wanted, and were served
/// less, the one served least; of several the one served longest ago, then the one that stands highest. The same one is found
/// again until it was served, so that it comes to the top; with the lowest of several, two that were never served would
/// change places for ever.
fn least_served(rank: &[String], shares: &[Share], counters: &[Counter], window: i64) -> Option<String> {
    let full = shares.iter().position(|share| share.served >= window)?;
    let most = shares.get(full)?.served;
    let last = |name: &str| {
        counters.iter().find(|counter| counter.metric == name).and_then(|counter| counter.last_served.clone())
    };
    let place = |name: &str| rank.iter().position(|other| other == name);
    shares
        .iter()
        .skip(full.saturating_add(1))
        .filter(|share| share.wanted > 0 && share.served < most)
        .min_by_key(|share| (share.served, last(&share.metric), place(&share.metric)))
        .map(|share| share.metric.clone())
}
