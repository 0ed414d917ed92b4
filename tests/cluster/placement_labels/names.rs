//! Names of policies, many labels and many nodes, and how a pod chooses its policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ganglion_api::marks::{DEFAULT_POLICY, LABEL_DOMAIN, POD_POLICY};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::testbed::loops::condition;
use testkit::testbed::nodes::Size;

use super::creation::{STRICT, STRICT_KEY};
use super::fuzz::from_environment;
use super::scene::{KEY, POLICY, Scene, keys_read};

/// Number of nodes that are labeled at once. `GANGLION_LABELED_NODES` is another one.
const NODES: usize = 30;

/// Labels of a usual node that is part of many systems.
const LABELS: usize = 60;

async fn key(scene: &Scene<'_>, policy: &str) -> Result<String> {
    let status = scene.says(policy, "LabelsCurrent", ("True", "Labeled")).await?;
    Ok(status.labels.context("no labels in the status")?.key)
}

/// Sets or removes the mark of a policy that pods use by default.
async fn mark(scene: &Scene<'_>, policy: &str, is_default: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {DEFAULT_POLICY: is_default.to_string()}}}));
    scene.policies().patch(policy, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Policies whose names are longer than a label may be, and differ only there, have different labels; so has a policy
/// that is named like such a label.
pub async fn long(scene: &Scene<'_>) -> Result<()> {
    let prefix = "placement-of-batch-jobs-and-services-in-all-regions-of-the-company";
    let mut names = vec![format!("{prefix}.east"), format!("{prefix}.west")];
    for name in &names {
        scene.policy(name, &json!({})).await?;
    }
    let key_of_first = key(scene, &names[0]).await?;
    let short = key_of_first.strip_prefix(LABEL_DOMAIN).context("another domain")?.to_owned();
    // The scores of this one are the opposite.
    let score = json!([{"name": "rank", "expression": {"score": "10.0 - double(node.labels[\"rank\"])"}}]);
    scene.policy(&short, &json!({"agents": score})).await?;
    names.push(short);
    let mut keys = BTreeSet::new();
    for (name, labels) in names.iter().zip([["15", "12", "8", "0"], ["15", "12", "8", "0"], ["0", "3", "8", "15"]]) {
        let key = key(scene, name).await?;
        ensure!(key.len() - LABEL_DOMAIN.len() <= 63, "{key}");
        scene.labeled_by(&key, &scene.each(labels)).await?;
        keys.insert(key);
    }
    ensure!(keys.len() == names.len(), "{names:?} share keys: {keys:?}");
    // A pod cannot name such a policy in a label, but may use it by default.
    let told = scene.says(&names[0], "LabelsApplied", ("False", "NameTooLong")).await?;
    let said = condition(&told.conditions, "LabelsApplied").map(|one| one.message).unwrap_or_default();
    ensure!(said.contains("shorter name"), "{said}");
    mark(scene, POLICY, false).await?;
    mark(scene, &names[0], true).await?;
    scene.says(&names[0], "LabelsApplied", ("True", "AppliedByAdmission")).await?;
    let reads = |pod: &Value| keys_read(pod) == [key_of_first.as_str(); 4];
    scene.until("terms of the policy with the long name", &json!({}), reads).await?;
    mark(scene, &names[0], false).await?;
    mark(scene, POLICY, true).await?;
    for name in &names {
        scene.policies().delete(name, &DeleteParams::default()).await?;
    }
    for key in &keys {
        scene.labeled_by(key, &scene.all(None)).await?;
    }
    Ok(())
}

/// Labels of others stay.
pub async fn many_labels(scene: &Scene<'_>) -> Result<()> {
    let node = &scene.nodes[0];
    let more: BTreeMap<String, String> =
        (0..LABELS).map(|at| (format!("part-{at}.example/of-the-machine"), at.to_string())).collect();
    let labels = json!({"metadata": {"labels": more}});
    scene.nodes().patch(node, &PatchParams::default(), &Patch::Merge(labels)).await?;
    for (rank, level) in [("0", "0"), ("10", "15")] {
        scene.rank(node, rank).await?;
        scene.rank(&scene.nodes[1], "10").await?;
        scene.labeled(&BTreeMap::from([(node.clone(), Some(level))])).await?;
    }
    scene.rank(&scene.nodes[1], "8").await?;
    scene.labeled(&scene.each(["15", "12", "8", "0"])).await?;
    let found = scene.nodes().get(node).await?;
    ensure!(more.iter().all(|(key, value)| found.labels().get(key) == Some(value)), "{:?}", found.labels());
    Ok(())
}

/// A policy that is renamed is another one: the former labels go, and pods that name it get no terms.
pub async fn renamed(scene: &Scene<'_>) -> Result<()> {
    let [former, key] = ["former", "latter"].map(|name| format!("{LABEL_DOMAIN}{name}"));
    let names_it = |name: &str| json!({"metadata": {"labels": {POD_POLICY: name}}});
    scene.policy("former", &json!({})).await?;
    scene.labeled_by(&former, &scene.each(["15", "12", "8", "0"])).await?;
    scene.until("terms of the former policy", &names_it("former"), |pod| keys_read(pod).len() == 4).await?;
    scene.policies().delete("former", &DeleteParams::default()).await?;
    scene.policy("latter", &json!({})).await?;
    scene.labeled_by(&former, &scene.all(None)).await?;
    scene.labeled_by(&key, &scene.each(["15", "12", "8", "0"])).await?;
    scene.until("terms of the latter policy", &names_it("latter"), |pod| keys_read(pod) == [key.as_str(); 4]).await?;
    scene.until("no terms", &names_it("former"), |pod| keys_read(pod).is_empty()).await?;
    scene.policies().delete("latter", &DeleteParams::default()).await?;
    scene.labeled_by(&key, &scene.all(None)).await
}

/// A pod has the terms of the policy that it names, and of one policy only, even if several are the default. A dry run
/// leaves no pod.
pub async fn chosen(scene: &Scene<'_>) -> Result<()> {
    let named = |policy: &str| json!({"metadata": {"labels": {POD_POLICY: policy}}});
    for (policy, key) in [(POLICY, KEY), (STRICT, STRICT_KEY)] {
        scene.until(&format!("terms of {policy}"), &named(policy), |pod| keys_read(pod) == [key; 4]).await?;
    }
    mark(scene, STRICT, true).await?;
    // The second default is used once the first one is none.
    mark(scene, POLICY, false).await?;
    scene.until("terms of the second", &json!({}), |pod| keys_read(pod) == [STRICT_KEY; 4]).await?;
    mark(scene, POLICY, true).await?;
    for _ in 0..20 {
        let keys = keys_read(&scene.created(&json!({})).await?);
        ensure!(keys == [KEY; 4] || keys == [STRICT_KEY; 4], "{keys:?}");
    }
    mark(scene, STRICT, false).await?;
    scene.until_terms(&json!({}), 4).await?;
    let left = scene.pods().list(&Default::default()).await?;
    ensure!(left.items.is_empty(), "pods of dry runs: {:?}", left.items.first().map(ResourceExt::name_any));
    Ok(())
}

/// Nodes are labeled by far faster than one per second, the rate of a client with limits of its own.
pub async fn many_nodes(scene: &Scene<'_>) -> Result<()> {
    let count = from_environment("GANGLION_LABELED_NODES", NODES);
    let nodes = scene.testbed.nodes(count, Size::default()).await?;
    let begun = Instant::now();
    scene.policy("many", &json!({})).await?;
    let key = format!("{LABEL_DOMAIN}many");
    let look = async {
        loop {
            let found = scene.nodes().list(&ListParams::default()).await?;
            if found.iter().all(|node| node.labels().contains_key(&key)) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.context("nodes without a label")??;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} nodes labeled within {seconds:.1} s");
    let rate = f64::from(u32::try_from(count)?) / seconds;
    ensure!(rate > 5.0, "{rate:.1} nodes a second");
    scene.policies().delete("many", &DeleteParams::default()).await?;
    let none = nodes.names.iter().map(|name| (name.clone(), None)).collect();
    scene.labeled_by(&key, &none).await
}
