//! The choice of replicas and nodes: all replicas of a node, up to a number, any node with room, preferred nodes first,
//! and many actions that choose at once.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::action::deployment;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::{node_of, pods_of};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Five replicas on the first of these nodes.
async fn crowd(testbed: &Testbed, nodes: &TestNodes) -> Result<Scene> {
    nodes.open_only(&[&nodes.names[0]]).await?;
    let scene = Scene::set(testbed, "web", 5, Workload::deployment("web", 5).guarded().spec(nodes.terms())).await?;
    nodes.open_all().await?;
    Ok(scene)
}

fn off(node: &str) -> Value {
    json!({"move": {"workload": deployment("web"), "from": {"nodeName": node}, "count": "All"}})
}

/// Number of pods of the workload per node.
fn counts(testbed: &Testbed, app: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods_of(&testbed.eye.now(), app) {
        *counts.entry(node_of(pod)).or_default() += 1;
    }
    counts
}

#[test]
fn all_replicas_leave_a_node_and_none_is_left_to_do_again() {
    story("all-leave", async |testbed| {
        let nodes = testbed.nodes(3, Size::default()).await?;
        let scene = crowd(testbed, &nodes).await?;
        let [home, other, third] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        let mut spec = off(home);
        spec["move"]["upTo"] = json!(2);
        testbed.act("two", spec).await?;
        let action = testbed.ends("two", DONE).await?;
        ensure!(action.status.as_ref().is_some_and(|status| status.replicas == Some(2)), "{:?}", action.status);
        let verdict = scene.at_rest(testbed, 5).await?;
        ensure!(verdict.lowest_ready >= 5 && verdict.came.len() == 2, "{verdict:?}");

        testbed.act("all", off(home)).await?;
        testbed.ends("all", DONE).await?;
        let verdict = scene.at_rest(testbed, 5).await?;
        let there = counts(testbed, "web");
        ensure!(!there.contains_key(home) && verdict.lowest_ready >= 5, "{there:?} {verdict:?}");
        ensure!(there.contains_key(other) && there.contains_key(third), "not where there is most room: {there:?}");

        testbed.act("again", off(home)).await?;
        testbed.ends("again", DONE).await?;
        let row = testbed.kubectl(&["get", "wa", "again", "--no-headers"], None).await?;
        ensure!(row.contains("0/0"), "{row}");
        scene.again(testbed).untouched(testbed).await.map(drop)
    });
}

#[test]
fn preferred_nodes_come_first_and_the_next_when_they_are_full() {
    story("preferred", async |testbed| {
        let mut nodes = testbed.nodes(2, Size::default()).await?;
        let small = nodes.join(None, Size { pods: 2, ..Size::default() }).await?;
        nodes.label(&small, "disk", "ssd").await?;
        nodes.label(&nodes.names[1], "rack", "r1").await?;
        let scene = crowd(testbed, &nodes).await?;
        let preferences = json!([{"nodeSelector": {"disk": "ssd"}}, {"where": "'rack' in node.labels"}]);
        let mut spec = off(&nodes.names[0]);
        spec["move"]["to"] = json!({"nodeSelector": {testkit::NODE_OWNER: testbed.ns}, "preferences": preferences});
        testbed.act("go", spec).await?;
        testbed.ends("go", DONE).await?;
        scene.at_rest(testbed, 5).await?;
        let there = counts(testbed, "web");
        let expected = BTreeMap::from([(small, 2), (nodes.names[1].clone(), 3)]);
        ensure!(there == expected, "{there:?} instead of {expected:?}");
        Ok(())
    });
}

/// Each action counts the replicas that the others are moving.
#[test]
fn twenty_actions_at_once_fill_no_node_above_three() {
    story("twenty", async |testbed| {
        let nodes = testbed.nodes(8, Size { pods: 30, ..Size::default() }).await?;
        nodes.open_only(&[&nodes.names[0]]).await?;
        Workload::deployment("web", 20).spec(nodes.terms()).make(testbed).await?;
        nodes.open_all().await?;
        settled(testbed, "web", 20).await?;
        let names: Vec<String> =
            pods_of(&testbed.eye.now(), "web").filter_map(|pod| pod.metadata.name.clone()).collect();
        let to = json!({"where": "node.pods < 3", "nodeSelector": {testkit::NODE_OWNER: testbed.ns}});
        let acts = names.iter().map(|pod| (format!("go-{pod}"), json!({"move": {"pod": {"name": pod}, "to": to}})));
        let acts: Vec<(String, Value)> = acts.collect();
        futures::future::try_join_all(acts.iter().map(|(name, spec)| testbed.act(name, spec.clone()))).await?;
        for (name, _) in &acts {
            testbed.ends(name, DONE).await.with_context(|| name.clone())?;
        }
        settled(testbed, "web", 20).await?;
        let there = counts(testbed, "web");
        ensure!(there.values().all(|count| *count <= 3) && there.len() == 7, "{there:?}");
        Ok(())
    });
}
