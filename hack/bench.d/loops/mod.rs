//! `hack/bench loops`: what closed loops cost.
//!
//! In `one` and `many` the operator is compared with a bare program that makes the same writes, in alternated rounds on one
//! control plane: time to Decision's status, and processor time of the API server for a recorded sample. Times run from just
//! before the sender's patch to the moment at which a watch shows the hop. `acting` and `calm` look at the operator alone.

mod acting;
mod bare;
mod calm;
mod cost;
mod load;
mod many;
mod one;
mod scene;
mod sides;
mod timeline;

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
    if bench.wants("acting") {
        acting::run(bench).await?;
    }
    if bench.wants("calm") {
        calm::run(bench).await?;
    }
    Ok(())
}
