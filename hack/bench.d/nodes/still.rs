//! Nodes that are only objects: no kubelet reports for them. On a small machine, thousands of nodes with simulated
//! kubelets would use up the API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client};
use serde_json::json;

use super::bare::WRITERS;

/// The controller manager considers a silent node lost after fifty seconds, and updates it.
const LOST: Duration = Duration::from_secs(55);

/// Period without any change of a node that ends the wait.
const QUIET: Duration = Duration::from_secs(10);

/// Maximum time until that.
const PATIENCE: Duration = Duration::from_secs(900);

/// Creates this number of nodes, and waits until the controller manager no longer changes them.
pub async fn make(client: &Client, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let began = Instant::now();
    stream::iter(0..count)
        .map(async |index| {
            let node = serde_json::from_value(json!({
                "metadata": {"name": format!("still-{index}"), "labels": {"kubernetes.io/os": "linux"}},
                "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", index / 250, index % 250 + 1)}]},
            }))?;
            nodes.create(&PostParams::default(), &node).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(WRITERS)
        .try_collect::<()>()
        .await?;
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let mut events = watcher(nodes, Config::default()).boxed();
    loop {
        if began.elapsed() > PATIENCE {
            bail!("the controller manager still changes the {count} nodes");
        }
        match tokio::time::timeout(QUIET, events.next()).await {
            Ok(event) => drop(event.context("the watch of nodes ended")??),
            Err(_) if began.elapsed() > LOST + QUIET => return Ok(()),
            Err(_) => {}
        }
    }
}
