//! Replacements that do not start: never Ready, crashing, unschedulable, rejected. The workload is unchanged
//! afterwards, and the action reports the reason.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::action::{create_on, delete_pod, deployment, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::{message, ready};
use testkit::proxy::gate::When;
use testkit::verdict::{APP, Story};
use testkit::world::workload::Workload;
use testkit::world::{World, story};

use crate::scenes::{Scene, quota, quota_counts};

const DONE: (&str, &str) = ("True", "Succeeded");

/// A move and a create, each of a workload whose new pods have this behavior. Both must end with this reason, and be
/// undone.
async fn both_fail(world: &World, behavior: &str, reason: &str) -> Result<()> {
    let make = async |app: String| {
        let workload = Workload::deployment(&app, 2).guarded().replacements(behavior);
        Scene::set(world, &app, 2, workload).await
    };
    let (moves, grows) = (make(format!("{behavior}-move")).await?, make(format!("{behavior}-create")).await?);
    let short = json!({"timeouts": {"readySeconds": 3}});
    world.act(&moves.app, with(move_pod(&moves.pod(0).0, &moves.free(0)), short.clone())).await?;
    world.act(&grows.app, with(create_on(&grows.app, &grows.free(0)), short)).await?;
    for scene in [&moves, &grows] {
        let action = world.ends(&scene.app, ("False", reason)).await?;
        ensure!(message(&action).contains("rolled back"), "{}", message(&action));
        let verdict = scene.untouched(world).await?;
        ensure!(verdict.passing.len() == 1, "more than the replacement came: {verdict:?}");
    }
    Ok(())
}

#[test]
fn a_replacement_that_does_not_get_ready_is_taken_back() {
    story("replacement-bad", async |world| {
        let all = [
            ("never-ready", "ReplacementNotReady"),
            ("crash-loop", "ReplacementCrashed"),
            ("image-missing", "ImagePullFailed"),
        ];
        let ended = futures::future::join_all(all.map(|(behavior, reason)| both_fail(world, behavior, reason))).await;
        ended.into_iter().collect()
    });
}

/// Pods that avoid nodes with a pod labelled rock, which only the scheduler can evaluate.
fn shy(app: &str, replicas: usize, terms: &Value) -> Workload {
    Workload::deployment(app, replicas).guarded().spec(with(
        terms.clone(),
        json!({
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {APP: "rock"}}, "topologyKey": "kubernetes.io/hostname"}]}},
        }),
    ))
}

#[test]
fn a_replacement_that_the_scheduler_refuses_goes_elsewhere_or_back() {
    story("replacement-shy", async |world| {
        let nodes = world.nodes(3, Default::default()).await?;
        let [home, rocky, flat] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        Workload::deployment("rock", 1).spec(with(nodes.terms(), json!({"nodeName": rocky}))).make(world).await?;
        // The rock requests nothing, so both nodes look alike; the name decides in favor of the rocky one.
        nodes.label(rocky, "target", "yes").await?;
        nodes.label(flat, "target", "yes").await?;
        nodes.open_only(&[home]).await?;
        let (moves, grows) = (
            Scene::set(world, "move", 1, shy("move", 1, &nodes.terms())).await?,
            Scene::set(world, "create", 1, shy("create", 1, &nodes.terms())).await?,
        );
        let chooses = Scene::set(world, "choose", 1, shy("choose", 1, &nodes.terms())).await?;
        nodes.open_all().await?;
        let short = json!({"timeouts": {"scheduleSeconds": 2}});
        world.act("move", with(move_pod(&moves.pod(0).0, rocky), short.clone())).await?;
        world.act("create", with(create_on("create", rocky), short.clone())).await?;
        let choice = json!({"move": {"workload": deployment("choose"), "to": {"nodeSelector": {"target": "yes"}}}});
        world.act("choose", with(choice, short)).await?;
        for scene in [&moves, &grows] {
            let action = world.ends(&scene.app, ("False", "Unschedulable")).await?;
            ensure!(message(&action).contains("nodes"), "not the scheduler's words: {}", message(&action));
            scene.untouched(world).await?;
        }
        world.ends("choose", DONE).await?;
        chooses.moved(world, &[&chooses.pod(0).0], &[flat]).await.map(drop)
    });
}

#[test]
fn a_replacement_that_a_quota_refuses_is_given_up() {
    story("quota-full", async |world| {
        let (moves, grows) = (Scene::guarded(world, "move", 2).await?, Scene::guarded(world, "create", 2).await?);
        quota(world, 4).await?;
        world.act("move", move_pod(&moves.pod(0).0, &moves.free(0))).await?;
        world.act("create", create_on("create", &grows.free(0))).await?;
        for scene in [&moves, &grows] {
            let action = world.ends(&scene.app, ("False", "PodRefused")).await?;
            ensure!(message(&action).contains("quota"), "not the server's words: {}", message(&action));
            scene.untouched(world).await?;
        }
        Ok(())
    });
}

/// The quota has room for the replacement, but not for the substitute that the ReplicaSet would create: the ReplicaSet
/// adopts the replacement instead.
#[test]
fn a_quota_with_room_for_one_is_enough() {
    story("quota-one", async |world| {
        let scene = Scene::guarded(world, "web", 3).await?;
        quota(world, 4).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        world.act("go", move_pod(&pod, &node)).await?;
        world.ends("go", DONE).await?;
        scene.moved(world, &[&pod], &[&node]).await?;
        quota_counts(world, 3).await?;
        world.act("more", create_on("web", &node)).await?;
        let scene = scene.again(world);
        world.ends("more", DONE).await?;
        scene.grown(world, &[&node]).await.map(drop)
    });
}

#[test]
fn a_budget_that_never_allows_ends_the_wait() {
    story("budget-never", async |world| {
        let short = json!({"timeouts": {"readySeconds": 1, "drainSeconds": 2}});
        let strict = |app: &str| Workload::deployment(app, 2).budget(json!({"minAvailable": 9}));
        let (moves, goes) = (
            Scene::set(world, "move", 2, strict("move")).await?,
            Scene::set(world, "delete", 2, Workload::deployment("delete", 2).guarded()).await?,
        );
        world.act("move", with(move_pod(&moves.pod(0).0, &moves.free(0)), short.clone())).await?;
        world.act("delete", with(delete_pod(&goes.pod(0).0), short)).await?;
        for scene in [&moves, &goes] {
            let action = world.ends(&scene.app, ("False", "BudgetBlocked")).await?;
            ensure!(message(&action).contains(&format!("PodDisruptionBudget {}", scene.app)), "{}", message(&action));
            scene.untouched(world).await?;
        }
        Ok(())
    });
}

#[test]
fn a_budget_that_allows_later_is_waited_for() {
    story("budget-later", async |world| {
        let scene =
            Scene::set(world, "web", 2, Workload::deployment("web", 2).budget(json!({"minAvailable": 9}))).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        world.act("go", move_pod(&pod, &node)).await?;
        let waits = |seen: &Seen| (ready(seen.actions.get("go")?)? == ("Unknown", "BudgetBlocked")).then_some(());
        world.eye.until("the move to wait for its budget", waits).await?;
        world.kubectl(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":2}}"#], None).await?;
        world.ends("go", DONE).await?;
        scene.moved(world, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn two_budgets_over_one_pod_are_told() {
    story("budget-two", async |world| {
        let scene = Scene::guarded(world, "web", 2).await?;
        let second = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "second"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {APP: "web"}}}});
        world.kubectl(&["create", "-f", "-"], Some(&second.to_string())).await?;
        world
            .act("move", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"timeouts": {"drainSeconds": 2}})))
            .await?;
        world.ends("move", ("False", "BudgetsOverlap")).await?;
        scene.untouched(world).await.map(drop)
    });
}

#[test]
fn a_victim_that_ends_slowly_is_waited_for() {
    story("victim-slow", async |world| {
        let slow = Workload::deployment("web", 3).guarded().annotate("kwok.ganglion.dev/termination-delay", "2s");
        let scene = Scene::set(world, "web", 3, slow).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        world.act("go", move_pod(&pod, &node)).await?;
        world.ends("go", DONE).await?;
        ensure!(!world.eye.now().pods.contains_key(&pod), "verified before the old pod was gone");
        scene.moved(world, &[&pod], &[&node]).await.map(drop)
    });
}

/// Seconds within which the budget must observe the new pod, even on a busy machine.
const DRAIN: u64 = 10;

#[test]
fn a_victim_that_never_ends_is_told() {
    story("victim-stuck", async |world| {
        let scene = Scene::guarded(world, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        world.patch_pod(&pod, json!({"metadata": {"finalizers": ["test.ganglion.dev/hold"]}})).await?;
        world.act("go", with(move_pod(&pod, &node), json!({"timeouts": {"drainSeconds": DRAIN}}))).await?;
        let action = world.ends("go", ("False", "VictimStuck")).await?;
        ensure!(message(&action).contains(&pod), "{}", message(&action));
        let verdict = scene.tale.verdict(&world.eye);
        ensure!(verdict.lowest_ready >= 3 && verdict.died == [pod.clone()] && verdict.came.len() == 1, "{verdict:?}");
        let failed =
            |seen: &Seen| seen.receipts.values().find(|one| one.spec.outcome.as_deref() == Some("Failed")).map(drop);
        world.eye.until("the receipt of what was done", failed).await?;
        world.patch_pod(&pod, json!({"metadata": {"finalizers": null}})).await?;
        scene.at_rest(world, 3).await.map(drop)
    });
}

/// A pod as the API server sends it.
async fn sent(world: &World, pod: &str) -> Result<Value> {
    Ok(serde_json::from_str(&world.kubectl(&["get", "pod", pod, "-o", "json"], None).await?)?)
}

#[test]
fn a_replacement_has_the_fields_of_the_template_that_are_newer_than_the_operator() {
    story("newer-fields", async |world| {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
        let container = json!({
            "name": "main", "image": "registry.example/app:1", "restartPolicy": "Always", "restartPolicyRules": [rule],
        });
        let workload =
            Workload::deployment("web", 2).spec(json!({"containers": [container], "hostnameOverride": "web"}));
        world.kubectl(&["create", "-f", "-"], Some(&workload.manifest().to_string())).await?;
        workload.settle(world).await?;
        let scene = Scene { app: "web".to_owned(), replicas: 2, tale: Story::begin(&world.eye, "web") };
        world.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        world.ends("go", DONE).await?;
        let verdict = scene.moved(world, &[&scene.pod(0).0], &[&scene.free(0)]).await?;
        let (old, new) = (sent(world, &scene.pod(1).0).await?, sent(world, &verdict.came[0].0).await?);
        for field in ["/spec/hostnameOverride", "/spec/containers/0/restartPolicyRules"] {
            let there = old.pointer(field);
            ensure!(there.is_some() && there == new.pointer(field), "{field}: {there:?} is {:?}", new.pointer(field));
        }
        Ok(())
    });
}

#[test]
fn a_pod_that_is_put_back_has_the_owners_that_others_gave_it() {
    story("owners-kept", async |world| {
        let scene = Scene::guarded(world, "web", 2).await?;
        let pod = scene.pod(0).0;
        world.kubectl(&["create", "configmap", "other"], None).await?;
        let uid = world.kubectl(&["get", "configmap", "other", "-o", "jsonpath={.metadata.uid}"], None).await?;
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid});
        let add = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": other}]);
        world.kubectl(&["patch", "pod", &pod, "--type=json", "-p", &add.to_string()], None).await?;
        let before = sent(world, &pod).await?["metadata"]["ownerReferences"].clone();
        let mut held = world.proxy.hold(1, When::After, |write| {
            write.is_on("pods")
                && write.body.pointer("/metadata/ownerReferences/0/kind").is_some_and(|kind| kind == "ReplicaSet")
        });
        world.act("go", move_pod(&pod, &scene.free(0))).await?;
        held.reached().await.context("the replacement was never taken in")?;
        let out = sent(world, &pod).await?["metadata"]["ownerReferences"].clone();
        let kinds: Vec<&Value> = out.as_array().into_iter().flatten().map(|owner| &owner["kind"]).collect();
        ensure!(kinds.len() == 2 && kinds.contains(&&json!("ConfigMap")), "detached: {out}");
        world.patch_action("go", json!({"spec": {"abort": true}})).await?;
        held.release();
        world.ends("go", ("False", "Aborted")).await?;
        scene.untouched(world).await?;
        let after = sent(world, &pod).await?["metadata"]["ownerReferences"].clone();
        let sorted = |owners: Value| {
            let mut owners: Vec<String> = owners.as_array().into_iter().flatten().map(Value::to_string).collect();
            owners.sort();
            owners
        };
        ensure!(sorted(before.clone()) == sorted(after.clone()), "{before} became {after}");
        Ok(())
    });
}
