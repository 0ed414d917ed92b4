//! The rule LastServed of a slow loop: it finds the metric that was served least, which then moves up one place in the
//! rank.
//!
//! It uses the counters of the fast loop since its rank last changed. The counters only grow, so samples that the slow
//! loop missed are not lost. Once a metric was served `window` times, the rule finds the least served of the metrics
//! below it, among those that were wanted at all. Metrics that were never served also count, so that none starves.

use ganglion_api::decision::{Counter, DecisionStatus};
use ganglion_api::monitoring::{LastServed, Share};

/// Window if the spec does not set it.
pub const DEFAULT_WINDOW: i64 = 10;

/// Returns the result of the rule. `before` is its last result, `other` the status of the fast loop's Decision.
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
        // After a rank change, the period begins when the change was found to be due, not when it happened.
        (Some(least), Some(before)) if before.rank == rank && before.least_served.as_ref() == Some(least) => {
            before.found.clone()
        }
        (Some(_), _) => totals(rank, &other.counters),
    };
    LastServed { metric: metric.to_owned(), rank: rank.to_vec(), base, shares, least_served: least, found }
}

/// Returns how far the least served metric is behind; 0 if nothing should change.
pub fn imbalance(found: &LastServed) -> i64 {
    let Some(least) = &found.least_served else { return 0 };
    let served = |share: &Share| share.served;
    let most = found.shares.iter().map(served).max().unwrap_or(0);
    let own = found.shares.iter().find(|share| &share.metric == least).map_or(0, served);
    most.saturating_sub(own)
}

/// Returns the rank with this metric one place higher; None if it is the first or not in the rank.
pub fn raise_rank(rank: &[String], metric: &str) -> Option<Vec<String>> {
    let place = rank.iter().position(|name| name == metric)?;
    let above = place.checked_sub(1)?;
    let mut rank = rank.to_vec();
    rank.swap(above, place);
    Some(rank)
}

/// Returns the counters at the beginning of the period of the current rank.
fn base(before: Option<&LastServed>, rank: &[String], counters: &[Counter]) -> Vec<Share> {
    match before {
        Some(before) if before.rank == rank => restarted(&before.base, counters),
        Some(before) if !before.found.is_empty() => restarted(&before.found, counters),
        Some(_) => totals(rank, counters),
        // On the first call, the period includes everything that the fast loop did.
        None => Vec::new(),
    }
}

/// Starts a new period if a counter decreased: it belongs to a recreated Decision.
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

/// Returns the metric to raise: the least served of the metrics that rank below one that was served `window` times,
/// that were wanted, and that were served less. If several are equal, the one that was served longest ago, then the one
/// with the highest rank. The same metric is found again until it is served, so that it reaches the top. If the lowest
/// of several were chosen, two metrics that were never served would swap places forever.
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
