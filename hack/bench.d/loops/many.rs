//! Many loops, each with a sample a second that is alarmed, beside the bare program: what a recorded sample costs the API
//! server, and how soon it is decided about.
//!
//! Past some load a machine measures its own queue: times then grow without proportion to the work, and faster for whoever
//! works a little more. So there are only as many loops as the machine has room for.

use std::time::Duration;

use anyhow::Result;

use super::load::{Load, Round};
use super::sides::{ROUNDS, Sides};
use crate::frame::{Bench, number};

/// The most loops.
const LOOPS: usize = 50;

/// Share of the machine that the API server may use for the bare program. etcd, the senders, both programs and the work that
/// the operator does on top take about as much again.
const SHARE: f64 = 0.3;

/// How long a round lasts, and the one that meets cold connections and caches.
const WHOLE: Duration = Duration::from_secs(25);
const COLD: Duration = Duration::from_secs(8);

/// How many times the bare program's processor time of the API server a recorded sample may cost.
const SERVER: f64 = 1.35;

/// How many times the bare program's p95 it may take to Decision's status.
const P95: f64 = 2.0;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let sides = Sides::open(bench, "many", LOOPS).await?;
    let used = sides.warm_up(Load::EachSecond { loops: LOOPS, lasting: COLD }).await?;
    let loops = affordable(used, std::thread::available_parallelism()?.get());
    let title = format!("{loops} loops, a sample a second each, {} s", WHOLE.as_secs());
    let compared = sides.compare(&title, Load::EachSecond { loops, lasting: WHOLE }).await?;
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

/// How many loops the machine has room for, if the API server used so many cores for [`LOOPS`] of the bare program's.
fn affordable(used: f64, cores: usize) -> usize {
    let loops = number(LOOPS) * SHARE * number(cores) / used;
    (1..=LOOPS).rev().find(|count| number(*count) <= loops).unwrap_or(1)
}
