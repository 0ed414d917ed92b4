//! The operator's own share of a move's time.
//!
//! By the API server's record, the move's time falls into the operator's requests and the pauses between them. In a pause
//! the operator is taken to wait for the others (scheduler, kubelet, ReplicaSet and disruption controllers) up to the last
//! write that one of them completed in it on a pod or budget of the workload. All the rest is its own: its requests, and
//! what passed from that write to its next request, the watch's delay included; before its first request; and all after its
//! last, as nothing is waited for then.
//!
//! Nobody waits for the operator's records (statuses and events), so what it waits for after one was under way before: the
//! wait began with the request before the record, and the move took no longer for it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use testkit::plane::audit::Request;

/// A share of a move's time, in milliseconds.
pub struct Share {
    pub own: f64,
    /// The operator's records while it waited; not in `own`.
    pub beside: f64,
}

/// The operator's share between the two moments.
pub fn share(began: Timestamp, ended: Timestamp, requests: &[&Request]) -> Share {
    let others: Vec<Timestamp> = requests.iter().filter(|one| !one.by_operator).map(|one| one.answered).collect();
    let (mut waited, mut beside) = (SignedDuration::ZERO, SignedDuration::ZERO);
    // Until when the operator had something under way; and until when that was something that others react to, or waited.
    let (mut free_from, mut waits_from) = (began, began);
    let mine = requests.iter().filter(|one| one.by_operator && !one.is_upkeep());
    for one in mine {
        if let Some(last) = others.iter().copied().filter(|when| *when > free_from && *when <= one.received).max() {
            waited += last.duration_since(waits_from);
            beside += free_from.duration_since(waits_from);
            waits_from = last;
        }
        free_from = free_from.max(one.answered);
        if !one.is_record() {
            waits_from = waits_from.max(one.answered);
        }
    }
    let millis = |time: SignedDuration| time.as_secs_f64() * 1e3;
    Share { own: millis(ended.duration_since(began) - waited), beside: millis(beside) }
}
