//! Has policies learn from pods, on every replica: first reads what was saved before, and is not ready until then.

use std::future::Future;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::memory::{SavedMemory, map_name};
use ganglion_runtime::watch::Readiness;

/// How often what happened to pods is learned.
const PAUSE: Duration = Duration::from_secs(1);

/// ConfigMaps read at the same time.
const READERS: usize = 8;

/// How long to wait after a read that failed.
const RETRY: Duration = Duration::from_secs(1);

/// After how many refusals the operator goes on without: an API server that has just started refuses until it has read the roles.
const REFUSALS: u32 = 30;

/// Restores what was saved in this namespace, and then learns until `stop`.
pub fn learn(
    client: Client,
    namespace: String,
    placement: PlacementCache,
    timeout: Duration,
    ready: &Readiness,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Counts from now on, not from when the task first runs.
    let mut awaited = ready.expect_one();
    let ready = ready.clone();
    let learning = async move {
        placement.restore(saved(&client, &namespace, timeout).await);
        awaited.ready();
        ready.ready().await;
        loop {
            let placement = placement.clone();
            // It may look at every pod.
            let learned = tokio::task::spawn_blocking(move || placement.learn(Timestamp::now())).await;
            if let Err(failed) = learned
                && failed.is_panic()
            {
                std::panic::resume_unwind(failed.into_panic());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = learning => {}
        }
    }
}

/// What was saved, by the uid of the policy; nothing, if the operator may not read it.
async fn saved(client: &Client, namespace: &str, timeout: Duration) -> Vec<(String, SavedMemory)> {
    let mut refusals = 0;
    loop {
        match tokio::time::timeout(timeout, maps(client, namespace)).await {
            Ok(Ok(maps)) => return maps.iter().flat_map(read).collect(),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                refusals += 1;
                if refusals == REFUSALS {
                    warn!(namespace, refused = status.message, "what policies learned before is not read");
                    return Vec::new();
                }
            }
            Ok(Err(error)) => warn!(%error, "what policies learned before cannot be read"),
            Err(_) => warn!("what policies learned before cannot be read: no answer in time"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The ConfigMaps of the policies that there are. By name, so that the operator needs no right to list others in its namespace.
async fn maps(client: &Client, namespace: &str) -> kube::Result<Vec<ConfigMap>> {
    let policies = Api::<PlacementPolicy>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let names: Vec<String> = policies.iter().filter_map(|policy| policy.uid()).map(|uid| map_name(&uid)).collect();
    let found = stream::iter(names).map(|name| {
        let api = api.clone();
        async move { api.get_opt(&name).await }
    });
    found.buffer_unordered(READERS).try_filter_map(async |map| Ok(map)).try_collect().await
}

/// What a ConfigMap has, for each of its owners; nothing, if it cannot be read.
fn read(map: &ConfigMap) -> Vec<(String, SavedMemory)> {
    match SavedMemory::read(map, Timestamp::now()) {
        Ok(saved) => {
            info!(name = map.name_any(), at = %saved.saved_at, "what a policy learned before is read");
            map.owner_references().iter().map(|owner| (owner.uid.clone(), saved.clone())).collect()
        }
        Err(error) => {
            warn!(name = map.name_any(), %error, "what a policy learned before is lost");
            Vec::new()
        }
    }
}
