//! `hack/bench loops`: the cost of closed loops.
//!
//! `one` and `many` compare the operator with a bare program that makes the same writes, in alternating rounds on one
//! control plane. They measure the time to Decision's status, and the processor time of the API server per recorded
//! sample. Times start just before the sender's patch and end when a watch shows the hop. `acting` and `calm` measure
//! the operator alone; `traces` compares it with itself. `tracking` and `step` compare it with the
//! HorizontalPodAutoscalers of kube-controller-manager on the same metrics.

mod acting;
mod bare;
mod calm;
mod cost;
mod load;
mod many;
mod one;
mod rivals;
pub mod scene;
mod sides;
mod step;
pub mod timeline;
mod traces;
mod tracking;

use anyhow::Result;

use super::frame::Bench;

/// Runs all parts, each on its own control plane.
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
    if bench.wants("traces") {
        traces::run(bench).await?;
    }
    if bench.wants("tracking") {
        tracking::run(bench).await?;
    }
    if bench.wants("step") {
        step::run(bench).await?;
    }
    Ok(())
}
