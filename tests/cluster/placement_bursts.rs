//! Pods of a burst, and pods that preempt others: the stock kube-scheduler with a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::testbed::{Road, story_on};
use testkit::{TIMEOUT, block_on};

use super::placement::{Scene, usage};

/// Number of nodes of the plane.
const NODES: usize = 3;

/// Priority classes of the pods.
const CLASSES: [(&str, i32); 2] = [("low", 1), ("high", 1000)];

#[test]
fn bursts_and_preemption_obey_the_policy() {
    let plane = block_on(Plane::own("bursts", NODES)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "bursts", async |testbed| {
        let scene = Scene::open(testbed).await?;
        for (name, value) in CLASSES {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            });
            testbed.kubectl(&["apply", "-f", "-"], Some(&class.to_string())).await?;
        }
        for replicas in [12, 9, 30] {
            limited(&scene, replicas, async || Ok(())).await?;
        }
        limited(&scene, 30, async || bindings_take_seconds(&scene).await).await?;
        for replicas in [6, 12] {
            spread(&scene, replicas).await?;
        }
        rejected_by_usage(&scene).await?;
        rejected_by_count(&scene).await
    });
}

fn deployment(name: &str, replicas: usize) -> Value {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}},
    })
}

/// Pods on each node, in all namespaces.
async fn counts(scene: &Scene<'_>) -> Result<Vec<usize>> {
    let pods = Api::<Pod>::all(scene.testbed.client.clone()).list(&ListParams::default()).await?;
    let on = |node: &String| {
        pods.iter().filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node)).count()
    };
    Ok(scene.nodes.iter().map(on).collect())
}

/// Filter that allows this number of pods on each node.
fn at_most(scene: &Scene<'_>, limits: &[usize]) -> Value {
    let of = scene.nodes.iter().zip(limits).map(|(node, limit)| format!("node.name == '{node}' ? {limit} : "));
    json!({"name": "few", "expression": {"filter": format!("node.pods < ({}0)", of.collect::<String>())}})
}

/// Waits until the pods of this label are bound to this number of nodes each, and checks that no node ever has more.
async fn settle(scene: &Scene<'_>, label: &str, each: usize) -> Result<()> {
    let settled = async {
        loop {
            let pods = scene.testbed.api::<Pod>().list(&ListParams::default().labels(label)).await?;
            let mut on = BTreeMap::<String, usize>::new();
            for node in pods.into_iter().filter_map(|pod| pod.spec?.node_name) {
                *on.entry(node).or_default() += 1;
            }
            ensure!(on.values().all(|count| *count <= each), "more than {each} pods {label} on a node: {on:?}");
            if on.values().sum::<usize>() == each * NODES {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled).await.with_context(|| format!("pods {label} are not {each} on each node"))?
}

/// Stops etcd after the first pod is bound, for longer than the operator delays a reply.
async fn bindings_take_seconds(scene: &Scene<'_>) -> Result<()> {
    let bound = async {
        loop {
            let pods = scene.testbed.api::<Pod>().list(&ListParams::default().labels("app=burst")).await?;
            if pods.into_iter().any(|pod| pod.spec.is_some_and(|spec| spec.node_name.is_some())) {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(TIMEOUT, bound).await.context("no pod is bound")??;
    let cluster = &scene.testbed.plane.cluster;
    cluster.fault(&["pause", "etcd"]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.fault(&["resume", "etcd"]).await
}

/// Three pods are allowed on each node besides those that are there, and all replicas come at once. `meanwhile` happens
/// while they are bound.
async fn limited(scene: &Scene<'_>, replicas: usize, meanwhile: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let limits: Vec<usize> = counts(scene).await?.into_iter().map(|count| count + 3).collect();
    scene.agent(at_most(scene, &limits)).await?;
    scene.testbed.kubectl(&["apply", "-f", "-"], Some(&deployment("burst", replicas).to_string())).await?;
    meanwhile().await?;
    settle(scene, "app=burst", 3).await?;
    scene.testbed.kubectl(&["delete", "deployment", "burst"], None).await?;
    scene.clear().await
}

/// Each node is a zone, and all replicas of a ReplicaSet come at once.
async fn spread(scene: &Scene<'_>, replicas: usize) -> Result<()> {
    for at in 0..NODES {
        scene.node(at, json!({"labels": {"topology.kubernetes.io/zone": format!("zone-{at}")}})).await?;
    }
    scene.agent(json!({"name": "spread", "podSpread": {"rate": "1"}})).await?;
    // The ReplicaSet is in the operator's cache before its pods are.
    scene.testbed.kubectl(&["apply", "-f", "-"], Some(&deployment("spread", 0).to_string())).await?;
    scene.testbed.kubectl(&["scale", "deployment", "spread", &format!("--replicas={replicas}")], None).await?;
    settle(scene, "app=spread", replicas / NODES).await?;
    scene.testbed.kubectl(&["delete", "deployment", "spread"], None).await?;
    scene.clear().await
}

/// Three cores are left on each node, and the pods on it have a low priority.
async fn fill(scene: &Scene<'_>) -> Result<BTreeSet<String>> {
    let mut pods = BTreeSet::new();
    for node in &scene.nodes {
        for _ in 0..3 {
            pods.insert(scene.pod_of("low", of_class("low", json!({"nodeName": node}))).await?);
        }
    }
    scene.bound("app=low", pods.len()).await?;
    operator_knows_all_pods(scene).await?;
    Ok(pods)
}

/// Waits until the operator's cache has as many pods as there are. They are bound from the start, so it also has their
/// nodes.
async fn operator_knows_all_pods(scene: &Scene<'_>) -> Result<()> {
    let known = async {
        loop {
            let there = counts(scene).await?.into_iter().sum::<usize>();
            let metrics = scene.testbed.operator.lock().await.get("/metrics").await?;
            let of = |kind: &str| {
                let start = format!("ganglion_cache_objects{{kind=\"{kind}\"}} ");
                metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse::<usize>().ok())
            };
            // Pods that no action can work on are kept in a shorter form.
            if of("Pod").zip(of("OutsidePod")).is_some_and(|(pods, outside)| pods + outside == there) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, known).await.context("the operator does not know all pods")?
}

/// A pod that needs nearly a third of a node.
fn of_class(class: &str, spec: Value) -> Value {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "9500m"}}});
    let mut spec = spec;
    spec["priorityClassName"] = json!(class);
    spec["containers"] = json!([container]);
    spec
}

/// The pods of low priority that are left.
async fn left(scene: &Scene<'_>) -> Result<BTreeSet<String>> {
    let pods = scene.testbed.api::<Pod>().list(&ListParams::default().labels("app=low")).await?;
    let left = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(left.map(ResourceExt::name_any).collect())
}

/// Whether the scheduler has said that it may preempt pods on no node for this one.
async fn refuses_preemption(scene: &Scene<'_>, name: &str) -> Result<bool> {
    let all = scene.testbed.api::<Event>().list(&ListParams::default()).await?;
    let of = all.iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
    let mut messages = of.filter_map(|event| event.message.as_deref());
    Ok(messages.any(|message| message.contains("no candidate node for preemption")))
}

/// Waits until the scheduler has found no node on which it may preempt pods for this one.
async fn preempts_nobody(scene: &Scene<'_>, name: &str, pods: &BTreeSet<String>) -> Result<()> {
    let told = async {
        loop {
            let now = left(scene).await?;
            ensure!(now == *pods, "preempted for {name}: {:?}", pods.difference(&now));
            if refuses_preemption(scene, name).await? {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, told).await.with_context(|| format!("no event about preemption for {name}"))?
}

/// Waits until a pod instead of this one is bound, and returns its node. Exactly one pod of low priority was preempted.
/// The scheduler itself would try the pod again when some pod ends, or after five minutes.
async fn preempts_one(scene: &Scene<'_>, name: &str, pods: &BTreeSet<String>) -> Result<usize> {
    scene.testbed.kubectl(&["delete", "pod", name], None).await?;
    // A pod that comes before the operator's watch has the nodes and the policy preempts nobody, and is tried again.
    let mut tried = scene.pod_of("high", of_class("high", json!({}))).await?;
    let bound = async {
        loop {
            let pod = scene.testbed.api::<Pod>().get(&tried).await?;
            if let Some(node) = pod.spec.and_then(|spec| spec.node_name) {
                return anyhow::Ok(node);
            }
            let is_refused = refuses_preemption(scene, &tried).await?;
            let is_nominated = pod.status.is_some_and(|status| status.nominated_node_name.is_some());
            if is_refused && !is_nominated {
                scene.testbed.kubectl(&["delete", "pod", &tried], None).await?;
                tried = scene.pod_of("high", of_class("high", json!({}))).await?;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let node = tokio::time::timeout(TIMEOUT, bound).await.context("no pod of high priority is bound")??;
    let now = left(scene).await?;
    ensure!(now.len() + 1 == pods.len(), "preempted: {:?}", pods.difference(&now));
    scene.nodes.iter().position(|one| *one == node).context("a node of the cluster")
}

/// Nodes are hot and full. Nobody is preempted until one of them is cool, and then one pod there.
async fn rejected_by_usage(scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "calm", "congestion": {}})).await?;
    let pods = fill(scene).await?;
    scene.annotate(|_| usage(0.95)).await?;
    scene.agent(json!({"name": "safe", "safe": {}})).await?;
    let high = scene.pod_of("high", of_class("high", json!({}))).await?;
    preempts_nobody(scene, &high, &pods).await?;
    let cool = 1;
    scene.node(cool, json!({"annotations": usage(0.2)})).await?;
    let at = preempts_one(scene, &high, &pods).await?;
    ensure!(at == cool, "a pod of high priority is on node {at}");
    scene.annotate(|_| json!({"mean-used-cpu": null, "std-used-cpu": null})).await?;
    scene.clear().await
}

/// Nodes are full, and allow no more pods. Nobody is preempted until one of them allows as many pods as it has: one of
/// them goes.
async fn rejected_by_count(scene: &Scene<'_>) -> Result<()> {
    let pods = fill(scene).await?;
    let counts = counts(scene).await?;
    let mut limits: Vec<usize> = counts.iter().map(|count| count - 1).collect();
    scene.agent(at_most(scene, &limits)).await?;
    let high = scene.pod_of("high", of_class("high", json!({}))).await?;
    preempts_nobody(scene, &high, &pods).await?;
    let open = 2;
    limits[open] += 1;
    scene.agent(at_most(scene, &limits)).await?;
    let at = preempts_one(scene, &high, &pods).await?;
    ensure!(at == open, "a pod of high priority is on node {at}");
    scene.clear().await
}
