//! Objects that would fill the memory of the operator: they are refused, or reduced to a condition that says what to
//! do.

use anyhow::{Context, Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::action::{action, move_pod, with};
use testkit::hostile::{self, HostileTenant, becomes};
use testkit::testbed::loops::condition;
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

/// The message of the object in this namespace once it is Stalled for this reason.
async fn stalled(testbed: &Testbed, namespace: &str, object: &str, reason: &str) -> Result<String> {
    let cluster = &testbed.plane.cluster;
    let waited = format!(r#"--for=jsonpath={{.status.conditions[?(@.type=="Stalled")].reason}}={reason}"#);
    cluster.kubectl(&["-n", namespace, "wait", &waited, object, "--timeout=60s"], None).await?;
    let found = cluster.kubectl(&["-n", namespace, "get", object, "-o", "json"], None).await?;
    let found: Value = serde_json::from_str(&found)?;
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready").context("no Ready")?;
    Ok(ready["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn texts_without_a_bound_are_refused() {
    story("large-texts", async |testbed| {
        let long = "a".repeat(1_400_000);
        let from = |selector: Value| json!({"from": {"nodeSelector": selector}, "pod": null});
        let plan = |delete: Value| {
            let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
            json!({"mode": "Plan", "delete": {"workload": workload, "from": delete["from"]}})
        };
        for (name, spec, field) in [
            ("value", plan(from(json!({"a": long}))), "nodeSelector"),
            ("key", plan(from(json!({long.as_str(): "a"}))), "nodeSelector"),
            (
                "time",
                json!({"delete": {"pod": {"name": "p"}}, "notAfter": format!("2026-12-01T00:00:00.{long}Z")}),
                "notAfter",
            ),
        ] {
            let refused = testbed.kubectl(&["create", "-f", "-"], Some(&action(name, spec).to_string())).await;
            let error = format!("{:#}", refused.err().with_context(|| format!("{name} was accepted"))?);
            ensure!(error.contains(field), "{name}: {}", &error[..error.len().min(2000)]);
        }
        Ok(())
    });
}

#[test]
fn an_object_that_is_too_large_says_so_and_is_worked_on_once_it_is_smaller() {
    story("too-large", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let mut large = action("large", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"mode": "Plan"})));
        large["metadata"]["annotations"] = json!({"note": "a".repeat(100 << 10)});
        testbed.kubectl(&["create", "-f", "-"], Some(&large.to_string())).await?;
        let message = stalled(testbed, &testbed.ns, "wa/large", "ObjectTooLarge").await?;
        ensure!(message.contains("at most 64 KiB") && message.contains("annotations"), "{message}");
        // Others are worked on.
        testbed.act("small", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"mode": "Plan"}))).await?;
        testbed.ends("small", ("True", "Planned")).await?;
        testbed.kubectl(&["annotate", "wa/large", "note-"], None).await?;
        let planned = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Planned"#;
        testbed.kubectl(&["wait", planned, "wa/large", "--timeout=60s"], None).await.map(drop)
    });
}

/// Number of objects that fill the namespace, and the size of their annotation: together more than the smallest limit.
const FILLING: usize = 24;
const NOTE: usize = 50 << 10;

/// Reason of the action's Ready condition.
async fn reason(tenant: &HostileTenant, name: &str) -> Result<Option<String>> {
    let status = tenant.api::<WorkloadAction>().get(name).await?.status.unwrap_or_default();
    Ok(condition(&status.conditions, "Ready").map(|ready| ready.reason))
}

#[test]
fn a_full_namespace_affects_no_other_and_is_worked_on_once_there_is_room() {
    story("full", async |testbed| {
        let tenant = HostileTenant::open(&testbed.plane.cluster, &format!("{}-hostile", testbed.ns)).await?;
        testbed.watch_too(&tenant.ns).await;
        testbed.settings("objects: {maxBytesPerNamespace: 1048576, maxBytesInAll: 8388608}")?;
        testbed.kill_and_restart().await?;
        tenant.workload().await?;
        let names: Vec<String> = (0..FILLING).map(|number| format!("fill-{number:02}")).collect();
        for name in &names {
            let mut action = hostile::waiting_action();
            action["metadata"] = json!({"name": name, "annotations": {"note": "a".repeat(NOTE)}});
            tenant.create::<WorkloadAction>(name, action).await?;
        }
        let (first, last) = (&names[0], &names[FILLING - 1]);
        let message = stalled(testbed, &tenant.ns, &format!("wa/{last}"), "NamespaceFull").await?;
        ensure!(message.contains("occupy 1 MiB") && message.contains("objects.maxBytesPerNamespace"), "{message}");
        let worked_on = becomes("a reason of the first action", async || reason(&tenant, first).await).await?;
        ensure!(worked_on != "NamespaceFull", "nothing is worked on");

        let scene = Scene::guarded(testbed, "web", 2).await?;
        testbed.act("other", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"mode": "Plan"}))).await?;
        testbed.ends("other", ("True", "Planned")).await?;

        for name in &names[..FILLING - 1] {
            tenant.api::<WorkloadAction>().delete(name, &DeleteParams::default()).await?;
        }
        becomes("work on the last action", async || Ok(reason(&tenant, last).await?.filter(|now| *now == worked_on)))
            .await?;
        tenant.api::<WorkloadAction>().delete(last, &DeleteParams::default()).await?;
        becomes("the end of the actions", async || {
            Ok(tenant.api::<WorkloadAction>().get_opt(last).await?.is_none().then_some(()))
        })
        .await?;
        Api::<Namespace>::all(testbed.client.clone()).delete(&tenant.ns, &DeleteParams::default()).await?;
        Ok(())
    });
}
