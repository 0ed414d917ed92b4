//! Replicas that an autoscaler or a Git repository owns: create and delete leave them alone, moves do not touch them.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::action::{create_on, delete_pod, move_pod, with};
use testkit::kstatus::message;
use testkit::world::workload::Workload;
use testkit::world::{World, story};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Create and delete yield and name the owner; a move goes its way; with Force, a create does, too.
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
        // Without metrics it stands still, between its bounds.
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

/// A person who scales, or applies without server-side apply, owns nothing.
#[test]
fn a_person() {
    story("owner-person", async |world| {
        let workload = Workload::deployment("web", 2);
        let scene = Scene::set(world, "web", 2, workload).await?;
        world.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
        testkit::world::workload::settled(world, "web", 3).await?;
        let (scene, node) = (Scene { replicas: 3, ..scene.again(world) }, scene.free(0));
        world.act("more", create_on("web", &node)).await?;
        world.ends("more", DONE).await?;
        scene.grown(world, &[&node]).await.map(drop)
    });
}
