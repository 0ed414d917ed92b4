//! `hack/bench swarm`: the cost of SwarmPools.
//!
//! `deal` compares the assignment of a million jobs with a sort of their names, and counts moves; it needs no control
//! plane. `converge` scales pools of real worker processes, compares them with bare StatefulSets, and then measures an
//! idle pool.

mod converge;
mod deal;
mod settled;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(deal::PART) {
        deal::run(bench).await?;
    }
    if bench.wants(converge::PART) {
        converge::run(bench).await?;
    }
    Ok(())
}
