//! Reads the cluster for short commands, with the user's permissions.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::operator::settings::Settings;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_placement_plan::learned::LearnedValues;
use ganglion_runtime::context::Context;
use ganglion_runtime::events;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;

/// Number of objects in one page of a list: a page of pods takes a few megabytes.
const PAGE: u32 = 500;

/// Reads all objects of a kind, page by page.
pub async fn pages<K>(api: &Api<K>, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Context for the operator's code in a command. The leader term has this name.
pub fn context(client: &Client, store: Store, settings: &Settings, command: &str) -> Context {
    let metrics = Metrics::new();
    let stop = CancellationToken::new();
    let (events, _) = events::line(&metrics);
    Context {
        store,
        writer: Writer::new(client.clone(), settings.request_timeout(), stop.clone(), metrics.clone()),
        events,
        metrics,
        clock: Timestamp::now,
        term: command.into(),
        stop,
    }
}

/// Saved values of a policy, if the user can read them; otherwise the policy learns from the pods again.
pub async fn saved_values(client: &Client, policy: &PlacementPolicy) -> Option<LearnedValues> {
    let (namespace, name) = policy.status.as_ref()?.memory.as_ref()?.split_once('/')?;
    let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await.ok()??;
    LearnedValues::read(&found, Timestamp::now()).ok()
}
