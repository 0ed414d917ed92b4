//! Before there is anything to do, a loop reports whether it could act: its target, and the permissions of its account.

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::testbed::loops::{
    SCALES, account, condition, demo, grant_more, loop_story, make, on, ready, until, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

/// Waits until the preflight has passed. The loop then waits for its first sample.
async fn passes(testbed: &Testbed) -> Result<()> {
    ready(testbed, "web", "True", "Running").await?;
    let found = testbed.api::<ClosedLoop>().get("web").await?.status.unwrap_or_default();
    let preflight = condition(&found.conditions, "Preflight").context("no condition Preflight")?;
    ensure!((preflight.status.as_str(), preflight.reason.as_str()) == ("True", "Passed"), "{preflight:?}");
    Ok(())
}

/// Waits until the preflight has failed for this reason, which Ready and the table must show as well.
async fn fails(testbed: &Testbed, reason: &str, words: &[&str]) -> Result<()> {
    let what = format!("Ready and Preflight to be {reason}: {words:?}");
    until::<ClosedLoop, _>(testbed, "web", &what, |one| {
        let conditions = one.status?.conditions;
        let says = |kind| {
            let one = condition(&conditions, kind)?;
            let all = words.iter().all(|word| one.message.contains(word));
            (one.status == "False" && one.reason == reason && all).then_some(())
        };
        says("Ready").and(says("Preflight"))
    })
    .await?;
    let table = testbed.kubectl(&["get", "loop", "-o", "wide"], None).await?;
    ensure!(words.iter().chain([&reason]).all(|word| table.contains(word)), "{reason} {words:?} is not in\n{table}");
    Ok(())
}

fn in_mode(mode: &str) -> Value {
    let mut spec = demo();
    spec["mode"] = json!(mode);
    spec
}

#[test]
fn a_target_that_is_missing_is_named_in_each_mode_until_it_exists() {
    let cases = ["Auto", "DryRun", "Approve"].map(|mode| (format!("preflight-target-{}", mode.to_lowercase()), mode));
    stories(cases.into(), async |testbed, mode| {
        let story = async || {
            account(testbed, SCALES).await?;
            make(testbed, "web", in_mode(mode)).await?;
            let words = ["rung 1 on Low cpu", "there is no Deployment web", "create it, or correct spec.target"];
            fails(testbed, "TargetNotFound", &words).await?;
            Workload::deployment("web", 1).create(testbed).await?;
            passes(testbed).await
        };
        match story().await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

#[test]
fn a_right_that_is_missing_is_named_until_it_is_granted() {
    loop_story("preflight-right", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, &SCALES[..1]).await?;
        make(testbed, "web", in_mode("DryRun")).await?;
        let words =
            ["grant service account web-loop", "cannot patch resource \"deployments/scale\" in API group \"apps\""];
        fails(testbed, "Forbidden", &words).await?;
        let message = ready(testbed, "web", "False", "Forbidden").await?;
        ensure!(!message.contains("cannot get"), "it may: {message}");
        grant_more(testbed, "scales", &SCALES[1..]).await?;
        passes(testbed).await
    });
}

#[test]
fn replicas_of_somebody_else_are_found_before_the_first_decision() {
    loop_story("preflight-owner", async |testbed| {
        account(testbed, SCALES).await?;
        let labels = json!({"app": "web"});
        let web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]},
            }},
        });
        let apply = ["apply", "--server-side", "--field-manager=flux", "-f", "-"];
        testbed.kubectl(&apply, Some(&web.to_string())).await?;
        make(testbed, "web", in_mode("Approve")).await?;
        fails(testbed, "ReplicasOwnedElsewhere", &["spec.replicas of Deployment web belongs to flux"]).await?;
        let mut left_out = web;
        left_out["spec"].as_object_mut().context("a spec")?.remove("replicas");
        testbed.kubectl(&apply, Some(&left_out.to_string())).await?;
        passes(testbed).await
    });
}

/// Whether the API server resizes pods in place, as Kubernetes does from version 1.33 on.
async fn serves_resizes(testbed: &Testbed) -> Result<bool> {
    Ok(testbed.kubectl(&["get", "--raw", "/api/v1"], None).await?.contains("\"pods/resize\""))
}

#[test]
fn a_kind_that_cannot_be_scaled_and_a_container_that_is_not_there_are_found() {
    loop_story("preflight-unfit", async |testbed| {
        let rights = [
            ("apps", "deployments", "get"),
            ("", "pods", "list"),
            ("", "pods/resize", "patch"),
            ("ganglion.dev", "workloadactions", "create"),
        ];
        account(testbed, &rights).await?;
        let mut spec = demo();
        spec["target"]["kind"] = json!("DaemonSet");
        make(testbed, "web", spec).await?;
        fails(testbed, "NotScalable", &["DaemonSet has no scale subresource"]).await?;
        let mut spec = on("Low", json!([{"workloadAction": {"move": {"to": {"nodeName": "node-1"}}}}]));
        spec["target"]["kind"] = json!("DaemonSet");
        spec["policy"] = Value::Null;
        testbed.patch_loop("web", json!({"spec": spec})).await?;
        fails(testbed, "NotSupported", &["WorkloadActions move replicas", "not of DaemonSet of apps/v1"]).await?;

        Workload::deployment("web", 1).create(testbed).await?;
        let resize = |container: &str| json!([{"resize": {"container": container, "resource": "cpu", "factor": "2", "max": "1", "what": "Requests"}}]);
        let mut spec = on("Low", resize("other"));
        spec["policy"] = Value::Null;
        testbed.patch_loop("web", json!({"spec": spec})).await?;
        match serves_resizes(testbed).await? {
            true => fails(testbed, "NotScalable", &["Deployment/web has no pod that runs a container other"]).await,
            false => fails(testbed, "NotSupported", &["does not serve pods/resize"]).await,
        }
    });
}

#[test]
fn a_resize_is_possible_where_the_api_server_serves_it() {
    loop_story("preflight-resize", async |testbed| {
        Workload::deployment("web", 1).requests(json!({"memory": "256Mi"})).make(testbed).await?;
        let resizes = [("apps", "deployments", "get"), ("", "pods", "list"), ("", "pods/resize", "patch")];
        account(testbed, &resizes).await?;
        let resize = json!({"container": "main", "resource": "memory", "factor": "2", "max": "1Gi"});
        make(testbed, "web", on("Low", json!([{"resize": resize}]))).await?;
        match serves_resizes(testbed).await? {
            true => passes(testbed).await,
            false => fails(testbed, "NotSupported", &["rung 1 on Low", "does not serve pods/resize"]).await,
        }
    });
}

#[test]
fn the_secret_of_a_webhook_is_looked_for_before_the_first_event() {
    loop_story("preflight-webhook", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let auth = json!({"bearer": {"name": "hooks", "key": "token"}});
        let hook = json!([{"webhook": {"url": "https://hooks.example.com/", "auth": auth}}]);
        make(testbed, "web", on("Low", hook)).await?;
        fails(testbed, "Failed", &["rung 1 on Low cpu", "there is no Secret hooks in namespace"]).await?;
        let secret = |key: &str| json!({"metadata": {"name": "hooks"}, "stringData": {key: "open"}});
        testbed.create::<Secret>(secret("other")).await?;
        fails(testbed, "Failed", &["Secret hooks has no key token"]).await?;
        testbed.api::<Secret>().delete("hooks", &DeleteParams::default()).await?;
        testbed.create::<Secret>(secret("token")).await?;
        passes(testbed).await
    });
}
