//! Many loops, each with a sample a second that is alarmed: whether all are decided about, how soon, and at what cost.
//!
//! What is asked of them is a decision (mode: DryRun). How many act as often is noted beside it.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use ganglion::api::monitoring::Monitoring;
use kube::{Api, Client};
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;

use super::book::{Book, Mark};
use super::scene::{self, Pushed};
use crate::frame::{Bench, Bound, Progress, median, millis, number, operator, quantile};

const NAMESPACE: &str = "many";

/// What is asked for: so many loops, for so long.
const LOOPS: usize = 50;
const WHOLE: Duration = Duration::from_secs(60);

/// Then more and more of them, each time for as long, until it does not hold.
const MORE: [usize; 9] = [60, 75, 100, 125, 150, 200, 250, 300, 400];

/// How long those that act on every sample are looked at.
const SHORT: Duration = Duration::from_secs(20);

/// What each sender keeps to.
const EVERY: Duration = Duration::from_secs(1);

/// How long the last samples are waited for.
const LATE: Duration = Duration::from_secs(5);

const P95: f64 = 12.0;
const CORES: f64 = 0.15;
const MEMORY: f64 = 40.0;

/// What was seen of one run.
struct Outcome {
    sent: usize,
    decided: usize,
    /// Of the senders' own patches, in milliseconds: the unit of the times below.
    patch: f64,
    median: f64,
    p95: f64,
    p99: f64,
    cores: f64,
    memory: f64,
}

impl Outcome {
    fn holds(&self) -> bool {
        self.decided == self.sent && self.p95 < P95
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane("many", 1, &super::garbage()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    let operator = operator(bench, "many", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    let mut made = 0;
    grow(&cluster, &mut made, LOOPS).await?;
    let outcome = samples(&cluster.client, &operator, LOOPS, WHOLE).await?;
    let title = format!("{LOOPS} loops, a sample a second each, {} s", WHOLE.as_secs());
    let lost = number(outcome.sent - outcome.decided);
    bench.claim(&format!("{title}: not decided about"), lost, "samples", Bound::AtMost(0.0));
    bench.note("  the senders' own patch, median", outcome.patch, "ms");
    bench.note("  sample to Decision's status: median", outcome.median, "patches");
    bench.claim("  p95", outcome.p95, "patches", Bound::Below(P95));
    bench.note("  p99", outcome.p99, "patches");
    bench.claim("  the operator's processor time", outcome.cores, "cores", Bound::Below(CORES));
    bench.claim("  its memory: resident", outcome.memory, "MiB", Bound::Below(MEMORY));
    bench.note("  at its highest", operator.memory("VmHWM")?, "MiB");
    let most = most(bench, &cluster, &operator, &mut made, outcome.holds()).await?;
    bench.note("largest number of such loops at which all are decided about and p95 holds", number(most), "loops");
    operator.stop().await?;
    cluster.down().await?;
    acting(bench).await
}

/// More and more loops, until it does not hold; the last number at which it did.
async fn most(
    bench: &mut Bench,
    cluster: &Cluster,
    operator: &Operator,
    made: &mut usize,
    holds: bool,
) -> Result<usize> {
    let mut most = if holds { LOOPS } else { 0 };
    for loops in MORE.into_iter().filter(|_| holds) {
        grow(cluster, made, loops).await?;
        let outcome = samples(&cluster.client, operator, loops, WHOLE).await?;
        let share = 100.0 * number(outcome.decided) / number(outcome.sent);
        bench.note(&format!("  {loops} loops: decided about"), share, "%");
        bench.note("    p95", outcome.p95, "patches");
        bench.note("    the operator's processor time", outcome.cores, "cores");
        bench.note("    its memory: resident", outcome.memory, "MiB");
        if !outcome.holds() {
            break;
        }
        most = loops;
    }
    Ok(most)
}

/// As many loops that act on every sample, on a plane of their own.
async fn acting(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane("acting", 1, &super::garbage()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    let operator = operator(bench, "acting", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    let loops = (0..LOOPS).map(|index| (name(index), scene::demo(&name(index), "Auto"))).collect();
    scene::make(&cluster.client, NAMESPACE, loops).await?;
    cluster.fault(&["pause", "kcm"]).await?;
    let outcome = samples(&cluster.client, &operator, LOOPS, SHORT).await?;
    let share = 100.0 * number(outcome.decided) / number(outcome.sent);
    bench.note(&format!("{LOOPS} loops that act on every sample, {} s: decided about", SHORT.as_secs()), share, "%");
    bench.note("  sample to Decision's status: median", outcome.median, "patches");
    bench.note("  p95", outcome.p95, "patches");
    bench.note("  the operator's processor time", outcome.cores, "cores");
    operator.stop().await?;
    cluster.down().await
}

fn name(index: usize) -> String {
    format!("loop-{index}")
}

/// Makes loops until there are so many.
async fn grow(cluster: &Cluster, made: &mut usize, wanted: usize) -> Result<()> {
    let names = (*made..wanted).map(name);
    let loops = names.map(|name| (name.clone(), scene::demo(&name, "DryRun"))).collect();
    *made = wanted;
    scene::make(&cluster.client, NAMESPACE, loops).await
}

/// One sender for each loop, spread evenly over the second.
async fn samples(client: &Client, operator: &Operator, loops: usize, lasting: Duration) -> Result<Outcome> {
    let book = Book::open(client, NAMESPACE);
    let monitorings: Api<Monitoring> = Api::namespaced(client.clone(), NAMESPACE);
    let progress = Progress::spin(&format!("{loops} loops, a sample a second each, for {} s", lasting.as_secs()));
    // The watches' first lists, and what making the loops left to do, are no part of it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (began, before) = (Instant::now(), operator.processor_seconds()?);
    let senders = (0..loops).map(|index| {
        let first = began + EVERY.mul_f64(number(index) / number(loops));
        send(monitorings.clone(), name(index), first, began + lasting)
    });
    let pushed: Vec<(String, Vec<Pushed>)> = try_join_all(senders).await?;
    let cores = (operator.processor_seconds()? - before) / began.elapsed().as_secs_f64();
    tokio::time::sleep(LATE).await;
    progress.end();
    let patches: Vec<f64> =
        pushed.iter().flat_map(|(_, all)| all).map(|one| millis(one.answered - one.began)).collect();
    let patch = median(&patches);
    let mut times = Vec::new();
    for (name, samples) in &pushed {
        let seen = |one: &Pushed| Some(millis(book.at(&Mark::Decided(name.clone(), one.time))? - one.began));
        times.extend(samples.iter().filter_map(seen));
    }
    Ok(Outcome {
        sent: pushed.iter().map(|(_, samples)| samples.len()).sum(),
        decided: times.len(),
        patch,
        median: median(&times) / patch,
        p95: quantile(&times, 0.95) / patch,
        p99: quantile(&times, 0.99) / patch,
        cores,
        memory: operator.memory("VmRSS")?,
    })
}

/// One sender: a sample a second from the first to the end.
async fn send(
    monitorings: Api<Monitoring>,
    name: String,
    first: Instant,
    end: Instant,
) -> Result<(String, Vec<Pushed>)> {
    let mut ticks = tokio::time::interval_at(first.into(), EVERY);
    let mut all = Vec::new();
    while ticks.tick().await < end.into() {
        all.push(scene::push(&monitorings, &name, &json!({"cpu": "2", "memory": "40"})).await?);
    }
    Ok((name, all))
}
