//! `hack/bench nodes`: the cost of NodeConfigs.
//!
//! `fleet` compares one template for many nodes with a bare program that creates the same number of NodeConfigs, writes
//! the status of each, changes them, and has the same garbage collector delete them. Both alternate on one control
//! plane. `polls` compares the polls of thousands of machines with a bare loop that uses the same HTTP client. Both
//! poll the same machines at the same time.

mod bare;
pub mod bare_polls;
mod eye;
mod fleet;
mod machines;
mod polls;
mod still;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts, each on its own control planes.
pub async fn run(bench: &mut Bench) -> Result<()> {
    for nodes in fleet::SIZES {
        let part = format!("fleet-{nodes}");
        if bench.wants(&part) {
            fleet::run(bench, &part, nodes).await?;
        }
    }
    if bench.wants(polls::PART) {
        polls::run(bench).await?;
    }
    Ok(())
}
