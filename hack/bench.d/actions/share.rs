//! The operator's own share of a move's time.
//!
//! In the API server's audit log, a move consists of the operator's requests and the pauses between them. During a
//! pause, the operator waits for other components (scheduler, kubelet, ReplicaSet and disruption controllers) until the
//! last write that one of them completes in this pause on a pod or budget of the workload. All other time is the
//! operator's own: its requests; the time from that write to its next request, including the delay of the watch; the
//! time before its first request; and the time after its last request, because it waits for nothing then.
//!
//! No component waits for the operator's records (statuses and events). If the operator waits after a record, the wait
//! already began with the request before it, so the record did not lengthen the move.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use testkit::plane::audit::Request;

/// Share of a move's time, in milliseconds.
pub struct Share {
    pub own: f64,
    /// Time of the records written while the operator waited; not part of `own`.
    pub beside: f64,
}

/// Computes the operator's share between two moments.
pub fn share(began: Timestamp, ended: Timestamp, requests: &[&Request]) -> Share {
    let others: Vec<Timestamp> = requests.iter().filter(|one| !one.by_operator).map(|one| one.answered).collect();
    let (mut waited, mut beside) = (SignedDuration::ZERO, SignedDuration::ZERO);
    // `free_from`: end of the operator's last request. `waits_from`: end of its last request that other components
    // react to, or of its last wait.
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
