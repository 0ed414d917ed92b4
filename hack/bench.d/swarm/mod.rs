//! `hack/bench swarm`: what SwarmPools cost.
//!
//! `deal` compares the deal of a million jobs with a sort of their names, and counts moves; it needs no control plane. `converge`
//! scales pools of real worker processes, beside bare StatefulSets, and then leaves one alone.

mod converge;
mod deal;
mod settled;

use anyhow::Result;

use super::frame::Bench;

/// All parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(deal::PART) {
        deal::run(bench).await?;
    }
    if bench.wants(converge::PART) {
        converge::run(bench).await?;
    }
    Ok(())
}
