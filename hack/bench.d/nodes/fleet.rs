//! One template for many nodes, compared with the bare program.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion_api::node_config::NodeConfigTemplate;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::operator::Operator;
use testkit::plane::audit::{Audit, Request};
use testkit::plane::install::Installed;

use super::bare::{Bare, WRITERS};
use super::eye::Eye;
use super::still;
use crate::fleet::namespace;
use crate::frame::{Bench, Bound, Progress, at_rest, default_garbage, median, number, operator};

/// Numbers of nodes.
pub const SIZES: [usize; 4] = [1000, 2000, 4000, 5000];

const OURS: &str = "operator";
const BARE: &str = "bare";

/// Maximum number of nodes with simulated kubelets.
const REPORTING: usize = 1000;

/// Number of rounds through all phases. Fleets without reporting kubelets are so large that one round takes minutes.
fn rounds(reporting: usize) -> usize {
    if reporting > 0 { 3 } else { 1 }
}

/// Maximum time of a phase, relative to the bare program.
const TIME: f64 = 1.5;

/// Maximum writes of the spec, and maximum first writes of the status, per NodeConfig.
const WRITES: f64 = 1.1;

/// Times of the WAO operator for 1,000 nodes, measured on another day (shared design, baselines): create, change, in
/// seconds.
const WAO: [f64; 2] = [48.6, 49.1];

/// Duration of each phase, in seconds.
#[derive(Clone, Copy, Debug)]
struct Phases {
    create: f64,
    change: f64,
    /// From the change until every status covers the new spec.
    reported: f64,
    delete: f64,
}

/// A spec whose sources need no server. The interval distinguishes the versions.
fn spec(interval: &str) -> Value {
    let source = json!({"type": "Fake", "fetchInterval": interval});
    json!({"metricsCollector": {"inletTemp": source, "deltaP": source}})
}

pub async fn run(bench: &mut Bench, part: &str, count: usize) -> Result<()> {
    let audit = Audit::prepare(&bench.home(part)?, false)?;
    let options: Vec<String> = audit.options().iter().cloned().chain(default_garbage()).collect();
    // Small fleets have reporting kubelets, which shows that their heartbeats cost nothing.
    let reporting = if count <= REPORTING { count } else { 0 };
    let cluster = bench.plane(part, reporting, &options).await?;
    Installed::default().install(&cluster).await?;
    still::make(&cluster.client, count - reporting).await?;
    for name in [OURS, BARE] {
        namespace(&cluster.client, name).await?;
    }
    let operator = operator(bench, part, &cluster, &["--watch-namespace", OURS]).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?;
    let bare = Bare::new(&cluster.client, BARE, nodes.items.iter().map(ResourceExt::name_any).collect());
    let (ours, theirs) = (Eye::on(&cluster.client, OURS), Eye::on(&cluster.client, BARE));
    let rounds = rounds(reporting);
    let progress = Progress::count(&format!("{count} nodes: the bare program and the operator in turns"), 2 * rounds);
    let (mut measured, mut beside, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let begun = operator.processor_seconds()?;
    for round in 0..rounds {
        beside.push(bare_round(&bare, &theirs, count).await?);
        progress.at(2 * round + 1);
        let from = Timestamp::now();
        measured.push(our_round(&cluster.client, &ours, count).await?);
        requests.push(audit.between(from, Timestamp::now()).await?);
        progress.at(2 * round + 2);
    }
    let used = operator.processor_seconds()? - begun;
    progress.end();
    report(bench, count, &measured, &beside);
    writes(bench, count, requests.first().context("no round")?);
    let each = used * 1e3 / number(rounds * count);
    bench.note("  operator's processor time per node, all phases", each, "ms");
    if reporting > 0 {
        idle(bench, &audit, &cluster.client, &operator, (&ours, count)).await?;
    }
    bench.note("  memory: at its highest", operator.memory("VmHWM")?, "MiB");
    operator.stop().await?;
    cluster.down().await
}

async fn bare_round(bare: &Bare, eye: &Eye, count: usize) -> Result<Phases> {
    let began = Instant::now();
    bare.make(&spec("1h")).await?;
    eye.until("the bare program's NodeConfigs", count, |seen| seen.reported).await?;
    let create = began.elapsed();
    let began = Instant::now();
    bare.change(&spec("59m")).await?;
    eye.until("their change", count, |seen| seen.interval.as_deref() == Some("59m")).await?;
    let change = began.elapsed();
    let began = Instant::now();
    bare.drop_owner().await?;
    eye.until("their end", 0, |_| true).await?;
    Ok(phases([create, change, change, began.elapsed()]))
}

async fn our_round(client: &Client, eye: &Eye, count: usize) -> Result<Phases> {
    let templates: Api<NodeConfigTemplate> = Api::namespaced(client.clone(), OURS);
    let template = |interval| {
        serde_json::from_value::<NodeConfigTemplate>(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "metadata": {"name": "all"},
            "spec": {"nodeSelector": {}, "template": spec(interval)},
        }))
    };
    let began = Instant::now();
    templates.create(&PostParams::default(), &template("1h")?).await?;
    eye.until("the operator's NodeConfigs", count, |seen| seen.reported).await?;
    let create = began.elapsed();
    let began = Instant::now();
    let patch = Patch::Merge(json!({"spec": {"template": spec("59m")}}));
    templates.patch("all", &PatchParams::default(), &patch).await?;
    eye.until("their change", count, |seen| seen.interval.as_deref() == Some("59m")).await?;
    let change = began.elapsed();
    // The bare program does not write the status after the change.
    eye.until("its statuses", count, |seen| seen.reported).await?;
    let reported = began.elapsed();
    let began = Instant::now();
    templates.delete("all", &DeleteParams::background()).await?;
    eye.until("their end", 0, |_| true).await?;
    Ok(phases([create, change, reported, began.elapsed()]))
}

fn phases(times: [Duration; 4]) -> Phases {
    let [create, change, reported, delete] = times.map(|time| time.as_secs_f64());
    Phases { create, change, reported, delete }
}

fn report(bench: &mut Bench, count: usize, ours: &[Phases], bare: &[Phases]) {
    let of = |all: &[Phases], phase: fn(&Phases) -> f64| median(&all.iter().map(phase).collect::<Vec<_>>());
    type Phase = fn(&Phases) -> f64;
    let phases: [Phase; 3] = [|one| one.create, |one| one.change, |one| one.delete];
    for (index, (name, phase)) in ["all made", "all changed", "all gone"].into_iter().zip(phases).enumerate() {
        let (mine, theirs) = (of(ours, phase), of(bare, phase));
        let rounds = ours.len();
        let title = format!(
            "{count} nodes, {WRITERS} writers, rounds: {rounds}: until {name}: operator, relative to the bare program"
        );
        bench.claim(&title, mine / theirs, "times", Bound::AtMost(TIME));
        bench.note("  operator", mine, "s");
        bench.note("  bare program", theirs, "s");
        bench.note("  operator, per node", mine * 1e3 / number(count), "ms");
        if let Some(wao) = WAO.get(index).filter(|_| count == 1000) {
            bench.note("  relative to the WAO operator (48.6, 49.1 s)", mine / wao, "times");
        }
    }
    bench.note("  until every status covers the changed spec: operator", of(ours, |one| one.reported), "s");
}

/// Counts the writes per NodeConfig over creation, change and deletion.
fn writes(bench: &mut Bench, count: usize, requests: &[Request]) {
    let mut tally: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in requests.iter().filter(|one| one.by_operator && one.resource.starts_with("nodeconfigs")) {
        *tally.entry((one.verb.as_str(), one.resource.as_str())).or_default() += 1;
    }
    let each = |verb, resource| number(tally.get(&(verb, resource)).copied().unwrap_or(0)) / number(count);
    bench.claim("  creations of each", each("create", "nodeconfigs"), "writes", Bound::AtMost(WRITES));
    bench.claim("  changes of the spec of each", each("patch", "nodeconfigs"), "writes", Bound::AtMost(WRITES));
    // One write after the creation, and one after the change.
    bench.claim(
        "  writes of the status of each, divided by 2",
        each("update", "nodeconfigs/status") / 2.0,
        "writes",
        Bound::AtMost(WRITES),
    );
}

/// Nodes report their health, which must not cause writes of NodeConfigs.
async fn idle(
    bench: &mut Bench,
    audit: &Audit,
    client: &Client,
    operator: &Operator,
    (eye, count): (&Eye, usize),
) -> Result<()> {
    let templates: Api<NodeConfigTemplate> = Api::namespaced(client.clone(), OURS);
    let template: NodeConfigTemplate = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "metadata": {"name": "idle"},
        "spec": {"nodeSelector": {}, "template": spec("1h")},
    }))?;
    templates.create(&PostParams::default(), &template).await?;
    eye.until("the idle fleet", count, |seen| seen.reported).await?;
    at_rest(bench, audit, operator, &format!("idle fleet of {count} nodes with heartbeats")).await
}
