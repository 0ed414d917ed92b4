//! Feeds: one `kube::runtime::watcher` for each kind and watched namespace. Objects are converted to facts and kept in the store.
//!
//! Owns the backoff of each watch, its timeouts, the removal of objects that a complete list does not contain, and readiness.
//! `caches` lists the kinds.

mod feed;
mod pace;
mod ready;

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::store::Store;
use crate::logic::world::Indexed;
use crate::metrics::Metrics;
use feed::Feed;
pub use ready::Readiness;

/// An object that can be watched.
pub trait Watched: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static {}
impl<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static> Watched for K {}

/// Options of the watches.
#[derive(Clone)]
pub struct WatchOptions {
    /// Watch only these namespaces; all if empty. Cluster-scoped objects are always watched.
    pub namespaces: Vec<String>,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// All watches of the process. They end when this is dropped.
pub struct Feeds {
    client: Client,
    options: WatchOptions,
    store: Store,
    ready: Readiness,
    metrics: Metrics,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Feeds {
    /// A set without watches. Watches run until `stop`.
    #[must_use]
    pub fn new(
        client: &Client,
        options: WatchOptions,
        store: Store,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let client = pace::paced(client.clone());
        Self { client, options, store, ready: Readiness::default(), metrics, stop, tasks: JoinSet::new() }
    }

    /// Reports whether every watch has delivered its first list.
    #[must_use]
    pub fn ready(&self) -> Readiness {
        self.ready.clone()
    }

    /// Watches a cluster-scoped kind.
    pub fn cluster<K: Watched + Resource<Scope = ClusterResourceScope>, F: Indexed + From<K>>(&mut self) {
        let feed = self.feed::<K, F>(Api::all(self.client.clone()), None);
        self.spawn(feed.run());
    }

    /// Watches a kind.
    pub fn namespaced<K: Watched + Resource<Scope = NamespaceResourceScope>, F: Indexed + From<K>>(&mut self) {
        for (api, namespace) in self.apis() {
            let feed = self.feed::<K, F>(api, namespace);
            self.spawn(feed.run());
        }
    }

    /// Watches an optional kind while it is installed.
    pub fn optional<K: Watched + Resource<Scope = NamespaceResourceScope>, F: Indexed + From<K>>(&mut self) {
        for (api, namespace) in self.apis() {
            let feed = self.feed::<K, F>(api, namespace);
            self.spawn(feed.run_while_installed());
        }
    }

    /// Returns when every watch has ended after `stop`.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn apis<K: Watched + Resource<Scope = NamespaceResourceScope>>(&self) -> Vec<(Api<Guard<K>>, Option<String>)> {
        if self.options.namespaces.is_empty() {
            return vec![(Api::all(self.client.clone()), None)];
        }
        let one = |namespace: &String| (Api::namespaced(self.client.clone(), namespace), Some(namespace.clone()));
        self.options.namespaces.iter().map(one).collect()
    }

    fn feed<K: Watched, F: Indexed + From<K>>(&self, api: Api<Guard<K>>, namespace: Option<String>) -> Feed<K, F> {
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        Feed::new(api, namespace, self.options.timeout, store, metrics, self.ready.expect_one())
    }

    fn spawn(&mut self, feed: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = feed => {}
            }
        });
    }
}

#[cfg(test)]
mod tests;
