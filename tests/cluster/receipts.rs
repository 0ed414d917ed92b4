//! Safe for GitOps: the same action has one effect, however often its manifest is applied.

use anyhow::{Context, ensure};
use ganglion_api::receipt::WorkloadActionReceipt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::action::{action, create_on, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::{Kstatus, kstatus, message, ready};
use testkit::testbed::{Testbed, story};

use crate::scenes::{Scene, quota};

const DONE: (&str, &str) = ("True", "Succeeded");
const AGAIN: (&str, &str) = ("True", "AlreadyExecuted");

/// An action that runs once, even if it is recreated.
fn once(name: &str, spec: Value) -> Value {
    action(name, with(spec, json!({"runPolicy": "Once"})))
}

async fn apply(testbed: &Testbed, manifest: &str) -> anyhow::Result<String> {
    testbed.kubectl(&["apply", "-f", "-"], Some(manifest)).await
}

async fn delete(testbed: &Testbed, name: &str) -> anyhow::Result<()> {
    testbed.kubectl(&["delete", "wa", name], None).await?;
    testbed.eye.until("the action to be gone", |seen: &Seen| (!seen.actions.contains_key(name)).then_some(())).await
}

#[test]
fn applied_again_it_has_no_second_effect() {
    story("receipt", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let node = scene.free(0);
        let manifest = once("more", create_on("web", &node)).to_string();
        apply(testbed, &manifest).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node]).await?;

        let output = apply(testbed, &manifest).await?;
        ensure!(output.contains("unchanged"), "{output}");
        delete(testbed, "more").await?;
        apply(testbed, &manifest).await?;
        let twin = testbed.ends("more", AGAIN).await?;
        ensure!(kstatus(&twin) == Kstatus::Current, "{:?}", kstatus(&twin));
        ensure!(message(&twin).starts_with("nothing was done now: it ran on "), "{}", message(&twin));
        ensure!(message(&twin).contains("WorkloadActionReceipt"), "no advice: {}", message(&twin));
        testbed.kubectl(&["replace", "--force", "-f", "-"], Some(&manifest)).await?;
        testbed.ends("more", AGAIN).await?;
        scene.grown(testbed, &[&node]).await.map(drop)
    });
}

/// Without its receipt, an action could have a second effect, so it does nothing, and says why.
#[test]
fn a_quota_that_allows_no_receipt_is_named() {
    story("receipt-quota", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let kind = "count/workloadactionreceipts.ganglion.dev";
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
            "spec": {"hard": {kind: "0"}}});
        apply(testbed, &quota.to_string()).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        let action = testbed.over("go").await?;
        let (is, reason) = ready(&action).context("no condition")?;
        ensure!(is == "False", "{reason}: {}", message(&action));
        // Before the quota's controller has counted, the API server says that the status of the quota is unknown.
        let names = |words: &str| message(&action).contains(words);
        ensure!(names("quota: none") && names("workloadactionreceipts"), "{reason}: {}", message(&action));
        scene.untouched(testbed).await?;
        // The way out: another quota, and a new action.
        testbed.kubectl(&["delete", "quota", "none"], None).await?;
        testbed.act("again", move_pod(&pod, &node)).await?;
        testbed.ends("again", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn pruned_and_restored_it_has_no_second_effect() {
    story("receipt-prune", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        // Restored by Velero, including its status.
        let mut manifest = action("go", move_pod(&pod, &node));
        manifest["metadata"]["labels"] = json!({"part-of": "shop", "velero.io/restore-name": "night"});
        apply(testbed, &manifest.to_string()).await?;
        testbed.ends("go", DONE).await?;
        // A backup contains the whole object, including its status.
        let backup = testbed.kubectl(&["get", "wa", "go", "-o", "yaml"], None).await?;
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rest", "labels": {"part-of": "shop"}}});
        let prune = [
            "apply",
            "-f",
            "-",
            "--prune",
            "-l",
            "part-of=shop",
            "--prune-allowlist=ganglion.dev/v1alpha1/WorkloadAction",
        ];
        let output = testbed.kubectl(&prune, Some(&other.to_string())).await?;
        ensure!(output.contains("pruned"), "{output}");
        testbed
            .eye
            .until("the action to be gone", |seen: &Seen| (!seen.actions.contains_key("go")).then_some(()))
            .await?;
        let restored: Vec<&str> = backup
            .lines()
            .filter(|line| !line.starts_with("  uid:") && !line.starts_with("  resourceVersion:"))
            .collect();
        testbed.kubectl(&["create", "-f", "-"], Some(&restored.join("\n"))).await?;
        testbed.ends("go", AGAIN).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn by_default_it_runs_for_each_object_that_a_person_made_and_once_for_a_tool() {
    story("receipt-auto", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let node = scene.free(0);
        let by_hand = action("hand", create_on("web", &node)).to_string();
        let mut marked = action("marked", create_on("web", &node));
        marked["metadata"]["annotations"] =
            json!({"argocd.argoproj.io/tracking-id": "shop:ganglion.dev/WorkloadAction"});
        let by_tool = action("tool", create_on("web", &node)).to_string();
        let as_tool = ["apply", "--server-side", "--field-manager=argocd-controller", "-f", "-"];
        let rounds = [DONE, AGAIN];
        for second in rounds {
            apply(testbed, &by_hand).await?;
            testbed.ends("hand", DONE).await?;
            delete(testbed, "hand").await?;
            apply(testbed, &marked.to_string()).await?;
            testbed.ends("marked", second).await?;
            delete(testbed, "marked").await?;
            testbed.kubectl(&as_tool, Some(&by_tool)).await?;
            testbed.ends("tool", second).await?;
            delete(testbed, "tool").await?;
        }
        scene.grown(testbed, &[&node, &node, &node, &node]).await.map(drop)
    });
}

#[test]
fn without_its_receipt_it_runs_once_more() {
    story("receipt-gone", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let node = scene.free(0);
        let manifest = once("more", create_on("web", &node)).to_string();
        apply(testbed, &manifest).await?;
        let done = testbed.ends("more", DONE).await?;
        let receipt = done.status.as_ref().and_then(|status| status.receipt.clone()).unwrap_or_default();
        delete(testbed, "more").await?;
        testbed.api::<WorkloadActionReceipt>().delete(&receipt, &DeleteParams::default()).await?;
        apply(testbed, &manifest).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node, &node]).await.map(drop)
    });
}

#[test]
fn once_per_object_runs_for_each_object() {
    story("receipt-object", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let node = scene.free(0);
        let manifest = action("more", with(create_on("web", &node), json!({"runPolicy": "OncePerObject"}))).to_string();
        for _ in 0..2 {
            apply(testbed, &manifest).await?;
            testbed.ends("more", DONE).await?;
            delete(testbed, "more").await?;
        }
        scene.grown(testbed, &[&node, &node]).await.map(drop)
    });
}

#[test]
fn another_spec_under_the_same_name_is_another_action() {
    story("receipt-other", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let nodes = [scene.free(0), scene.free(1)];
        for node in &nodes {
            apply(testbed, &action("more", create_on("web", node)).to_string()).await?;
            testbed.ends("more", DONE).await?;
            delete(testbed, "more").await?;
        }
        scene.grown(testbed, &[&nodes[0], &nodes[1]]).await.map(drop)
    });
}

#[test]
fn what_was_rolled_back_may_be_tried_again() {
    story("receipt-undone", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        quota(testbed, 2).await?;
        let node = scene.free(0);
        let manifest = action("more", create_on("web", &node)).to_string();
        apply(testbed, &manifest).await?;
        testbed.ends("more", ("False", "PodRefused")).await?;
        scene.untouched(testbed).await?;
        testbed.kubectl(&["delete", "quota", "full"], None).await?;
        delete(testbed, "more").await?;
        apply(testbed, &manifest).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node]).await.map(drop)
    });
}
