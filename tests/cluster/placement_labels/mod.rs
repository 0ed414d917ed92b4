//! A policy is delivered as labels of nodes, which the stock kube-scheduler reads: by terms that the API server adds to
//! new pods, or by the configuration of a second scheduler.

mod creation;
mod explained;
mod faults;
mod fuzz;
mod names;
mod rules;
mod scene;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks::{LABEL_DOMAIN, POD_POLICY};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::scheduler::SecondScheduler;
use testkit::testbed::loops::condition;
use testkit::testbed::{Road, story_on};
use testkit::{TIMEOUT, block_on, root};

use explained::{configured, then_and_now, until_after, words};
use scene::{KEY, POLICY, RANK, Scene, preferred};

/// Name of the component's scheduler, its account and its lease.
const SECOND: &str = "ganglion-scheduler";

#[test]
fn labels_of_nodes_decide_where_the_stock_scheduler_places_pods() {
    let plane = block_on(Plane::own("labels", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "labels", async |testbed| {
        let scene = Scene::open(testbed).await?;
        kept(&scene).await?;
        applied(&scene).await?;
        explained::explained(&scene).await?;
        user_terms(&scene).await?;
        required(&scene).await?;
        expired(&scene).await?;
        explained::deleted(&scene).await
    });
}

#[test]
fn a_second_stock_scheduler_reads_the_labels() {
    let plane = block_on(Plane::own("second", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "second", async |testbed| {
        let scene = Scene::open(testbed).await?;
        scene.ranks(["2", "9", "3", "0"]).await?;
        scene.component("placement-labels/rights.yaml").await?;
        // The configuration of the component reads the labels of this policy.
        scene.policy("default", &json!({})).await?;
        scene.says("default", "LabelsCurrent", ("True", "Labeled")).await?;
        scene.component("scheduler/rights.yaml").await?;
        let configuration = root().join("kustomize/components/scheduler/scheduler.yaml");
        let token = install::token_of(&testbed.client, NAMESPACE, SECOND).await?;
        let scheduler = SecondScheduler::start(&testbed.plane.cluster, &configuration, &token)?;
        scene.places(SECOND, &scene.nodes[1]).await?;
        let leases: Api<Lease> = Api::namespaced(testbed.client.clone(), NAMESPACE);
        ensure!(leases.get_opt(SECOND).await?.is_some(), "no lease of its own");
        let at = scene.placed(SECOND, &scene.nodes[1]).await?;
        let (_, text) = scene.explain("default").await?;
        let unknown = "may add terms, which is not known: there is no Deployment ganglion-system/ganglion-scheduler";
        ensure!(words(&text).contains(unknown), "{text}");
        configured(&scene, &configuration).await?;
        // The labels are read again for each pod.
        until_after(at).await;
        for (node, rank, label) in [(2, "10", "15"), (1, "2", "3")] {
            let node = &scene.nodes[node];
            scene.rank(node, rank).await?;
            let key = format!("{LABEL_DOMAIN}default");
            scene.labeled_by(&key, &[(node.clone(), Some(label))].into()).await?;
        }
        let (found, text) = scene.explain("default").await?;
        ensure!(text.contains("  pod        no terms in its spec: the pod names no policy"), "{text}");
        let added = "the profile of ganglion-scheduler adds terms: 4 preferred terms (weights 6, 12, 24, 48) read \
                     ganglion.node-restriction.kubernetes.io/default";
        ensure!(words(&text).contains(added), "{text}");
        ensure!(then_and_now(&found, &scene.nodes[1]).0 == "15", "{text}");
        ensure!(then_and_now(&found, &scene.nodes[2]) == (json!("6"), json!("15")), "{text}");
        scene.clear().await?;
        scene.places(SECOND, &scene.nodes[2]).await?;
        drop(scheduler);
        scene.policies().delete("default", &DeleteParams::default()).await?;
        Ok(())
    });
}

/// The order of the parts saves time: an API server looks for new kinds of parameters every 30 s, so it restarts before
/// it has found them.
#[test]
fn no_pod_is_refused_and_no_label_is_lost_by_bad_input_and_faults() {
    let plane = block_on(Plane::own("cases", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "cases", async |testbed| {
        let scene = Scene::open(testbed).await?;
        let plain = creation::plain(&scene).await?;
        creation::begin(&scene).await?;
        let restart = faults::restart(&scene, &plain).await?;
        names::long(&scene).await?;
        restart.ended().await?;
        names::many_labels(&scene).await?;
        names::renamed(&scene).await?;
        names::chosen(&scene).await?;
        faults::killed(&scene).await?;
        faults::refused(&scene).await?;
        faults::invalid(&scene).await?;
        creation::changed(&scene).await?;
        rules::obeyed(&scene).await?;
        faults::compared(&scene, &plain).await?;
        fuzz::run(&scene, &plain).await?;
        // More nodes change the labels of the others.
        names::many_nodes(&scene).await
    });
}

/// Each node has a label that follows its score, also a new one, and one whose label somebody has changed.
async fn kept(scene: &Scene<'_>) -> Result<()> {
    scene.ranks(["10", "8", "5", "0"]).await?;
    scene.policy(POLICY, &json!({})).await?;
    let refused = scene.says(POLICY, "LabelsCurrent", ("False", "LabelsNotWritten")).await?;
    let said = condition(&refused.conditions, "LabelsCurrent").map(|one| one.message).unwrap_or_default();
    ensure!(said.contains("install kustomize/components/placement-labels"), "{said}");
    ensure!(refused.valid_until.is_none(), "labels that are missing are valid until {:?}", refused.valid_until);
    scene.component("placement-labels/rights.yaml").await?;
    let expected = scene.each(["15", "12", "8", "0"]);
    scene.labeled(&expected).await?;
    let status = scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    let labels = status.labels.context("no labels in the status")?;
    ensure!(labels.key == KEY && labels.nodes == 4 && labels.oldest.is_some(), "{labels:?}");
    ensure!(status.valid_until.is_some(), "the labels are valid until no time");
    // A score that moves a little changes no label, a large step does.
    scene.rank(&scene.nodes[1], "8.3").await?;
    scene.rank(&scene.nodes[2], "1").await?;
    let mut expected = expected;
    expected.insert(scene.nodes[2].clone(), Some("2"));
    scene.labeled(&expected).await?;
    // Labels that others change or remove are restored.
    for label in [json!("15"), Value::Null] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEY: label}}}));
        scene.nodes().patch(&scene.nodes[3], &PatchParams::default(), &patch).await?;
        scene.labeled(&expected).await?;
    }
    // Nothing waits for the kubelet of a new node. Its rank is unknown to the expression, so it scores 0 once it is
    // Ready.
    let new: Node = serde_json::from_value(json!({"metadata": {"name": "new"}}))?;
    scene.nodes().create(&PostParams::default(), &new).await?;
    scene.labeled(&BTreeMap::from([("new".to_owned(), Some("12"))])).await?;
    scene.nodes().delete("new", &DeleteParams::default()).await?;
    // The labels of a deleted policy are removed, and those of another one stay.
    scene.policy("another", &json!({})).await?;
    let another = "ganglion.node-restriction.kubernetes.io/another";
    scene.labeled_by(another, &scene.each(["15", "12", "2", "0"])).await?;
    scene.policies().delete("another", &DeleteParams::default()).await?;
    scene.labeled_by(another, &scene.all(None)).await?;
    scene.labeled(&expected).await
}

/// New pods in the namespaces that take part have the terms, and the scheduler places them on the best node.
async fn applied(scene: &Scene<'_>) -> Result<()> {
    let told = scene.says(POLICY, "LabelsApplied", ("False", "NotInstalled")).await?;
    let said = condition(&told.conditions, "LabelsApplied").map(|one| one.message).unwrap_or_default();
    ensure!(said.contains("kustomize/components/placement-labels"), "{said}");
    scene.component("placement-labels/policy.yaml").await?;
    scene.says(POLICY, "LabelsApplied", ("True", "AppliedByAdmission")).await?;
    scene.opt(&scene.testbed.ns, Some("labels")).await?;
    let pod = scene.until_terms(&json!({}), 4).await?;
    let weights: i64 = preferred(&pod).iter().filter_map(|term| term["weight"].as_i64()).sum();
    ensure!(weights == 90, "{pod}");
    // Twice the same.
    let again = scene.created(&json!({"spec": {"affinity": pod["spec"]["affinity"]}})).await?;
    ensure!(again["spec"]["affinity"] == pod["spec"]["affinity"], "{again}");
    for (what, other) in [
        ("a pod with a node", json!({"spec": {"nodeName": scene.nodes[0]}})),
        ("a pod of another scheduler", json!({"spec": {"schedulerName": "other"}})),
        ("a pod of another policy", json!({"metadata": {"labels": {POD_POLICY: "other"}}})),
        (
            "a pod of a DaemonSet",
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"},
            ]}}),
        ),
    ] {
        let pod = scene.created(&other).await?;
        ensure!(preferred(&pod).is_empty(), "{what}: {pod}");
    }
    let named = scene.created(&json!({"metadata": {"labels": {POD_POLICY: POLICY}}})).await?;
    ensure!(preferred(&named).len() == 4, "{named}");
    scene.places("default-scheduler", &scene.nodes[0]).await
}

/// Terms of users stay.
async fn user_terms(scene: &Scene<'_>) -> Result<()> {
    let term = json!({"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}});
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]});
    let zone = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}},
    }]}});
    let preferred_terms = "preferredDuringSchedulingIgnoredDuringExecution";
    let required_terms = "requiredDuringSchedulingIgnoredDuringExecution";
    for affinity in [
        json!({"nodeAffinity": {preferred_terms: [term]}}),
        json!({"nodeAffinity": {required_terms: required}}),
        json!({"nodeAffinity": {preferred_terms: [term, term], required_terms: required}}),
        zone,
    ] {
        let pod = scene.created(&json!({"spec": {"affinity": affinity, "nodeSelector": {"x": "y"}}})).await?;
        ensure!(preferred(&pod).len() == 4, "{pod}");
        let mut left = pod["spec"]["affinity"].clone();
        let terms = left["nodeAffinity"][preferred_terms].as_array_mut().context("no terms")?;
        terms.retain(|term| term["preference"]["matchExpressions"][0]["key"] != KEY);
        let is_empty = terms.is_empty();
        let node_affinity = left["nodeAffinity"].as_object_mut().context("no node affinity")?;
        if is_empty {
            node_affinity.remove(preferred_terms);
        }
        if node_affinity.is_empty() {
            left.as_object_mut().context("no affinity")?.remove("nodeAffinity");
        }
        ensure!(left == affinity, "{affinity} became {}", pod["spec"]["affinity"]);
    }
    Ok(())
}

/// With `rejections: Required`, a rejected node repels pods, whatever their own terms say.
async fn required(scene: &Scene<'_>) -> Result<()> {
    let rejecting = json!([{"name": "rank", "expression": {
        "score": format!("double(node.labels[\"{RANK}\"])"), "filter": format!("node.labels[\"{RANK}\"] != \"0\""),
    }}]);
    scene.policy(POLICY, &json!({"agents": rejecting})).await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("0"))])).await?;
    scene.policy(POLICY, &json!({"agents": rejecting, "labels": {"rejections": "Required"}})).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("rejected"))])).await?;
    let repels = |pod: &Value| -> Vec<usize> {
        let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = terms["nodeSelectorTerms"].as_array().cloned().unwrap_or_default();
        let count = |term: &Value| {
            let all = term["matchExpressions"].as_array().cloned().unwrap_or_default();
            all.iter().filter(|one| one["key"] == KEY && one["operator"] == "NotIn").count()
        };
        terms.iter().map(count).collect()
    };
    let look = async {
        loop {
            let pod = scene.created(&json!({})).await?;
            if repels(&pod) == [1] {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.context("no pod is repelled")??;
    let terms = json!([
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]);
    let required = json!({"nodeSelectorTerms": terms});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let pod = scene.created(&json!({"spec": {"affinity": affinity}})).await?;
    ensure!(repels(&pod) == [1, 1], "{pod}");
    scene.policy(POLICY, &json!({})).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("0"))])).await
}

/// Pods that are created after the labels have expired get no terms; the labels stay for schedulers.
async fn expired(scene: &Scene<'_>) -> Result<()> {
    scene.policy(POLICY, &json!({"maxAge": "10s"})).await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.until_terms(&json!({}), 4).await?;
    scene.testbed.operator.lock().await.kill();
    scene.until_terms(&json!({}), 0).await?;
    explained::late(scene).await?;
    let labels: BTreeMap<_, _> = [(scene.nodes[0].clone(), Some("15"))].into();
    scene.labeled(&labels).await?;
    scene.testbed.kill_and_restart().await?;
    scene.until_terms(&json!({}), 4).await.map(drop)
}
