//! Replacements that do not start: never Ready, crashing, unschedulable, rejected. The workload is unchanged
//! afterwards, and the action reports the reason.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::action::{create_on, delete_pod, deployment, move_pod, with};
use testkit::eye::{Happening, Seen};
use testkit::kstatus::{message, ready};
use testkit::proxy::gate::HoldPoint;
use testkit::servers::admission::PodWebhook;
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories, story};
use testkit::verdict::{APP, Story, pods_of};

use crate::scenes::{Scene, quota, quota_counts};

const DONE: (&str, &str) = ("True", "Succeeded");

/// A move and a create, each of a workload whose new pods have this behavior. Both must end with this reason, and be
/// undone.
async fn both_fail(testbed: &Testbed, behavior: &str, reason: &str) -> Result<()> {
    let make = async |app: String| {
        let workload = Workload::deployment(&app, 2).guarded().replacements(behavior);
        Scene::set(testbed, &app, 2, workload).await
    };
    let (moves, grows) = (make(format!("{behavior}-move")).await?, make(format!("{behavior}-create")).await?);
    let short = json!({"timeouts": {"readySeconds": 3}});
    testbed.act(&moves.app, with(move_pod(&moves.pod(0).0, &moves.free(0)), short.clone())).await?;
    testbed.act(&grows.app, with(create_on(&grows.app, &grows.free(0)), short)).await?;
    for scene in [&moves, &grows] {
        let action = testbed.ends(&scene.app, ("False", reason)).await?;
        ensure!(message(&action).contains("rolled back"), "{}", message(&action));
        let verdict = scene.untouched(testbed).await?;
        ensure!(verdict.passing.len() == 1, "more than the replacement came: {verdict:?}");
    }
    Ok(())
}

#[test]
fn a_replacement_that_does_not_get_ready_is_taken_back() {
    story("replacement-bad", async |testbed| {
        let all = [
            ("never-ready", "ReplacementNotReady"),
            ("crash-loop", "ReplacementCrashed"),
            ("image-missing", "ImagePullFailed"),
        ];
        let ended = futures::future::join_all(all.map(|(behavior, reason)| both_fail(testbed, behavior, reason))).await;
        ended.into_iter().collect()
    });
}

/// A kubelet may reject a pod that the scheduler has placed. Such a pod stays in phase Failed.
#[test]
fn a_replacement_that_the_kubelet_rejects_is_given_up() {
    story("replacement-rejected", async |testbed| {
        let mut nodes = testbed.nodes(1, Size::default()).await?;
        let bad = nodes.join(Some("rejected"), Size::default()).await?;
        let home = nodes.names[0].clone();
        nodes.open_only(&[&home]).await?;
        let scene = Scene::set(testbed, "web", 1, Workload::deployment("web", 1).guarded().spec(nodes.terms())).await?;
        nodes.open_all().await?;
        let (pod, _) = scene.pod(0);
        testbed.act("named", move_pod(&pod, &bad)).await?;
        let action = testbed.ends("named", ("False", "ReplacementLost")).await?;
        ensure!(message(&action).contains("OutOfcpu: Pod was rejected"), "{}", message(&action));
        ensure!(scene.untouched(testbed).await?.passing.len() == 1, "more than one new pod came");
        Ok(())
    });
}

/// The registry is late: the new pod gets Ready within its time.
#[test]
fn a_replacement_whose_image_comes_later_is_waited_for() {
    story("replacement-late", async |testbed| {
        let workload = Workload::deployment("web", 2).guarded().replacements("image-missing");
        let scene = Scene::set(testbed, "web", 2, workload).await?;
        let (pod, free) = (scene.pod(0).0, scene.free(0));
        testbed.act("go", move_pod(&pod, &free)).await?;
        let waits = |seen: &Seen| {
            let action = seen.actions.get("go")?;
            let slot = action.status.as_ref()?.slots.first()?;
            let is_late = ready(action)? == ("Unknown", "ImagePullFailed");
            is_late.then(|| slot.replacement.as_ref().map(|new| new.name.clone()))?
        };
        let new = testbed.eye.until("the new pod to wait for its image", waits).await?;
        testbed.kubectl(&["annotate", "pod", &new, "kwok.ganglion.dev/behavior=plain", "--overwrite"], None).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&free]).await.map(drop)
    });
}

/// Pods that avoid nodes with a pod labelled rock in a namespace with a certain label, which only the scheduler can
/// evaluate.
fn shy(app: &str, replicas: usize, namespace: &str, terms: &Value) -> Workload {
    Workload::deployment(app, replicas).guarded().spec(with(
        terms.clone(),
        json!({
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {APP: "rock"}}, "topologyKey": "kubernetes.io/hostname",
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]}},
        }),
    ))
}

#[test]
fn a_replacement_that_the_scheduler_refuses_goes_elsewhere_or_back() {
    story("replacement-shy", async |testbed| {
        let nodes = testbed.nodes(3, Default::default()).await?;
        let [home, rocky, flat] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        Workload::deployment("rock", 1).spec(with(nodes.terms(), json!({"nodeName": rocky}))).make(testbed).await?;
        // The rock requests nothing, so both nodes look alike; the name decides in favor of the rocky one.
        nodes.label(rocky, "target", "yes").await?;
        nodes.label(flat, "target", "yes").await?;
        nodes.open_only(&[home]).await?;
        let (moves, grows) = (
            Scene::set(testbed, "move", 1, shy("move", 1, &testbed.ns, &nodes.terms())).await?,
            Scene::set(testbed, "create", 1, shy("create", 1, &testbed.ns, &nodes.terms())).await?,
        );
        let chooses = Scene::set(testbed, "choose", 1, shy("choose", 1, &testbed.ns, &nodes.terms())).await?;
        let left = Scene::set(testbed, "left", 1, shy("left", 1, &testbed.ns, &nodes.terms())).await?;
        nodes.open_all().await?;
        let short = json!({"timeouts": {"scheduleSeconds": 2}});
        testbed.act("move", with(move_pod(&moves.pod(0).0, rocky), short.clone())).await?;
        testbed.act("create", with(create_on("create", rocky), short.clone())).await?;
        let labels = json!({"target": "yes"});
        let choice = json!({"nodeSelector": labels, "where": "node.pods < 100"});
        let choice = json!({"move": {"workload": deployment("choose"), "to": choice}});
        testbed.act("choose", with(choice, short.clone())).await?;
        let left_to_scheduler = json!({"move": {"workload": deployment("left"), "to": {"nodeSelector": labels}}});
        testbed.act("left", with(left_to_scheduler, short)).await?;
        for scene in [&moves, &grows] {
            let action = testbed.ends(&scene.app, ("False", "Unschedulable")).await?;
            ensure!(message(&action).contains("nodes"), "not the scheduler's words: {}", message(&action));
            scene.untouched(testbed).await?;
        }
        testbed.ends("choose", DONE).await?;
        chooses.moved(testbed, &[&chooses.pod(0).0], &[flat]).await?;
        testbed.ends("left", DONE).await?;
        left.moved(testbed, &[&left.pod(0).0], &[flat]).await?;
        let pods = testbed.eye.now();
        let pod = pods_of(&pods, "left").next().context("no pod of left")?;
        let affinity = serde_json::to_string(&pod.spec.as_ref().context("no spec")?.affinity)?;
        ensure!(affinity.contains("target") && !affinity.contains(flat), "bound to one node: {affinity}");
        Ok(())
    });
}

#[test]
fn a_replacement_that_a_quota_refuses_is_given_up() {
    story("quota-full", async |testbed| {
        let (moves, grows) = (Scene::guarded(testbed, "move", 2).await?, Scene::guarded(testbed, "create", 2).await?);
        quota(testbed, 4).await?;
        testbed.act("move", move_pod(&moves.pod(0).0, &moves.free(0))).await?;
        testbed.act("create", create_on("create", &grows.free(0))).await?;
        for scene in [&moves, &grows] {
            let action = testbed.ends(&scene.app, ("False", "PodRefused")).await?;
            ensure!(message(&action).contains("quota"), "not the server's words: {}", message(&action));
            scene.untouched(testbed).await?;
        }
        Ok(())
    });
}

/// The quota has room for the replacement, but not for the substitute that the ReplicaSet would create: the ReplicaSet
/// adopts the replacement instead.
#[test]
fn a_quota_with_room_for_one_is_enough() {
    story("quota-one", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        quota(testbed, 4).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await?;
        quota_counts(testbed, 3).await?;
        testbed.act("more", create_on("web", &node)).await?;
        let scene = scene.again(testbed);
        testbed.ends("more", DONE).await?;
        scene.grown(testbed, &[&node]).await.map(drop)
    });
}

#[test]
fn a_budget_that_never_allows_ends_the_wait() {
    story("budget-never", async |testbed| {
        let short = json!({"timeouts": {"readySeconds": 1, "drainSeconds": 2}});
        let strict = |app: &str| Workload::deployment(app, 2).budget(json!({"minAvailable": 9}));
        let (moves, goes) = (
            Scene::set(testbed, "move", 2, strict("move")).await?,
            Scene::set(testbed, "delete", 2, Workload::deployment("delete", 2).guarded()).await?,
        );
        testbed.act("move", with(move_pod(&moves.pod(0).0, &moves.free(0)), short.clone())).await?;
        testbed.act("delete", with(delete_pod(&goes.pod(0).0), short)).await?;
        for scene in [&moves, &goes] {
            let action = testbed.ends(&scene.app, ("False", "BudgetBlocked")).await?;
            ensure!(message(&action).contains(&format!("PodDisruptionBudget {}", scene.app)), "{}", message(&action));
            scene.untouched(testbed).await?;
        }
        Ok(())
    });
}

#[test]
fn a_budget_that_allows_later_is_waited_for() {
    story("budget-later", async |testbed| {
        let scene =
            Scene::set(testbed, "web", 2, Workload::deployment("web", 2).budget(json!({"minAvailable": 9}))).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        let waits = |seen: &Seen| (ready(seen.actions.get("go")?)? == ("Unknown", "BudgetBlocked")).then_some(());
        testbed.eye.until("the move to wait for its budget", waits).await?;
        testbed.kubectl(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":2}}"#], None).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

/// The budget selects a label that only the pod template has: its change wakes the action like any other.
#[test]
fn a_budget_over_a_label_of_the_template_is_noticed_at_once() {
    let cases = ["move", "delete"].map(|name| (format!("budget-label-{name}"), name == "move"));
    stories(cases.into(), async |testbed, moves| {
        let scene = Scene::set(testbed, "web", 3, Workload::deployment("web", 3).label("tier", "front")).await?;
        let manifest = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "front"},
            "spec": {"minAvailable": 9, "selector": {"matchLabels": {"tier": "front"}}}});
        testbed.kubectl(&["create", "-f", "-"], Some(&manifest.to_string())).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let spec = if *moves { move_pod(&pod, &node) } else { delete_pod(&pod) };
        testbed.act("go", with(spec, json!({"timeouts": {"drainSeconds": 600}}))).await?;
        let waits = |seen: &Seen| (ready(seen.actions.get("go")?)? == ("Unknown", "BudgetBlocked")).then_some(());
        testbed.eye.until("the action to wait for its budget", waits).await?;
        let opened = tokio::time::Instant::now();
        testbed
            .kubectl(&["patch", "pdb", "front", "--type=merge", "-p", r#"{"spec":{"minAvailable":1}}"#], None)
            .await?;
        testbed.ends("go", DONE).await?;
        // The operator asks again by itself only after minutes.
        ensure!(opened.elapsed() < AT_ONCE, "noticed after {:?}", opened.elapsed());
        let verdict = scene.at_rest(testbed, if *moves { 3 } else { 2 }).await?;
        ensure!(verdict.died == [pod], "{verdict:?}");
        Ok(())
    });
}

/// Longest time until an action observes a change on a busy machine; a retry without a cause takes longer.
const AT_ONCE: Duration = Duration::from_secs(30);

#[test]
fn two_budgets_over_one_pod_are_told() {
    story("budget-two", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let second = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "second"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {APP: "web"}}}});
        testbed.kubectl(&["create", "-f", "-"], Some(&second.to_string())).await?;
        testbed
            .act("move", with(move_pod(&scene.pod(0).0, &scene.free(0)), json!({"timeouts": {"drainSeconds": 2}})))
            .await?;
        testbed.ends("move", ("False", "BudgetsOverlap")).await?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn a_victim_that_ends_slowly_is_waited_for() {
    story("victim-slow", async |testbed| {
        let slow = Workload::deployment("web", 3).guarded().annotate("kwok.ganglion.dev/termination-delay", "2s");
        let scene = Scene::set(testbed, "web", 3, slow).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        testbed.ends("go", DONE).await?;
        ensure!(!testbed.eye.now().pods.contains_key(&pod), "verified before the old pod was gone");
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

/// Seconds within which the budget must observe the new pod, even on a busy machine.
const DRAIN: u64 = 10;

#[test]
fn a_victim_that_never_ends_is_told() {
    story("victim-stuck", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.patch_pod(&pod, json!({"metadata": {"finalizers": ["test.ganglion.dev/hold"]}})).await?;
        testbed.act("go", with(move_pod(&pod, &node), json!({"timeouts": {"drainSeconds": DRAIN}}))).await?;
        let action = testbed.ends("go", ("False", "VictimStuck")).await?;
        ensure!(message(&action).contains(&pod), "{}", message(&action));
        let verdict = scene.tale.verdict(&testbed.eye);
        ensure!(verdict.lowest_ready >= 3 && verdict.died == [pod.clone()] && verdict.came.len() == 1, "{verdict:?}");
        let failed =
            |seen: &Seen| seen.receipts.values().find(|one| one.spec.outcome.as_deref() == Some("Failed")).map(drop);
        testbed.eye.until("the receipt of what was done", failed).await?;
        testbed.patch_pod(&pod, json!({"metadata": {"finalizers": null}})).await?;
        scene.at_rest(testbed, 3).await.map(drop)
    });
}

/// Something keeps the replacement: a finalizer, or a node whose kubelet does not answer.
#[derive(Clone, Copy, Debug)]
enum Keeper {
    Finalizer,
    Kubelet,
}

/// The rollback has an end that names the pod that is left, and the action can be deleted.
#[test]
fn an_abort_ends_though_the_replacement_does_not_terminate() {
    let cases = [Keeper::Finalizer, Keeper::Kubelet];
    let cases = cases.map(|keeper| (format!("leftover-{keeper:?}").to_lowercase(), keeper));
    stories(cases.into(), async |testbed, keeper| {
        let mut workload = Workload::deployment("web", 2).guarded().replacements("never-ready");
        if matches!(keeper, Keeper::Kubelet) {
            workload = workload.annotate("kwok.ganglion.dev/termination-delay", "1h");
        }
        let scene = Scene::set(testbed, "web", 2, workload).await?;
        let times = json!({"timeouts": {"readySeconds": 600, "drainSeconds": 2}});
        testbed.act("go", with(move_pod(&scene.pod(0).0, &scene.free(0)), times)).await?;
        let new = testbed
            .eye
            .until("a new pod on its node", |seen| {
                let slot = seen.actions.get("go")?.status.as_ref()?.slots.first()?;
                let pod = seen.pods.get(&slot.replacement.as_ref()?.name)?;
                pod.spec.as_ref()?.node_name.as_ref().map(|_| pod.name_any())
            })
            .await?;
        if matches!(keeper, Keeper::Finalizer) {
            testbed.patch_pod(&new, json!({"metadata": {"finalizers": ["test.ganglion.dev/hold"]}})).await?;
        }
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        let action = testbed.ends("go", ("False", "Aborted")).await?;
        let words = message(&action);
        ensure!(words.contains(&new) && words.contains("does not terminate"), "{words}");
        testbed.kubectl(&["delete", "wa", "go", "--timeout=30s"], None).await?;
        match keeper {
            Keeper::Finalizer => testbed.patch_pod(&new, json!({"metadata": {"finalizers": null}})).await?,
            Keeper::Kubelet => {
                testbed.kubectl(&["delete", "pod", &new, "--force", "--grace-period=0"], None).await?;
            }
        }
        let verdict = scene.untouched(testbed).await?;
        ensure!(verdict.passing == [new], "{verdict:?}");
        Ok(())
    });
}

/// Seconds that a pod must be Ready before it is available.
const MIN_READY: i64 = 6;

/// Readiness is not availability: the old pod leaves when the new one has been Ready for `minReadySeconds`, whoever
/// creates the new one.
#[test]
fn an_old_pod_stays_until_the_new_one_is_available() {
    let cases = ["named", "cordoned"].map(|name| (format!("available-{name}"), name == "named"));
    stories(cases.into(), async |testbed, is_named| {
        let nodes = testbed.nodes(4, Size::default()).await?;
        let workload = Workload::deployment("web", 3).guarded().spec(nodes.terms());
        workload.surround(testbed).await?;
        let mut manifest = workload.manifest();
        manifest["spec"]["minReadySeconds"] = json!(MIN_READY);
        testbed.kubectl(&["create", "-f", "-"], Some(&manifest.to_string())).await?;
        let available = ["wait", "--for=jsonpath={.status.availableReplicas}=3", "deployment/web", "--timeout=60s"];
        testbed.kubectl(&available, None).await?;
        let scene = Scene { app: "web".to_owned(), replicas: 3, tale: Story::begin(&testbed.eye, "web") };
        let (pod, home) = scene.pod(0);
        let taken: Vec<String> = (0..3).map(|at| scene.pod(at).1).collect();
        let free = nodes.names.iter().find(|node| !taken.contains(node)).context("no free node")?;
        let spec = if *is_named {
            move_pod(&pod, free)
        } else {
            nodes.cordon(&home).await?;
            json!({"move": {"pod": {"name": pod}}})
        };
        testbed.act("go", spec).await?;
        testbed.ends("go", DONE).await?;
        let verdict = scene.at_rest(testbed, 3).await?;
        ensure!(verdict.died == [pod.clone()] && verdict.came.len() == 1, "{verdict:?}");
        let seen = testbed.eye.now();
        let (new, _) = &verdict.came[0];
        let ready = seen.pods.get(new).and_then(|pod| since_ready(pod)).context("no time of readiness")?;
        let leaves = seen.history.iter().find_map(|happening| match happening {
            Happening::Pod(one) if one.name_any() == pod => one.metadata.deletion_timestamp.as_ref().map(|at| at.0),
            _ => None,
        });
        // The time of deletion includes the grace period of one second, and both are whole seconds.
        let waited = leaves.context("no time of deletion")?.duration_since(ready).as_secs() - 1;
        ensure!(waited >= MIN_READY - 1, "the old pod left {waited} s after the new one was Ready");
        Ok(())
    });
}

/// When the pod became Ready.
fn since_ready(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|one| one.type_ == "Ready" && one.status == "True")?;
    ready.last_transition_time.as_ref().map(|at| at.0)
}

/// A pod as the API server sends it.
async fn sent(testbed: &Testbed, pod: &str) -> Result<Value> {
    Ok(serde_json::from_str(&testbed.kubectl(&["get", "pod", pod, "-o", "json"], None).await?)?)
}

#[test]
fn a_replacement_has_the_fields_of_the_template_that_are_newer_than_the_operator() {
    story("newer-fields", async |testbed| {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
        let container = json!({
            "name": "main", "image": "registry.example/app:1", "restartPolicy": "Always", "restartPolicyRules": [rule],
        });
        let workload =
            Workload::deployment("web", 2).spec(json!({"containers": [container], "hostnameOverride": "web"}));
        testbed.kubectl(&["create", "-f", "-"], Some(&workload.manifest().to_string())).await?;
        workload.settle(testbed).await?;
        let scene = Scene { app: "web".to_owned(), replicas: 2, tale: Story::begin(&testbed.eye, "web") };
        testbed.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
        testbed.ends("go", DONE).await?;
        let verdict = scene.moved(testbed, &[&scene.pod(0).0], &[&scene.free(0)]).await?;
        let (old, new) = (sent(testbed, &scene.pod(1).0).await?, sent(testbed, &verdict.came[0].0).await?);
        for field in ["/spec/hostnameOverride", "/spec/containers/0/restartPolicyRules"] {
            let there = old.pointer(field);
            ensure!(there.is_some() && there == new.pointer(field), "{field}: {there:?} is {:?}", new.pointer(field));
        }
        Ok(())
    });
}

#[test]
fn a_pod_that_is_put_back_has_the_owners_that_others_gave_it() {
    story("owners-kept", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let pod = scene.pod(0).0;
        testbed.kubectl(&["create", "configmap", "other"], None).await?;
        let uid = testbed.kubectl(&["get", "configmap", "other", "-o", "jsonpath={.metadata.uid}"], None).await?;
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid});
        let add = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": other}]);
        testbed.kubectl(&["patch", "pod", &pod, "--type=json", "-p", &add.to_string()], None).await?;
        let before = sent(testbed, &pod).await?["metadata"]["ownerReferences"].clone();
        let mut held = testbed.proxy.hold(1, HoldPoint::After, |write| {
            write.is_on("pods")
                && write.body.pointer("/metadata/ownerReferences/0/kind").is_some_and(|kind| kind == "ReplicaSet")
        });
        testbed.act("go", move_pod(&pod, &scene.free(0))).await?;
        held.reached().await.context("the replacement was never taken in")?;
        let out = sent(testbed, &pod).await?["metadata"]["ownerReferences"].clone();
        let kinds: Vec<&Value> = out.as_array().into_iter().flatten().map(|owner| &owner["kind"]).collect();
        ensure!(kinds.len() == 2 && kinds.contains(&&json!("ConfigMap")), "detached: {out}");
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        held.release();
        testbed.ends("go", ("False", "Aborted")).await?;
        scene.untouched(testbed).await?;
        let after = sent(testbed, &pod).await?["metadata"]["ownerReferences"].clone();
        let sorted = |owners: Value| {
            let mut owners: Vec<String> = owners.as_array().into_iter().flatten().map(Value::to_string).collect();
            owners.sort();
            owners
        };
        ensure!(sorted(before.clone()) == sorted(after.clone()), "{before} became {after}");
        Ok(())
    });
}

/// The time that a webhook may take by default; the API server then refuses the pod.
const OF_WEBHOOKS: Duration = Duration::from_secs(10);

/// A webhook that takes seconds for each pod delays a move and nothing else.
#[test]
fn a_slow_webhook_is_waited_for() {
    story("webhook-slow", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let webhook = PodWebhook::start(testbed, &["web"], |_| json!([])).await?;
        webhook.delay(OF_WEBHOOKS / 4);
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await?;
        webhook.stop(testbed).await
    });
}

/// A webhook that never answers ends a move to a named node at its deadline, and the message says so. The API server
/// and the operator give up at the same time, so either may be the first.
#[test]
fn a_webhook_that_hangs_is_named() {
    story("webhook-hangs", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let webhook = PodWebhook::start(testbed, &["web"], |_| json!([])).await?;
        webhook.delay(OF_WEBHOOKS * 60);
        let short = json!({"timeouts": {"scheduleSeconds": 5}});
        testbed.act("go", with(move_pod(&scene.pod(0).0, &scene.free(0)), short)).await?;
        let action = testbed.ends("go", ("False", "PodRefused")).await?;
        ensure!(message(&action).contains("webhook"), "{}", message(&action));
        webhook.stop(testbed).await?;
        scene.untouched(testbed).await.map(drop)
    });
}
