//! Workloads of another kind that owns ReplicaSets: Argo's Rollout, with its real CRD. The test performs what its
//! controller would do with a ReplicaSet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::action::{move_pod, with};
use testkit::kstatus::message;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::Story;

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");
const VERSION: &str = "argoproj.io/v1alpha1";

fn rollout(name: &str) -> Value {
    json!({"apiVersion": VERSION, "kind": "Rollout", "name": name})
}

fn api(testbed: &Testbed) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"));
    Api::namespaced_with(testbed.client.clone(), &testbed.ns, &kind)
}

/// Labels of the pods of a ReplicaSet, as Argo sets them.
fn labels(app: &str, hash: &str) -> Value {
    json!({"app": app, "rollouts-pod-template-hash": hash})
}

fn template(labels: Value) -> Value {
    let container = json!({"name": "main", "image": "registry.example/app:1"});
    json!({"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}})
}

/// Creates a ReplicaSet of the Rollout.
async fn put_set(testbed: &Testbed, name: &str, app: &str, hash: &str, replicas: usize) -> Result<()> {
    let uid = api(testbed).get(app).await?.uid().context("a Rollout without a uid")?;
    let owner = json!({"apiVersion": VERSION, "kind": "Rollout", "name": app, "uid": uid, "controller": true});
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels(app, hash), "ownerReferences": [owner]},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels(app, hash)}, "template": template(labels(app, hash)),
        },
    }))?;
    testbed.api::<ReplicaSet>().create(&PostParams::default(), &set).await?;
    Ok(())
}

/// Creates a Rollout with one ReplicaSet of its name, a Service, and a budget that allows no disruption.
async fn scene(testbed: &Testbed, app: &str, replicas: usize) -> Result<Scene> {
    let manifest: DynamicObject = serde_json::from_value(json!({
        "apiVersion": VERSION, "kind": "Rollout", "metadata": {"name": app},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(json!({"app": app})),
            "strategy": {"canary": {}},
        },
    }))?;
    api(testbed).create(&PostParams::default(), &manifest).await?;
    put_set(testbed, app, app, "h1", replicas).await?;
    Workload::deployment(app, replicas).guarded().surround(testbed).await?;
    settled(testbed, app, replicas).await?;
    Ok(Scene { app: app.to_owned(), replicas, tale: Story::begin(&testbed.eye, app) })
}

/// Acts like Argo's controller: sets the replicas of the ReplicaSet to those of the Rollout, then updates the Rollout's
/// status.
async fn control(testbed: &Testbed, app: &str) -> Result<()> {
    let (rollouts, sets, params) = (api(testbed), testbed.api::<ReplicaSet>(), PatchParams::default());
    loop {
        let known = rollouts.get(app).await?;
        let wanted = known.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let set = sets.get(app).await?;
        if set.spec.and_then(|spec| spec.replicas).map(i64::from) != Some(wanted) {
            sets.patch(app, &params, &Patch::Merge(json!({"spec": {"replicas": wanted}}))).await?;
            // In between, the Rollout's change is visibly unfinished.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let seen = known.metadata.generation.unwrap_or(0).to_string();
        if known.data.pointer("/status/observedGeneration").and_then(Value::as_str) != Some(&seen) {
            let status = json!({"status": {"observedGeneration": seen}});
            rollouts.patch_status(app, &params, &Patch::Merge(status)).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a story while the controller of the Rollout works.
async fn controlled(testbed: &Testbed, app: &str, body: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::select! {
        done = body => done,
        failed = control(testbed, app) => failed,
    }
}

/// Message of the action when it has ended like this.
async fn words_of(testbed: &Testbed, name: &str, how: (&str, &str)) -> Result<String> {
    Ok(message(&*testbed.ends(name, how).await?).to_owned())
}

/// Replicas, generation and ledger of the Rollout.
async fn state(testbed: &Testbed, app: &str) -> Result<(i64, i64, bool)> {
    let known = api(testbed).get(app).await?;
    let replicas = known.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(-1);
    let has_ledger = known.annotations().contains_key(marks::LEDGER);
    Ok((replicas, known.metadata.generation.unwrap_or(0), has_ledger))
}

/// Waits until the Rollout has this state; the ledger is removed after the end of the action.
async fn comes_to(testbed: &Testbed, app: &str, wanted: (i64, i64, bool)) -> Result<()> {
    let look = async {
        while state(testbed, app).await? != wanted {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    let found = tokio::time::timeout(Duration::from_secs(20), look).await;
    ensure!(found.is_ok(), "{:?} instead of {wanted:?}", state(testbed, app).await?);
    Ok(())
}

#[test]
fn a_move_and_a_swap_do_not_touch_the_owner() {
    story("rollout-move", async |testbed| {
        testbed.plane.cluster.install_crds("rollouts").await?;
        let first = scene(testbed, "web", 3).await?;
        let ((pod, node), free) = (first.pod(0), first.free(0));
        // Only Argo's label may be removed: the Service selects by the other one.
        testbed.act("pod", move_pod(&pod, &free)).await?;
        let action = testbed.ends("pod", DONE).await?;
        let slot = &action.status.as_ref().context("no status")?.slots[0];
        ensure!(slot.label == "rollouts-pod-template-hash" && slot.workload.kind == "Rollout", "{slot:?}");
        first.moved(testbed, &[&pod], &[&free]).await?;

        let second = first.again(testbed);
        let moves = json!({"move": {"workload": rollout("web"), "from": {"nodeName": free}, "to": {"nodeName": node}}});
        testbed.act("workload", moves).await?;
        testbed.ends("workload", DONE).await?;
        let gone = second.tale.verdict(&testbed.eye).died;
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        ensure!(gone.len() == 1, "{gone:?}");
        second.moved(testbed, &gone, &[&node]).await?;

        let other = Scene::set(testbed, "other", 1, Workload::deployment("other", 1).guarded()).await?;
        let (there, target) = other.pod(0);
        let third = second.again(testbed);
        let pods = third.tale.pods();
        let (here, home) = pods.iter().find(|(_, node)| *node != target).context("all are on one node")?;
        let pod = |name: &str| json!({"pod": {"name": name}});
        testbed.act("swap", json!({"swap": {"replica": pod(here), "with": [pod(&there)]}})).await?;
        testbed.ends("swap", DONE).await?;
        third.moved(testbed, &[here], &[&target]).await?;
        other.moved(testbed, &[&there], &[home]).await?;
        let state = state(testbed, "web").await?;
        ensure!(state == (3, 1, false), "the Rollout was touched: {state:?}");
        Ok(())
    });
}

#[test]
fn an_application_with_it_leaves_a_node_and_does_not_touch_it() {
    story("rollout-application", async |testbed| {
        testbed.plane.cluster.install_crds("rollouts").await?;
        let scene = scene(testbed, "web", 3).await?;
        let (pod, home) = scene.pod(0);
        let free = scene.free(0);
        let leave = json!({"selector": {"app": "web"}, "from": {"nodeName": home}, "to": {"nodeName": free}});
        testbed.act("go", json!({"moveApplication": leave})).await?;
        let words = words_of(testbed, "go", DONE).await?;
        ensure!(words == "1 of 1 replica of 1 workload moved", "{words}");
        scene.moved(testbed, &[&pod], &[&free]).await?;
        ensure!(state(testbed, "web").await? == (3, 1, false), "the Rollout was touched");
        Ok(())
    });
}

#[test]
fn create_and_delete_change_the_owner_with_the_right_that_an_administrator_gives() {
    story("rollout-scale", async |testbed| {
        testbed.plane.cluster.install_crds("rollouts").await?;
        let first = scene(testbed, "web", 3).await?;
        let told = async {
            let (node, (pod, home)) = (first.free(0), first.pod(0));
            let create = json!({"create": {"workload": rollout("web"), "to": {"nodeName": node}}});
            testbed.act("early", create.clone()).await?;
            let early = words_of(testbed, "early", ("False", "Forbidden")).await?;
            for words in ["cannot get resource \"rollouts\"", "kustomize/components/rollouts"] {
                ensure!(early.contains(words), "{early}");
            }
            let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/kustomize/components/rollouts/rights.yaml");
            testbed.plane.cluster.kubectl(&["apply", "-f", rights], None).await?;
            // A plan reads it with the permissions of its user, the administrator.
            let file = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": "asked"}, "spec": create,
            });
            let (starts, words) =
                testbed.ganglion_as(&testbed.administrator().await?, &["plan", "-f", "-"], &file.to_string()).await?;
            ensure!(starts && words.contains("would start now"), "{words}");

            testbed.act("create", create).await?;
            testbed.ends("create", DONE).await?;
            first.grown(testbed, &[&node]).await?;
            comes_to(testbed, "web", (4, 2, false)).await?;

            let second = Scene { replicas: 4, ..first.again(testbed) };
            testbed.act("by-pod", json!({"delete": {"pod": {"name": pod}}})).await?;
            let by_pod = words_of(testbed, "by-pod", ("False", "NotSupported")).await?;
            ensure!(by_pod.contains("name the workload instead"), "{by_pod}");
            testbed.act("delete", json!({"delete": {"workload": rollout("web"), "from": {"nodeName": home}}})).await?;
            testbed.ends("delete", DONE).await?;
            let gone = second.tale.verdict(&testbed.eye).died;
            ensure!(gone.len() == 1 && second.tale.pods().contains(&(gone[0].clone(), home.clone())), "{gone:?}");
            second.shrunk(testbed, &[&gone[0]]).await?;
            comes_to(testbed, "web", (3, 3, false)).await?;

            let both = json!({"count": 2, "workload": rollout("web")});
            let third = second.again(testbed);
            let third = Scene { replicas: 3, ..third };
            let node = third.free(1);
            testbed.act("two", json!({"create": with(both, json!({"to": {"nodeName": node}}))})).await?;
            testbed.ends("two", DONE).await?;
            third.grown(testbed, &[&node, &node]).await?;
            comes_to(testbed, "web", (5, 5, false)).await?;
            Ok(())
        };
        controlled(testbed, "web", told).await
    });
}

#[test]
fn a_rollout_in_flight_holds_and_what_owns_no_sets_is_refused() {
    story("rollout-flight", async |testbed| {
        testbed.plane.cluster.install_crds("rollouts").await?;
        let scene = scene(testbed, "web", 3).await?;
        put_set(testbed, "web-next", "web", "h2", 1).await?;
        let free = scene.free(0);
        let moves = json!({"move": {"workload": rollout("web"), "to": {"nodeName": free}}});
        testbed.act("held", moves).await?;
        let held = |seen: &testkit::eye::Seen| {
            let words = message(seen.actions.get("held")?);
            (words.contains("a rollout of Rollout web is in flight")).then_some(())
        };
        testbed.eye.until("the move to be held", held).await?;
        let nobody = json!({"move": {"workload": rollout("nobody"), "to": {"nodeName": free}}});
        testbed.act("nobody", nobody).await?;
        let words = words_of(testbed, "nobody", ("False", "WorkloadNotFound")).await?;
        ensure!(words.contains("no ReplicaSet") && words.contains("check its API version, kind and name"), "{words}");
        let none = json!({"move": {"workload": {"apiVersion": "v1", "kind": "Node", "name": "web"}, "to": {"nodeName": free}}});
        testbed.act("none", none).await?;
        let words = words_of(testbed, "none", ("False", "WorkloadNotFound")).await?;
        ensure!(words.contains("without ReplicaSets is not supported"), "{words}");

        let sets = testbed.api::<ReplicaSet>();
        sets.patch("web-next", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
        testbed.ends("held", DONE).await?;
        let verdict = scene.at_rest(testbed, 3).await?;
        ensure!(verdict.died.len() == 1 && verdict.came.len() == 1 && verdict.came[0].1 == free, "{verdict:?}");
        Ok(())
    });
}
