//! Runs the reconciles of a controller: concurrency, backoff after failures, metrics, panics, shutdown. Controllers are
//! started by [`crate::frame::run`]; nothing else but benches calls [`run`].
//!
//! `kube::runtime::applier` does most of this, but adds more than 1 ms to each wake-up; see `queue` for the
//! measurements.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};

use crate::backoff::Backoff;
use crate::error::{Class, Error};
use crate::metrics::{ControllerLabel, Metrics};
use crate::queue::Queue;
use ganglion_core::facts::Key;

/// Time of the next reconcile of an object after a successful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// When something changes.
    AwaitChange,
    /// After this time, or earlier if something changes.
    RequeueAfter(Duration),
}

/// Result of one reconcile.
pub type ReconcileResult = Result<Action, Error>;

/// Parameters of a running controller.
#[derive(Clone)]
pub struct Run {
    /// Maximum number of concurrent reconciles.
    pub concurrency: usize,
    pub metrics: Metrics,
    /// Once cancelled, no reconcile starts; running ones finish.
    pub stop: CancellationToken,
}

/// Reconciles the objects in the queue until `stop` is cancelled and the last reconcile has finished. Dropping the
/// future aborts running reconciles. `controller`: name in logs and metrics.
pub async fn run<F: Future<Output = ReconcileResult> + Send + 'static>(
    controller: &'static str,
    reconcile: impl Fn(Key) -> F,
    queue: Arc<Queue>,
    run: Run,
) {
    run.metrics.expect_reconciles(controller);
    let mut worker = Worker {
        controller,
        queue,
        run,
        passes: JoinSet::new(),
        keys: HashMap::new(),
        backoff: Backoff::default(),
        terminal: Backoff::default(),
    };
    let stop = worker.run.stop.clone();
    loop {
        let free = worker.passes.len() < worker.run.concurrency;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(done) = worker.passes.join_next_with_id(), if !worker.passes.is_empty() => worker.end(done),
            key = worker.queue.get(), if free => {
                let pass = reconcile(key.clone());
                worker.begin(pass, key);
            }
        }
    }
    while let Some(done) = worker.passes.join_next_with_id().await {
        worker.end(done);
    }
}

struct Worker {
    controller: &'static str,
    queue: Arc<Queue>,
    run: Run,
    passes: JoinSet<(ReconcileResult, Duration)>,
    /// Object of each running reconcile.
    keys: HashMap<Id, Key>,
    backoff: Backoff<Key>,
    /// Counts terminal errors separately: a 403 right after many failed connections would otherwise wait a minute at
    /// once.
    terminal: Backoff<Key>,
}

impl Worker {
    fn begin(&mut self, reconcile: impl Future<Output = ReconcileResult> + Send + 'static, key: Key) {
        let span = info_span!("pass", controller = self.controller, object = %key);
        let pass = reconcile.instrument(span);
        let task = self.passes.spawn(async move {
            let begun = Instant::now();
            let result = pass.await;
            (result, begun.elapsed())
        });
        self.keys.insert(task.id(), key);
        self.report_length();
    }

    fn end(&mut self, ended: Result<(Id, (ReconcileResult, Duration)), JoinError>) {
        let (id, result) = match ended {
            Ok((id, (result, time))) => {
                let word = result.as_ref().map_or_else(|error| error.class().word(), |_| "ok");
                self.run.metrics.reconciled(self.controller, word, time);
                (id, result)
            }
            Err(failure) => {
                self.run.metrics.reconciled(self.controller, "panic", Duration::ZERO);
                error!(controller = self.controller, %failure, "reconcile panicked");
                (failure.id(), Err(Error::Broken))
            }
        };
        let Some(key) = self.keys.remove(&id) else { return };
        let delay = self.delay(&key, result);
        self.queue.done(key.clone());
        if let Some(delay) = delay {
            self.queue.add_after(key, delay);
        }
        self.report_length();
    }

    /// Delay before the next reconcile of the object; None if only a change triggers it.
    fn delay(&mut self, key: &Key, result: ReconcileResult) -> Option<Duration> {
        match result {
            Ok(requeue) => {
                self.backoff.forget(key);
                self.terminal.forget(key);
                match requeue {
                    Action::AwaitChange => None,
                    Action::RequeueAfter(delay) => Some(delay),
                }
            }
            Err(error) => {
                let counts = if error.class() == Class::Terminal { &mut self.terminal } else { &mut self.backoff };
                let backoff = counts.failed(key.clone(), fastrand::f64());
                let delay = delay_after(error.class(), backoff);
                match error.class() {
                    Class::Terminal => {
                        warn!(controller = self.controller, object = %key, reason = error.reason(), %error, "reconcile failed");
                    }
                    Class::Retry | Class::After(_) => {
                        debug!(controller = self.controller, object = %key, reason = error.reason(), %error, "retrying");
                    }
                }
                Some(delay)
            }
        }
    }

    fn report_length(&self) {
        let length = i64::try_from(self.queue.len()).unwrap_or(i64::MAX);
        self.run.metrics.queue_length.get_or_create(&ControllerLabel { controller: self.controller }).set(length);
    }
}

/// Maximum delay after an error that a retry does not solve. The fix may not wake the controller, so it retries
/// nevertheless.
const TERMINAL: Duration = Duration::from_secs(60);

/// Multiple of the normal backoff after a terminal error: its first delay is one second. An API server that has just
/// started answers 403 for about that long, until it has loaded the roles.
const TERMINAL_FACTOR: u32 = 50;

/// Delay after an error of this class; `backoff` is the object's backoff for such errors.
pub fn delay_after(class: Class, backoff: Duration) -> Duration {
    match class {
        Class::Retry => backoff,
        Class::After(pause) => backoff.max(pause),
        Class::Terminal => backoff.saturating_mul(TERMINAL_FACTOR).min(TERMINAL),
    }
}

#[cfg(test)]
mod tests;
