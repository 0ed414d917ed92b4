//! Feeds: one `kube::runtime::watcher` per kind and watched namespace. Each object is converted to a slim fact before
//! it is stored.
//!
//! Owns the backoff and the time limits of each watch, the removal of objects missing in a complete list, and
//! readiness. `caches` lists the kinds.
//!
//! **Lists are consistent reads**: they have no resourceVersion, so that an API server whose watch cache lags does not
//! answer from it. Watches may lag all the same. A replica that takes over from another one therefore lists all kinds
//! again ([`Relist`]) before it acts.

mod feed;
pub mod namespaces;
mod pace;
mod ready;

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::store::Store;
use super::tasks::ended;
use crate::metrics::Metrics;
use feed::Feed;
use ganglion_core::world::Fact;
use pace::Pace;
pub use ready::{Awaited, Readiness};

/// An object that can be watched.
pub trait Watched: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static {}
impl<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static> Watched for K {}

/// Options of all watches.
#[derive(Clone)]
pub struct WatchOptions {
    /// Namespaces to watch; all if empty. Cluster-scoped kinds are always watched.
    pub namespaces: Vec<String>,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// All watches of the process. Dropping it ends them.
pub struct Feeds {
    client: Client,
    pace: Pace,
    options: WatchOptions,
    store: Store,
    ready: Readiness,
    metrics: Metrics,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    relist: Relist,
}

/// Lists all kinds again on request. Watches that were added later are not concerned; cheap to clone.
#[derive(Clone, Default)]
pub struct Relist(Vec<mpsc::UnboundedSender<Awaited>>);

impl Relist {
    /// Lists all kinds again. The returned readiness is complete once the store contains lists that were requested
    /// after this call: it then knows every write that was answered before. A kind that the API server does not serve,
    /// or does not allow the operator to read, counts as listed.
    pub fn all(&self) -> Readiness {
        let all = Readiness::default();
        for watch in &self.0 {
            // A watch that has ended also ends the process.
            let _ = watch.send(all.expect_one());
        }
        all
    }
}

impl Feeds {
    /// Starts without watches. Watches that are added run until `stop` is cancelled.
    pub fn new(
        client: &Client,
        options: WatchOptions,
        store: Store,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let (client, pace, ready) = (client.clone(), Pace::default(), Readiness::default());
        let (tasks, relist) = (JoinSet::new(), Relist::default());
        Self { client, pace, options, store, ready, metrics, stop, tasks, relist }
    }

    /// Lists all kinds that are watched so far again, on request.
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Readiness of all watches.
    pub fn ready(&self) -> Readiness {
        self.ready.clone()
    }

    /// Watches a cluster-scoped kind.
    pub fn cluster<K: Watched + Resource<Scope = ClusterResourceScope>, F: Fact + From<K>>(&mut self) {
        let feed = self.feed::<K, F>(Api::all(self.client()), None);
        self.spawn(feed.run());
    }

    /// Watches a namespaced kind.
    pub fn namespaced<K: Watched + Resource<Scope = NamespaceResourceScope>, F: Fact + From<K>>(&mut self) {
        for (api, namespace) in self.places() {
            let feed = self.feed::<K, F>(api, namespace);
            self.spawn(feed.run());
        }
    }

    /// Watches a namespaced kind in all namespaces that are not watched otherwise, if the operator has the permission.
    /// Does nothing if all namespaces are watched.
    pub fn outside<K: Watched + Resource<Scope = NamespaceResourceScope>, F: Fact + From<K>>(&mut self) {
        if self.options.namespaces.is_empty() {
            return;
        }
        let others: Vec<String> =
            self.options.namespaces.iter().map(|name| format!("metadata.namespace!={name}")).collect();
        let feed = self.feed::<K, F>(Api::all(self.client()), None).with_fields(others.join(","));
        self.spawn(feed.run_while_installed());
    }

    /// Watches an optional kind while it is installed. It may be installed and removed at any time.
    pub fn optional<K: Watched + Resource<Scope = NamespaceResourceScope>, F: Fact + From<K>>(&mut self) {
        for (api, namespace) in self.places() {
            let feed = self.feed::<K, F>(api, namespace);
            self.spawn(feed.run_while_installed());
        }
    }

    /// Watches a cluster-scoped kind if the operator has the permission.
    pub fn optional_cluster<K: Watched + Resource<Scope = ClusterResourceScope>, F: Fact + From<K>>(&mut self) {
        let feed = self.feed::<K, F>(Api::all(self.client()), None);
        self.spawn(feed.run_while_installed());
    }

    /// Watches the object of this name of an optional cluster-scoped kind.
    pub fn optional_named<K: Watched + Resource<Scope = ClusterResourceScope>, F: Fact + From<K>>(
        &mut self,
        name: &str,
    ) {
        let feed = self.feed::<K, F>(Api::all(self.client()), None).with_fields(format!("metadata.name={name}"));
        self.spawn(feed.run_while_installed());
    }

    /// Returns when every watch has ended after `stop`, or as soon as one panics, since its kind is then out of date.
    pub async fn ended(&mut self) -> Result<(), JoinError> {
        ended(&mut self.tasks).await
    }

    /// A client for one watch.
    fn client(&self) -> Client {
        self.pace.client(self.client.clone())
    }

    fn places<K: Watched + Resource<Scope = NamespaceResourceScope>>(&self) -> Vec<(Api<Guard<K>>, Option<String>)> {
        if self.options.namespaces.is_empty() {
            return vec![(Api::all(self.client()), None)];
        }
        let one = |namespace: &String| (Api::namespaced(self.client(), namespace), Some(namespace.clone()));
        self.options.namespaces.iter().map(one).collect()
    }

    fn feed<K: Watched, F: Fact + From<K>>(&mut self, api: Api<Guard<K>>, namespace: Option<String>) -> Feed<K, F> {
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let (sender, receiver) = mpsc::unbounded_channel();
        self.relist.0.push(sender);
        let feed = Feed::new(api, namespace, self.options.timeout, store, metrics, self.ready.expect_one());
        feed.relisted_by(receiver)
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
