//! The Deployments of both sides. A task sets the status of each as if its replicas were ready as soon as they are set,
//! and records the changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use super::Side;

/// Creates a Deployment with this number of replicas on both sides.
pub async fn create(client: &Client, name: &str, replicas: usize) -> Result<()> {
    let labels = json!({"app": name});
    let target: Deployment = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
        },
    }}))?;
    for side in Side::BOTH {
        let targets: Api<Deployment> = Api::namespaced(client.clone(), side.namespace());
        targets.create(&PostParams::default(), &target).await?;
    }
    Ok(())
}

/// Follows the Deployments of both sides until it is dropped.
pub struct Follower {
    seen: Arc<Mutex<Changes>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Numbers of replicas of each Deployment, with the moments at which they were first seen.
type Changes = HashMap<(Side, String), Vec<(Instant, i32)>>;

impl Drop for Follower {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Follower {
    pub fn start(client: &Client) -> Self {
        let seen = Arc::<Mutex<Changes>>::default();
        let follow = |side: Side| tokio::spawn(follow(client.clone(), side, seen.clone()));
        let tasks = Side::BOTH.map(follow).into();
        Self { seen, tasks }
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes of this Deployment's replicas since this moment.
    pub fn changes(&self, side: Side, name: &str, since: Instant) -> Vec<(Instant, i32)> {
        let seen = self.lock();
        let all = seen.get(&(side, name.to_owned())).into_iter().flatten();
        all.filter(|(at, _)| *at >= since).copied().collect()
    }
}

async fn follow(client: Client, side: Side, seen: Arc<Mutex<Changes>>) {
    let targets: Api<Deployment> = Api::namespaced(client, side.namespace());
    let events = watcher::watcher(targets.clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        // After an error, the watcher retries by itself.
        let Ok(target) = event else { continue };
        let replicas = target.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        let shown = target.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let changes = seen.entry((side, target.name_any())).or_default();
            if changes.last().is_none_or(|(_, last)| *last != replicas) {
                changes.push((Instant::now(), replicas));
            }
        }
        if replicas == shown {
            continue;
        }
        let status = json!({"status": {
            "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
            "observedGeneration": target.metadata.generation,
        }});
        let patched = targets.patch_status(&target.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
        if let Err(error) = patched {
            eprintln!("the status of {}: {error}", target.name_any());
        }
    }
}
