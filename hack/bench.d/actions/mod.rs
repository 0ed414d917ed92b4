//! `hack/bench actions`: what workload actions cost.

mod application;
mod bare;
mod large;
mod line;
mod many;
mod share;
pub mod single;
mod start;
mod swap;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts, each on its own control plane; the line needs none.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants("line") {
        line::run(bench)?;
    }
    if bench.wants("single") {
        single::run(bench).await?;
    }
    if bench.wants("swap") {
        swap::run(bench).await?;
    }
    if bench.wants("application") {
        application::run(bench).await?;
    }
    if bench.wants("many") {
        many::run(bench).await?;
    }
    // The start is measured on the plane of the large part; `--only start` selects it alone.
    if bench.wants("large") || bench.wants("start") {
        large::run(bench).await?;
    }
    Ok(())
}
