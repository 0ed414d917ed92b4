//! Fields owned by an autoscaler or a Git repository: create and delete yield to the owner of the replicas, and moves
//! do not change them; loops leave every field alone that somebody else applies.

use anyhow::{Context, Result, ensure};
use ganglion_api::execution::Execution;
use serde_json::json;
use testkit::action::{create_on, delete_pod, move_pod, with};
use testkit::kstatus::message;
use testkit::testbed::loops::{SCALES, account, loop_story, make, on, push, ready, replicas, until};
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
pub async fn looped(testbed: &Testbed) -> Result<()> {
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

/// Applies the manifest as a tool would: on the server with a manager, or on the client.
async fn apply(testbed: &Testbed, manager: Option<&str>, manifest: &str) -> Result<()> {
    let mut arguments = vec!["apply", "-f", "-"];
    if let Some(manager) = manager {
        arguments.extend(["--server-side", "--force-conflicts", "--field-manager", manager]);
    }
    testbed.kubectl(&arguments, Some(manifest)).await.map(drop)
}

#[test]
fn a_template_that_a_manifest_contains_is_left_alone_unless_forced() {
    loop_story("owner-template", async |testbed| {
        let workload = Workload::deployment("web", 1).requests(json!({"memory": "64Mi"}));
        let resizes = [
            ("apps", "deployments", "get"),
            ("apps", "deployments", "patch"),
            ("", "pods", "list"),
            ("", "pods/resize", "patch"),
        ];
        account(testbed, &resizes).await?;
        let resize = json!({"container": "main", "resource": "memory", "factor": "2", "max": "1Gi", "template": true});
        for (loop_name, manager, owner) in
            [("client", None, "kubectl-client-side-apply"), ("server", Some("argocd-controller"), "argocd-controller")]
        {
            apply(testbed, manager, &workload.manifest().to_string()).await?;
            workload.settle(testbed).await?;
            make(testbed, loop_name, on("Low", json!([{"resize": resize}]))).await?;
            let message = ready(testbed, loop_name, "False", "FieldOwnedElsewhere").await?;
            let field = "spec.template.spec.containers.0.resources.requests.memory of Deployment web belongs to";
            ensure!(message.contains(&format!("{field} {owner}")), "{message}");
            let before = replicas(testbed, "web").await?.0;
            push(testbed, loop_name, json!({"cpu": "2"})).await?;
            until::<Execution, _>(testbed, loop_name, "the refusal", |one| {
                (one.status?.reason?.as_str() == "FieldOwnedElsewhere").then_some(())
            })
            .await?;
            ensure!(replicas(testbed, "web").await?.0 == before, "the Deployment was changed");
            testbed.kubectl(&["delete", "closedloop", loop_name], None).await?;
        }
        make(testbed, "forced", on("Low", json!([{"resize": resize, "onReplicaOwner": "Force"}]))).await?;
        push(testbed, "forced", json!({"cpu": "2"})).await?;
        until::<Execution, _>(testbed, "forced", "the resize", |one| {
            (one.status?.reason?.as_str() == "Done").then_some(())
        })
        .await
    });
}

#[test]
fn an_owner_is_remembered_when_a_person_scales() {
    loop_story("owner-remembered", async |testbed| {
        let workload = Workload::deployment("web", 1);
        let kustomize = Some("kustomize-controller");
        apply(testbed, kustomize, &manifest(&workload, true)).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
        ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=2"], None).await?;
        settled(testbed, "web", 2).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let said = until::<Execution, _>(testbed, "web", "the refusal", |one| {
            let status = one.status?;
            (status.reason?.as_str() == "ReplicasOwnedElsewhere").then_some(status.message?)
        })
        .await?;
        ensure!(said.contains("belongs to kustomize-controller") && said.contains("kubectl has changed it"), "{said}");
        ensure!(replicas(testbed, "web").await?.1 == 2, "it was scaled");
        Ok(())
    });
}

/// Runs the command of a message, which is between backticks: `echo '…' | kubectl …`, or one that opens an editor, in
/// which the replicas are deleted.
pub async fn run_advised(testbed: &Testbed, message: &str) -> Result<()> {
    let command = message.split('`').nth(1).context("a command")?;
    let Some((input, arguments)) = command.rsplit_once(" | kubectl ") else {
        let arguments: Vec<&str> = command.strip_prefix("kubectl ").context("a kubectl command")?.split(' ').collect();
        return testbed.plane.cluster.kubectl_edit(&arguments, "sed -i '/^ *replicas:/d'").await.map(drop);
    };
    let input = input.strip_prefix("echo '").and_then(|input| input.strip_suffix('\'')).context("a quoted text")?;
    let arguments: Vec<&str> = arguments.split(' ').collect();
    testbed.kubectl(&arguments, Some(input)).await.map(drop)
}

#[test]
fn advice_that_is_followed_keeps_the_replicas_and_gives_them_to_the_loop() {
    let cases = [("server", Some("flux")), ("client", None)];
    for (name, manager) in cases {
        loop_story(&format!("owner-advice-{name}"), async |testbed| {
            let workload = Workload::deployment("web", 3);
            apply(testbed, manager, &manifest(&workload, true)).await?;
            workload.settle(testbed).await?;
            account(testbed, SCALES).await?;
            make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
            let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
            let left_out = manifest(&workload, false);
            run_advised(testbed, &message).await?;
            apply(testbed, manager, &left_out).await?;
            ensure!(replicas(testbed, "web").await?.1 == 3, "the replicas were reset");
            push(testbed, "web", json!({"cpu": "2"})).await?;
            settled(testbed, "web", 4).await?;
            apply(testbed, manager, &left_out).await?;
            ensure!(replicas(testbed, "web").await?.1 == 4, "the next apply reset the replicas");
            Ok(())
        });
    }
}
