//! What every controller needs. What only one controller needs is a field of that controller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::events::Events;
use super::run::{Action, PassResult};
use super::store::Store;
use super::writer::{Kube, Writer};
use crate::logic::facts::Identity;
use crate::logic::world::{Indexed, Origin, Stored};
use crate::metrics::{Metrics, ReasonLabel};

/// Largest random delay added to a wait, so that objects that wait for the same moment do not all come at once.
const JITTER: Duration = Duration::from_millis(50);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub store: Store,
    pub writer: Writer,
    /// Of this controller.
    pub events: Events,
    pub metrics: Metrics,
    /// What time it is; a simulation has its own.
    pub clock: fn() -> Timestamp,
    /// Which leader term this is: another for each time that a replica takes the lease. What is written in a status in this
    /// term bears it.
    pub term: Arc<str>,
    /// Cancelled when passes should come to an end.
    pub stop: CancellationToken,
}

impl Context {
    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Sends a write of the controller of `C` to one of its own objects or their children, and takes the answer in. Where the
    /// object turns out to be another than known, it is read, so that the next pass starts from what there is.
    ///
    /// # Errors
    /// The write did not succeed.
    pub async fn write_own<C: Stored, K: Kube + Indexed>(
        &self,
        effect: &'static str,
        object: &K,
        write: impl Future<Output = Result<K, Error>>,
    ) -> Result<(), Error> {
        let id = object.id();
        match self.writer.counted(effect, write).await {
            Ok(answer) => {
                // Whatever else is new came from others: the controller looks at it again, as if a watch had told.
                let changed =
                    object.meta().generation.is_some() && answer.meta().generation != object.meta().generation;
                let requeue = self.store.write(|world| world.apply(answer, Origin::Own));
                self.store.requeue(if changed { requeue } else { requeue.without::<C>(&id.key) });
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Conflict(_) | Error::Exists(_) | Error::Gone(_)) {
                    self.refresh::<K>(&id).await?;
                }
                Err(error)
            }
        }
    }

    /// Reads an object of this name: the watch may not have told of it yet.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn refresh<K: Kube + Indexed>(&self, id: &Identity) -> Result<(), Error> {
        // As it is before the request: one that is created while the answer is under way is not the one that is gone.
        let known = self.store.read(|world| world.table::<K>().get(&id.key).map(|known| known.id().uid));
        match self.writer.get::<K>(&id.key).await? {
            Some(found) => self.store.apply(found, Origin::Own),
            None => {
                let uid = known.unwrap_or_else(|| id.uid.clone());
                self.store.remove::<K>(&Identity { uid, version: String::new(), key: id.key.clone() });
            }
        }
        Ok(())
    }

    /// What a pass came to: its error, counted, or when the object is to be looked at again.
    ///
    /// # Errors
    /// That of the pass.
    pub fn finish(&self, done: Result<Option<Timestamp>, Error>) -> PassResult {
        if let Err(error) = &done {
            self.metrics.api_errors.get_or_create(&ReasonLabel { reason: error.reason() }).inc();
        }
        Ok(done?.map_or(Action::AwaitChange, |at| {
            let left = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
            Action::RequeueAfter(left + JITTER.mul_f64(fastrand::f64()))
        }))
    }

    /// Nothing new is begun any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.writer.is_fenced() || self.stop.is_cancelled()
    }
}
