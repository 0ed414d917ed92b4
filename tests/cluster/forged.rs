//! Marks that somebody else wrote: whoever may patch a pod can write the annotations of an action. The operator
//! believes them only where the record of an action confirms them.

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::{move_pod, with};
use testkit::eye::Seen;
use testkit::testbed::{Testbed, story};

use crate::admission::{Right, users};
use crate::scenes::Scene;

/// May patch pods, and nothing else.
const PATCHER: (&str, &[Right]) = ("patcher", &[("", "pods", "get", ""), ("", "pods", "patch", "")]);

/// A pod without an owner, and a budget that protects it.
async fn guarded_pod(testbed: &Testbed, name: &str) -> Result<Pod> {
    let labels = json!({"alone": name});
    let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}});
    testbed.create::<PodDisruptionBudget>(budget).await?;
    let pod = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}], "terminationGracePeriodSeconds": 1},
    });
    testbed.create::<Pod>(pod).await
}

/// Writes the marks of a replacement, as the user.
async fn forge(testbed: &Testbed, pod: &str, slot: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {marks::SLOT: slot, marks::ROLE: marks::ROLE_REPLACEMENT}}});
    let args = ["--as", PATCHER.0, "patch", "pod", pod, "--type=merge", "-p", &patch.to_string()];
    testbed.kubectl(&args, None).await.map(drop)
}

/// Number of events that say that nothing is done with the pod.
async fn warnings(testbed: &Testbed, pod: &str) -> Result<usize> {
    let params = ListParams::default().fields(&format!("involvedObject.name={pod}"));
    let events = testbed.api::<Event>().list(&params).await?;
    Ok(events.iter().filter(|event| event.reason.as_deref() == Some("MarksNotConfirmed")).count())
}

/// Waits for such an event.
async fn is_left_alone(testbed: &Testbed, pod: &str) -> Result<()> {
    let wait = async {
        while warnings(testbed, pod).await? == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        Ok(())
    };
    tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("no event about pod {pod}"))?
}

async fn still_runs(testbed: &Testbed, pod: &Pod) -> Result<()> {
    let now = testbed.api::<Pod>().get(&pod.name_any()).await?;
    ensure!(now.uid() == pod.uid() && now.metadata.deletion_timestamp.is_none(), "{now:?}");
    Ok(())
}

fn slot_of(seen: &Seen, action: &str) -> Option<String> {
    let status: Value = serde_json::to_value(seen.actions.get(action)?.status.as_ref()?).ok()?;
    status["slots"][0]["id"].as_str().map(str::to_owned)
}

#[test]
fn marks_of_a_finished_action_on_other_pods_delete_none() {
    story("forged-ended", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        users(testbed, &[PATCHER]).await?;
        testbed.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        testbed.ends("go", ("True", "Succeeded")).await?;
        let slot = slot_of(&testbed.eye.now(), "go").context("no slot")?;
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await?;

        let alone = guarded_pod(testbed, "alone").await?;
        let other = guarded_pod(testbed, "other").await?;
        forge(testbed, "alone", &slot).await?;
        forge(testbed, "other", "0123456789abcdef").await?;
        forge(testbed, &scene.pod(1).0, &slot).await?;
        // The janitor's first round runs at the start.
        testbed.kill_and_restart().await?;
        is_left_alone(testbed, "alone").await?;
        is_left_alone(testbed, "other").await?;
        still_runs(testbed, &alone).await?;
        still_runs(testbed, &other).await?;
        // The next process finds the same pods. It publishes its events in the order of their names.
        guarded_pod(testbed, "third").await?;
        forge(testbed, "third", &slot).await?;
        testbed.kill_and_restart().await?;
        is_left_alone(testbed, "third").await?;
        for pod in ["alone", "other"] {
            let events = warnings(testbed, pod).await?;
            ensure!(events == 1, "{events} events about pod {pod}");
        }
        testbed.kubectl(&["delete", "pod", "alone", "other", "third"], None).await?;
        // A pod of a ReplicaSet only loses the marks.
        scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await.map(drop)
    });
}

#[test]
fn marks_of_a_running_action_on_other_pods_delete_none() {
    story("forged-running", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        users(testbed, &[PATCHER]).await?;
        let alone = guarded_pod(testbed, "alone").await?;
        let victim = scene.pod(0).0;
        testbed.act("go", with(move_pod(&victim, &scene.free(0)), json!({"stableSeconds": 4}))).await?;
        let slot = testbed.eye.until("a slot", |seen: &Seen| slot_of(seen, "go")).await?;
        forge(testbed, "alone", &slot).await?;
        testbed.ends("go", ("True", "Succeeded")).await?;
        still_runs(testbed, &alone).await?;
        testbed.kubectl(&["delete", "pod", "alone"], None).await?;
        scene.moved(testbed, &[&victim], &[&scene.free(0)]).await.map(drop)
    });
}
