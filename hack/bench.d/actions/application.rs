//! Moves an application of 200 replicas in 20 workloads from ten nodes to ten others, and compares that with the same
//! moves as single actions, in alternating turns. Afterwards, a hundred waiting actions must cost nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::eye::{Eye, Seen};
use testkit::plane::audit::Audit;
use testkit::plane::install::Installed;
use testkit::verdict::{Story, node_of, pods_of, serves};

use crate::fleet;
use crate::frame::{Bench, Bound, Progress, median, number, operator};

const NODES: usize = 20;
const DEPLOYMENTS: usize = 20;
const REPLICAS: usize = 10;
const AT_ONCE: usize = 50;
const NAMESPACE: &str = "shop";
const ROUNDS: usize = 3;

/// Maximum time of the application, relative to the time of the single actions.
const SHARE: f64 = 1.3;

const WAITING: usize = 100;
/// Observation time of the waiting actions.
const WATCHED: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);

/// Same limit for both sides: 50 replicas on the move at once, and no other limit.
const SETTINGS: &str = "workloadActions:\n  limits: {inAll: 50, perNamespace: null, perWorkload: null, \
                        perSourceNode: null, perTargetNode: null}\n";

pub async fn run(bench: &mut Bench) -> Result<()> {
    let home = bench.home("application")?;
    let audit = Audit::prepare(&home, false)?;
    let cluster = bench.plane("application", NODES, audit.options()).await?;
    let client = &cluster.client;
    Installed::default().install(&cluster).await?;
    sides(client).await?;
    fleet::deployments(client, &[NAMESPACE.to_owned()], DEPLOYMENTS, REPLICAS).await?;
    uncordon(client).await?;
    let settings = home.join("settings.yaml");
    std::fs::write(&settings, SETTINGS)?;
    let options = ["--settings", &settings.display().to_string(), "--watch-namespace", NAMESPACE].map(str::to_owned);
    let operator = operator(bench, "application", &cluster, &options.each_ref().map(String::as_str)).await?;
    let eye = Eye::open(client, NAMESPACE).await?;
    let (mut together, mut single) = (Vec::new(), Vec::new());
    let mut lowest = REPLICAS;
    for turn in 0..ROUNDS {
        // The application moves to the new nodes and the single actions move back; in the next turn, the directions are
        // swapped.
        let sides = if turn % 2 == 0 { ["old", "new"] } else { ["new", "old"] };
        let stories: Vec<Story> = (0..DEPLOYMENTS).map(|at| Story::begin(&eye, &format!("d-{at}"))).collect();
        together.push(application(client, &eye, turn, sides).await?);
        single.push(singles(client, &eye, turn, sides[0]).await?);
        lowest = stories.iter().map(|story| story.verdict(&eye).lowest_ready).fold(lowest, usize::min);
        // The next turn starts on the other side.
        if turn + 1 < ROUNDS {
            application(client, &eye, turn + 100, sides).await?;
        }
    }
    let (together, single) = (median(&together), median(&single));
    let replicas = DEPLOYMENTS * REPLICAS;
    let name = format!("{replicas} replicas of {DEPLOYMENTS} workloads as one application, {AT_ONCE} at once");
    bench.claim(&format!("{name}, by {replicas} single moves"), together / single, "times", Bound::AtMost(SHARE));
    bench.note("  the application", together, "s");
    bench.note("  the same moves as single actions, same limit", single, "s");
    bench.claim("  lowest number of Ready replicas of a workload", number(lowest), "of 10", Bound::AtLeast(10.0));
    waiting(bench, client, &eye, &audit).await?;
    operator.stop().await?;
    cluster.down().await
}

/// Labels half of the nodes as old and half as new. Pods created next land on the old nodes.
async fn sides(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for at in 0..NODES {
        let (side, closed) = if at < NODES / 2 { ("old", false) } else { ("new", true) };
        let patch = json!({"metadata": {"labels": {"side": side}}, "spec": {"unschedulable": closed}});
        nodes.patch(&format!("node-{at}"), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

async fn uncordon(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for at in NODES / 2..NODES {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": null}}));
        nodes.patch(&format!("node-{at}"), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

fn action(name: &str, spec: &Value) -> Result<WorkloadAction> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    }))?)
}

/// Moves all workloads as one application. Returns the seconds from its creation to its end.
async fn application(client: &Client, eye: &Eye, turn: usize, [from, to]: [&str; 2]) -> Result<f64> {
    let on = |side: &str| json!({"nodeSelector": {"side": side}});
    let asked = json!({"selector": {"fleet": "deployments"}, "from": on(from), "to": on(to), "maxParallel": AT_ONCE});
    let name = format!("application-{turn}");
    let progress = Progress::spin("moving an application");
    let took = timed(client, eye, &[action(&name, &json!({"moveApplication": asked}))?]).await?;
    progress.end();
    let there = |seen: &Seen| seen.pods.values().all(|pod| side_of(pod) == to);
    ensure!(eye.look(there), "not every replica is on the {to} nodes");
    Ok(took)
}

/// Moves each replica back by a separate action.
async fn singles(client: &Client, eye: &Eye, turn: usize, to: &str) -> Result<f64> {
    let spec = |pod: &str| json!({"move": {"pod": {"name": pod}, "to": {"nodeSelector": {"side": to}}}});
    let pods: Vec<String> = eye.look(|seen| seen.pods.keys().cloned().collect());
    let actions: Result<Vec<WorkloadAction>> =
        pods.iter().enumerate().map(|(at, pod)| action(&format!("single-{turn}-{at}"), &spec(pod))).collect();
    let progress = Progress::spin("moving each replica by a separate action");
    let took = timed(client, eye, &actions?).await?;
    progress.end();
    ensure!(
        eye.look(|seen| seen.pods.values().all(|pod| side_of(pod) == to)),
        "not every replica is on the {to} nodes"
    );
    Ok(took)
}

fn side_of(pod: &k8s_openapi::api::core::v1::Pod) -> &'static str {
    let at: usize = node_of(pod).trim_start_matches("node-").parse().unwrap_or(0);
    if at < NODES / 2 { "old" } else { "new" }
}

/// Measures the seconds until these actions have succeeded; then waits until all is at rest.
async fn timed(client: &Client, eye: &Eye, actions: &[WorkloadAction]) -> Result<f64> {
    let clock = Instant::now();
    let names: Vec<String> = actions.iter().map(ResourceExt::name_any).collect();
    let ended = |seen: &Seen| {
        let reasons: Option<Vec<String>> = names
            .iter()
            .map(|name| fleet::ended(seen, name).map(|(reason, words)| format!("{reason}: {words}")))
            .collect();
        reasons
    };
    let (applied, reasons) =
        tokio::join!(fleet::apply_all(client, actions), eye.within(LIMIT, "the end of all", ended));
    let took = clock.elapsed().as_secs_f64();
    applied?;
    let reasons = reasons?;
    let bad = reasons.iter().find(|reason| !reason.starts_with("Succeeded"));
    ensure!(bad.is_none(), "an action ended as {bad:?}");
    let rest = |seen: &Seen| {
        let held = seen.actions.values().any(|action| !action.finalizers().is_empty());
        let whole = seen.pods.len() == DEPLOYMENTS * REPLICAS && seen.pods.values().all(|pod| serves(pod));
        (whole && !held).then_some(())
    };
    eye.within(Duration::from_secs(60), "rest after all moves", rest).await?;
    Ok(took)
}

/// A hundred actions wait for a rollout that never ends, and must send no requests.
async fn waiting(bench: &mut Bench, client: &Client, eye: &Eye, audit: &Audit) -> Result<()> {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let stuck = json!({"spec": {"template": {"spec": {"nodeSelector": {"side": "none"}}}}});
    deployments.patch("d-0", &PatchParams::default(), &Patch::Merge(stuck)).await?;
    let home = eye
        .within(LIMIT, "a rollout that does not end", |seen| {
            let waits = pods_of(seen, "d-0").any(|pod| node_of(pod).is_empty());
            waits.then(|| pods_of(seen, "d-0").map(|pod| node_of(pod)).find(|node| !node.is_empty())).flatten()
        })
        .await?;
    let spec = json!({
        "move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d-0"}, "from": {"nodeName": home}},
        "timeouts": {"queueSeconds": 86_400},
    });
    let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), NAMESPACE);
    for at in 0..WAITING {
        actions.create(&PostParams::default(), &action(&format!("waiting-{at}"), &spec)?).await?;
    }
    let queued = |seen: &Seen| {
        let waits = |action: &WorkloadAction| {
            let conditions = action.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|one| one.type_ == "Reconciling" && one.reason == "RolloutInProgress")
        };
        let waiting =
            seen.actions.iter().filter(|(name, action)| name.starts_with("waiting-") && waits(action)).count();
        (waiting == WAITING).then_some(())
    };
    eye.within(LIMIT, "the reason of every waiting action", queued).await?;
    let progress = Progress::spin("watching waiting actions");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let from = Timestamp::now();
    tokio::time::sleep(WATCHED).await;
    let requests = audit.between(from, Timestamp::now()).await?;
    progress.end();
    let asked: Vec<String> = requests
        .iter()
        .filter(|one| one.by_operator && !one.is_upkeep())
        .map(|one| format!("{} {}", one.verb, one.resource))
        .collect();
    let title = format!("{WAITING} waiting actions, {} s: requests", WATCHED.as_secs());
    bench.claim(&title, number(asked.len()), "requests", Bound::AtMost(0.0));
    if let Some(first) = asked.first() {
        eprintln!("the first request: {first}");
    }
    eye.look(|seen| seen.actions.get("waiting-0").map(drop)).context("a waiting action is gone")
}
