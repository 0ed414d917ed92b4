//! Several replicas of the operator, of which the leader is lost: late requests of the former leader change nothing, no
//! effect happens twice, and the next leader acts on the current objects.

mod fleet;
mod late;
mod views;

/// Times of [`testkit::operator::SHORT_LEASE`] in seconds.
const DURATION: u64 = 8;
const RETRY: u64 = 1;
