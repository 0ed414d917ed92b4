//! `hack/bench queue`: the latency of `runtime::queue` and `runtime::run`, compared with that of
//! `kube::runtime::applier`.
//!
//! Measures the time from adding a key to the begin of its pass. Both sides run the same passes with the operator's
//! concurrency, in alternating rounds of one process; a figure is the median over the rounds. A pass of the first stage
//! adds the same key to the second stage, as Monitoring does with Decision and Decision with Execution; the duration of
//! the passes is not counted. Keys are added, and passes end, at random moments within the millisecond, like answers of
//! an API server. Needs no control plane.

mod applier;
mod load;
mod passes;
mod sides;

use std::time::Duration;

use anyhow::Result;

use crate::frame::{Bench, Bound, Progress, median, quantile};
use load::{Load, Round};
use passes::Work;
use sides::Side;

/// Rounds of each side in each part.
const ROUNDS: usize = 10;

/// Concurrent passes per stage: the default of `closedLoops.concurrency`.
const CONCURRENCY: usize = 16;

/// Duration of a pass of a chain, in microseconds: about one write.
const WRITE: std::ops::Range<u64> = 1_000..3_000;

/// Added latency below which the applier would be good enough to replace the queue: a tenth of the latency to Decision,
/// which is 14 ms for one loop. The bound fails once the applier becomes that fast.
const TENTH: f64 = 1.4;

/// Runs all parts.
pub async fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants("chain") {
        let idle = Load::Spread { keys: 1, times: 50, every: Duration::from_millis(40) };
        chain(bench, "one key, idle", idle).await?;
        let busy = Load::Spread { keys: 50, times: 4, every: Duration::from_secs(1) };
        let rounds = chain(bench, "50 keys, one wake-up per second each", busy).await?;
        for (name, share) in [("median", 0.5), ("p95", 0.95)] {
            let added = rounds.applier(|round| round.to(1, share)) - rounds.ours(|round| round.to(1, share));
            let name = format!("50 keys: latency to Decision that the applier adds, {name}");
            bench.claim(&name, added, "ms", Bound::AtLeast(TENTH));
        }
    }
    if bench.wants("burst") {
        burst(bench, "passes that do nothing", 0..0).await?;
        burst(bench, "passes of 1 to 3 ms", WRITE).await?;
    }
    if bench.wants("requeue") {
        let work = Work { stages: 1, takes: 0..0, requeue: Some(Duration::from_millis(20)) };
        let rounds = compare("requeue after 20 ms", work, Load::Requeue { times: 50 }).await?;
        rounds.note(bench, "requeue after 20 ms: how late", 0);
    }
    Ok(())
}

/// Chains of three stages: latencies up to each stage, including those of the stages before it.
async fn chain(bench: &mut Bench, title: &str, load: Load) -> Result<Rounds> {
    let work = Work { stages: 3, takes: WRITE, requeue: None };
    let rounds = compare(title, work, load).await?;
    for (stage, name) in ["first pass", "second (Decision)", "third (Execution)"].iter().enumerate() {
        rounds.note(bench, &format!("{title}: {name}"), stage);
    }
    Ok(rounds)
}

/// Many keys at once: the time until the last pass begins.
async fn burst(bench: &mut Bench, name: &str, takes: std::ops::Range<u64>) -> Result<()> {
    let title = format!("500 keys at once, {name}");
    let work = Work { stages: 1, takes, requeue: None };
    let rounds = compare(&title, work, Load::Burst { keys: 500 }).await?;
    for (side, value) in
        [("queue", rounds.ours(|round| round.to(0, 1.0))), ("applier", rounds.applier(|round| round.to(0, 1.0)))]
    {
        bench.note(&format!("{title}: last pass begins, {side}"), value, "ms");
    }
    Ok(())
}

/// Rounds of both sides.
struct Rounds {
    ours: Vec<Round>,
    applier: Vec<Round>,
}

impl Rounds {
    fn ours(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(&self.ours.iter().map(figure).collect::<Vec<_>>())
    }

    fn applier(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(&self.applier.iter().map(figure).collect::<Vec<_>>())
    }

    fn note(&self, bench: &mut Bench, title: &str, stage: usize) {
        for (name, share) in [("median", 0.5), ("p95", 0.95)] {
            bench.note(&format!("{title}, {name}: queue"), self.ours(|round| round.to(stage, share)), "ms");
            bench.note(&format!("{title}, {name}: applier"), self.applier(|round| round.to(stage, share)), "ms");
        }
    }
}

impl Round {
    /// Quantile of the latencies up to this stage, in milliseconds.
    fn to(&self, stage: usize, share: f64) -> f64 {
        quantile(&self.0[stage], share)
    }
}

/// Plays the rounds of both sides in turns; the side that begins alternates as well.
async fn compare(title: &str, work: Work, load: Load) -> Result<Rounds> {
    let (mut ours, mut applier) = (Side::ours(&work), Side::applier(&work, load.keys()));
    // Warms up the runtime; not counted.
    load.play(&mut ours).await?;
    load.play(&mut applier).await?;
    let mut rounds = Rounds { ours: Vec::new(), applier: Vec::new() };
    let progress = Progress::count(title, ROUNDS);
    for turn in 0..ROUNDS {
        if turn % 2 == 0 {
            rounds.ours.push(load.play(&mut ours).await?);
        }
        rounds.applier.push(load.play(&mut applier).await?);
        if turn % 2 == 1 {
            rounds.ours.push(load.play(&mut ours).await?);
        }
        progress.at(turn + 1);
    }
    progress.end();
    ours.end().await;
    applier.end().await;
    Ok(rounds)
}
