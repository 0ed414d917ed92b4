//! `hack/bench placement`: what a request of kube-scheduler costs.
//!
//! `scheduler` has the stock kube-scheduler place pods, with a policy and with such a handler. `requests` has wrk ask a policy about 500 and 5,000 nodes, beside a handler that only reads the request and answers in the same
//! form, in the same process; and measures full nodes beside the time that their parsing takes; it needs no control plane.

mod objects;
pub mod requests;
mod scheduler;

use anyhow::Result;

use super::frame::Bench;

/// All parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(requests::PART) {
        requests::run(bench).await?;
    }
    if bench.wants(scheduler::PART) {
        scheduler::run(bench).await?;
    }
    Ok(())
}
