//! Several replicas of the operator, of which the leader is lost: late requests of the former leader change nothing, no
//! effect happens twice, and the next leader acts on the current objects.

mod fleet;
mod late;
mod views;

/// Settings of a lease that other replicas take over soon, and the resulting times in seconds.
const SHORT_LEASE: &str = "lease: {durationSeconds: 8, renewDeadlineSeconds: 6, retrySeconds: 1}";
const DURATION: u64 = 8;
const RETRY: u64 = 1;
