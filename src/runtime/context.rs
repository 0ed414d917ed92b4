//! The dependencies that all controllers share. A dependency of one controller is a field of that controller.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
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
                let changed =
                    object.meta().generation.is_some() && answer.meta().generation != object.meta().generation;
                let requeue = self.store.write(|world| world.apply(answer, Origin::Own));
                self.store.requeue(if changed { requeue } else { requeue.without::<C>(&id.key) });
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
