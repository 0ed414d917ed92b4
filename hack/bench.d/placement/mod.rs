//! `hack/bench placement`: the cost of a request of kube-scheduler.
//!
//! `scheduler` lets the stock kube-scheduler place pods, with a policy and with a bare handler. `requests` needs no
//! control plane. With wrk, it queries a policy about 500 and 5,000 nodes, and compares that with a handler in the same
//! process that only reads the request and answers in the same form. It also compares the time of requests with full
//! nodes with the time to parse them.

mod objects;
pub mod requests;
mod scheduler;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(requests::PART) {
        requests::run(bench).await?;
    }
    if bench.wants(scheduler::PART) {
        scheduler::run(bench).await?;
    }
    Ok(())
}
