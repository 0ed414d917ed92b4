//! Fleets: many Deployments with budgets on many nodes, and actions on them.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::eye::Seen;
pub use testkit::plane::namespace;
use testkit::verdict::APP;

use super::frame::Progress;

/// Number of concurrent requests while a fleet is created.
const WRITERS: usize = 16;

/// Creates a Service for the pods of the named Deployment.
pub async fn service(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"selector": {APP: name}, "ports": [{"port": 80}]},
    }))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &service).await?;
    Ok(())
}

/// Creates a Deployment, and a budget that allows no disruption.
pub async fn deployment(client: &Client, namespace: &str, name: &str, replicas: usize) -> Result<()> {
    let create = PostParams::default();
    let labels = json!({APP: name});
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"minAvailable": replicas, "selector": {"matchLabels": labels}},
    }))?;
    let object: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {APP: name, "fleet": "deployments"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "c", "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }]},
            },
        },
    }))?;
    Api::namespaced(client.clone(), namespace).create(&create, &budget).await?;
    Api::namespaced(client.clone(), namespace).create(&create, &object).await?;
    Ok(())
}

/// Returns the namespace of the Deployment with this index (round robin).
pub fn home_of(namespaces: &[String], index: usize) -> &str {
    &namespaces[index % namespaces.len()]
}

/// Creates the namespaces, and Deployments `d-0`, `d-1` … in them with the given number of replicas, and waits until
/// all are Ready. Creates no Services: rewriting the endpoints of hundreds of pods at each change would be a third of
/// the work of the control plane's controllers, and nothing here depends on endpoints.
pub async fn deployments(client: &Client, namespaces: &[String], count: usize, replicas: usize) -> Result<()> {
    let all = count * replicas;
    let progress = Progress::count(&format!("making {all} pods"), all);
    for name in namespaces {
        namespace(client, name).await?;
    }
    stream::iter(0..count)
        .map(|index| async move { deployment(client, home_of(namespaces, index), &format!("d-{index}"), replicas).await })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    let deployments: Api<Deployment> = Api::all(client.clone());
    loop {
        let listed = deployments.list(&ListParams::default()).await?;
        let ready = |one: &Deployment| one.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
        let ready: usize = listed.iter().map(|one| usize::try_from(ready(one)).unwrap_or(0)).sum();
        progress.at(ready);
        if ready == all {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    // Counts the pods themselves once, because a status may lag.
    let pods: Api<Pod> = Api::all(client.clone());
    anyhow::ensure!(
        pods.list_metadata(&ListParams::default()).await?.items.len() == all,
        "expected {all} pods, but found another number"
    );
    progress.end();
    Ok(())
}

/// Builds an action that moves this pod to this node.
pub fn move_pod(namespace: &str, name: &str, pod: &str, node: &str) -> Result<WorkloadAction> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"move": {"pod": {"name": pod}, "to": {"nodeName": node}}},
    }))?)
}

/// A move of a pod off its node, without a target.
pub fn leave(namespace: &str, name: &str, pod: &str) -> Result<WorkloadAction> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"move": {"pod": {"name": pod}}},
    }))?)
}

/// Reason and message of an action's `Ready` condition, once the action has ended.
pub fn ended<'a>(seen: &'a Seen, action: &str) -> Option<(&'a str, &'a str)> {
    let status = seen.actions.get(action)?.status.as_ref()?;
    status.finished_at.as_ref()?;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some((ready.reason.as_str(), ready.message.as_str()))
}

/// Creates all actions, some requests at a time.
pub async fn apply_all(client: &Client, actions: &[WorkloadAction]) -> Result<()> {
    stream::iter(actions)
        .map(|action| async move {
            let api: Api<WorkloadAction> = Api::namespaced(client.clone(), &action.namespace().unwrap_or_default());
            api.create(&PostParams::default(), action).await.map(drop)
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}
