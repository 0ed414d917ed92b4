//! A load that becomes ten times as large in one step: decisions and time until the number of replicas is right, for a
//! loop that tracks a target and for a HorizontalPodAutoscaler on the same metric.
//!
//! In a repetition, pairs of both are created at intervals, so that the step falls into each part of their own
//! intervals, and their metrics all step at the same time. With the default pace, both at most double the number in
//! one interval; with policies that allow any number, both may set it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::rivals::metrics::MetricsServer;
use super::rivals::targets::{self, Follower};
use super::rivals::{self, INTERVAL, Pace, Side, TARGET};
use crate::TIMEOUT;
use crate::frame::{Bench, Bound, Progress, number, operator, quantile};

const PART: &str = "step";
const PAIRS: usize = 30;
const REPETITIONS: usize = 3;

/// Replicas that are right before and after the step.
const BEFORE: usize = 4;
const AFTER: i32 = 40;

/// Maximum time of the loops relative to the autoscalers. Both wait for the next end of an interval, and the order of
/// two that end at almost the same time is by chance.
const LATER: f64 = 1.02;

/// Result of one side of a pair.
struct Reached {
    seconds: f64,
    decisions: usize,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (cluster, _) = rivals::plane(bench, PART).await?;
    // Repetitions that have stepped.
    let stepped: Arc<[AtomicBool; 2 * REPETITIONS]> = Arc::default();
    let values = Arc::clone(&stepped);
    let _metrics = MetricsServer::start(&cluster, move |name| {
        let turn: usize = name.strip_prefix("step-")?.split('-').next()?.parse().ok()?;
        let replicas = if values.get(turn)?.load(Ordering::SeqCst) { f64::from(AFTER) } else { number(BEFORE) };
        Some(TARGET * replicas)
    })
    .await?;
    let operator = operator(bench, PART, &cluster, &["--watch-namespace", Side::Loops.namespace()]).await?;
    let follower = Follower::start(&cluster.client);
    let mut turns = stepped.iter().enumerate();
    for (pace, title) in [(Pace::Default, "default pace"), (Pace::Unlimited, "policies without a limit")] {
        let mut all: [Vec<Reached>; 2] = Default::default();
        let progress = Progress::count(&format!("load times 10, {title}"), REPETITIONS);
        for (turn, stepped) in turns.by_ref().take(REPETITIONS) {
            let names: Vec<String> = (0..PAIRS).map(|pair| format!("step-{turn}-{pair}")).collect();
            let mut ticks = tokio::time::interval(INTERVAL / u32::try_from(PAIRS)?);
            for name in &names {
                targets::create(&cluster.client, name, BEFORE).await?;
                ticks.tick().await;
                rivals::autoscaler(&cluster.client, name, pace).await?;
                rivals::tracking_loop(&cluster.client, name, pace, "Auto").await?;
            }
            // An autoscaler reads its metric for the first time one interval after its creation.
            tokio::time::sleep(INTERVAL + INTERVAL.mul_f64(0.37)).await;
            let at = Instant::now();
            stepped.store(true, Ordering::SeqCst);
            for (side, reached) in Side::BOTH.into_iter().zip(&mut all) {
                for name in &names {
                    reached.push(until_right(&follower, side, name, at).await?);
                }
            }
            rivals::delete_autoscalers(&cluster.client).await?;
            rivals::for_each(names.into_iter(), async |name| rivals::set_mode(&cluster.client, &name, "Paused").await)
                .await?;
            progress.at(turn % REPETITIONS + 1);
        }
        progress.end();
        report(bench, title, &all);
    }
    operator.stop().await?;
    cluster.down().await
}

/// Waits until the Deployment has the right number.
async fn until_right(follower: &Follower, side: Side, name: &str, at: Instant) -> Result<Reached> {
    loop {
        let changes = follower.changes(side, name, at);
        if let Some(place) = changes.iter().position(|(_, replicas)| *replicas == AFTER) {
            let seconds = changes.get(place).map_or(0.0, |(moment, _)| moment.duration_since(at).as_secs_f64());
            return Ok(Reached { seconds, decisions: changes.len() });
        }
        if at.elapsed() > TIMEOUT {
            bail!("{name} of the {} has no {AFTER} replicas: {changes:?}", side.namespace());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn report(bench: &mut Bench, title: &str, [autoscalers, loops]: &[Vec<Reached>; 2]) {
    let decisions = |all: &[Reached]| number(all.iter().map(|one| one.decisions).sum()) / number(all.len());
    let most = |all: &[Reached]| number(all.iter().map(|one| one.decisions).max().unwrap_or(0));
    let seconds = |all: &[Reached], share| quantile(&all.iter().map(|one| one.seconds).collect::<Vec<f64>>(), share);
    let title = format!("load times 10, {title}, {} pairs", loops.len());
    let (ours, theirs) = (decisions(loops), decisions(autoscalers));
    bench.claim(
        &format!("{title}: decisions of a loop, relative to an autoscaler"),
        ours / theirs,
        "times",
        Bound::AtMost(1.0),
    );
    bench.note("    loops, autoscalers: mean", ours, "decisions");
    bench.note("    ", theirs, "decisions");
    bench.note("    loops, autoscalers: maximum", most(loops), "decisions");
    bench.note("    ", most(autoscalers), "decisions");
    for (name, share) in [("median", 0.5), ("maximum", 1.0)] {
        let (ours, theirs) = (seconds(loops, share), seconds(autoscalers, share));
        let name = format!("  time to the right number, {name}, relative to autoscalers");
        bench.claim(&name, ours / theirs, "times", Bound::AtMost(LATER));
        bench.note("    loops", ours, "s");
        bench.note("    autoscalers", theirs, "s");
    }
}
