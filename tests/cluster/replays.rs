//! `ganglion replay --recorded`: a running loop is replayed on the values of its own decisions.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{SCALES, account, loop_story, make, on, push, travelled};
use testkit::testbed::workload::Workload;

/// Replays a loop with this spec. Returns whether that worked, and the report as one line.
async fn replay(testbed: &Testbed, spec: &Value) -> Result<(bool, String)> {
    let manifest = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": "web"}, "spec": spec,
    });
    let kubeconfig = testbed.administrator().await?;
    let (good, said) = testbed.ganglion_as(&kubeconfig, &["replay", "-", "--recorded"], &manifest.to_string()).await?;
    Ok((good, said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

#[test]
fn a_running_loop_is_replayed_on_the_values_of_its_decisions() {
    loop_story("replay-recorded", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let spec = on("Low", json!([{"scale": {"by": 1, "max": 9}}]));
        make(testbed, "web", spec.clone()).await?;
        let (good, said) = replay(testbed, &spec).await?;
        ensure!(!good && said.contains("has recorded no decision with a value yet"), "{said}");
        for value in ["2", "3"] {
            let time = push(testbed, "web", json!({"cpu": value})).await?;
            travelled(testbed, "web", time).await?;
        }
        let (good, said) = replay(testbed, &spec).await?;
        ensure!(good, "{said}");
        let words = ["the last 2 decisions of web", "1 -> 2 Served", "2 -> 3 Served", "2 decisions, 2 carried out"];
        for part in words {
            ensure!(said.contains(part), "{part:?} is not in: {said}");
        }
        Ok(())
    });
}
