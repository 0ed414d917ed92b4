//! Loops that act on every sample: time of each hop, requests of the operator, and cost of a sample for the API server.
//! The figures have no bounds, because the cost of an action depends on its target.
//!
//! The Deployment controller is paused: the pods that it would create are not the loop's, and would use up the machine.
//! The API server writes an audit log in this part.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;

use super::cost::{self, Meter};
use super::load::Load;
use super::scene::{self, Pushed};
use super::timeline::{Mark, Timeline};
use crate::frame::{Bench, Progress, default_garbage, median, millis, number, operator, quantile};
use testkit::plane::audit::{Audit, Request, tally};

const NAMESPACE: &str = "acting";

/// Measured samples of one loop, after the first ones with cold connections and caches.
const SAMPLES: usize = 200;
const COLD: usize = 30;

/// Same number of loops as in the comparison with the bare program.
const LOOPS: usize = 50;
const LASTING: Duration = Duration::from_secs(20);

/// One sample as observed from outside; times in milliseconds since just before its patch.
struct Timed {
    began: Timestamp,
    patch: f64,
    decided: f64,
    claimed: f64,
    scaled: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home("acting")?, false)?;
    let cluster = bench.plane("acting", 1, &[audit.options(), &default_garbage()].concat()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    let operator = operator(bench, "acting", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    scene::make(&cluster.client, NAMESPACE, scene::demos(LOOPS, "Auto")).await?;
    cluster.fault(&["pause", "kcm"]).await?;
    one(bench, &cluster, &operator, &audit).await?;
    many(bench, &cluster, &operator).await?;
    operator.stop().await?;
    cluster.down().await
}

async fn one(bench: &mut Bench, cluster: &Cluster, operator: &Operator, audit: &Audit) -> Result<()> {
    let timeline = Timeline::open(&cluster.client, NAMESPACE);
    let monitorings: Api<Monitoring> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let progress = Progress::count("samples of one loop that acts, back to back", COLD + SAMPLES);
    samples(cluster, &timeline, &monitorings, COLD, |_| ()).await?;
    let idle = cost::idle(cluster, operator).await?;
    let meter = Meter::start(cluster, operator)?;
    let all = samples(cluster, &timeline, &monitorings, SAMPLES, |done| progress.at(COLD + done)).await?;
    let (used, ended) = (meter.read()?, Timestamp::now());
    progress.end();
    report(bench, &all);
    bench.note("  API server CPU a sample", used.server_millis(idle, all.len()), "ms");
    let requests = audit.between(all.first().map(|one| one.began).unwrap_or_default(), ended).await?;
    count(bench, &all, &requests);
    Ok(())
}

async fn many(bench: &mut Bench, cluster: &Cluster, operator: &Operator) -> Result<()> {
    let title = format!("{LOOPS} loops that act on every sample, one a second each, {} s", LASTING.as_secs());
    let progress = Progress::spin(&title);
    let (round, idle) = Load::EachSecond { loops: LOOPS, lasting: LASTING }.run(cluster, operator, NAMESPACE).await?;
    progress.end();
    bench.note(&format!("{title}: not recorded"), round.lost(), "samples");
    bench.note("  to Decision: median", round.time(0.5), "ms");
    bench.note("  to Decision: p95", round.time(0.95), "ms");
    bench.note("  API server CPU a sample", round.server(idle), "ms");
    bench.note("  operator's own processor time per sample", round.operator(), "ms");
    Ok(())
}

async fn samples(
    cluster: &Cluster,
    timeline: &Timeline,
    monitorings: &Api<Monitoring>,
    count: usize,
    progress: impl Fn(usize),
) -> Result<Vec<Timed>> {
    let name = scene::name(0);
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let mut generation = deployments.get(&name).await?.metadata.generation.unwrap_or(0);
    let mut all = Vec::new();
    for index in 0..count {
        generation += 1;
        let began = Timestamp::now();
        let pushed = scene::push(monitorings, &name, &json!({"cpu": "2", "memory": "40"})).await?;
        all.push(timed(timeline, began, pushed, generation).await?);
        progress(index + 1);
    }
    let now = deployments.get(&name).await?.metadata.generation.unwrap_or(0);
    ensure!(now == generation, "{} samples, but generation {now} instead of {generation}", all.len());
    Ok(all)
}

/// Waits until the sample has passed all hops.
async fn timed(timeline: &Timeline, began: Timestamp, pushed: Pushed, generation: i64) -> Result<Timed> {
    let Pushed { name, time, .. } = pushed;
    let after = |moment: Instant| millis(moment.duration_since(pushed.began));
    let decided = timeline.until(&Mark::Decided(name.clone(), time)).await?;
    let claimed = timeline.until(&Mark::Claimed(name.clone(), time)).await?;
    let scaled = timeline.until(&Mark::Scaled(name.clone(), generation)).await?;
    timeline.until(&Mark::Ended(name, time)).await?;
    Ok(Timed {
        began,
        patch: after(pushed.answered),
        decided: after(decided),
        claimed: after(claimed),
        scaled: after(scaled),
    })
}

fn report(bench: &mut Bench, samples: &[Timed]) {
    let all = |of: fn(&Timed) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let patch = median(&all(|one| one.patch));
    bench.note("1 loop that acts, samples back to back: the sender's own patch, median", patch, "ms");
    for (point, of) in [
        ("Decision", (|one| one.decided) as fn(&Timed) -> f64),
        ("Execution's claim", |one| one.claimed),
        ("the target scaled", |one| one.scaled),
    ] {
        let times = all(of);
        let middle = median(&times);
        bench.note(&format!("  to {point}: median"), middle / patch, "patches");
        bench.note("    p95 by median", quantile(&times, 0.95) / middle, "times");
    }
}

/// Counts the operator's requests for each sample, until the next sample.
fn count(bench: &mut Bench, samples: &[Timed], requests: &[Request]) {
    let mine: Vec<&Request> = requests.iter().filter(|one| one.by_operator && !one.is_upkeep()).collect();
    let ends = samples.iter().skip(1).map(|next| next.began).chain([Timestamp::MAX]);
    // Requests that are not sent for each sample, but at intervals.
    let seldom = |request: &Request| matches!(request.resource.as_str(), "closedloops/status" | "events");
    let mut writes = Vec::new();
    for (one, end) in samples.iter().zip(ends) {
        let during = |request: &&&Request| request.received >= one.began && request.received < end;
        let own = |request: &&&Request| request.writes() && request.resource != "deployments/scale" && !seldom(request);
        writes.push(number(mine.iter().filter(during).filter(own).count()));
    }
    bench.note("  writes of the hops per sample: maximum", quantile(&writes, 1.0), "writes");
    for (name, count) in tally(mine.iter().copied()) {
        bench.note(&format!("    of all requests: {name}"), number(count) / number(samples.len()), "a sample");
    }
}
