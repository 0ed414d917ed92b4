//! Many loops whose values never change the outcome: their cost, and that they write only heartbeats.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::plane::install::Installed;

use super::cost::{self, Meter};
use super::scene;
use crate::frame::{Bench, Bound, Progress, number, operator};
use testkit::plane::audit::{Audit, tally};

const NAMESPACE: &str = "calm";
const LOOPS: usize = 500;

/// Interval of the samples or polls of each loop: the default of a ClosedLoop.
const INTERVAL: Duration = Duration::from_secs(15);

/// Time until every loop has received its first values and written its status.
const SETTLING: Duration = Duration::from_secs(45);

/// Period in which a heartbeat is the only write.
const WINDOW: Duration = Duration::from_mins(5);

/// Lets the operator connect to the server that the polling loops name.
const SETTINGS: &str = "outbound: {allowedNetworks: [127.0.0.0/8]}\n";

/// Source of the loop with this index: pushed samples, a polled document, or a field of its target.
fn source(index: usize, server: SocketAddr) -> Value {
    match index % 3 {
        0 => json!({"push": {}}),
        1 => json!({"http": {"url": format!("http://{server}/{index}"), "path": "load"}}),
        _ => json!({"object": {
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name(index), "path": "spec.replicas",
        }}),
    }
}

fn is_pushed(index: usize) -> bool {
    index.is_multiple_of(3)
}

/// Starts a server that answers every request with a load that changes nothing for the loop.
async fn serve() -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = axum::Router::new().fallback(async || "{\"load\": 20}");
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

fn name(index: usize) -> String {
    format!("loop-{index}")
}

/// A loop whose value never crosses its threshold.
fn calm(index: usize, server: SocketAddr) -> Value {
    let mut spec = scene::demo(&name(index), "Auto");
    spec["trace"] = json!("OnChange");
    spec["interval"] = json!(format!("{}s", INTERVAL.as_secs()));
    spec["metrics"] = json!([{"name": "load", "source": source(index, server), "high": {"raise": "80"}}]);
    spec["policy"] = json!({});
    spec["actions"] = json!([{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 5}}]}]);
    spec
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home("calm")?, false)?;
    let cluster = bench.plane("calm", 1, audit.options()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    let settings = bench.home("calm")?.join("settings.yaml");
    std::fs::write(&settings, SETTINGS)?;
    let options = ["--watch-namespace", NAMESPACE, "--settings", &settings.display().to_string()];
    let operator = operator(bench, "calm", &cluster, &options).await?;
    let idle = cost::idle(&cluster, &operator).await?;
    let server = serve().await?;
    let loops = (0..LOOPS).map(|index| (name(index), calm(index, server))).collect();
    scene::make(&cluster.client, NAMESPACE, loops).await?;
    let senders = tokio::spawn(send_all(cluster.client.clone()));
    let minutes = WINDOW.as_secs() / 60;
    let progress = Progress::spin(&format!("{LOOPS} calm loops, for {minutes} minutes"));
    tokio::time::sleep(SETTLING).await;
    all_well(&cluster.client).await?;
    let (from, meter) = (Timestamp::now(), Meter::start(&cluster, &operator)?);
    tokio::time::sleep(WINDOW).await;
    let (used, to) = (meter.read()?, Timestamp::now());
    progress.end();
    ensure!(!senders.is_finished(), "the samples ended early: {:?}", senders.await);
    senders.abort();
    all_well(&cluster.client).await?;
    let title = format!("{LOOPS} calm loops at {} s", INTERVAL.as_secs());
    let cores = used.operator / used.lasted;
    bench.claim(&format!("{title}: the operator's processor time"), cores, "cores", Bound::Below(0.1));
    let samples = number(LOOPS) * used.lasted / INTERVAL.as_secs_f64();
    bench.note("  API server CPU per sample, pushed or polled", used.server_seconds(idle) * 1e3 / samples, "ms");
    bench.note("  its memory: resident", operator.memory("VmRSS")?, "MiB");
    let requests = audit.between(from, to).await?;
    let mine: Vec<_> = requests.iter().filter(|one| one.by_operator && !one.is_upkeep()).collect();
    let mut each: BTreeMap<&str, usize> = BTreeMap::new();
    for write in mine.iter().filter(|one| one.writes()) {
        *each.entry(write.name.as_str()).or_default() += 1;
    }
    let most = each.values().max().copied().unwrap_or(0);
    bench.claim(
        &format!("  writes of one loop in {minutes} minutes: maximum"),
        number(most),
        "writes",
        Bound::AtMost(1.0),
    );
    for (name, count) in tally(mine.iter().copied()) {
        bench.note(&format!("  of all requests: {name}"), number(count) / number(LOOPS), "a loop");
    }
    operator.stop().await?;
    cluster.down().await
}

/// Checks that the loops do watch: a loop that does not would also be calm.
async fn all_well(client: &Client) -> Result<()> {
    let loops = Api::<ClosedLoop>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?;
    let well = |one: &&ClosedLoop| {
        let conditions = one.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let count = loops.iter().filter(well).count();
    ensure!(count == LOOPS, "only {count} of {LOOPS} calm loops are Ready");
    Ok(())
}

/// Sends samples to all loops with a push source, spread evenly over the interval, until this task is aborted.
async fn send_all(client: Client) -> Result<()> {
    let monitorings: Api<Monitoring> = Api::namespaced(client, NAMESPACE);
    let began = Instant::now();
    let pushed = (0..LOOPS).filter(|index| is_pushed(*index));
    let senders = pushed.map(|index| {
        let monitorings = monitorings.clone();
        let first = began + INTERVAL.mul_f64(number(index) / number(LOOPS));
        async move {
            let mut ticks = tokio::time::interval_at(first.into(), INTERVAL);
            for turn in 0.. {
                ticks.tick().await;
                // The value changes each time, but never crosses the threshold.
                scene::push(&monitorings, &name(index), &json!({"load": (turn % 50).to_string()})).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(senders).await.map(drop)
}
