//! Replicas owned by an autoscaler or a Git repository: create and delete yield to the owner; moves do not change the
//! replicas.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::action::{create_on, delete_pod, move_pod, with};
use testkit::kstatus::message;
use testkit::testbed::loops::{SCALES, account, make, on, push, ready, replicas};
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::Story;

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Checks that create and delete yield and name the owner, that a move proceeds, and that a create with Force proceeds,
/// too.
async fn yields(testbed: &Testbed, scene: &Scene, owner: &str) -> Result<()> {
    let ((pod, _), node) = (scene.pod(0), scene.free(0));
    testbed.act("create", create_on(&scene.app, &node)).await?;
    testbed.act("delete", delete_pod(&pod)).await?;
    for name in ["create", "delete"] {
        let action = testbed.ends(name, ("False", "ReplicasOwnedElsewhere")).await?;
        ensure!(
            message(&action).contains(owner) && message(&action).contains("onReplicaOwner"),
            "{}",
            message(&action)
        );
    }
    scene.untouched(testbed).await?;
    testbed.act("move", move_pod(&pod, &node)).await?;
    testbed.ends("move", DONE).await?;
    scene.moved(testbed, &[&pod], &[&node]).await?;
    let scene = scene.again(testbed);
    testbed.act("force", with(create_on(&scene.app, &node), json!({"onReplicaOwner": "Force"}))).await?;
    testbed.ends("force", DONE).await?;
    scene.grown(testbed, &[&node]).await.map(drop)
}

#[test]
fn an_autoscaler() {
    story("owner-hpa", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        // Without metrics, the autoscaler keeps the current number within its bounds.
        let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "boss"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 9,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
        testbed.kubectl(&["create", "-f", "-"], Some(&scaler.to_string())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        yields(testbed, &scene, "HorizontalPodAutoscaler boss").await
    });
}

#[test]
fn a_manager_that_applies() {
    story("owner-apply", async |testbed| {
        let workload = Workload::deployment("web", 3).guarded();
        let scene = Scene::set(testbed, "web", 3, workload.clone()).await?;
        let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=shop-repository", "-f", "-"];
        testbed.kubectl(&apply, Some(&workload.manifest().to_string())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        yields(testbed, &scene, "shop-repository").await
    });
}

/// Manifest of a Deployment as stored in Git, with or without replicas.
fn manifest(workload: &Workload, replicas: bool) -> String {
    let mut manifest = workload.manifest();
    if let Some(spec) = manifest["spec"].as_object_mut().filter(|_| !replicas) {
        spec.remove("replicas");
    }
    manifest.to_string()
}

/// Creates a Deployment by a client-side apply.
async fn applied(testbed: &Testbed, manager: &str, count: usize, replicas: bool) -> Result<Scene> {
    let workload = Workload::deployment("web", count).guarded();
    testbed.kubectl(&["apply", "--field-manager", manager, "-f", "-"], Some(&manifest(&workload, replicas))).await?;
    workload.surround(testbed).await?;
    workload.settle(testbed).await?;
    Ok(Scene { app: "web".to_owned(), replicas: count, tale: Story::begin(&testbed.eye, "web") })
}

/// A loop that scales the Deployment up, and a low sample.
async fn looped(testbed: &Testbed) -> Result<()> {
    account(testbed, SCALES).await?;
    make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
    push(testbed, "web", json!({"cpu": "2"})).await.map(drop)
}

/// kubectl, and Argo CD in its default mode.
#[test]
fn a_client_side_apply_with_replicas() {
    story("owner-client", async |testbed| {
        let scene = applied(testbed, "argocd-controller", 3, true).await?;
        looped(testbed).await?;
        let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
        ensure!(message.contains("belongs to argocd-controller"), "{message}");
        testbed.kubectl(&["delete", "closedloop", "web"], None).await?;
        yields(testbed, &scene, "argocd-controller").await
    });
}

#[test]
fn a_client_side_apply_without_replicas() {
    for manager in ["argocd-controller", "kubectl-client-side-apply"] {
        story(&format!("owner-none-{}", &manager[..4]), async |testbed| {
            let scene = applied(testbed, manager, 1, false).await?;
            let node = scene.free(0);
            testbed.act("create", create_on("web", &node)).await?;
            testbed.ends("create", DONE).await?;
            scene.grown(testbed, &[&node]).await?;
            looped(testbed).await?;
            settled(testbed, "web", 3).await?;
            // Another apply without replicas leaves the number unchanged.
            let again = manifest(&Workload::deployment("web", 1), false);
            testbed.kubectl(&["apply", "--field-manager", manager, "-f", "-"], Some(&again)).await?;
            ensure!(replicas(testbed, "web").await?.1 == 3, "{:?}", replicas(testbed, "web").await?);
            Ok(())
        });
    }
}

/// A user who scales by hand does not own the field.
#[test]
fn a_person() {
    story("owner-person", async |testbed| {
        let workload = Workload::deployment("web", 2);
        let scene = Scene::set(testbed, "web", 2, workload).await?;
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
        settled(testbed, "web", 3).await?;
        let (scene, node) = (Scene { replicas: 3, ..scene.again(testbed) }, scene.free(0));
        testbed.act("more", create_on("web", &node)).await?;
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node]).await.map(drop)
    });
}
