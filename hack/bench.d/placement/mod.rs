//! `hack/bench placement`: the cost of a request of kube-scheduler.
//!
//! `scheduler` lets the stock kube-scheduler place pods: with a policy as extender and as labels, with a bare handler,
//! and alone. `quality` compares where pods go with labels and with an extender, in virtual time. `requests` queries a
//! policy with wrk about 500 and 5,000 nodes, and compares that with a handler in the same process that only reads the
//! request and answers in the same form. It also compares the time of requests with full nodes with the time to parse
//! them. `absence` creates pods while the operator is gone for ten minutes. `quality` and `requests` need no control
//! plane.

mod absence;
mod objects;
mod quality;
pub mod requests;
mod scene;
mod scheduler;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(requests::PART) {
        requests::run(bench).await?;
    }
    if bench.wants(quality::PART) {
        quality::run(bench)?;
    }
    if bench.wants(scheduler::PART) {
        scheduler::run(bench).await?;
    }
    if bench.wants(absence::PART) {
        absence::run(bench).await?;
    }
    Ok(())
}
