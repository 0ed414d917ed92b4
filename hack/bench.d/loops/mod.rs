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

/// The control plane's GOGC. Its API server keeps every version of an object for its watchers for 75 s. Where it shares few
/// cores with all else, it would stop for a second every few to collect the rest, and nothing else would be measured.
fn garbage() -> [String; 2] {
    ["--gogc", "1600"].map(String::from)
}

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
