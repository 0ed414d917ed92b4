//! Sequential moves with instant kubelets. The operator, the bare protocol and the unit alternate on one control plane.

use std::time::Instant;

use anyhow::{Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use testkit::eye::{Eye, Seen};
use testkit::plane::install::Installed;
use testkit::verdict::{node_of, pods_of, serves};

use super::{bare, share};
use crate::fleet;
use crate::frame::{Bench, Bound, Progress, median, millis, number, operator, quantile};
use crate::unit::Unit;
use testkit::plane::audit::{Audit, Request, tally};

pub const NODES: usize = 8;
const REPLICAS: usize = 3;
const APP: &str = "web";
pub const NAMESPACE: &str = "moves";

/// Turns of [`MOVES`] moves, [`BARE`] bare moves and [`WRITES`] unit writes.
const TURNS: usize = 30;
const MOVES: usize = 5;
const BARE: usize = 2;
const WRITES: usize = 20;

/// One move as observed from outside.
pub struct Timed {
    began: Timestamp,
    ended: Timestamp,
    pub millis: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home("single")?, true)?;
    let cluster = bench.plane("single", NODES, audit.options()).await?;
    Installed::default().install(&cluster).await?;
    for name in [NAMESPACE, "unit"] {
        fleet::namespace(&cluster.client, name).await?;
    }
    let operator = operator(bench, "single", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    let eye = workload(&cluster.client).await?;
    let mut unit = Unit::new(&cluster.client, "unit").await?;
    unit.measure(WRITES * 5).await?;
    let (mut moves, mut bares) = (Vec::new(), Vec::new());
    let progress = Progress::count("moving one replica after the other", TURNS);
    for turn in 0..TURNS {
        for index in 0..MOVES {
            moves.push(one(&cluster.client, &eye, turn * MOVES + index).await?);
        }
        for index in 0..BARE {
            bares.push(bare::one(&cluster.client, &eye, NAMESPACE, APP, turn * BARE + index).await?);
            calm(&eye).await?;
        }
        unit.measure(WRITES).await?;
        progress.at(turn + 1);
    }
    unit.measure(WRITES * 5).await?;
    progress.end();
    // The first turn is skipped: its connections and caches are cold.
    report(bench, &audit, unit.millis(), moves.get(MOVES..).unwrap_or_default(), &bares).await?;
    operator.stop().await?;
    cluster.down().await
}

/// Creates the workload whose replicas move, and waits until it is at rest. Returns a watch on it.
pub async fn workload(client: &Client) -> Result<Eye> {
    let eye = Eye::open(client, NAMESPACE).await?;
    fleet::service(client, NAMESPACE, APP).await?;
    fleet::deployment(client, NAMESPACE, APP, REPLICAS).await?;
    calm(&eye).await?;
    Ok(eye)
}

/// Runs one move and measures the time from its creation until a watch shows its success.
pub async fn one(client: &Client, eye: &Eye, number: usize) -> Result<Timed> {
    let (pod, node) = next(&eye.now());
    let action: WorkloadAction = fleet::move_pod(NAMESPACE, &format!("move-{number}"), &pod, &node)?;
    let name = action.name_any();
    let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), NAMESPACE);
    let create = PostParams::default();
    let (began, clock) = (Timestamp::now(), Instant::now());
    let made = actions.create(&create, &action);
    let over =
        eye.until("the end of a move", |seen| fleet::ended(seen, &name).map(|(reason, _)| reason == "Succeeded"));
    let (made, succeeded) = tokio::join!(made, over);
    let (ended, millis) = (Timestamp::now(), millis(clock.elapsed()));
    made?;
    if !succeeded? {
        let seen = eye.now();
        anyhow::bail!("{name} did not succeed: {:?}", fleet::ended(&seen, &name));
    }
    calm(eye).await?;
    Ok(Timed { began, ended, millis })
}

/// Returns the oldest replica and a node without a replica.
fn next(seen: &Seen) -> (String, String) {
    let mut pods: Vec<_> = pods_of(seen, APP).collect();
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let node = (0..NODES).map(|index| format!("node-{index}"));
    let free = |node: &String| pods.iter().all(|pod| node_of(pod) != *node);
    (pods.first().map(|pod| pod.name_any()).unwrap_or_default(), node.into_iter().find(free).unwrap_or_default())
}

/// Waits until the workload is at rest and no action has a finalizer.
pub async fn calm(eye: &Eye) -> Result<()> {
    let rest = |seen: &Seen| {
        let pods: Vec<_> = pods_of(seen, APP).collect();
        let free = seen.actions.values().all(|action| action.finalizers().is_empty());
        let counted = seen.deployments.get(APP).and_then(|object| object.status.as_ref());
        let counted = counted.is_some_and(|status| {
            status.ready_replicas == i32::try_from(REPLICAS).ok() && status.replicas == status.ready_replicas
        });
        (pods.len() == REPLICAS && pods.iter().all(|pod| serves(pod)) && free && counted).then_some(())
    };
    eye.until("rest between two moves", rest).await
}

async fn report(bench: &mut Bench, audit: &Audit, unit: f64, moves: &[Timed], bares: &[f64]) -> Result<()> {
    ensure!(!moves.is_empty(), "no moves were measured");
    let ratio = |millis: f64| millis / unit;
    let times: Vec<f64> = moves.iter().map(|one| ratio(one.millis)).collect();
    bench.note("one status write (server-side apply, idle plane)", unit, "ms");
    bench.note("bare protocol, no status: median", ratio(median(bares)), "writes");
    bench.claim("move, create to Succeeded: median", median(&times), "writes", Bound::Below(40.0));
    bench.claim("move, create to Succeeded: p99", quantile(&times, 0.99), "writes", Bound::Below(120.0));
    let (mut own, mut beside) = (Vec::new(), Vec::new());
    let mut counts = Vec::new();
    let mut all: Vec<Request> = Vec::new();
    let from_first = moves.first().map(|one| one.began).unwrap_or_default();
    let to_last = moves.last().map(|one| one.ended).unwrap_or_default();
    let recorded = audit.between(from_first, to_last).await?;
    for (one, following) in moves.iter().zip(moves.iter().skip(1).map(|next| next.began).chain([to_last])) {
        let within = |request: &&Request| {
            let ours = request.by_operator || request.namespace == NAMESPACE;
            ours && request.received >= one.began && request.received <= one.ended
        };
        let during: Vec<&Request> = recorded.iter().filter(within).collect();
        let share = share::share(one.began, one.ended, &during);
        own.push(ratio(share.own));
        beside.push(ratio(share.beside));
        // Includes requests after the end, such as the event and the removal of the finalizer.
        let caused = |request: &&Request| {
            request.by_operator && !request.is_upkeep() && request.received >= one.began && request.received < following
        };
        let mine: Vec<&Request> = recorded.iter().filter(caused).collect();
        counts.push(number(mine.len()));
        all.extend(mine.into_iter().cloned());
    }
    bench.claim("move, the operator's own share: median", median(&own), "writes", Bound::Below(18.0));
    bench.note("  plus its records while it waited for other components", median(&beside), "writes");
    // The operator sends no request for the bare moves between two turns, so the last move of a turn is like the
    // others.
    bench.claim("API requests per move: maximum", quantile(&counts, 1.0), "requests", Bound::AtMost(15.0));
    for (name, count) in tally(all.iter()) {
        bench.note(&format!("  of these: {name}"), number(count) / number(moves.len()), "a move");
    }
    Ok(())
}
