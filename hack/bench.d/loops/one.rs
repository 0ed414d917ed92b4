//! One loop that acts on every sample, samples back to back: how long each hop takes, and what is written.

use std::time::Instant;

use anyhow::{Result, ensure};
use ganglion::api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::json;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;

use super::book::{Book, Mark};
use super::scene::{self, Pushed};
use crate::audit::{Audit, Request, tally};
use crate::fleet;
use crate::frame::{Bench, Bound, Progress, median, millis, number, operator, quantile};
use crate::unit::Unit;

const NAMESPACE: &str = "one";
const LOOP: &str = "web";

/// Samples that are measured, after those that meet cold connections and caches.
const SAMPLES: usize = 300;
const COLD: usize = 30;

/// Writes by which the unit is measured, before and after.
const WRITES: usize = 100;

/// One sample as it was seen from outside; times in milliseconds from just before its patch.
struct Timed {
    began: Timestamp,
    patch: f64,
    decided: f64,
    claimed: f64,
    scaled: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home("one")?, false)?;
    let cluster = bench.plane("one", 1, &[audit.options(), &super::garbage()].concat()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    fleet::namespace(&cluster.client, "unit").await?;
    let operator = operator(bench, "one", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    scene::make(&cluster.client, NAMESPACE, vec![(LOOP.to_owned(), scene::demo(LOOP, "Auto"))]).await?;
    cluster.fault(&["pause", "kcm"]).await?;
    let mut unit = Unit::new(&cluster.client, "unit").await?;
    unit.measure(WRITES).await?;
    let samples = samples(&cluster).await?;
    let ended = Timestamp::now();
    unit.measure(WRITES).await?;
    let samples = samples.get(COLD..).unwrap_or_default();
    report(bench, unit.millis(), samples);
    let requests = audit.between(samples.first().map(|one| one.began).unwrap_or_default(), ended).await?;
    count(bench, samples, &requests);
    operator.stop().await?;
    cluster.down().await
}

async fn samples(cluster: &Cluster) -> Result<Vec<Timed>> {
    let book = Book::open(&cluster.client, NAMESPACE);
    let monitorings: Api<Monitoring> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let mut generation = deployments.get(LOOP).await?.metadata.generation.unwrap_or(0);
    let progress = Progress::count("samples of one loop, back to back", COLD + SAMPLES);
    let mut all = Vec::new();
    for index in 0..COLD + SAMPLES {
        generation += 1;
        let began = Timestamp::now();
        let pushed = scene::push(&monitorings, LOOP, &json!({"cpu": "2", "memory": "40"})).await?;
        all.push(timed(&book, began, &pushed, generation).await?);
        progress.at(index + 1);
    }
    progress.end();
    let now = deployments.get(LOOP).await?.metadata.generation.unwrap_or(0);
    ensure!(now == generation, "{} samples, but generation {now} instead of {generation}", all.len());
    Ok(all)
}

/// Waits until the sample has come to its end.
async fn timed(book: &Book, began: Timestamp, pushed: &Pushed, generation: i64) -> Result<Timed> {
    let (name, time) = (LOOP.to_owned(), pushed.time);
    let after = |moment: Instant| millis(moment.duration_since(pushed.began));
    let decided = book.until(&Mark::Decided(name.clone(), time)).await?;
    let claimed = book.until(&Mark::Claimed(name.clone(), time)).await?;
    let scaled = book.until(&Mark::Scaled(name.clone(), generation)).await?;
    book.until(&Mark::Ended(name, time)).await?;
    Ok(Timed {
        began,
        patch: after(pushed.answered),
        decided: after(decided),
        claimed: after(claimed),
        scaled: after(scaled),
    })
}

fn report(bench: &mut Bench, unit: f64, samples: &[Timed]) {
    let all = |of: fn(&Timed) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let patch = median(&all(|one| one.patch));
    bench.note("one status write (server-side apply, idle plane)", unit, "ms");
    bench.note("one loop: the sender's own patch, median", patch, "ms");
    for (point, of, most) in [
        ("Decision's status", (|one| one.decided) as fn(&Timed) -> f64, 3.5),
        ("Execution's claim", |one| one.claimed, 4.8),
        ("the target scaled", |one| one.scaled, 6.5),
    ] {
        let times = all(of);
        let middle = median(&times);
        bench.claim(&format!("sample to {point}: median"), middle / patch, "patches", Bound::Below(most));
        bench.claim("  p95 by median", quantile(&times, 0.95) / middle, "", Bound::Below(2.0));
    }
}

/// What the operator asked of the API server for each sample, up to the next one.
fn count(bench: &mut Bench, samples: &[Timed], requests: &[Request]) {
    let mine: Vec<&Request> = requests.iter().filter(|one| one.by_operator && !one.is_upkeep()).collect();
    let ends = samples.iter().skip(1).map(|next| next.began).chain([Timestamp::MAX]);
    // What is not written for each sample, but now and then.
    let seldom = |request: &Request| matches!(request.resource.as_str(), "closedloops/status" | "events");
    let mut writes = Vec::new();
    for (one, end) in samples.iter().zip(ends) {
        let during = |request: &&&Request| request.received >= one.began && request.received < end;
        let own = |request: &&&Request| request.writes() && request.resource != "deployments/scale" && !seldom(request);
        writes.push(number(mine.iter().filter(during).filter(own).count()));
    }
    bench.claim("writes of the hops for a sample: most", quantile(&writes, 1.0), "writes", Bound::AtMost(4.0));
    for (name, count) in tally(mine.iter().copied()) {
        bench.note(&format!("  of all requests: {name}"), number(count) / number(samples.len()), "a sample");
    }
}
