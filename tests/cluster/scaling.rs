//! Successful creates and deletes: exactly the requested additional replicas on these nodes, exactly the requested pods
//! deleted.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::action::{create_on, delete_pod, deployment, replica_set, with};
use testkit::kstatus::ready;
use testkit::testbed::story;
use testkit::testbed::workload::{BEHAVIOR, Workload};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

#[test]
fn a_replica_is_created_on_a_named_node() {
    story("create-one", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let node = scene.free(0);
        testbed.act("more", create_on("web", &node)).await?;
        let action = testbed.ends("more", DONE).await?;
        let verdict = scene.grown(testbed, &[&node]).await?;
        // The new number with the ledger, and the removal of the ledger: annotations increase a Deployment's
        // generation, too.
        ensure!(verdict.generations <= 3, "the Deployment was written more than twice: {verdict:?}");
        let summary = action.status.as_ref().and_then(|status| status.summary.clone()).context("no summary")?;
        ensure!(summary.action == "Create" && summary.to.as_deref() == Some(&node), "{summary:?}");
        Ok(())
    });
}

#[test]
fn two_replicas_are_created_by_one_action() {
    story("create-two", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let node = scene.free(1);
        let spec = json!({"create": {"workload": deployment("web"), "to": {"nodeName": node}, "count": 2}});
        testbed.act("more", spec).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node, &node]).await.map(drop)
    });
}

#[test]
fn a_bare_replica_set_grows_and_shrinks() {
    story("scale-set", async |testbed| {
        let scene = Scene::set(testbed, "web", 2, Workload::replica_set("web", 2)).await?;
        let node = scene.free(0);
        testbed.act("more", json!({"create": {"workload": replica_set("web"), "to": {"nodeName": node}}})).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node]).await?;
        let (old, _) = scene.pod(0);
        let scene = Scene { replicas: 3, ..scene.again(testbed) };
        testbed.act("fewer", delete_pod(&old)).await?;
        testbed.ends("fewer", DONE).await?;
        scene.shrunk(testbed, &[&old]).await.map(drop)
    });
}

#[test]
fn exactly_the_named_pod_is_deleted() {
    story("delete-pod", async |testbed| {
        let scene =
            Scene::set(testbed, "web", 4, Workload::deployment("web", 4).budget(json!({"minAvailable": 3}))).await?;
        // The named pod is deleted, regardless of the ReplicaSet's own order.
        let (pod, _) = scene.pod(2);
        testbed.act("fewer", delete_pod(&pod)).await?;
        testbed.ends("fewer", DONE).await?;
        scene.shrunk(testbed, &[&pod]).await.map(drop)
    });
}

#[test]
fn replicas_are_deleted_from_a_node() {
    story("delete-from", async |testbed| {
        let nodes = testbed.nodes(2, Default::default()).await?;
        nodes.open_only(&[&nodes.names[0]]).await?;
        let workload = Workload::deployment("web", 3).budget(json!({"maxUnavailable": 1})).spec(nodes.terms());
        let scene = Scene::set(testbed, "web", 3, workload).await?;
        nodes.open_all().await?;
        testbed.act("more", create_on("web", &nodes.names[1])).await?;
        testbed.ends("more", DONE).await?;
        let came = scene.grown(testbed, &[&nodes.names[1]]).await?.came[0].0.clone();
        let scene = Scene { replicas: 4, ..scene.again(testbed) };
        let spec = json!({"delete": {"workload": deployment("web"), "from": {"nodeName": nodes.names[1]}}});
        testbed.act("fewer", spec).await?;
        testbed.ends("fewer", DONE).await?;
        scene.shrunk(testbed, &[&came]).await.map(drop)
    });
}

#[test]
fn two_replicas_are_deleted_by_one_action() {
    story("delete-two", async |testbed| {
        let scene = Scene::set(testbed, "web", 4, Workload::deployment("web", 4)).await?;
        testbed.act("fewer", json!({"delete": {"workload": deployment("web"), "count": 2}})).await?;
        let action = testbed.ends("fewer", DONE).await?;
        let slots = action.status.iter().flat_map(|status| &status.slots);
        let victims: Vec<&str> = slots.filter_map(|slot| Some(slot.victim.as_ref()?.name.as_str())).collect();
        ensure!(victims.len() == 2, "{victims:?}");
        scene.shrunk(testbed, &victims).await.map(drop)
    });
}

/// The original always deletes the wrong pod here: a ReplicaSet deletes pods that are not Ready first.
#[test]
fn a_delete_waits_while_another_replica_is_not_ready() {
    story("delete-unready", async |testbed| {
        let scene = Scene::set(testbed, "web", 3, Workload::deployment("web", 3)).await?;
        let ((ill, _), (pod, _)) = (scene.pod(0), scene.pod(1));
        testbed.patch_pod(&ill, json!({"metadata": {"annotations": {BEHAVIOR: "unready"}}})).await?;
        testbed.act("fewer", with(delete_pod(&pod), json!({"timeouts": {"readySeconds": 60}}))).await?;
        let waits = |seen: &testkit::eye::Seen| {
            let action = seen.actions.get("fewer")?;
            (ready(action)? == ("Unknown", "ReplicasNotReady")).then_some(())
        };
        testbed.eye.until("the delete to wait for the other replica", waits).await?;
        ensure!(scene.tale.verdict(&testbed.eye).died.is_empty(), "somebody died");
        testbed.patch_pod(&ill, json!({"metadata": {"annotations": {BEHAVIOR: null}}})).await?;
        testbed.ends("fewer", DONE).await?;
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.died == [pod.clone()] && verdict.came.is_empty(), "{pod} was to die: {verdict:?}");
        Ok(())
    });
}

/// Only the requested change happens: a create does not affect other pods, and actions that change the replicas of one
/// workload run one after the other.
#[test]
fn creates_and_deletes_of_one_workload_run_one_after_the_other() {
    story("scale-queue", async |testbed| -> Result<()> {
        let scene = Scene::set(testbed, "web", 3, Workload::deployment("web", 3)).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("more", create_on("web", &node)).await?;
        testbed.act("fewer", delete_pod(&pod)).await?;
        testbed.act("again", create_on("web", &node)).await?;
        for name in ["more", "fewer", "again"] {
            testbed.ends(name, DONE).await?;
        }
        let verdict = scene.at_rest(testbed, 4).await?;
        let came: Vec<&str> = verdict.came.iter().map(|(_, node)| node.as_str()).collect();
        ensure!(verdict.died == [pod] && came == [&node, &node], "{verdict:?}");
        ensure!(verdict.lowest_ready >= 2 && verdict.replicas.len() == 4, "{verdict:?}");
        Ok(())
    });
}
