//! `hack/bench nodes`: what NodeConfigs cost.
//!
//! `fleet` compares one template over many nodes with a bare program that makes as many NodeConfigs, writes a status of each,
//! changes them, and has them collected by the same garbage collector; on one control plane, in turns.

mod bare;
mod eye;
mod fleet;

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
    Ok(())
}
