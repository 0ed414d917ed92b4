//! The bare protocol, by hand: what any operator must at least do for a move, with no status, no receipt and no checks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ganglion::api::marks;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::eye::{Eye, Seen};
use crate::frame::millis;
use crate::verdict::{node_of, pods_of, serves};

/// Moves the oldest replica to a node that has none; the milliseconds until its eviction is accepted.
pub async fn one(client: &Client, eye: &Eye, namespace: &str, app: &str, number: usize) -> Result<f64> {
    let seen = eye.now();
    let mut pods: Vec<_> = pods_of(&seen, app).cloned().collect();
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let victim = pods.first().context("no replica")?.name_any();
    let taken: BTreeSet<String> = pods.iter().map(|pod| node_of(pod)).collect();
    let node = (0..).map(|index| format!("node-{index}")).find(|node| !taken.contains(node)).unwrap_or_default();
    let set = seen.sets.values().next().context("no ReplicaSet")?;
    let name = format!("{}-bare-{number}", set.name_any());
    let newcomer = newcomer(&name, &node, &serde_json::to_value(&set.spec)?)?;
    let hash = set.labels().get(marks::POD_TEMPLATE_HASH).cloned().unwrap_or_default();
    let known: BTreeSet<String> = seen.pods.keys().cloned().chain([name.clone()]).collect();

    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let change = async |pod: &str, patch: Value| {
        api.patch(pod, &PatchParams::default(), &Patch::Merge(json!({"metadata": patch}))).await.map(drop)
    };
    let began = Instant::now();
    api.create(&PostParams::default(), &newcomer).await?;
    let ready = |seen: &Seen| seen.pods.get(&name).filter(|pod| serves(pod)).map(drop);
    eye.until("the bare newcomer to be Ready", ready).await?;
    change(&victim, json!({"labels": {marks::POD_TEMPLATE_HASH: null}, "ownerReferences": null})).await?;
    let fresh = |seen: &Seen| pods_of(seen, app).map(|pod| pod.name_any()).find(|pod| !known.contains(pod));
    let surplus = eye.until("the surplus", fresh).await?;
    change(&surplus, json!({"annotations": {marks::DELETION_COST: marks::LOWEST_COST}})).await?;
    change(&name, json!({"labels": {marks::POD_TEMPLATE_HASH: hash}})).await?;
    evict(&api, &victim).await?;
    Ok(millis(began.elapsed()))
}

/// Until the budget allows it.
async fn evict(api: &Api<Pod>, victim: &str) -> Result<()> {
    for _ in 0..1000 {
        match api.evict(victim, &EvictParams::default()).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the budget never allowed the eviction of {victim}")
}

/// A pod from the set's template, without the label that ties it to the set, pinned to the node.
fn newcomer(name: &str, node: &str, set: &Value) -> Result<Pod> {
    let mut template = set["template"].clone();
    let pin = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    template["metadata"] = json!({"name": name, "labels": template["metadata"]["labels"]});
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(marks::POD_TEMPLATE_HASH);
    }
    template["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]},
    }});
    Ok(serde_json::from_value(template)?)
}
