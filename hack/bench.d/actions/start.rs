//! Start of the operator, compared with the start of bare watchers of the same kinds. Both alternate on one control
//! plane, each as a separate process, and are timed until `/readyz` succeeds.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::token;
use testkit::plane::kubeconfig;

use crate::frame::{Bench, Bound, Progress, median};
use testkit::plane::audit::{Audit, tally};

/// Rounds, and starts of each side per round.
const ROUNDS: usize = 3;
const STARTS: usize = 5;

/// Maximum time of the operator, relative to the bare watchers.
const TIMES: f64 = 1.5;

struct Start {
    seconds: f64,
    /// Processor time of the process until it was ready. It depends less on other load than the elapsed time.
    processor: f64,
    from: Timestamp,
    to: Timestamp,
}

/// Starts both sides in turns. Returns the last operator, which is still running.
pub async fn measure(bench: &mut Bench, cluster: &Cluster, audit: &Audit, size: &str) -> Result<Operator> {
    let progress = Progress::count("starting bare watchers and the operator in turns", ROUNDS * STARTS);
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    let mut running: Option<Operator> = None;
    for turn in 0..ROUNDS * STARTS {
        if let Some(before) = running.take() {
            before.stop().await?;
        }
        // Uses the operator's service account, so that the API server audits and authorizes the requests of both sides
        // alike.
        let access = kubeconfig::direct(&cluster.config, &token(&cluster.client).await?);
        let mut watchers = Operator::other(std::env::current_exe()?, "watchers", &bench.home("watchers")?, &access)?;
        bare.push(start(&mut watchers).await?);
        watchers.stop().await?;
        let mut operator = Operator::installed(cluster, &bench.home("large")?, &[]).await?;
        ours.push(start(&mut operator).await?);
        running = Some(operator);
        progress.at(turn + 1);
    }
    progress.end();
    same_lists(audit, bare.last(), ours.last()).await?;
    report(bench, size, &bare, &ours);
    running.context("the operator was not started")
}

async fn start(process: &mut Operator) -> Result<Start> {
    let (from, clock) = (Timestamp::now(), Instant::now());
    process.start()?;
    process.ready().await?;
    let seconds = clock.elapsed().as_secs_f64();
    Ok(Start { seconds, processor: process.processor_seconds()?, from, to: Timestamp::now() })
}

/// The time of a side is the median of its rounds; the time of a round is the median of its starts.
fn report(bench: &mut Bench, size: &str, bare: &[Start], ours: &[Start]) {
    let middle = |starts: &[Start], of: fn(&Start) -> f64| median(&starts.iter().map(of).collect::<Vec<_>>());
    let rounds = |starts: &[Start]| -> Vec<f64> {
        starts.chunks(STARTS).map(|round| middle(round, |start| start.seconds)).collect()
    };
    let (bare_rounds, our_rounds) = (rounds(bare), rounds(ours));
    let (bare_seconds, seconds) = (median(&bare_rounds), median(&our_rounds));
    let title = format!("start to ready with {size}, {ROUNDS} rounds");
    bench.note(&format!("{title}: median"), seconds, "s");
    bench.claim("  operator, relative to the bare watchers", seconds / bare_seconds, "times", Bound::AtMost(TIMES));
    for (index, (bare, ours)) in bare_rounds.iter().zip(&our_rounds).enumerate() {
        bench.note(&format!("  in round {} alone", index + 1), ours / bare, "times");
    }
    bench.note("  bare watchers: median", bare_seconds, "s");
    bench.note("  processor time: operator", middle(ours, |start| start.processor), "s");
    bench.note("  processor time: bare watchers", middle(bare, |start| start.processor), "s");
}

/// Checks that both sides list the same kinds, in the same number of pages.
async fn same_lists(audit: &Audit, bare: Option<&Start>, ours: Option<&Start>) -> Result<()> {
    let mut lists: Vec<BTreeMap<String, usize>> = Vec::new();
    for start in [bare, ours].into_iter().flatten() {
        let requests = audit.between(start.from, start.to).await?;
        lists.push(tally(requests.iter().filter(|one| one.verb == "list")).into_iter().collect());
    }
    let [bare, ours] = lists.as_slice() else { anyhow::bail!("nothing was started") };
    ensure!(!ours.is_empty(), "the audit log has no list request of the operator");
    ensure!(bare == ours, "the bare watchers and the operator sent different list requests:\n{bare:?}\n{ours:?}");
    Ok(())
}
