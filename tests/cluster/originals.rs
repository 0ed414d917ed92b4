//! Faults in which the original operator fails, if no other file covers them:
//!
//! - killed 10 to 60 ms into a move: `crash::killed_at_any_time`
//! - full, cordoned or unknown node: `stalled::nodes_that_take_no_pod`, `stalled::what_is_not_there`
//! - a budget is ignored: `replacements::a_budget_that_never_allows_ends_the_wait`
//! - replicas written by another client: `foreign`, cases `more` and `fewer`
//! - another pod not Ready: this file, and `scaling::a_delete_waits_while_another_replica_is_not_ready`
//! - five moves at once: `moves::five_actions_move_five_replicas_of_one_workload_at_once`
//! - a pod that does not exist: `stalled::what_is_not_there`
//! - stale hints misplace later pods, or the store is down: this file
//! - the right pod in 20 of 20 cases: this file

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::action::{delete_pod, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::ready;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::workload::{BEHAVIOR, Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::pods_of;

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// The original deletes the wrong pod in 3 of 3 cases.
#[test]
fn a_move_waits_while_another_replica_is_not_ready() {
    story("original-unready", async |testbed| {
        let scene = Scene::set(testbed, "web", 3, Workload::deployment("web", 3)).await?;
        let ((ill, _), (pod, _), node) = (scene.pod(0), scene.pod(1), scene.free(0));
        testbed.patch_pod(&ill, json!({"metadata": {"annotations": {BEHAVIOR: "unready"}}})).await?;
        testbed.act("go", move_pod(&pod, &node)).await?;
        let waits = |seen: &Seen| (ready(seen.actions.get("go")?)? == ("Unknown", "ReplicasNotReady")).then_some(());
        testbed.eye.until("the move to wait for the other replica", waits).await?;
        testbed.patch_pod(&ill, json!({"metadata": {"annotations": {BEHAVIOR: null}}})).await?;
        testbed.ends("go", DONE).await?;
        let verdict = scene.at_rest(testbed, 3).await?;
        ensure!(verdict.died == [pod] && verdict.came.len() == 1 && verdict.came[0].1 == node, "{verdict:?}");
        Ok(())
    });
}

async fn scale(testbed: &Testbed, replicas: usize) -> Result<()> {
    let number = format!("--replicas={replicas}");
    testbed.kubectl(&["scale", "deployment", "web", &number], None).await?;
    settled(testbed, "web", replicas).await
}

/// The original leaves hints that misplace later pods. This operator leaves nothing: pods of a later scale-up are plain
/// pods, after a success and after a rollback.
#[test]
fn later_pods_are_placed_as_ever() {
    story("original-hints", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let node = scene.free(0);
        testbed.act("go", move_pod(&scene.pod(0).0, &node)).await?;
        testbed.ends("go", DONE).await?;
        testbed.act("back", with(move_pod(&scene.pod(1).0, &node), json!({"abort": true}))).await?;
        testbed.ends("back", ("False", "Aborted")).await?;
        let before: Vec<String> = testbed.eye.now().pods.keys().cloned().collect();
        scale(testbed, 6).await?;
        for (name, pod) in testbed.eye.now().pods.iter().filter(|(name, _)| !before.contains(name)) {
            let spec = pod.spec.as_ref();
            ensure!(
                spec.is_some_and(|spec| spec.affinity.is_none()),
                "{name} is pinned: {:?}",
                spec.map(|spec| &spec.affinity)
            );
            let ours: Vec<_> =
                pod.metadata.annotations.iter().flatten().filter(|(key, _)| key.contains("ganglion")).collect();
            ensure!(ours.is_empty(), "{name} has {ours:?}");
        }
        let spec = testbed.eye.now().deployments["web"].spec.clone().unwrap_or_default();
        ensure!(!serde_json::to_string(&spec.template)?.contains("ganglion"), "the template was changed");
        Ok(())
    });
}

/// With the original's store down, ordinary scaling stops. This operator dies at the worst moment, and scaling
/// continues without it.
#[test]
fn ordinary_scaling_goes_on_without_the_operator() {
    story("original-store", async |testbed| {
        let scene = Scene::set(testbed, "web", 3, Workload::deployment("web", 3)).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let taken_in = |write: &testkit::proxy::Write| {
            write.is_on("pods")
                && write.body.pointer("/metadata/ownerReferences/0/kind").is_some_and(|kind| kind == "ReplicaSet")
        };
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, taken_in);
        testbed.act("go", move_pod(&pod, &node)).await?;
        held.reached().await;
        testbed.operator.lock().await.kill();
        held.lose();
        let controlled = |seen: &Seen, want: usize| {
            let of_set = pods_of(seen, "web").filter(|pod| {
                let owners = pod.metadata.owner_references.iter().flatten();
                owners.into_iter().any(|owner| owner.controller == Some(true))
                    && pod.metadata.deletion_timestamp.is_none()
            });
            (of_set.count() == want).then_some(())
        };
        for want in [5, 2, 4] {
            let number = format!("--replicas={want}");
            testbed.kubectl(&["scale", "deployment", "web", &number], None).await?;
            testbed.eye.until(&format!("{want} replicas without the operator"), |seen| controlled(seen, want)).await?;
        }
        testbed.operator.lock().await.start()?;
        testbed.over("go").await?;
        settled(testbed, "web", 4).await
    });
}

/// The original hits the right pod in 12 to 20 of 20 moves, and in 19 of 20 deletes.
#[test]
fn twenty_moves_and_ten_deletes_all_hit_the_right_pod() {
    story("original-twenty", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 4).await?;
        let mut now = scene.again(testbed);
        for round in 0..5 {
            let names: Vec<String> = (0..4).map(|at| format!("move-{round}-{at}")).collect();
            let pods: Vec<String> = now.tale.pods().into_iter().map(|(name, _)| name).collect();
            let nodes: Vec<String> = (0..4).map(|at| now.free(at)).collect();
            for ((name, pod), node) in names.iter().zip(&pods).zip(&nodes) {
                testbed.act(name, move_pod(pod, node)).await?;
            }
            for name in &names {
                testbed.ends(name, DONE).await?;
            }
            let (pods, nodes): (Vec<&str>, Vec<&str>) =
                (pods.iter().map(String::as_str).collect(), nodes.iter().map(String::as_str).collect());
            now.moved(testbed, &pods, &nodes).await?;
            now = now.again(testbed);
        }
        let many = Scene::set(testbed, "many", 11, Workload::deployment("many", 11)).await?;
        let victims: Vec<String> = many.tale.pods().into_iter().take(10).map(|(name, _)| name).collect();
        for (at, victim) in victims.iter().enumerate() {
            testbed.act(&format!("delete-{at}"), delete_pod(victim)).await?;
        }
        for at in 0..victims.len() {
            testbed.ends(&format!("delete-{at}"), DONE).await?;
        }
        let victims: Vec<&str> = victims.iter().map(String::as_str).collect();
        many.shrunk(testbed, &victims).await.map(drop)
    });
}
