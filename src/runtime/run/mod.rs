//! Runs a controller: concurrency, backoff after failures, metrics, panics, shutdown.
//!
//! `kube::runtime::applier` does the same; what it would add to the latency of each hop has not been measured.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};

use crate::logic::facts::Key;
use crate::logic::world::Stored;
use crate::metrics::{ControllerLabel, Metrics};
use crate::runtime::backoff::Backoff;
use crate::runtime::error::{Class, Error};
use crate::runtime::queue::Queue;

/// When an object is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// When something changes.
    OnChange,
    /// After this time, if nothing changes before.
    After(Duration),
}

/// What one pass came to.
pub type Outcome = Result<Again, Error>;

/// One controller: works on objects by key.
pub trait Controller: Send + Sync + 'static {
    /// The kind that it reconciles.
    type Kind: Stored;
    /// Its name in logs and metrics.
    const NAME: &'static str;
    /// One pass over one object.
    fn reconcile(self: Arc<Self>, key: Key) -> impl Future<Output = Outcome> + Send;
}

/// How a controller is run.
#[derive(Clone)]
pub struct Run {
    /// How many objects are worked on at once.
    pub concurrency: usize,
    pub metrics: Metrics,
    /// No new pass begins after this; those under way end.
    pub stop: CancellationToken,
}

/// Runs a controller until it is stopped and its last pass has ended. Dropped, it ends at once.
pub async fn run<C: Controller>(controller: Arc<C>, queue: Arc<Queue>, run: Run) {
    let mut worker = Worker { queue, run, passes: JoinSet::new(), keys: HashMap::new(), backoff: Backoff::default() };
    let stop = worker.run.stop.clone();
    loop {
        let free = worker.passes.len() < worker.run.concurrency;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(done) = worker.passes.join_next_with_id(), if !worker.passes.is_empty() => worker.ended::<C>(done),
            key = worker.queue.get(), if free => worker.begin(&controller, key),
        }
    }
    while let Some(done) = worker.passes.join_next_with_id().await {
        worker.ended::<C>(done);
    }
}

struct Worker {
    queue: Arc<Queue>,
    run: Run,
    passes: JoinSet<(Outcome, Duration)>,
    keys: HashMap<Id, Key>,
    backoff: Backoff<Key>,
}

impl Worker {
    fn begin<C: Controller>(&mut self, controller: &Arc<C>, key: Key) {
        let span = info_span!("pass", controller = C::NAME, object = %key);
        let pass = Arc::clone(controller).reconcile(key.clone()).instrument(span);
        let task = self.passes.spawn(async move {
            let begun = Instant::now();
            let outcome = pass.await;
            (outcome, begun.elapsed())
        });
        self.keys.insert(task.id(), key);
        self.measure::<C>();
    }

    fn ended<C: Controller>(&mut self, done: Result<(Id, (Outcome, Duration)), JoinError>) {
        let (id, outcome) = match done {
            Ok((id, (outcome, time))) => {
                let word = outcome.as_ref().map_or_else(|error| error.class().word(), |_| "ok");
                self.run.metrics.reconciled(C::NAME, word, time);
                (id, outcome)
            }
            Err(failure) => {
                self.run.metrics.reconciled(C::NAME, "panic", Duration::ZERO);
                error!(controller = C::NAME, %failure, "a pass ended by a fault of this program");
                (failure.id(), Err(Error::Broken))
            }
        };
        let Some(key) = self.keys.remove(&id) else { return };
        let again = self.again::<C>(&key, outcome);
        self.queue.done(key, again.map(|pause| Instant::now() + pause));
        self.measure::<C>();
    }

    /// How long until the object is looked at again.
    fn again<C: Controller>(&mut self, key: &Key, outcome: Outcome) -> Option<Duration> {
        match outcome {
            Ok(again) => {
                self.backoff.forget(key);
                match again {
                    Again::OnChange => None,
                    Again::After(pause) => Some(pause),
                }
            }
            Err(error) => {
                let backoff = self.backoff.failed(key.clone(), fastrand::f64());
                let pause = match error.class() {
                    Class::Retry => backoff,
                    Class::After(pause) => backoff.max(pause),
                    Class::Terminal => backoff.max(TERMINAL),
                };
                match error.class() {
                    Class::Terminal => {
                        warn!(controller = C::NAME, object = %key, reason = error.reason(), %error, "pass failed");
                    }
                    Class::Retry | Class::After(_) => {
                        debug!(controller = C::NAME, object = %key, reason = error.reason(), %error, "pass failed");
                    }
                }
                Some(pause)
            }
        }
    }

    fn measure<C: Controller>(&self) {
        let length = i64::try_from(self.queue.len()).unwrap_or(i64::MAX);
        self.run.metrics.queue_length.get_or_create(&ControllerLabel { controller: C::NAME }).set(length);
    }
}

/// Pause after an error that asking again will not change: only somebody's help will, and that may not wake us.
const TERMINAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
