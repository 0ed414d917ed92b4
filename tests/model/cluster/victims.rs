//! The order in which the ReplicaSet controller deletes surplus pods.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Pod;

/// Sorts the pods in the order of their deletion. `related` are the active pods of all ReplicaSets with the same owner;
/// `now` is in milliseconds.
pub fn sort(pods: &mut [Arc<Pod>], related: &[Arc<Pod>], now: i64) {
    let mut on_node: BTreeMap<Option<&str>, i32> = BTreeMap::new();
    for pod in related.iter().filter(|pod| pod.is_active()) {
        *on_node.entry(pod.node.as_deref()).or_default() += 1;
    }
    let rank = |pod: &Pod| on_node.get(&pod.node.as_deref()).copied().unwrap_or(0);
    pods.sort_by(|a, b| order(a, rank(a), b, rank(b), now));
}

fn order(a: &Pod, rank_a: i32, b: &Pod, rank_b: i32, now: i64) -> Ordering {
    let ready = |pod: &Pod| pod.ready_since.is_some();
    a.node
        .is_some()
        .cmp(&b.node.is_some())
        .then_with(|| a.phase.cmp(&b.phase))
        .then_with(|| ready(a).cmp(&ready(b)))
        .then_with(|| a.cost().cmp(&b.cost()))
        .then_with(|| rank_b.cmp(&rank_a))
        .then_with(|| match (a.ready_since, b.ready_since) {
            (Some(since_a), Some(since_b)) => younger_first(since_a, a, since_b, b, now),
            _ => Ordering::Equal,
        })
        .then_with(|| b.restarts.cmp(&a.restarts))
        .then_with(|| younger_first(a.meta.created, a, b.meta.created, b, now))
}

/// Compares ages by powers of two of nanoseconds, then uids.
fn younger_first(since_a: i64, a: &Pod, since_b: i64, b: &Pod, now: i64) -> Ordering {
    if since_a == since_b {
        return Ordering::Equal;
    }
    let bucket = |since: i64| match now.saturating_sub(since * 1000) {
        age if age > 0 => i64::from(age.saturating_mul(1_000_000).ilog2()),
        _ => -1,
    };
    bucket(since_a).cmp(&bucket(since_b)).then_with(|| a.meta.uid.cmp(&b.meta.uid))
}
