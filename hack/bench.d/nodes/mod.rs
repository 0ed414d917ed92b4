//! `hack/bench nodes`: what NodeConfigs cost.
//!
//! `fleet` compares one template over many nodes with a bare program that makes as many NodeConfigs, writes a status of each,
//! changes them, and has them collected by the same garbage collector; on one control plane, in turns. `polls` compares the polls
//! of thousands of machines with a bare loop over the same HTTP client; of the same machines, at the same time.

mod bare;
pub mod bare_polls;
mod eye;
mod fleet;
mod machines;
mod polls;
mod still;

use anyhow::Result;

use super::frame::Bench;

/// All parts, each on control planes of its own.
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
