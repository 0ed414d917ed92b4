//! Many loops, each with a sample a second that is alarmed, beside the bare program: what a recorded sample costs the API
//! server, and how soon it is decided about.

use std::time::Duration;

use anyhow::Result;

use super::load::{Load, Round};
use super::sides::{ROUNDS, Sides};
use crate::frame::Bench;

const LOOPS: usize = 50;

/// How long a round lasts, and the one that meets cold connections and caches.
const WHOLE: Duration = Duration::from_secs(25);
const COLD: Duration = Duration::from_secs(8);

/// How many times the bare program's processor time of the API server a recorded sample may cost.
const SERVER: f64 = 1.35;

/// How many times the bare program's p95 it may take to Decision's status.
const P95: f64 = 2.0;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let sides = Sides::open(bench, "many", LOOPS).await?;
    let title = format!("{LOOPS} loops, a sample a second each, {} s", WHOLE.as_secs());
    let load = |lasting| Load::EachSecond { loops: LOOPS, lasting };
    let compared = sides.compare(&title, load(COLD), load(WHOLE)).await?;
    let name = format!("{title}, {ROUNDS} rounds: API server CPU a sample");
    compared.claim(bench, &name, "ms", SERVER, |round| compared.server(round));
    compared.claim(bench, "to Decision, p95", "ms", P95, |round| round.time(0.95));
    compared.note(bench, "to Decision, median: ", "ms", |round| round.time(0.5));
    compared.note(bench, "to Decision, p99: ", "ms", |round| round.time(0.99));
    compared.note(bench, "to Decision, p95, by the senders' own patch: ", "patches", |round| {
        round.time(0.95) / round.patch()
    });
    compared.note(bench, "the senders' own patch, median: ", "ms", Round::patch);
    compared.rest(bench, &sides.operator)?;
    sides.sizes(bench).await?;
    sides.close().await
}
