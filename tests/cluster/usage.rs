//! Expressions of actions that read the usage of nodes, as a real metrics-server measures it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::action::{action, deployment};
use testkit::block_on;
use testkit::eye::Seen;
use testkit::kstatus::message;
use testkit::plane::Plane;
use testkit::servers::usage::{self, uses};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::verdict::pods_of;

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// A pod on this node with this usage: a node without any pod is not measured.
async fn load(testbed: &Testbed, node: &str, cpu: &str) -> Result<()> {
    let (name, pinned) = (format!("load-{node}"), json!({"nodeSelector": {"kubernetes.io/hostname": node}}));
    Workload::deployment(&name, 1).spec(pinned).make(testbed).await?;
    let pod = pods_of(&testbed.eye.now(), &name).next().context("no pod")?.name_any();
    uses(testbed, &pod, cpu, "64Mi").await
}

/// Output of `ganglion plan` for an action with this spec, and whether the action would start.
async fn planned(testbed: &Testbed, spec: &Value) -> Result<(bool, String)> {
    let manifest = action("asked", spec.clone()).to_string();
    testbed.ganglion_as(&testbed.administrator().await?, &["plan", "-f", "-"], &manifest).await
}

#[test]
fn an_expression_reads_the_usage_that_a_real_metrics_server_measures() {
    // A separate plane, because it registers an API for the whole plane.
    let plane = block_on(Plane::own("where", 3)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "usage-where", async |testbed| {
        let scene = Scene::set(testbed, "web", 1, Workload::deployment("web", 1).guarded()).await?;
        let ((pod, home), nodes) = (scene.pod(0), Api::<Node>::all(testbed.client.clone()));
        let nodes = nodes.list(&ListParams::default()).await?;
        let others: Vec<String> = nodes.iter().map(|node| node.name_any()).filter(|name| *name != home).collect();
        let [busy, calm] = others.as_slice() else { anyhow::bail!("{others:?}") };
        // The source node is busy, too.
        uses(testbed, &pod, "16", "64Mi").await?;
        load(testbed, busy, "16").await?;
        load(testbed, calm, "100m").await?;
        load(testbed, &home, "100m").await?;
        let to = json!({"where": "node.cpu.utilization < 0.2"});
        let spec = json!({"move": {"workload": deployment("web"), "to": to}});

        // Without a metrics server the action waits and says what to do; an action that does not need usage is not
        // blocked.
        testbed.act("go", spec.clone()).await?;
        let waits = |seen: &Seen| {
            let words = message(seen.actions.get("go")?);
            words.contains("does not serve the API metrics.k8s.io").then(|| words.to_owned())
        };
        let words = testbed.eye.until("the action to say that the usage is unknown", waits).await?;
        ensure!(words.starts_with("waiting: ") && words.contains("NodeConfigs measure it, too"), "{words}");
        let (starts, said) = planned(testbed, &spec).await?;
        ensure!(!starts && said.contains("would wait") && said.contains("UsageUnknown"), "{said}");
        let either = json!({"where": format!("node.name == '{busy}' && !has(node.cpu.utilization)")});
        let (starts, said) = planned(testbed, &json!({"move": {"workload": deployment("web"), "to": either}})).await?;
        ensure!(starts, "{said}");

        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        let ended = testbed.ends("go", DONE).await.map_err(|error| error.context(server.log()));
        ended?;
        scene.moved(testbed, &[&pod], &[calm]).await?;
        // A plan reads it once, with the permissions of its user.
        let hot = json!({"where": format!("node.cpu.utilization > 0.4 && node.name == '{busy}'")});
        let (starts, said) = planned(testbed, &json!({"move": {"workload": deployment("web"), "to": hot}})).await?;
        ensure!(starts && said.contains(busy.as_str()), "{said}");

        // The node that the replica has left counts again once it has been measured without the replica.
        let back = json!({"where": format!("node.cpu.utilization < 0.2 && node.name == '{home}'")});
        testbed.act("back", json!({"move": {"workload": deployment("web"), "to": back}})).await?;
        let said =
            format!("waiting: node {home} has not been measured since another action moved a replica from or to it");
        let waits = |seen: &Seen| (message(seen.actions.get("back")?) == said).then_some(());
        testbed.eye.until("the action to wait for a measurement", waits).await?;
        testbed.ends("back", DONE).await?;
        Ok(())
    });
}
