//! `hack/bench loops`: what closed loops cost.
//!
//! Times run from just before the sender's patch to the moment at which a watch shows the hop. While loops act, the
//! controller of Deployments is held still: the pods that it would make are not the loop's, and would take the machine.

mod book;
mod calm;
mod many;
mod one;
mod scene;

use anyhow::Result;

use super::frame::Bench;

/// All parts, each on a control plane of its own.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants("one") {
        one::run(bench).await?;
    }
    if bench.wants("many") {
        many::run(bench).await?;
    }
    if bench.wants("calm") {
        calm::run(bench).await?;
    }
    Ok(())
}
