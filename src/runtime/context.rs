//! The dependencies that all controllers share. A dependency of one controller is a field of that controller.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::events::Events;
use super::store::Store;
use super::writer::{Kube, Writer};
use crate::metrics::{Metrics, ReasonLabel};
use ganglion_core::facts::Identity;
use ganglion_core::world::{Fact, Origin};

/// The shared dependencies. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub store: Store,
    pub writer: Writer,
    /// Events of this controller.
    pub events: Events,
    pub metrics: Metrics,
    /// The clock; the simulated cluster replaces it.
    pub clock: fn() -> Timestamp,
    /// Name of the leader term; each acquisition of the lease starts a new term. Statuses record it.
    pub term: Arc<str>,
    /// Cancelled when the controllers must stop.
    pub stop: CancellationToken,
}

impl Context {
    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Sends a write of the controller of `C` to one of its objects or their children, and stores the answer. After a
    /// conflict, reads the object, so that the next reconcile starts from its current state.
    pub async fn write_own<C: Fact, K: Kube + Fact>(
        &self,
        effect: &'static str,
        object: &K,
        write: impl Future<Output = Result<K, Error>>,
    ) -> Result<(), Error> {
        let id = object.id();
        match self.writer.counted(effect, write).await {
            Ok(answer) => {
                // Further changes in the answer come from other writers: requeue as for a watch event.
                let kept = |meta: &ObjectMeta| {
                    (meta.generation, meta.labels.clone(), meta.owner_references.clone(), meta.finalizers.clone())
                };
                let is_known = object.meta().generation.is_some();
                let changed = is_known && kept(object.meta()) != kept(answer.meta());
                let requeue = self.store.write(|world| world.apply(answer, Origin::Own));
                self.store.requeue(if changed { requeue } else { requeue.without::<C>(&id.key) });
                self.writer.wrote(K::KIND, &id.key);
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Conflict(_) | Error::AlreadyExists(_) | Error::NotFound(_)) {
                    self.refresh::<K>(&id).await?;
                }
                Err(error)
            }
        }
    }

    /// Deletes an object of the controller if it still has this uid. An object that no longer exists counts as deleted.
    pub async fn delete_own<K: Kube + Fact>(&self, effect: &'static str, object: &K) -> Result<(), Error> {
        let id = object.id();
        let deleted = async {
            match self.writer.delete::<K>(&id).await {
                Err(Error::NotFound(_)) => Ok(None),
                done => done,
            }
        };
        match self.writer.counted(effect, deleted).await {
            Ok(Some(left)) => self.store.apply(left, Origin::Own),
            Ok(None) => self.store.remove::<K>(&id.unversioned()),
            Err(error) => {
                if matches!(error, Error::Conflict(_)) {
                    self.refresh::<K>(&id).await?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads an object of this name into the store, since the watch may lag.
    pub async fn refresh<K: Kube + Fact>(&self, id: &Identity) -> Result<(), Error> {
        // Read before the request, so that an object created during the request is not removed by mistake.
        let known =
            self.store.read(|world| world.table::<K>().get(&id.key).map(|known| known.unique_id().into_owned()));
        match self.writer.get::<K>(&id.key).await? {
            Some(found) => self.store.apply(found, Origin::Own),
            None => {
                let uid = known.unwrap_or_else(|| id.uid.clone());
                self.store.remove::<K>(&Identity { uid, ..id.clone() }.unversioned());
            }
        }
        Ok(())
    }

    /// Counts an error that ends a reconcile.
    pub fn count(&self, error: &Error) {
        self.metrics.api_errors.get_or_create(&ReasonLabel { reason: error.reason() }).inc();
    }

    /// Whether the controllers must stop.
    pub fn is_over(&self) -> bool {
        self.writer.is_fenced() || self.stop.is_cancelled()
    }
}

#[cfg(test)]
impl Context {
    /// A context with empty caches at the Unix epoch, whose API server is `service`.
    pub(crate) fn of_server(service: ServerHandle) -> Self {
        let metrics = Metrics::new();
        let (stop, timeout) = (CancellationToken::new(), std::time::Duration::from_secs(5));
        let writer = Writer::new(kube::Client::new(service, "n"), timeout, stop.clone(), metrics.clone());
        let (events, _) = crate::events::line(&metrics);
        let (store, clock) = (Store::new(ganglion_core::world::World::default()), || Timestamp::UNIX_EPOCH);
        Self { store, writer, events, metrics, clock, term: "term".into(), stop }
    }

    /// A context without an API server: each request fails.
    pub(crate) fn without_server() -> Self {
        Self::of_server(tower_test::mock::pair().0)
    }
}

/// The sending side of a scripted API server.
#[cfg(test)]
type ServerHandle = tower_test::mock::Mock<http::Request<kube::client::Body>, http::Response<kube::client::Body>>;

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use ganglion_api::decision::Decision;
    use ganglion_core::facts::Key;
    use ganglion_core::world::World;
    use kube::Client;

    use super::*;
    use crate::events;
    use crate::writer::WriteObserver;

    /// Records each call, and whether the object was in the store at that time.
    struct Notes {
        store: Store,
        told: Mutex<Vec<(&'static str, Key, bool)>>,
    }

    impl WriteObserver for Notes {
        fn written(&self, kind: &'static str, key: &Key) {
            let is_stored = self.store.read(|world| world.table::<Decision>().get(key).is_some());
            self.told.lock().unwrap_or_else(PoisonError::into_inner).push((kind, key.clone(), is_stored));
        }
    }

    #[tokio::test]
    async fn an_observer_is_told_of_writes_that_succeeded_once_the_answer_is_stored() {
        let (service, _) = tower_test::mock::pair::<http::Request<_>, http::Response<kube::client::Body>>();
        let (metrics, store) = (Metrics::new(), Store::new(World::default()));
        let notes = Arc::new(Notes { store: store.clone(), told: Mutex::default() });
        let client = Client::new(service, "n");
        let writer = Writer::new(client, Duration::from_secs(1), CancellationToken::new(), metrics.clone());
        let observer: Arc<dyn WriteObserver> = notes.clone();
        let (events, _) = events::line(&metrics);
        let ctx = Context {
            store,
            writer: writer.observed_by(Some(observer)),
            events,
            metrics,
            clock: || Timestamp::UNIX_EPOCH,
            term: "term".into(),
            stop: CancellationToken::new(),
        };
        let mut object = Decision::new("web", Default::default());
        object.metadata.namespace = Some("shop".to_owned());
        (object.metadata.uid, object.metadata.resource_version) = (Some("u".to_owned()), Some("1".to_owned()));
        let refused = ctx.write_own::<Decision, _>("Test", &object, async { Err(Error::NotLeader) }).await;
        assert!(refused.is_err() && notes.told.lock().unwrap().is_empty());
        ctx.write_own::<Decision, _>("Test", &object, async { Ok(object.clone()) }).await.unwrap();
        assert_eq!(*notes.told.lock().unwrap(), [("Decision", Key::new("shop", "web"), true)]);
    }
}
