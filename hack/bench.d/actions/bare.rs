//! The bare protocol: the requests that any operator must send for a move, without status, receipt or checks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ganglion_api::marks;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::eye::{Eye, Seen};
use testkit::verdict::{APP, node_of, pods_of, serves};

use crate::frame::millis;

/// Time to wait for a substitute pod of the ReplicaSet.
const MOMENT: Duration = Duration::from_secs(5);

/// Maximum time of one step among hundreds of moves.
const LONG: Duration = Duration::from_secs(120);

/// One requested move.
pub struct Wanted<'a> {
    pub app: &'a str,
    pub victim: &'a str,
    pub node: &'a str,
    /// Number in the name of the replacement pod, unique per move.
    pub number: usize,
}

/// Pods that cannot be the substitute of a released pod: they existed before, or belong to another move.
pub type Taken = Mutex<BTreeSet<String>>;

/// Moves the oldest replica to a node without a replica. Returns the milliseconds until its eviction is accepted.
pub async fn one(client: &Client, eye: &Eye, namespace: &str, app: &str, number: usize) -> Result<f64> {
    let seen = eye.now();
    let mut pods: Vec<_> = pods_of(&seen, app).cloned().collect();
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let victim = pods.first().context("no replica")?.name_any();
    let used: BTreeSet<String> = pods.iter().map(|pod| node_of(pod)).collect();
    let node = (0..).map(|index| format!("node-{index}")).find(|node| !used.contains(node)).unwrap_or_default();
    let taken = Taken::new(seen.pods.keys().cloned().collect());
    let began = Instant::now();
    exchange(client, eye, namespace, &Wanted { app, victim: &victim, node: &node, number }, &taken).await?;
    Ok(millis(began.elapsed()))
}

/// Runs the protocol up to the accepted eviction.
pub async fn exchange(client: &Client, eye: &Eye, namespace: &str, wanted: &Wanted<'_>, taken: &Taken) -> Result<()> {
    let Wanted { app, victim, node, number } = *wanted;
    let seen = eye.now();
    let of_app = |set: &&Arc<ReplicaSet>| set.labels().get(APP).is_some_and(|label| label == app);
    let set = seen.sets.values().find(of_app).context("no ReplicaSet")?;
    let name = format!("{}-bare-{number}", set.name_any());
    let replacement = replacement(&name, node, &serde_json::to_value(&set.spec)?)?;
    let hash = set.labels().get(marks::POD_TEMPLATE_HASH).cloned().unwrap_or_default();
    lock(taken).insert(name.clone());

    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let change = async |pod: &str, patch: Value| {
        api.patch(pod, &PatchParams::default(), &Patch::Merge(json!({"metadata": patch}))).await.map(drop)
    };
    api.create(&PostParams::default(), &replacement).await?;
    let ready = |seen: &Seen| seen.pods.get(&name).filter(|pod| serves(pod)).map(drop);
    eye.within(LONG, "the bare replacement to be Ready", ready).await?;
    change(victim, json!({"labels": {marks::POD_TEMPLATE_HASH: null}, "ownerReferences": null})).await?;
    let fresh = |seen: &Seen| {
        let mut taken = lock(taken);
        pods_of(seen, app).map(|pod| pod.name_any()).find(|pod| taken.insert(pod.clone()))
    };
    // With many concurrent moves, the substitute may already be deleted by another move: this protocol does not
    // coordinate moves.
    if let Ok(surplus) = eye.within(MOMENT, "the surplus", fresh).await {
        change(&surplus, json!({"annotations": {marks::DELETION_COST: marks::LOWEST_COST}})).await.or_else(gone)?;
    }
    change(&name, json!({"labels": {marks::POD_TEMPLATE_HASH: hash}})).await?;
    evict(&api, victim).await
}

fn gone(error: kube::Error) -> kube::Result<()> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    }
}

fn lock(taken: &Taken) -> MutexGuard<'_, BTreeSet<String>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Retries the eviction until the budget allows it.
async fn evict(api: &Api<Pod>, victim: &str) -> Result<()> {
    for _ in 0..10_000 {
        match api.evict(victim, &EvictParams::default()).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the budget never allowed the eviction of {victim}")
}

/// Builds a pod from the ReplicaSet's template, pinned to the node, without the label that would let the ReplicaSet
/// adopt it.
fn replacement(name: &str, node: &str, set: &Value) -> Result<Pod> {
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
