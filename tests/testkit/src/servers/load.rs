//! The load of an application: what its replicas use together, in equal shares of those that serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::servers::usage;
use crate::verdict::{APP, serves};

/// Time between two distributions.
const PAUSE: Duration = Duration::from_millis(200);

/// Distributes the load until it is dropped.
pub struct SharedLoad {
    millicores: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl SharedLoad {
    /// Distributes this load to the simulated pods with the label [`APP`] of this value.
    pub fn start(client: &Client, namespace: &str, app: &str, millicores: u32) -> Self {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let selector = ListParams::default().labels(&format!("{APP}={app}"));
        let millicores = Arc::new(AtomicU32::new(millicores));
        let load = millicores.clone();
        let task = tokio::spawn(async move {
            loop {
                // A pod may end meanwhile; the next round has the pods that are left.
                let _ = share(&pods, &selector, load.load(Ordering::Relaxed)).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { millicores, task }
    }

    pub fn set(&self, millicores: u32) {
        self.millicores.store(millicores, Ordering::Relaxed);
    }
}

impl Drop for SharedLoad {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Gives each pod that serves the same share.
async fn share(pods: &Api<Pod>, selector: &ListParams, millicores: u32) -> Result<()> {
    let all = pods.list(selector).await?;
    let serving: Vec<&Pod> = all.iter().filter(|pod| serves(pod)).collect();
    let count = u32::try_from(serving.len())?.max(1);
    let share = format!("{}m", millicores / count);
    for pod in serving {
        if pod.annotations().get(usage::CPU) != Some(&share) {
            usage::set(pods, &pod.name_any(), &share, "64Mi").await?;
        }
    }
    Ok(())
}
