//! The operator's own share of a move's time.
//!
//! By the API server's record, the move's time falls into the operator's requests and the pauses between them. In a pause
//! the operator is taken to wait for the others (scheduler, kubelet, ReplicaSet and disruption controllers) up to the last
//! write that one of them completed in it on a pod or budget of the workload. All the rest is its own: its requests, and
//! what passed from that write to its next request, the watch's delay included; before its first request, after its last.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::audit::Request;

/// The operator's own milliseconds between the two moments.
pub fn own_millis(began: Timestamp, ended: Timestamp, requests: &[&Request]) -> f64 {
    let others: Vec<Timestamp> = requests.iter().filter(|one| !one.by_operator).map(|one| one.answered).collect();
    let mut waited = SignedDuration::ZERO;
    for (from, to) in pauses(began, ended, requests) {
        let last = others.iter().filter(|when| **when > from && **when <= to).max();
        waited += last.map_or(SignedDuration::ZERO, |last| last.duration_since(from));
    }
    (ended.duration_since(began) - waited).as_secs_f64() * 1e3
}

/// The times in which no request of the operator was under way.
fn pauses(began: Timestamp, ended: Timestamp, requests: &[&Request]) -> Vec<(Timestamp, Timestamp)> {
    let mut free_from = began;
    let mut pauses = Vec::new();
    for request in requests.iter().filter(|one| one.by_operator && !one.is_upkeep()) {
        if request.received > free_from {
            pauses.push((free_from, request.received));
        }
        free_from = free_from.max(request.answered);
    }
    if ended > free_from {
        pauses.push((free_from, ended));
    }
    pauses
}
