//! Watches of a kind in the namespaces that currently need it. A missing permission in one namespace does not affect
//! the others.

use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio_util::task::AbortOnDropHandle;

use super::feed::Feed;
use super::pace::Pace;
use super::{Watched, ready::Readiness};
use crate::metrics::Metrics;
use crate::store::Store;
use ganglion_core::world::Fact;

/// State of the watch of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceWatch {
    /// The store contains the objects of the namespace.
    Ready,
    /// The first list is not complete.
    Waiting,
    /// RBAC does not allow the operator to list and watch the objects of the namespace.
    Refused,
}

/// Watches by namespace. Dropping it ends them.
pub struct NamespaceFeeds<K, F> {
    client: Client,
    pace: Pace,
    timeout: Duration,
    store: Store,
    metrics: Metrics,
    running: Mutex<HashMap<String, Running>>,
    kind: PhantomData<fn() -> (K, F)>,
}

struct Running {
    task: AbortOnDropHandle<()>,
    ready: Readiness,
    refused: Arc<AtomicBool>,
}

impl<K, F> NamespaceFeeds<K, F>
where
    K: Watched + Resource<Scope = NamespaceResourceScope>,
    F: Fact + From<K>,
{
    /// Starts without watches. `timeout` applies to each request.
    pub fn new(client: &Client, timeout: Duration, store: Store, metrics: Metrics) -> Self {
        let (client, pace) = (client.clone(), Pace::default());
        Self { client, pace, timeout, store, metrics, running: Mutex::default(), kind: PhantomData }
    }

    /// State of the watch of this namespace. Starts the watch if it does not run.
    pub fn state(&self, namespace: &str) -> NamespaceWatch {
        let mut running = self.running();
        let one = match running.get(namespace) {
            // A finished watch has panicked.
            Some(one) if !one.task.is_finished() => one,
            _ => {
                running.insert(namespace.to_owned(), self.start(namespace));
                return NamespaceWatch::Waiting;
            }
        };
        match (one.refused.load(Ordering::Acquire), one.ready.is_ready()) {
            (true, _) => NamespaceWatch::Refused,
            (false, true) => NamespaceWatch::Ready,
            (false, false) => NamespaceWatch::Waiting,
        }
    }

    /// Ends the watches of all other namespaces and removes their objects.
    pub fn retain(&self, namespaces: &BTreeSet<String>) {
        let ended: Vec<_> = self.running().extract_if(|namespace, _| !namespaces.contains(namespace)).collect();
        for (namespace, one) in ended {
            drop(one);
            let empty = self.store.read(|world| world.begin_list::<F>(Some(&namespace)));
            self.store.end_list(&empty);
        }
    }

    fn start(&self, namespace: &str) -> Running {
        let api = Api::namespaced(self.pace.client(self.client.clone()), namespace);
        let (ready, refused) = (Readiness::default(), Arc::<AtomicBool>::default());
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let feed = Feed::<K, F>::new(api, Some(namespace.to_owned()), self.timeout, store, metrics, ready.expect_one());
        let feed = feed.reporting_refusal(Arc::clone(&refused));
        let task = AbortOnDropHandle::new(tokio::spawn(feed.run_while_installed()));
        Running { task, ready, refused }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
