//! Objects that the schema accepts but the operator cannot parse: each reports that, and no other object is affected.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::action::{action, move_pod, with};
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

/// A time with an invalid offset, which the API server accepts as a `date-time`.
const ODD: &str = "2026-12-01T00:00:00+99:99";

fn closed_loop(name: &str) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": name},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "mode": "DryRun",
            "metrics": [{"name": "load", "source": {"push": {}}, "high": {"raise": "80"}}],
            "actions": [{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 4}}]}],
        },
    })
}

/// Waits until the object is Stalled because it cannot be parsed. Returns it.
async fn is_invalid(testbed: &Testbed, object: &str, field: &str) -> Result<Value> {
    let stalled = r#"--for=jsonpath={.status.conditions[?(@.type=="Stalled")].reason}=InvalidObject"#;
    testbed.kubectl(&["wait", stalled, object, "--timeout=60s"], None).await?;
    let found: Value = serde_json::from_str(&testbed.kubectl(&["get", object, "-o", "json"], None).await?)?;
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready").context("no Ready")?;
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(ready["status"] == "False" && message.contains(field), "{object}: {ready}");
    ensure!(conditions.iter().all(|one| one["type"] != "Reconciling"), "{object}: {conditions:?}");
    ensure!(found["status"]["observedGeneration"] == found["metadata"]["generation"], "{object}: {found}");
    Ok(found)
}

#[test]
fn a_time_that_cannot_be_read_is_refused_when_it_is_applied() {
    story("odd-time", async |testbed| {
        let spec = with(move_pod("web-1", "node-1"), json!({"mode": "Plan", "notAfter": ODD}));
        let refused = testbed.kubectl(&["create", "-f", "-"], Some(&action("odd", spec).to_string())).await;
        let error = format!("{:#}", refused.err().context("it was accepted")?);
        ensure!(error.contains("spec.notAfter"), "{error}");
        Ok(())
    });
}

#[test]
fn an_object_that_cannot_be_read_says_so_and_stops_nobody() {
    story("unreadable", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let plan = |pod: &str| with(move_pod(pod, &scene.free(0)), json!({"mode": "Plan"}));
        testbed.act("odd", plan(&scene.pod(0).0)).await?;
        testbed.ends("odd", ("True", "Planned")).await?;
        testbed.kubectl(&["create", "-f", "-"], Some(&closed_loop("odd").to_string())).await?;
        testbed
            .kubectl(&["wait", "--for=jsonpath={.status.observedGeneration}=1", "loop/odd", "--timeout=60s"], None)
            .await?;
        for (object, status) in [
            ("wa/odd", json!({"status": {"queuedAt": ODD}})),
            ("loop/odd", json!({"status": {"summary": {"decidedAt": ODD}}})),
        ] {
            let patch = ["patch", object, "--subresource=status", "--type=merge", "-p", &status.to_string()];
            testbed.kubectl(&patch, None).await?;
        }
        // The status is not rewritten while nothing changes.
        let before = is_invalid(testbed, "wa/odd", "status.queuedAt").await?;
        is_invalid(testbed, "loop/odd", "status.summary.decidedAt").await?;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let after = is_invalid(testbed, "wa/odd", "status.queuedAt").await?;
        ensure!(before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"], "{before} {after}");

        testbed.kubectl(&["delete", "wa/odd", "loop/odd"], None).await?;
        testbed.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        testbed.ends("go", ("True", "Succeeded")).await?;
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}
