//! Objects that would fill the memory of the operator: they are refused, or reduced to a condition that says what to
//! do.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::action::{action, move_pod, with};
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

/// The message of the object once it is Stalled for this reason.
async fn stalled(testbed: &Testbed, object: &str, reason: &str) -> Result<String> {
    let waited = format!(r#"--for=jsonpath={{.status.conditions[?(@.type=="Stalled")].reason}}={reason}"#);
    testbed.kubectl(&["wait", &waited, object, "--timeout=60s"], None).await?;
    let found: Value = serde_json::from_str(&testbed.kubectl(&["get", object, "-o", "json"], None).await?)?;
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
        let message = stalled(testbed, "wa/large", "ObjectTooLarge").await?;
        ensure!(message.contains("at most 64 KiB") && message.contains("annotations"), "{message}");
        // Others are worked on.
        testbed.act("small", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"mode": "Plan"}))).await?;
        testbed.ends("small", ("True", "Planned")).await?;
        testbed.kubectl(&["annotate", "wa/large", "note-"], None).await?;
        let planned = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Planned"#;
        testbed.kubectl(&["wait", planned, "wa/large", "--timeout=60s"], None).await.map(drop)
    });
}
