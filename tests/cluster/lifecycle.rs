//! Operations on an action besides its effect: plan, suspend, abort, expiry, ttl, deletion.

use std::time::Duration;

use anyhow::{Context, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::action::{action, create_on, delete_pod, deployment, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::{Kstatus, kstatus, message, ready};
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::rest::rest_clean;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

fn shows(name: &'static str, state: (&'static str, &'static str)) -> impl Fn(&Seen) -> Option<()> {
    move |seen| (ready(seen.actions.get(name)?)? == state).then_some(())
}

fn is_eviction(write: &Write) -> bool {
    write.is_on("pods/eviction")
}

#[test]
fn a_plan_writes_nothing_but_its_status() {
    story("plan", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, home), node) = (scene.pod(0), scene.free(0));
        let plan = json!({"mode": "Plan"});
        testbed.act("move", with(move_pod(&pod, &node), plan.clone())).await?;
        testbed.act("create", with(create_on("web", &node), plan.clone())).await?;
        testbed.act("delete", with(delete_pod(&pod), plan)).await?;
        for name in ["move", "create", "delete"] {
            let action = testbed.ends(name, ("True", "Planned")).await?;
            let plan = action.status.as_ref().and_then(|status| status.plan.clone()).context("no plan")?;
            ensure!(
                name == "delete" || plan.nodes.iter().any(|choice| choice.name == node && choice.replicas == 1),
                "{plan:?}"
            );
            ensure!(name == "create" || plan.pods.iter().any(|choice| choice.name == pod && choice.chosen), "{plan:?}");
            ensure!(name != "move" || message(&action).contains(&home), "{}", message(&action));
        }
        let others: Vec<String> = testbed
            .proxy
            .writes()
            .iter()
            .filter(|write| !write.is_on("workloadactions/status"))
            .map(Write::to_string)
            .collect();
        ensure!(others.is_empty(), "a plan wrote {others:?}");
        ensure!(testbed.eye.now().receipts.is_empty(), "a plan left a receipt");
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn a_suspended_action_rests_until_it_may_go_on() {
    story("suspend", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let clocks = json!({"suspend": true, "timeouts": {"queueSeconds": 1, "scheduleSeconds": 1, "readySeconds": 1}});
        testbed.act("go", with(move_pod(&pod, &node), clocks)).await?;
        testbed.eye.until("Suspended", shows("go", ("Unknown", "Suspended"))).await?;
        // Longer than its timeouts, which are paused.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        scene.untouched(testbed).await?;
        testbed.patch_action("go", json!({"spec": {"suspend": false}})).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn suspended_in_the_middle_it_stops_at_a_safe_point() {
    story("suspend-late", async |testbed| {
        let workload = Workload::deployment("web", 3).guarded().annotate("kwok.ganglion.dev/start-delay", "3s");
        let scene = Scene::set(testbed, "web", 3, workload).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        testbed.eye.until("the replacement to be under way", shows("go", ("Unknown", "Readying"))).await?;
        testbed.patch_action("go", json!({"spec": {"suspend": true}})).await?;
        testbed.eye.until("Suspended", shows("go", ("Unknown", "Suspended"))).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let verdict = scene.tale.verdict(&testbed.eye);
        ensure!(verdict.died.is_empty() && verdict.lowest_ready >= 3, "{verdict:?}");
        testbed.patch_action("go", json!({"spec": {"suspend": false}})).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn an_abort_before_the_first_eviction_undoes_everything() {
    story("abort", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("pods") && write.body.pointer("/metadata/labels/pod-template-hash").is_some()
        });
        testbed.act("go", move_pod(&pod, &node)).await?;
        held.reached().await.context("no pod was released")?;
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        held.release();
        let action = testbed.ends("go", ("False", "Aborted")).await?;
        ensure!(kstatus(&action) == Kstatus::Failed, "{:?}", kstatus(&action));
        let verdict = scene.untouched(testbed).await?;
        ensure!(verdict.came.is_empty(), "{verdict:?}");
        Ok(())
    });
}

#[test]
fn an_abort_after_the_first_eviction_changes_nothing() {
    story("abort-late", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let mut held = testbed.proxy.hold(1, HoldPoint::After, is_eviction);
        testbed.act("go", move_pod(&pod, &node)).await?;
        held.reached().await.context("no pod was evicted")?;
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        held.release();
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn an_action_that_is_too_late_expires() {
    story("expire", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let expired = Timestamp::now() - SignedDuration::from_secs(5);
        testbed
            .act("late", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"notAfter": expired.to_string()})))
            .await?;
        testbed.ends("late", ("False", "Expired")).await?;
        let soon = Timestamp::now() + SignedDuration::from_secs(3600);
        testbed
            .act("in-time", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"notAfter": soon.to_string()})))
            .await?;
        testbed.ends("in-time", DONE).await?;
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}

#[test]
fn a_finished_action_goes_after_its_ttl_but_not_where_git_would_bring_it_back() {
    story("ttl", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let spec = |mode: &str| {
            with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"mode": mode, "ttlSecondsAfterFinished": 2}))
        };
        testbed.act("plain", spec("Execute")).await?;
        for (name, place, key, value) in [
            ("argo", "annotations", "argocd.argoproj.io/tracking-id", "shop:ganglion.dev/WorkloadAction:ns/argo"),
            ("argo-label", "labels", "app.kubernetes.io/instance", "shop"),
            ("flux", "labels", "kustomize.toolkit.fluxcd.io/name", "shop"),
            ("helm", "annotations", "meta.helm.sh/release-name", "shop"),
        ] {
            let mut manifest = action(name, spec("Plan"));
            manifest["metadata"][place] = json!({key: value});
            testbed.create::<WorkloadAction>(manifest).await?;
        }
        testbed.ends("plain", DONE).await?;
        let gone = |seen: &Seen| (!seen.actions.contains_key("plain")).then_some(());
        testbed.eye.until("the action to be gone after its ttl", gone).await?;
        ensure!(testbed.eye.now().receipts.len() == 1, "its receipt went with it");
        tokio::time::sleep(Duration::from_millis(2500)).await;
        for name in ["argo", "argo-label", "flux", "helm"] {
            let kept = testbed.eye.now().actions.get(name).cloned().with_context(|| format!("{name} is gone"))?;
            let honored =
                kept.status.iter().flat_map(|status| &status.conditions).find(|one| one.type_ == "TTLHonored");
            ensure!(honored.is_some_and(|one| one.status == "False" && !one.message.is_empty()), "{name}: {honored:?}");
        }
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}

/// Deletes the action while its nth write of this kind is held, then lets the write continue.
async fn delete_held(
    testbed: &Testbed,
    when: HoldPoint,
    which: impl Fn(&Write) -> bool + Send + 'static,
    pod: &str,
    node: &str,
) -> anyhow::Result<()> {
    let mut held = testbed.proxy.hold(1, when, which);
    testbed.act("go", move_pod(pod, node)).await?;
    held.reached().await.context("the write never came")?;
    testbed.api::<WorkloadAction>().delete("go", &DeleteParams::default()).await?;
    let waits =
        |seen: &Seen| seen.actions.get("go").filter(|action| action.metadata.deletion_timestamp.is_some()).map(drop);
    testbed.eye.until("the action to wait for its end", waits).await?;
    held.release();
    testbed.eye.until("the action to be gone", |seen| (!seen.actions.contains_key("go")).then_some(())).await
}

#[test]
fn deleting_a_running_action_rolls_it_back() {
    story("delete-running", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let made = |write: &Write| write.is_on("pods") && write.method == axum::http::Method::POST;
        delete_held(testbed, HoldPoint::After, made, &scene.pod(0).0, &scene.free(0)).await?;
        scene.untouched(testbed).await?;
        ensure!(testbed.eye.now().receipts.is_empty(), "what was undone left a receipt");
        Ok(())
    });
}

#[test]
fn deleting_an_action_after_its_first_eviction_carries_it_through() {
    story("delete-late", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        delete_held(testbed, HoldPoint::After, is_eviction, &pod, &node).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn an_object_at_rest_stands_still() {
    story("quiet", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        testbed.act("done", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        testbed.act("wrong", create_on("nobody", "node-0")).await?;
        testbed.ends("done", DONE).await?;
        testbed.over("wrong").await?;
        rest_clean(testbed).await?;
        let versions = |seen: &Seen| seen.actions.values().map(|action| action.resource_version()).collect::<Vec<_>>();
        let (before, writes) = (versions(&testbed.eye.now()), testbed.proxy.writes().len());
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(versions(&testbed.eye.now()) == before, "an ended action was written");
        let late: Vec<String> = testbed.proxy.writes()[writes..].iter().map(Write::to_string).collect();
        ensure!(late.is_empty(), "an idle operator wrote {late:?}");
        Ok(())
    });
}

#[test]
fn where_nothing_else_works_and_it_is_allowed_the_old_pod_goes_first() {
    story("disrupt", async |testbed| {
        let nodes = testbed.nodes(2, Default::default()).await?;
        // The test needs an anti-affinity that only the end of the old pod would resolve, which cannot be created here.
        // A claim for a whole host is equivalent: no two pods of the app may run on nodes with the same host label.
        for node in &nodes.names {
            nodes.label(node, "host", "one").await?;
        }
        let alone = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"}]}}});
        let scene =
            Scene::set(testbed, "web", 1, Workload::deployment("web", 1).spec(with(nodes.terms(), alone))).await?;
        let (pod, home) = scene.pod(0);
        let node = nodes.names.iter().find(|name| **name != home).context("no other node")?;
        testbed.act("never", move_pod(&pod, node)).await?;
        testbed.ends("never", ("False", "NodeOccupied")).await?;
        scene.untouched(testbed).await?;
        let allowed = json!({"disruption": "Allowed", "timeouts": {"scheduleSeconds": 90}});
        testbed
            .act("allowed", with(json!({"move": {"workload": deployment("web"), "to": {"nodeName": node}}}), allowed))
            .await?;
        testbed.ends("allowed", DONE).await?;
        let verdict = scene.at_rest(testbed, 1).await?;
        ensure!(verdict.died == [pod] && verdict.came.len() == 1 && verdict.came[0].1 == *node, "{verdict:?}");
        ensure!(verdict.replicas == [1], "{verdict:?}");
        Ok(())
    });
}
