//! Moves without a target: the ReplicaSet creates the new pods and the scheduler places them, so that they equal all
//! other pods of the workload. At no time is a replica missing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use testkit::action::with;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories, story};

use crate::crash::in_many_lives;
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Creates the workload with all its replicas on the first node, which is cordoned then.
async fn on_a_cordoned_node(testbed: &Testbed, nodes: &TestNodes, workload: Workload, app: &str) -> Result<Scene> {
    let home = nodes.names[0].as_str();
    nodes.open_only(&[home]).await?;
    let replicas = workload.manifest()["spec"]["replicas"].as_u64().and_then(|number| usize::try_from(number).ok());
    let scene = Scene::set(testbed, app, replicas.context("no replicas")?, workload.spec(nodes.terms())).await?;
    nodes.open_all().await?;
    nodes.cordon(home).await?;
    Ok(scene)
}

fn off(kind: &str, app: &str, node: &str) -> Value {
    let workload = json!({"apiVersion": "apps/v1", "kind": kind, "name": app});
    json!({"move": {"workload": workload, "from": {"nodeName": node}, "count": "All"}})
}

/// The pods of the workload that do not terminate.
async fn pods(testbed: &Testbed, app: &str) -> Result<Vec<Value>> {
    let text = testbed.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"], None).await?;
    let list: Value = serde_json::from_str(&text)?;
    let all = list["items"].as_array().context("no list of pods")?;
    Ok(all.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).cloned().collect())
}

/// Checks that all first replicas have left, that their successors exist, and that nothing else came or was missing.
async fn all_left(testbed: &Testbed, scene: &Scene) -> Result<()> {
    let verdict = scene.at_rest(testbed, scene.replicas).await?;
    ensure!(verdict.lowest_ready >= scene.replicas, "only {} Ready at some time: {verdict:?}", verdict.lowest_ready);
    let all = (verdict.died.len(), verdict.came.len(), verdict.passing.len());
    ensure!(all == (scene.replicas, scene.replicas, 0), "{verdict:?}");
    ensure!(verdict.replicas == [i32::try_from(scene.replicas)?] && verdict.generations == 1, "{verdict:?}");
    Ok(())
}

/// The budget requires all replicas, so each successor must be available before its old pod leaves.
#[test]
fn all_replicas_leave_a_cordoned_node_under_a_budget_that_requires_all() {
    let workloads = [("Deployment", Workload::deployment("web", 5)), ("ReplicaSet", Workload::replica_set("web", 5))];
    let cases = workloads.map(|(kind, workload)| (format!("successor-{kind}").to_lowercase(), (kind, workload)));
    stories(cases.into(), async |testbed, (kind, workload)| {
        let nodes = testbed.nodes(3, Size::default()).await?;
        let scene = on_a_cordoned_node(testbed, &nodes, workload.clone().guarded(), "web").await?;
        testbed.act("go", off(kind, "web", &nodes.names[0])).await?;
        testbed.ends("go", DONE).await?;
        all_left(testbed, &scene).await?;
        let on_pods = testbed.proxy.writes().into_iter().filter(|write| write.target.starts_with("pods"));
        let on_pods: Vec<(Method, bool)> =
            on_pods.map(|write| (write.method.clone(), write.is_on("pods/eviction"))).collect();
        let of = |wanted: (Method, bool)| on_pods.iter().filter(|one| **one == wanted).count();
        ensure!(of((Method::POST, false)) == 0, "the operator created pods: {on_pods:?}");
        ensure!(of((Method::PATCH, false)) == 5, "one detachment for each replica: {on_pods:?}");
        for pod in pods(testbed, "web").await? {
            ensure!(pod["spec"]["affinity"].is_null(), "the pod is bound to nodes: {}", pod["spec"]["affinity"]);
        }
        Ok(())
    });
}

#[test]
fn a_move_off_a_cordoned_node_killed_at_every_single_write() {
    story("successor-lives", async |testbed| {
        let nodes = testbed.nodes(3, Size::default()).await?;
        let scene = on_a_cordoned_node(testbed, &nodes, Workload::replica_set("web", 2).guarded(), "web").await?;
        in_many_lives(testbed, "go", off("ReplicaSet", "web", &nodes.names[0])).await?;
        testbed.ends("go", DONE).await?;
        all_left(testbed, &scene).await
    });
}

/// Whoever deletes the action, and how: the old pod is not deleted past its budget.
#[test]
fn a_deletion_in_the_foreground_deletes_no_pod() {
    let cases = ["cordoned", "open"].map(|name| (format!("foreground-{name}"), name == "cordoned"));
    stories(cases.into(), async |testbed, is_cordoned| {
        let nodes = testbed.nodes(3, Size::default()).await?;
        let workload = Workload::replica_set("web", 2).budget(json!({"minAvailable": 5}));
        let scene = on_a_cordoned_node(testbed, &nodes, workload, "web").await?;
        if !is_cordoned {
            nodes.open_all().await?;
        }
        // The budget also counts a replacement, whose eviction it can delay for this time.
        let spec = with(off("ReplicaSet", "web", &nodes.names[0]), json!({"timeouts": {"drainSeconds": 3}}));
        testbed.act("go", spec).await?;
        testbed
            .eye
            .until("a new pod that is Ready", |seen| {
                let ready = testkit::verdict::pods_of(seen, "web").filter(|pod| testkit::verdict::serves(pod)).count();
                (ready > 2).then_some(())
            })
            .await?;
        testbed.kubectl(&["delete", "wa", "go", "--cascade=foreground", "--wait=false"], None).await?;
        testbed.eye.until("the end of the action", |seen| (!seen.actions.contains_key("go")).then_some(())).await?;
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.died.is_empty() && verdict.lowest_ready >= 2, "{verdict:?}");
        Ok(())
    });
}

/// Pods in each zone after all have left the node: the pods' own constraint holds, counted without the old pods.
#[test]
fn replicas_that_are_spread_over_zones_stay_spread() {
    story("successor-spread", async |testbed| {
        let nodes = testbed.nodes(4, Size::default()).await?;
        for (node, zone) in nodes.names.iter().zip(["a", "a", "b", "c"]) {
            nodes.label(node, "zone", zone).await?;
        }
        nodes.cordon(&nodes.names[1]).await?;
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
        let workload = Workload::deployment("web", 3).guarded().spec(nodes.terms());
        let scene = Scene::set(testbed, "web", 3, workload.spec(json!({"topologySpreadConstraints": spread}))).await?;
        nodes.open_all().await?;
        nodes.cordon(&nodes.names[0]).await?;
        testbed.act("go", off("Deployment", "web", &nodes.names[0])).await?;
        testbed.ends("go", DONE).await?;
        scene.at_rest(testbed, 3).await?;
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods(testbed, "web").await? {
            *on.entry(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        ensure!(on.len() == 3 && on.values().all(|number| *number == 1), "not one in each zone: {on:?}");
        ensure!(on.contains_key(&nodes.names[1]), "not in the zone that the replica left: {on:?}");
        Ok(())
    });
}
