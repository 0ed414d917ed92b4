//! The stock kube-scheduler places pods on a thousand nodes: without an extender, with the bare handler as its
//! extender, and with a policy.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::placement_policy::PlacementPolicy;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;
use testkit::process::free_port;

use super::objects::{POLICY, policy};
use super::requests;
use crate::TIMEOUT;
use crate::fleet::namespace;
use crate::frame::{Bench, Bound, Progress, default_garbage, median, operator};

pub const PART: &str = "scheduler";

const NODES: usize = 1000;
const PODS: usize = 1500;
const WRITERS: usize = 32;
const ROUNDS: usize = 3;
const PLACE: &str = "bench";

/// Minimum rate of pods with a policy, relative to the bare handler.
const SHARE: f64 = 0.9;

/// The first and the last pods are not timed: the scheduler is starting, or too few pods are left.
const TIMED: std::ops::Range<usize> = PODS / 10..PODS * 9 / 10;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane(PART, NODES, &default_garbage()).await?;
    let mut installed = Installed::default();
    installed.install(&cluster).await?;
    namespace(&cluster.client, PLACE).await?;
    let addresses =
        [SocketAddr::from(([127, 0, 0, 1], free_port()?)), SocketAddr::from(([127, 0, 0, 1], free_port()?))];
    let operator = served(bench, &cluster, addresses[0]).await?;
    let bare = requests::started(addresses[1], 0).await?;
    let urls = [
        None,
        Some(format!("http://{}/null", addresses[1])),
        Some(format!("http://{}/policies/{POLICY}", addresses[0])),
    ];
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (url, rates) in urls.iter().zip(&mut rates) {
            rates.push(round(bench, &cluster, url.as_deref()).await?);
        }
    }
    let [alone, null, ours] = rates.map(|rates| median(&rates));
    bench.claim(
        "stock scheduler, 1,000 nodes: pods/s with a policy, relative to the bare handler",
        ours / null,
        "times",
        Bound::AtLeast(SHARE),
    );
    bench.note("  with a policy", ours, "pods/s");
    bench.note("  with the bare handler", null, "pods/s");
    bench.note("  without an extender", alone, "pods/s");
    bench.note("  with a policy, relative to no extender", ours / alone, "times");
    drop(bare);
    operator.stop().await?;
    cluster.down().await
}

/// Starts the operator, which serves the policy over HTTP; the nodes have usage.
async fn served(bench: &Bench, cluster: &Cluster, address: SocketAddr) -> Result<Operator> {
    let settings = bench.home(PART)?.join("settings.yaml");
    std::fs::write(&settings, "placement: {tls: false}")?;
    let settings = settings.display().to_string();
    let options = ["--settings", &settings, "--extender-bind", &address.to_string()];
    let operator = operator(bench, PART, cluster, &options).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let names: Vec<String> =
        nodes.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    stream::iter(names.iter().enumerate())
        .map(|(at, name)| {
            let annotations = json!({
                "mean-used-cpu": (32_000 * (at * 37 % 100) / 130).to_string(), "std-used-cpu": (300 + at % 2000).to_string(),
                "mean-used-memory": (2_000_000_000_usize * (at * 53 % 100)).to_string(), "std-used-memory": "9000000000",
                "congestion-factor": (at * 31 % 100).to_string(),
            });
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let nodes = nodes.clone();
            async move { nodes.patch(name, &PatchParams::default(), &patch).await.map(drop) }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    let mut object = policy()?;
    object.metadata.resource_version = None;
    object.metadata.uid = None;
    Api::<PlacementPolicy>::all(cluster.client.clone()).create(&PostParams::default(), &object).await?;
    Ok(operator)
}

/// Runs one round. Returns pods per second.
async fn round(bench: &Bench, cluster: &Cluster, url: Option<&str>) -> Result<f64> {
    let progress = Progress::spin(&format!("placing {PODS} pods, extender {}", url.unwrap_or("none")));
    cluster.fault(&["stop", "scheduler"]).await?;
    make(&cluster.client).await?;
    let config = configuration(&bench.home(PART)?, url)?;
    cluster.fault(&["start", "scheduler", "--scheduler-config", &config]).await?;
    let rate = watch(&cluster.client).await?;
    clear(&cluster.client).await?;
    progress.end();
    Ok(rate)
}

/// The shipped configuration, with this address of the extender, or without an extender.
fn configuration(home: &Path, url: Option<&str>) -> Result<String> {
    let shipped = std::fs::read_to_string(testkit::root().join("config/kube-scheduler.yaml"))?;
    let mut config: Value = serde_saphyr::from_str(&shipped)?;
    match url {
        Some(url) => {
            let extender = &mut config["extenders"][0];
            extender["urlPrefix"] = json!(url);
            extender["enableHTTPS"] = json!(false);
            extender.as_object_mut().context("an extender")?.remove("tlsConfig");
        }
        None => drop(config.as_object_mut().context("a configuration")?.remove("extenders")),
    }
    let file = home.join("scheduler.yaml");
    std::fs::write(&file, serde_saphyr::to_string(&config)?)?;
    Ok(file.display().to_string())
}

async fn make(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    stream::iter(0..PODS)
        .map(|at| {
            let requests = json!({"cpu": format!("{}m", 100 + at % 7 * 100), "memory": "128Mi"});
            let pod = json!({
                "metadata": {"name": format!("pod-{at:04}"), "labels": {"app": "bench"}},
                "spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}]},
            });
            let pods = pods.clone();
            async move {
                let pod: Pod = serde_json::from_value(pod)?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

/// Measures how fast the pods are bound, by listing the unbound ones.
async fn watch(client: &Client) -> Result<f64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    let pending = ListParams::default().fields("spec.nodeName=");
    let deadline = Instant::now() + TIMEOUT;
    let mut first = None;
    loop {
        let bound = PODS.saturating_sub(pods.list_metadata(&pending).await?.items.len());
        let now = Instant::now();
        match first {
            None if bound >= TIMED.start => first = Some((now, bound)),
            Some((begun, from)) if bound >= TIMED.end => {
                return Ok((bound - from) as f64 / now.duration_since(begun).as_secs_f64());
            }
            _ => {}
        }
        ensure!(now < deadline, "{bound} of {PODS} pods are placed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn clear(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
    let deadline = Instant::now() + TIMEOUT;
    while !pods.list_metadata(&ListParams::default()).await?.items.is_empty() {
        ensure!(Instant::now() < deadline, "pods are not deleted in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
