//! Bad input that only the state of the cluster reveals: `Stalled`, with a reason and a message that says what to do,
//! and no effect at all.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::action::{create_on, delete_pod, deployment, move_pod, replica_set, with};
use testkit::kstatus::{Kstatus, kstatus, message, ready};
use testkit::testbed::nodes::Size;
use testkit::testbed::rest::{BARE, rest_clean};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

/// A wrong action: its name, its spec, the expected reason, and texts that its message must contain.
struct Wrong(&'static str, Value, &'static str, Vec<String>);

/// Creates all actions, and checks that each is Stalled as expected and had no effect.
async fn all_stall(testbed: &Testbed, wrong: Vec<Wrong>) -> Result<()> {
    for Wrong(name, spec, ..) in &wrong {
        testbed.act(name, spec.clone()).await?;
    }
    let mut bad = Vec::new();
    for Wrong(name, _, reason, words) in &wrong {
        let action = testbed.over(name).await?;
        if ready(&action) != Some(("False", reason)) || kstatus(&action) != Kstatus::Failed {
            bad.push(format!("{name} is {:?} ({}) instead of {reason}", ready(&action), message(&action)));
        }
        for word in words.iter().filter(|word| !message(&action).contains(word.as_str())) {
            bad.push(format!("{name}: no {word:?} in {:?}", message(&action)));
        }
    }
    ensure!(bad.is_empty(), "{}", bad.join("\n"));
    let others: Vec<String> = testbed
        .proxy
        .writes()
        .iter()
        .filter(|write| !write.is_on("workloadactions/status"))
        .map(ToString::to_string)
        .collect();
    ensure!(others.is_empty(), "refused actions wrote {others:?}");
    rest_clean(testbed).await
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn what_is_not_there() {
    story("stalled-absent", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let (pod, home) = scene.pod(0);
        let free = scene.free(0);
        let to = json!({"nodeName": free});
        let moving = |from: Value, to: Value| json!({"move": {"workload": deployment("web"), "from": from, "to": to}});
        let foreign = json!({"apiVersion": "example.com/v1", "kind": "Rollout", "name": "web"});
        all_stall(
            testbed,
            vec![
                Wrong(
                    "no-deployment",
                    create_on("nobody", &free),
                    "WorkloadNotFound",
                    words(&["Deployment nobody", "namespace"]),
                ),
                Wrong(
                    "no-set",
                    json!({"delete": {"workload": replica_set("nobody")}}),
                    "WorkloadNotFound",
                    words(&["nobody"]),
                ),
                Wrong("no-pod", move_pod("nobody", &free), "PodNotFound", words(&["nobody", "kubectl get pods"])),
                Wrong("no-pod-delete", delete_pod("nobody"), "PodNotFound", words(&["nobody"])),
                Wrong("no-node", move_pod(&pod, "nowhere"), "NodeNotFound", words(&["nowhere", "kubectl get nodes"])),
                Wrong("no-node-create", create_on("web", "nowhere"), "NodeNotFound", words(&["nowhere"])),
                Wrong(
                    "no-labels",
                    moving(json!({"nodeName": home}), json!({"nodeSelector": {"no": "such"}})),
                    "NoCandidateNode",
                    words(&["no=such"]),
                ),
                Wrong(
                    "none-there",
                    moving(json!({"nodeName": free}), json!({"nodeName": home})),
                    "NotEnoughReplicas",
                    words(&["1 replicas of Deployment web asked for, 0 of 2 can be moved"]),
                ),
                Wrong(
                    "too-many",
                    json!({"delete": {"workload": deployment("web"), "count": 3}}),
                    "NotEnoughReplicas",
                    words(&["3 replicas of Deployment web asked for, 2 of 2 can be deleted", "count: 2"]),
                ),
                Wrong(
                    "too-many-move",
                    json!({"move": {"workload": deployment("web"), "to": to, "count": 50}}),
                    "NotEnoughReplicas",
                    words(&["50 replicas", "count"]),
                ),
                Wrong("there-already", move_pod(&pod, &home), "AlreadyOnTarget", words(&[&home])),
                Wrong(
                    "foreign-kind",
                    json!({"create": {"workload": foreign, "to": to}}),
                    "WorkloadNotFound",
                    words(&["no ReplicaSet", "Rollout web"]),
                ),
            ],
        )
        .await?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn expressions_that_make_no_sense() {
    story("stalled-where", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 1).await?;
        let deep = format!("{}true{}", "(".repeat(254), ")".repeat(254));
        assert_eq!(deep.len(), 512);
        let to = |text: &str| json!({"create": {"workload": deployment("web"), "to": {"where": text}}});
        let from = |text: &str| json!({"delete": {"workload": deployment("web"), "from": {"where": text}}});
        let cases = [
            ("no-end", "node.pods <"),
            ("prose", "the best node please"),
            ("unknown-name", "pod.name == 'x'"),
            ("unknown-member", "node.colour == 'red'"),
            ("unknown-function", "node.name.matches('a.*')"),
            ("wrong-type", "node.name < 3"),
            ("no-answer", "node.pods + 1"),
            ("loop", "[1,2].all(x, x > 0)"),
            ("deep", deep.as_str()),
        ];
        let mut wrong = Vec::new();
        for (name, text) in cases {
            wrong.push(Wrong(name, to(text), "ExpressionInvalid", words(&["where"])));
        }
        wrong.push(Wrong("source", from("node.colour == 'red'"), "ExpressionInvalid", words(&["colour"])));
        wrong.push(Wrong("source-deep", from(&deep), "ExpressionInvalid", words(&["where"])));
        wrong.push(Wrong("never", to("node.pods < 0"), "NoCandidateNode", words(&["node.pods < 0"])));
        wrong.push(Wrong("no-label", to("node.labels['gpu'] == 'yes'"), "NoCandidateNode", words(&[])));
        all_stall(testbed, wrong).await?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn nodes_that_take_no_pod() {
    story("stalled-nodes", async |testbed| {
        let nodes = testbed.nodes(7, Size::default()).await?;
        let [home, cordoned, broken, tainted, few, small, excluded] =
            [0, 1, 2, 3, 4, 5, 6].map(|at| nodes.names[at].as_str());
        nodes.open_only(&[home]).await?;
        let mut terms = nodes.terms();
        terms["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [excluded]}]}]}}});
        let workload = Workload::deployment("web", 2).guarded().requests(json!({"cpu": "500m"})).spec(terms);
        let scene = Scene::set(testbed, "web", 2, workload).await?;
        nodes.open_all().await?;
        nodes.cordon(cordoned).await?;
        nodes.break_down(broken).await?;
        let taints = json!([{"key": "gpu", "value": "only", "effect": "NoSchedule"}]);
        nodes.patch(tainted, json!({"spec": {"taints": taints}})).await?;
        // A node here has room for 20 pods and 8 CPUs.
        let on = |node: &str| with(nodes.terms(), json!({"nodeName": node}));
        Workload::deployment("many", 20).spec(on(few)).make(testbed).await?;
        Workload::deployment("big", 1).spec(on(small)).requests(json!({"cpu": "7800m"})).make(testbed).await?;
        let (pod, _) = scene.pod(0);
        let mut wrong = Vec::new();
        for (node, reason, names) in [
            (cordoned, "NodeCordoned", ["move-cordoned", "create-cordoned"]),
            (broken, "NodeNotReady", ["move-broken", "create-broken"]),
            (tainted, "NodeTainted", ["move-tainted", "create-tainted"]),
            (few, "NodeFull", ["move-few", "create-few"]),
            (small, "NodeFull", ["move-small", "create-small"]),
            (excluded, "NodeExcluded", ["move-excluded", "create-excluded"]),
        ] {
            wrong.push(Wrong(names[0], move_pod(&pod, node), reason, words(&[node])));
            wrong.push(Wrong(names[1], create_on("web", node), reason, words(&[node])));
        }
        let some = json!({"where": format!("node.name in ['{cordoned}', '{few}', '{excluded}']")});
        let spec = json!({"move": {"workload": deployment("web"), "to": some}});
        wrong.push(Wrong("none-of-three", spec, "NoCandidateNode", words(&["status.plan.nodes"])));
        all_stall(testbed, wrong).await?;
        let seen = testbed.eye.now();
        let plan = seen.actions["none-of-three"].status.as_ref().and_then(|status| status.plan.clone());
        let refused: Vec<_> = plan.iter().flat_map(|plan| &plan.nodes).filter_map(|node| node.refused).collect();
        ensure!(refused.len() >= 3, "the plan does not say why: {plan:?}");
        scene.untouched(testbed).await.map(drop)
    });
}

fn pod_spec(restart: &str) -> Value {
    json!({
        "restartPolicy": restart, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "registry.example/app:1"}],
    })
}

/// A Job whose pod does not end, a DaemonSet, a StatefulSet, a bare pod and a static pod.
async fn make_not_owned(testbed: &Testbed, node: &str) -> Result<()> {
    let labels = |app: &str| json!({"app": app});
    let template = |app: &str, restart: &str| json!({"metadata": {"labels": labels(app), "annotations": {"kwok.ganglion.dev/behavior": "never-ready"}}, "spec": pod_spec(restart)});
    let mut daemon = template("daemon", "Always");
    daemon["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    let mut bare = pod_spec("Always");
    bare["nodeName"] = json!(node);
    let bare_pod = |name: &str, annotations: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {BARE: "yes"}, "annotations": annotations}, "spec": bare});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template("job", "Never")}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemon"},
            "spec": {"selector": {"matchLabels": labels("daemon")}, "template": daemon}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels("db")}, "template": template("db", "Always")}},
        bare_pod("bare", json!({})),
    ]});
    testbed.kubectl(&["create", "-f", "-"], Some(&list.to_string())).await?;
    Ok(())
}

#[test]
fn pods_that_are_no_replicas() {
    story("stalled-not-owned", async |testbed| {
        make_not_owned(testbed, "node-3").await?;
        let named = |seen: &testkit::eye::Seen, app: &str| {
            seen.pods
                .values()
                .find(|pod| pod.metadata.labels.iter().flatten().any(|(key, value)| key == "app" && value == app))
                .and_then(|pod| pod.metadata.name.clone())
        };
        let (job, daemon, db) = testbed
            .eye
            .until("the pods of a Job, a DaemonSet and a StatefulSet", |seen| {
                Some((named(seen, "job")?, named(seen, "daemon")?, named(seen, "db")?))
            })
            .await?;
        let stateful = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"});
        let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "daemon"});
        all_stall(
            testbed,
            vec![
                Wrong("move-job", move_pod(&job, "node-1"), "NotSupported", words(&["Job"])),
                Wrong("delete-job", delete_pod(&job), "NotSupported", words(&["Job"])),
                Wrong("move-daemon", move_pod(&daemon, "node-1"), "NotSupported", words(&["DaemonSet"])),
                Wrong(
                    "create-daemon",
                    json!({"create": {"workload": daemon_set, "to": {"nodeName": "node-1"}}}),
                    "NotSupported",
                    words(&["DaemonSet"]),
                ),
                Wrong(
                    "move-stateful-pod",
                    move_pod(&db, "node-1"),
                    "DisruptionNeeded",
                    words(&["StatefulSet", "Allowed"]),
                ),
                Wrong(
                    "create-stateful",
                    json!({"create": {"workload": stateful, "to": {"nodeName": "node-1"}}}),
                    "PinNotInstalled",
                    words(&["StatefulSet", "pin-statefulsets"]),
                ),
                Wrong(
                    "move-bare",
                    move_pod("bare", "node-1"),
                    "NotSupported",
                    words(&["bare", "belongs to no workload"]),
                ),
                Wrong("delete-bare", delete_pod("bare"), "NotSupported", words(&["bare"])),
            ],
        )
        .await
    });
}

/// The kubelet writes the mirror pod of a static pod, under the node's own name.
#[test]
fn a_static_pod() {
    story("stalled-static", async |testbed| {
        let spec = with(pod_spec("Always"), json!({"nodeName": "node-2"}));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
            "name": "static", "labels": {BARE: "yes"}, "annotations": {"kubernetes.io/config.mirror": "x"},
        }});
        let refused = testbed
            .kubectl(
                &["create", "-f", "-", "--as=system:node:node-2", "--as-group=system:nodes"],
                Some(&pod.to_string()),
            )
            .await;
        if refused.is_err() {
            testbed.kubectl(&["create", "-f", "-"], Some(&pod.to_string())).await?;
        }
        all_stall(
            testbed,
            vec![
                Wrong("move-static", move_pod("static", "node-1"), "NotSupported", words(&["static", "kubelet"])),
                Wrong("delete-static", delete_pod("static"), "NotSupported", words(&["static"])),
            ],
        )
        .await
    });
}

#[test]
fn a_policy_that_does_not_exist() {
    story("stalled-policy", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 2).await?;
        let (a, _) = scene.pod(0);
        let policy = json!({"move": {"pod": {"name": a}, "to": {"policy": "cool"}}});
        all_stall(
            testbed,
            vec![Wrong("policy", policy, "PolicyNotFound", words(&["there is no PlacementPolicy cool"]))],
        )
        .await?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn a_set_whose_pods_cannot_be_taken_out() {
    story("stalled-label", async |testbed| {
        let scene = Scene::set(testbed, "web", 2, Workload::replica_set("web", 2)).await?;
        let all = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "all"},
            "spec": {"selector": {"app": "web", "set": "web"}, "ports": [{"port": 80}]}});
        testbed.kubectl(&["create", "-f", "-"], Some(&all.to_string())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        all_stall(
            testbed,
            vec![Wrong(
                "move",
                move_pod(&scene.pod(0).0, &scene.free(0)),
                "NoDetachLabel",
                words(&["label", "Service"]),
            )],
        )
        .await?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn two_actions_for_one_victim() {
    story("stalled-twins", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let (pod, _) = scene.pod(0);
        let nodes = [scene.free(0), scene.free(1)];
        for (name, node) in ["first", "second"].iter().zip(&nodes) {
            testbed.act(name, move_pod(&pod, node)).await?;
        }
        let (first, second) = (testbed.over("first").await?, testbed.over("second").await?);
        let (won, lost, node) = match ready(&first) {
            Some(("True", _)) => (first, second, &nodes[0]),
            _ => (second, first, &nodes[1]),
        };
        ensure!(ready(&won) == Some(("True", "Succeeded")), "{:?} {}", ready(&won), message(&won));
        ensure!(
            matches!(ready(&lost), Some(("False", "PodNotFound" | "VictimBusy"))),
            "{:?} {}",
            ready(&lost),
            message(&lost)
        );
        ensure!(message(&lost).contains(&pod), "{}", message(&lost));
        scene.moved(testbed, &[&pod], &[node]).await.map(drop)
    });
}
