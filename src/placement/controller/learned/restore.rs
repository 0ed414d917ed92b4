//! Reads the saved values of all policies when the process starts.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::Uid;
use ganglion_placement_plan::learned::{LearnedValues, map_name};

/// Number of concurrent reads of ConfigMaps.
const READERS: usize = 8;

/// Time to wait after a failed read.
const RETRY: Duration = Duration::from_secs(1);

/// Number of refusals after which the operator continues without saved values. An API server that has just started
/// refuses requests until it has loaded the roles.
const REFUSALS: u32 = 30;

/// Reads the saved values, by the uid of the policy; empty if the operator may not read them.
pub async fn read_saved(client: &Client, namespace: &str, timeout: Duration) -> Vec<(Uid, LearnedValues)> {
    let mut refusals = 0;
    loop {
        match tokio::time::timeout(timeout, read_maps(client, namespace)).await {
            Ok(Ok(maps)) => return maps.iter().flat_map(parse).collect(),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                refusals += 1;
                if refusals == REFUSALS {
                    warn!(namespace, refused = status.message, "policies start without their saved values");
                    return Vec::new();
                }
            }
            Ok(Err(error)) => warn!(%error, "the saved values of policies cannot be read; retrying"),
            Err(_) => warn!("the saved values of policies cannot be read: timeout; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads the ConfigMaps of the existing policies. Reads them by name, so that the operator does not need the permission
/// to list other ConfigMaps in its namespace.
async fn read_maps(client: &Client, namespace: &str) -> kube::Result<Vec<ConfigMap>> {
    let policies = Api::<PlacementPolicy>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let names: Vec<String> = policies.iter().map(|policy| map_name(&Uid::of(&policy.metadata))).collect();
    let found = stream::iter(names).map(|name| {
        let api = api.clone();
        async move { api.get_opt(&name).await }
    });
    found.buffer_unordered(READERS).try_filter_map(async |map| Ok(map)).try_collect().await
}

/// Parses a ConfigMap for each of its owners; empty if it cannot be parsed.
fn parse(map: &ConfigMap) -> Vec<(Uid, LearnedValues)> {
    match LearnedValues::read(map, Timestamp::now()) {
        Ok(saved) => {
            info!(name = map.name_any(), at = %saved.saved_at, "the saved values of a policy are restored");
            map.owner_references().iter().map(|owner| (owner.uid.as_str().into(), saved.clone())).collect()
        }
        Err(error) => {
            warn!(name = map.name_any(), %error, "the saved values of a policy are lost");
            Vec::new()
        }
    }
}
