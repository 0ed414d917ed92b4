//! One loop with samples back to back, compared with the bare program: time until Decision's status shows a sample.

use anyhow::Result;

use super::load::{Load, Round};
use super::sides::{ROUNDS, Sides};
use crate::frame::Bench;

/// Samples of a round, and of the warm-up round for connections and caches.
const SAMPLES: usize = 200;
const COLD: usize = 50;

/// Maximum time to Decision's status, relative to the bare program's median.
const TIME: f64 = 1.25;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let sides = Sides::open(bench, "one", 1).await?;
    let title = format!("1 loop, {SAMPLES} samples back to back");
    sides.warm_up(Load::BackToBack(COLD)).await?;
    let compared = sides.compare(&title, Load::BackToBack(SAMPLES)).await?;
    let middle = |round: &Round| round.time(0.5);
    compared.claim(bench, &format!("{title}, {ROUNDS} rounds: to Decision, median"), "ms", TIME, middle);
    compared.note(bench, "to Decision, p95: ", "ms", |round| round.time(0.95));
    compared.note(bench, "to Decision, median, relative to the sender's own patch: ", "patches", |round| {
        round.time(0.5) / round.patch()
    });
    compared.note(bench, "the sender's own patch, median: ", "ms", Round::patch);
    compared.note(bench, "API server CPU a sample: ", "ms", |round| compared.server(round));
    compared.rest(bench, &sides.operator)?;
    sides.sizes(bench).await?;
    sides.close().await
}
