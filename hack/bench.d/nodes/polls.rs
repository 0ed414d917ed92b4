//! Many machines over TLS, polled by the operator and by the bare loop at the same time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::node_config::NodeConfig;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::audit::Audit;
use testkit::plane::install::{self, ACCOUNT, Installed};
use testkit::servers::http::Authority;

use super::bare_polls::Targets;
use super::eye::Eye;
use super::machines::{Asked, Machines, Side, address};
use super::still;
use crate::fleet::namespace;
use crate::frame::{Bench, Bound, Progress, default_garbage, number, operator, quantile};

pub const PART: &str = "polls";
pub const INTERVAL: Duration = Duration::from_secs(10);

const MACHINES: usize = 5000;
const NAMESPACE: &str = "operator";
const LOGIN: [&str; 2] = ["root", "a password"];

/// Maximum processor time and memory of a poll, relative to the bare loop.
const TIMES: f64 = 1.5;

/// Processor time of a poll of the WAO operator, without TLS, measured on another day (shared design, baselines), in
/// milliseconds.
const WAO: f64 = 0.085;

/// Time before the measurement, and duration of the measurement. No heartbeat falls into them.
const SETTLING: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_mins(1);

/// At the end, one of this number of machines becomes warmer.
const WARMER: usize = 10;

/// Maximum time until every status shows the warmer temperature.
const SHOWN: Duration = Duration::from_secs(20);

/// Lets the operator connect to machines on loopback.
const SETTINGS: &str = "outbound: {allowedNetworks: [127.0.0.0/8]}\n";

/// One side: its process, and its memory before the first poll, in MiB.
struct Polling {
    side: Side,
    process: Operator,
    before: f64,
}

/// Resources that a side used for its polls.
struct Cost {
    asked: Asked,
    /// Processor time per poll, in milliseconds.
    millis: f64,
    /// Memory per machine, in KiB.
    memory: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home(PART)?, false)?;
    let options: Vec<String> = audit.options().iter().cloned().chain(default_garbage()).collect();
    let cluster = bench.plane(PART, 0, &options).await?;
    Installed::default().install(&cluster).await?;
    still::make(&cluster.client, MACHINES).await?;
    namespace(&cluster.client, NAMESPACE).await?;
    let authority = Authority::of_own_making(2);
    let machines = Machines::start(MACHINES, &authority).await?;
    let progress = Progress::spin(&format!("{MACHINES} machines, polled by the operator and by a bare loop"));
    make(&cluster.client, &machines, &authority).await?;
    let eye = Eye::on(&cluster.client, NAMESPACE);
    let settings = bench.home(PART)?.join("settings.yaml");
    std::fs::write(&settings, SETTINGS)?;
    let options = ["--watch-namespace", NAMESPACE, "--settings", &settings.display().to_string()];
    let process = operator(bench, PART, &cluster, &options).await?;
    eye.until("suspended NodeConfigs", MACHINES, |seen| seen.reported).await?;
    let ours = Polling { side: Side::Operator, before: process.memory("VmRSS")?, process };
    let theirs = bare(bench, &machines, &authority).await?;
    resume(&cluster.client).await?;
    eye.until("the first temperatures", MACHINES, |seen| seen.reported && seen.measured).await?;
    tokio::time::sleep(SETTLING).await;
    for side in [Side::Operator, Side::Bare] {
        ensure!(machines.reached(side) == MACHINES, "{side:?} has reached {} machines", machines.reached(side));
        machines.look(side);
    }
    let (from, began) = (Timestamp::now(), [ours.process.processor_seconds()?, theirs.process.processor_seconds()?]);
    tokio::time::sleep(WINDOW).await;
    let calm = status_writes(&audit, from).await?;
    let costs = [cost(&ours, began[0], &machines)?, cost(&theirs, began[1], &machines)?];
    let from = Timestamp::now();
    machines.warm((0..MACHINES).step_by(WARMER));
    tokio::time::sleep(SHOWN).await;
    let warmer = status_writes(&audit, from).await?;
    progress.end();
    report(bench, &costs, calm, warmer);
    ours.process.stop().await?;
    theirs.process.stop().await?;
    cluster.down().await
}

/// Creates one suspended NodeConfig for each node and machine.
async fn make(client: &Client, machines: &Machines, authority: &Authority) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = json!({
        "metadata": {"name": "bmc"},
        "stringData": {
            "username": LOGIN[0], "password": LOGIN[1], "ca.crt": String::from_utf8(authority.pem())?,
        },
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let binding = json!({
        "metadata": {"name": "ganglion"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ganglion-namespace"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": install::NAMESPACE}],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let nodes = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    ensure!(nodes.items.len() == MACHINES, "{} nodes", nodes.items.len());
    let names: Vec<String> = nodes.items.iter().map(ResourceExt::name_any).collect();
    each(client, names.into_iter().enumerate(), async |api, (machine, node)| {
        let source = json!({
            "type": "Redfish", "endpoint": format!("https://{}:{}", address(machine), machines.port),
            "fetchInterval": format!("{}s", INTERVAL.as_secs()), "basicAuthSecret": {"name": "bmc"},
            "ca": {"secret": {"name": "bmc", "key": "ca.crt"}},
        });
        let object = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": name(machine)},
            "spec": {"nodeName": node, "suspend": true, "metricsCollector": {"inletTemp": source}},
        }))?;
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    })
    .await
}

fn name(machine: usize) -> String {
    format!("machine-{machine}")
}

async fn resume(client: &Client) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"suspend": null}}));
    each(client, 0..MACHINES, async |api, machine| {
        api.patch(&name(machine), &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await
}

async fn each<T>(
    client: &Client,
    all: impl Iterator<Item = T>,
    work: impl AsyncFn(Api<NodeConfig>, T) -> Result<()>,
) -> Result<()> {
    let api = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter(all).map(|one| work(api.clone(), one)).buffer_unordered(super::bare::WRITERS).try_collect().await
}

/// Starts the bare loop; its first poll comes later.
async fn bare(bench: &Bench, machines: &Arc<Machines>, authority: &Authority) -> Result<Polling> {
    let home = bench.home("bare-polls")?;
    let file = home.join("targets.json");
    let [user, password] = LOGIN.map(str::to_owned);
    let certificate = String::from_utf8(authority.pem())?;
    let targets = Targets { count: MACHINES, port: machines.port, certificate, user, password };
    std::fs::write(&file, serde_json::to_vec(&targets)?)?;
    let mut process = Operator::other(std::env::current_exe()?, "bare-polls", &home, "")?;
    process.add_options(&["--targets", &file.display().to_string()]);
    process.start()?;
    process.ready().await?;
    Ok(Polling { side: Side::Bare, before: process.memory("VmRSS")?, process })
}

fn cost(polling: &Polling, began: f64, machines: &Machines) -> Result<Cost> {
    let used = polling.process.processor_seconds()? - began;
    let asked = machines.look(polling.side);
    let memory = (polling.process.memory("VmRSS")? - polling.before) * 1024.0 / number(MACHINES);
    Ok(Cost { millis: used * 1e3 / number(asked.polls.max(1)), asked, memory })
}

async fn status_writes(audit: &Audit, from: Timestamp) -> Result<usize> {
    let requests = audit.between(from, Timestamp::now()).await.context("reading the audit log")?;
    let is_status = |one: &&testkit::plane::audit::Request| one.by_operator && one.resource == "nodeconfigs/status";
    Ok(requests.iter().filter(is_status).count())
}

fn report(bench: &mut Bench, [ours, theirs]: &[Cost; 2], calm: usize, warmer: usize) {
    let title = format!("{MACHINES} machines at {} s over TLS, {} s", INTERVAL.as_secs(), WINDOW.as_secs());
    let title = format!("{title}: processor time per poll: operator, relative to the bare loop");
    bench.claim(&title, ours.millis / theirs.millis, "times", Bound::AtMost(TIMES));
    bench.note("  operator", ours.millis, "ms");
    bench.note("  bare loop", theirs.millis, "ms");
    bench.note("  relative to a poll of the WAO operator (0.085 ms, without TLS)", ours.millis / WAO, "times");
    bench.claim(
        "  memory per machine: operator, relative to the bare loop",
        ours.memory / theirs.memory,
        "times",
        Bound::AtMost(TIMES),
    );
    bench.note("  operator", ours.memory, "KiB");
    bench.note("  bare loop", theirs.memory, "KiB");
    let missed = |cost: &Cost| number(cost.asked.gaps.iter().filter(|gap| **gap > INTERVAL.mul_f64(1.5)).count());
    let gap =
        |cost: &Cost, share| quantile(&cost.asked.gaps.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(), share);
    bench.claim("  intervals missed by the operator", missed(ours), "polls", Bound::AtMost(0.0));
    bench.note("  polls", number(ours.asked.polls), "");
    bench.note("  time between two polls of a machine: p50", gap(ours, 0.5), "s");
    bench.note("  p99", gap(ours, 0.99), "s");
    bench.note("  p99 of the bare loop", gap(theirs, 0.99), "s");
    bench.claim("  status writes while nothing changes", number(calm), "writes", Bound::AtMost(0.0));
    let changed = number(MACHINES / WARMER);
    bench.claim(
        &format!("  status writes for each of {changed} machines that become warmer"),
        number(warmer) / changed,
        "writes",
        Bound::AtMost(1.1),
    );
    bench.claim("  the same, at least", number(warmer) / changed, "writes", Bound::AtLeast(1.0));
}
