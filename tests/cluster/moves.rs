//! Successful moves: by pod and by workload, to every kind of target, under a budget that allows no disruption.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::action::{action, deployment, move_pod, replica_set, with};
use testkit::testbed::nodes::Size;
use testkit::testbed::story;
use testkit::testbed::workload::Workload;
use testkit::verdict::{node_of, pods_of};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

fn move_from(name: &str, from: Value, to: Value) -> Value {
    json!({"move": {"workload": deployment(name), "from": from, "to": to}})
}

#[test]
fn a_named_pod_moves_to_a_named_node() {
    story("move-pod", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, home), node) = (scene.pod(1), scene.free(0));
        testbed.act("go", move_pod(&pod, &node)).await?;
        let action = testbed.ends("go", DONE).await?;
        let verdict = scene.moved(testbed, &[&pod], &[&node]).await?;
        ensure!(verdict.passing.len() == 1, "one substitute comes and goes: {verdict:?}");
        let status = action.status.as_ref().context("no status")?;
        let summary = status.summary.as_ref().context("no summary")?;
        ensure!(summary.action == "Move" && summary.done == "1/1", "{summary:?}");
        ensure!(summary.from.as_deref() == Some(&home) && summary.to.as_deref() == Some(&node), "{summary:?}");
        ensure!(status.finished_at.is_some() && status.started_at.is_some(), "{status:?}");
        let plan = status.plan.as_ref().context("no plan")?;
        ensure!(plan.nodes.iter().any(|choice| choice.name == node && choice.replicas == 1), "{plan:?}");
        Ok(())
    });
}

#[test]
fn a_workloads_replica_moves_from_node_to_node() {
    story("move-workload", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, home), node) = (scene.pod(2), scene.free(1));
        testbed.act("go", move_from("web", json!({"nodeName": home}), json!({"nodeName": node}))).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn a_bare_replica_set_is_moved_alike() {
    story("move-set", async |testbed| {
        let scene = Scene::set(testbed, "web", 3, Workload::replica_set("web", 3).guarded()).await?;
        let ((pod, home), node) = (scene.pod(0), scene.free(2));
        let spec =
            json!({"move": {"workload": replica_set("web"), "from": {"nodeName": home}, "to": {"nodeName": node}}});
        testbed.act("go", spec).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn a_target_is_chosen_by_labels_and_by_load() {
    story("move-choose", async |testbed| {
        let nodes = testbed.nodes(5, Size::default()).await?;
        let [first, other, full, best, last] = [0, 1, 2, 3, 4].map(|at| nodes.names[at].as_str());
        for node in [full, best] {
            nodes.label(node, "disk", "ssd").await?;
        }
        let filler = with(nodes.terms(), json!({"nodeName": full}));
        Workload::deployment("filler", 3).spec(filler).requests(json!({"cpu": "500m"})).make(testbed).await?;
        nodes.open_only(&[first]).await?;
        let scene = Scene::set(testbed, "web", 1, Workload::deployment("web", 1).guarded().spec(nodes.terms())).await?;
        nodes.open_all().await?;

        let to = json!({"nodeSelector": {"disk": "ssd"}});
        testbed.act("by-labels", move_from("web", json!({"where": format!("node.name == '{first}'")}), to)).await?;
        let action = testbed.ends("by-labels", DONE).await?;
        scene.moved(testbed, &[&scene.pod(0).0], &[best]).await?;
        let plan = action.status.as_ref().and_then(|status| status.plan.as_ref()).context("no plan")?;
        let refused = |name: &str| {
            plan.nodes.iter().any(|node| node.name == name && node.replicas == 0 && !node.message.is_empty())
        };
        ensure!(refused(full), "the plan does not say why not {full}: {plan:?}");

        let scene = scene.again(testbed);
        let to = json!({"where": "node.pods < 1 && !('disk' in node.labels) && node.cpu.requestedShare < 0.5 && node.ready",
            "nodeSelector": {testkit::NODE_OWNER: testbed.ns}});
        testbed.act("by-load", move_from("web", json!({"nodeSelector": {"disk": "ssd"}}), to)).await?;
        testbed.ends("by-load", DONE).await?;
        let verdict = scene.at_rest(testbed, 1).await?;
        let node = verdict.came.first().map(|(_, node)| node.as_str()).context("no new pod")?;
        ensure!([first, other, last].contains(&node), "{verdict:?}");
        scene.moved(testbed, &[&scene.pod(0).0], &[node]).await.map(drop)
    });
}

/// The operator of a testbed watches only the testbed's namespace.
#[test]
fn pods_of_a_namespace_that_is_not_watched_are_load() {
    story("move-outside", async |testbed| {
        let nodes = testbed.nodes(3, Size::default()).await?;
        let [home, busy, free] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        nodes.open_only(&[home]).await?;
        let scene = Scene::set(testbed, "web", 1, Workload::deployment("web", 1).guarded().spec(nodes.terms())).await?;
        nodes.open_all().await?;
        let containers = json!({"nodeName": busy, "containers": [{"name": "main", "image": "none"}]});
        let outside = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": testbed.ns, "namespace": "default"},
            "spec": with(nodes.terms(), containers),
        });
        let cluster = &testbed.plane.cluster;
        cluster.kubectl(&["create", "-f", "-"], Some(&outside.to_string())).await?;
        cluster.kubectl(&["wait", "--for=condition=Ready", "pod", &testbed.ns, "--timeout=60s"], None).await?;

        let to = json!({"where": "node.pods < 1", "nodeSelector": {testkit::NODE_OWNER: testbed.ns}});
        testbed.act("go", move_from("web", json!({"nodeName": home}), to)).await?;
        let action = testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&scene.pod(0).0], &[free]).await?;
        let plan = action.status.as_ref().and_then(|status| status.plan.as_ref()).context("no plan")?;
        // The list is cut, since the plane has the nodes of other stories, too.
        let is_usable = plan.nodes.iter().any(|node| node.name == busy && node.refused.is_none());
        ensure!(!is_usable, "the plan does not refuse {busy}: {plan:?}");
        cluster.kubectl(&["delete", "pod", &testbed.ns, "--wait=false"], None).await?;
        Ok(())
    });
}

#[test]
fn several_replicas_of_one_action_move_together() {
    story("move-count", async |testbed| {
        // Separate nodes, because the pods of other namespaces count as load.
        let own = testbed.nodes(4, Size::default()).await?;
        let [here, there, nodes @ ..] = [0, 1, 2, 3].map(|at| own.names[at].clone());
        own.open_only(&[&here, &there]).await?;
        let workload = Workload::deployment("web", 4).guarded().spec(own.terms()).requests(json!({"cpu": "100m"}));
        let scene = Scene::set(testbed, "web", 4, workload).await?;
        own.open_all().await?;
        let expression = format!("node.name in [\"{}\", \"{}\"]", nodes[0], nodes[1]);
        let spec = json!({"move": {"workload": deployment("web"), "to": {"where": expression}, "count": 3}});
        testbed.act("go", spec).await?;
        let action = testbed.ends("go", DONE).await?;
        let status = action.status.as_ref().context("no status")?;
        let gone: Vec<&str> =
            status.slots.iter().filter_map(|slot| Some(slot.victim.as_ref()?.name.as_str())).collect();
        let there: Vec<&str> =
            status.slots.iter().filter_map(|slot| Some(slot.replacement.as_ref()?.node.as_str())).collect();
        ensure!(there.iter().all(|node| nodes.iter().any(|one| one == node)), "{there:?}");
        ensure!(nodes.iter().all(|node| there.contains(&node.as_str())), "all on one node: {there:?}");
        scene.moved(testbed, &gone, &there).await.map(drop)
    });
}

#[test]
fn five_actions_move_five_replicas_of_one_workload_at_once() {
    story("move-five", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 6).await?;
        let node = scene.free(0);
        let pods: Vec<String> = scene.tale.pods().into_iter().take(5).map(|(name, _)| name).collect();
        for (at, pod) in pods.iter().enumerate() {
            testbed.act(&format!("go-{at}"), move_pod(pod, &node)).await?;
        }
        for at in 0..pods.len() {
            testbed.ends(&format!("go-{at}"), DONE).await?;
        }
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        scene.moved(testbed, &pods, &[&node; 5].map(String::as_str)).await.map(drop)
    });
}

#[test]
fn actions_that_choose_at_once_do_not_all_choose_the_same_node() {
    story("move-spread", async |testbed| {
        let nodes = testbed.nodes(4, Size::default()).await?;
        for node in &nodes.names[1..] {
            nodes.label(node, "target", "yes").await?;
        }
        // All three start on the first node; each of the other nodes has room for all three.
        nodes.open_only(&[&nodes.names[0]]).await?;
        let mut scenes = Vec::new();
        for app in ["a", "b", "c"] {
            let workload = Workload::deployment(app, 1).guarded().requests(json!({"cpu": "2500m"}));
            scenes.push(Scene::set(testbed, app, 1, workload.spec(nodes.terms())).await?);
        }
        nodes.open_all().await?;
        // With labels alone, the scheduler would choose.
        let to = json!({"nodeSelector": {"target": "yes"}, "where": "node.pods < 100"});
        for scene in &scenes {
            testbed.act(&scene.app, json!({"move": {"workload": deployment(&scene.app), "to": to}})).await?;
        }
        let mut taken = Vec::new();
        for scene in &scenes {
            testbed.ends(&scene.app, DONE).await?;
            taken.push(pods_of(&testbed.eye.now(), &scene.app).map(|pod| node_of(pod)).collect::<String>());
        }
        taken.sort();
        let mut all = nodes.names[1..].to_vec();
        all.sort();
        ensure!(taken == all, "{taken:?} were chosen of {all:?}");
        Ok(())
    });
}

#[test]
fn a_slow_replacement_is_waited_for_and_must_stay_ready() {
    story("move-slow", async |testbed| {
        let slow = Workload::deployment("web", 3).guarded().annotate("kwok.ganglion.dev/start-delay", "1500ms");
        let scene = Scene::set(testbed, "web", 3, slow).await?;
        let ((pod, _), node) = (scene.pod(0), scene.free(0));
        let begun = tokio::time::Instant::now();
        testbed.act("go", with(move_pod(&pod, &node), json!({"stableSeconds": 2}))).await?;
        testbed.ends("go", DONE).await?;
        ensure!(begun.elapsed() > Duration::from_millis(2500), "ended after {:?}", begun.elapsed());
        scene.moved(testbed, &[&pod], &[&node]).await.map(drop)
    });
}

#[test]
fn what_kubectl_shows_reads_well() {
    story("move-columns", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, home), node) = (scene.pod(0), scene.free(0));
        testbed.kubectl(&["apply", "-f", "-"], Some(&action("go", move_pod(&pod, &node)).to_string())).await?;
        // kubectl wait may read from a watch cache of the API server that lags, as seen on 1.30.14.
        testbed.ends("go", ("True", "Succeeded")).await?;
        testbed.kubectl(&["wait", "--for=condition=Ready", "wa/go", "--timeout=30s"], None).await?;
        let table = testbed.kubectl(&["get", "wa"], None).await?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(
            lines[0] == ["NAME", "ACTION", "WORKLOAD", "FROM", "TO", "DONE", "TOOK", "READY", "REASON", "AGE"],
            "{table}"
        );
        let row = ["go", "Move", &format!("Pod/{pod}"), &home, &node, "1/1"];
        ensure!(lines[1][..6] == row && lines[1][7..9] == ["True", "Succeeded"], "{table}");
        ensure!(lines[1][6].ends_with('s'), "{table}");
        let events = testbed.kubectl(&["get", "events", "--field-selector", "involvedObject.name=go"], None).await?;
        ensure!(events.contains("Succeeded"), "no event reports the end:\n{events}");
        Ok(())
    });
}
