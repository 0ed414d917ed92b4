//! Replicas owned by an autoscaler or a Git repository: create and delete yield to the owner; moves do not change the
//! replicas.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::action::{create_on, delete_pod, move_pod, with};
use testkit::kstatus::message;
use testkit::verdict::Story;
use testkit::world::loops::{SCALES, account, make, on, push, ready, replicas};
use testkit::world::workload::{Workload, settled};
use testkit::world::{World, story};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Checks that create and delete yield and name the owner, that a move proceeds, and that a create with Force proceeds,
/// too.
async fn yields(world: &World, scene: &Scene, owner: &str) -> Result<()> {
    let ((pod, _), node) = (scene.pod(0), scene.free(0));
    world.act("create", create_on(&scene.app, &node)).await?;
    world.act("delete", delete_pod(&pod)).await?;
    for name in ["create", "delete"] {
        let action = world.ends(name, ("False", "ReplicasOwnedElsewhere")).await?;
        ensure!(
            message(&action).contains(owner) && message(&action).contains("onReplicaOwner"),
            "{}",
            message(&action)
        );
    }
    scene.untouched(world).await?;
    world.act("move", move_pod(&pod, &node)).await?;
    world.ends("move", DONE).await?;
    scene.moved(world, &[&pod], &[&node]).await?;
    let scene = scene.again(world);
    world.act("force", with(create_on(&scene.app, &node), json!({"onReplicaOwner": "Force"}))).await?;
    world.ends("force", DONE).await?;
    scene.grown(world, &[&node]).await.map(drop)
}

#[test]
fn an_autoscaler() {
    story("owner-hpa", async |world| {
        let scene = Scene::guarded(world, "web", 3).await?;
        // Without metrics, the autoscaler keeps the current number within its bounds.
        let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "boss"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 9,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
        world.kubectl(&["create", "-f", "-"], Some(&scaler.to_string())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        yields(world, &scene, "HorizontalPodAutoscaler boss").await
    });
}

#[test]
fn a_manager_that_applies() {
    story("owner-apply", async |world| {
        let workload = Workload::deployment("web", 3).guarded();
        let scene = Scene::set(world, "web", 3, workload.clone()).await?;
        let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=shop-repository", "-f", "-"];
        world.kubectl(&apply, Some(&workload.manifest().to_string())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        yields(world, &scene, "shop-repository").await
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
async fn applied(world: &World, manager: &str, count: usize, replicas: bool) -> Result<Scene> {
    let workload = Workload::deployment("web", count).guarded();
    world.kubectl(&["apply", "--field-manager", manager, "-f", "-"], Some(&manifest(&workload, replicas))).await?;
    workload.surround(world).await?;
    workload.settle(world).await?;
    Ok(Scene { app: "web".to_owned(), replicas: count, tale: Story::begin(&world.eye, "web") })
}

/// A loop that scales the Deployment up, and a low sample.
async fn looped(world: &World) -> Result<()> {
    account(world, SCALES).await?;
    make(world, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
    push(world, "web", json!({"cpu": "2"})).await.map(drop)
}

/// kubectl, and Argo CD in its default mode.
#[test]
fn a_client_side_apply_with_replicas() {
    story("owner-client", async |world| {
        let scene = applied(world, "argocd-controller", 3, true).await?;
        looped(world).await?;
        let message = ready(world, "web", "False", "ReplicasOwnedElsewhere").await?;
        ensure!(message.contains("belongs to argocd-controller"), "{message}");
        world.kubectl(&["delete", "closedloop", "web"], None).await?;
        yields(world, &scene, "argocd-controller").await
    });
}

#[test]
fn a_client_side_apply_without_replicas() {
    for manager in ["argocd-controller", "kubectl-client-side-apply"] {
        story(&format!("owner-none-{}", &manager[..4]), async |world| {
            let scene = applied(world, manager, 1, false).await?;
            let node = scene.free(0);
            world.act("create", create_on("web", &node)).await?;
            world.ends("create", DONE).await?;
            scene.grown(world, &[&node]).await?;
            looped(world).await?;
            settled(world, "web", 3).await?;
            // Another apply without replicas leaves the number unchanged.
            let again = manifest(&Workload::deployment("web", 1), false);
            world.kubectl(&["apply", "--field-manager", manager, "-f", "-"], Some(&again)).await?;
            ensure!(replicas(world, "web").await?.1 == 3, "{:?}", replicas(world, "web").await?);
            Ok(())
        });
    }
}

/// A user who scales by hand does not own the field.
#[test]
fn a_person() {
    story("owner-person", async |world| {
        let workload = Workload::deployment("web", 2);
        let scene = Scene::set(world, "web", 2, workload).await?;
        world.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
        settled(world, "web", 3).await?;
        let (scene, node) = (Scene { replicas: 3, ..scene.again(world) }, scene.free(0));
        world.act("more", create_on("web", &node)).await?;
        world.ends("more", DONE).await?;
        scene.grown(world, &[&node]).await.map(drop)
    });
}
