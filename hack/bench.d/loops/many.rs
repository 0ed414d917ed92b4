//! Many loops that each receive a sample per second which crosses a threshold, compared with the bare program:
//! processor time of the API server per recorded sample, and time to the decision.
//!
//! Beyond some load, a machine measures mainly its own queue: times then grow out of proportion to the work, and faster
//! for the side that works a little more. The number of loops is therefore limited to what the machine can run.

use std::time::Duration;

use anyhow::Result;

use super::load::{Load, Round};
use super::sides::{ROUNDS, Sides};
use crate::frame::{Bench, number};

/// Maximum number of loops.
const LOOPS: usize = 50;

/// Share of the machine that the API server may use for the bare program. etcd, the senders, both programs and the
/// operator's additional work use about as much again.
const SHARE: f64 = 0.3;

/// Duration of a round, and of the warm-up round for connections and caches.
const WHOLE: Duration = Duration::from_secs(25);
const COLD: Duration = Duration::from_secs(8);

/// Maximum processor time of the API server per recorded sample, relative to the bare program.
const SERVER: f64 = 1.35;

/// Maximum p95 of the time to Decision's status, relative to the bare program.
const P95: f64 = 2.0;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let sides = Sides::open(bench, "many", LOOPS).await?;
    let used = sides.warm_up(Load::EachSecond { loops: LOOPS, lasting: COLD }).await?;
    let loops = affordable(used, std::thread::available_parallelism()?.get());
    let title = format!("{loops} loops, a sample a second each, {} s", WHOLE.as_secs());
    let compared = sides.compare(&title, Load::EachSecond { loops, lasting: WHOLE }).await?;
    let name = format!("{title}, {ROUNDS} rounds: API server CPU per sample");
    compared.claim(bench, &name, "ms", SERVER, |round| compared.server(round));
    compared.claim(bench, "to Decision, p95", "ms", P95, |round| round.time(0.95));
    compared.note(bench, "to Decision, median: ", "ms", |round| round.time(0.5));
    compared.note(bench, "to Decision, p99: ", "ms", |round| round.time(0.99));
    compared.note(bench, "to Decision, p95, relative to the senders' own patch: ", "patches", |round| {
        round.time(0.95) / round.patch()
    });
    compared.note(bench, "the senders' own patch, median: ", "ms", Round::patch);
    compared.rest(bench, &sides.operator)?;
    sides.sizes(bench).await?;
    sides.close().await
}

/// Number of loops that the machine can run, given the cores that the API server used for [`LOOPS`] loops of the bare
/// program.
fn affordable(used: f64, cores: usize) -> usize {
    let loops = number(LOOPS) * SHARE * number(cores) / used;
    (1..=LOOPS).rev().find(|count| number(*count) <= loops).unwrap_or(1)
}
