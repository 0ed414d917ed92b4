//! Swaps of two replicas on nodes with room for both, compared with moves of one of them, in turns on one control
//! plane.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::eye::{Eye, Seen};
use testkit::plane::install::Installed;
use testkit::verdict::{node_of, pods_of, serves};

use crate::fleet;
use crate::frame::{Bench, Bound, Progress, median, millis, operator};

const NODES: usize = 4;
const NAMESPACE: &str = "swaps";
const APPS: [&str; 2] = ["x", "y"];
const TURNS: usize = 30;
/// The first turns are not measured: connections and caches are cold.
const WARM_UP: usize = 3;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane("swap", NODES, &[]).await?;
    Installed::default().install(&cluster).await?;
    fleet::namespace(&cluster.client, NAMESPACE).await?;
    let operator = operator(bench, "swap", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    let eye = Eye::open(&cluster.client, NAMESPACE).await?;
    for app in APPS {
        fleet::service(&cluster.client, NAMESPACE, app).await?;
        fleet::deployment(&cluster.client, NAMESPACE, app, 1).await?;
    }
    let (mut moves, mut swaps) = (Vec::new(), Vec::new());
    let progress = Progress::count("swapping and moving replicas", TURNS);
    for turn in 0..TURNS {
        // After the move, the two pods are on different nodes.
        let [x, y] = at_rest(&eye).await?;
        let free = (0..NODES).map(|index| format!("node-{index}")).find(|node| *node != x.1 && *node != y.1);
        let to = free.context("no free node")?;
        let spec = json!({"move": {"pod": {"name": x.0}, "to": {"nodeName": to}}});
        moves.push(one(&cluster.client, &eye, &format!("move-{turn}"), spec).await?);
        let [x, y] = at_rest(&eye).await?;
        ensure!(x.1 != y.1, "both are on {}", x.1);
        let spec = json!({"swap": {"replica": {"pod": {"name": x.0}}, "with": [{"pod": {"name": y.0}}]}});
        swaps.push(one(&cluster.client, &eye, &format!("swap-{turn}"), spec).await?);
        let [now_x, now_y] = at_rest(&eye).await?;
        ensure!(now_x.1 == y.1 && now_y.1 == x.1, "the replicas did not swap their nodes");
        progress.at(turn + 1);
    }
    progress.end();
    let (moves, swaps) = (median(&moves[WARM_UP..]), median(&swaps[WARM_UP..]));
    bench.note("move of one replica, create to Succeeded: median", moves, "ms");
    bench.note("swap of two replicas with room: median", swaps, "ms");
    bench.claim("swap with room, relative to a move", swaps / moves, "times", Bound::AtMost(1.5));
    operator.stop().await?;
    cluster.down().await
}

/// Runs one action. Returns the milliseconds from its creation until a watch shows its success.
async fn one(client: &Client, eye: &Eye, name: &str, spec: Value) -> Result<f64> {
    let action = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let action: WorkloadAction = serde_json::from_value(action)?;
    let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), NAMESPACE);
    let (clock, create) = (Instant::now(), PostParams::default());
    let over = eye.until("the end of an action", |seen| {
        fleet::ended(seen, name).map(|(reason, words)| (reason.to_owned(), words.to_owned()))
    });
    let (made, over) = tokio::join!(actions.create(&create, &action), over);
    let took = millis(clock.elapsed());
    made?;
    let (reason, message) = over?;
    ensure!(reason == "Succeeded", "{name}: {reason}: {message}");
    Ok(took)
}

/// Waits until both pods serve and no action has a finalizer. Returns name and node of each app's only pod.
async fn at_rest(eye: &Eye) -> Result<[(String, String); 2]> {
    let only = |seen: &Seen, app: &str| {
        let pods: Vec<_> = pods_of(seen, app).collect();
        let [pod] = pods.as_slice() else { return None };
        let counted = seen.deployments.get(app)?.status.as_ref()?;
        let settled = counted.ready_replicas == Some(1) && counted.replicas == Some(1);
        (settled && serves(pod)).then(|| (pod.name_any(), node_of(pod)))
    };
    let rest = |seen: &Seen| {
        let free = seen.actions.values().all(|action| action.finalizers().is_empty());
        free.then_some([only(seen, APPS[0])?, only(seen, APPS[1])?])
    };
    eye.until("rest between two actions", rest).await
}
