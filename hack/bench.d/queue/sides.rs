//! The two sides. Each has three controllers, one per stage, for kinds of the operator.

use std::marker::PhantomData;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::channel::mpsc::unbounded;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::queue::Queue;
use ganglion_runtime::run::{self, ReconcileResult, Run};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::CONCURRENCY;
use super::applier::{self, Known, Reconciles};
use super::passes::{Add, Mark, Passes, STAGES, Work};

/// A running side.
pub struct Side {
    passes: Arc<Passes>,
    marks: UnboundedReceiver<Mark>,
    run: Run,
    controllers: JoinSet<()>,
}

/// Controller of one stage.
struct Stage<K> {
    number: usize,
    passes: Arc<Passes>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Stage<K> {
    fn new(number: usize, passes: &Arc<Passes>) -> Arc<Self> {
        Arc::new(Self { number, passes: Arc::clone(passes), kind: PhantomData })
    }
}

impl<K: Fact> Stage<K> {
    /// Runs with `runtime::queue` and `runtime::run`.
    async fn run(self: Arc<Self>, queue: Arc<Queue>, run: Run) {
        run::run(K::KIND, |key| Arc::clone(&self).reconcile(key), queue, run).await;
    }
}

impl<K: Fact> Reconciles for Stage<K> {
    type Kind = K;
    const NAME: &'static str = K::KIND;

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        self.passes.pass(self.number, key).await
    }
}

impl Side {
    /// Side with `runtime::queue` and `runtime::run`.
    pub fn ours(work: &Work) -> Self {
        let queues: [Arc<Queue>; STAGES] = std::array::from_fn(|_| Arc::default());
        let add = queues.each_ref().map(|queue| -> Add {
            queue.open();
            let queue = Arc::clone(queue);
            Box::new(move |keys| queue.add(keys.iter().cloned()))
        });
        let mut side = Self::prepare(work, add);
        let [first, second, third] = queues;
        let (tasks, passes, run) = (&mut side.controllers, &side.passes, &side.run);
        tasks.spawn(Stage::<Monitoring>::new(0, passes).run(first, run.clone()));
        tasks.spawn(Stage::<Decision>::new(1, passes).run(second, run.clone()));
        tasks.spawn(Stage::<Execution>::new(2, passes).run(third, run.clone()));
        side
    }

    /// Side with `kube::runtime::applier`, whose stores contain these keys.
    pub fn applier(work: &Work, keys: Vec<Key>) -> Self {
        let channels: [_; STAGES] = std::array::from_fn(|_| unbounded::<Key>());
        let add = channels.each_ref().map(|(sender, _)| -> Add {
            let sender = sender.clone();
            Box::new(move |keys| keys.iter().for_each(|key| drop(sender.unbounded_send(key.clone()))))
        });
        let mut side = Self::prepare(work, add);
        let [(_, first), (_, second), (_, third)] = channels;
        let (tasks, passes, run) = (&mut side.controllers, &side.passes, &side.run);
        tasks.spawn(applier::run(Stage::<Monitoring>::new(0, passes), first, Known::all(&keys), run.clone()));
        tasks.spawn(applier::run(Stage::<Decision>::new(1, passes), second, Known::all(&keys), run.clone()));
        tasks.spawn(applier::run(Stage::<Execution>::new(2, passes), third, Known::all(&keys), run.clone()));
        side
    }

    fn prepare(work: &Work, add: [Add; STAGES]) -> Self {
        let (sender, marks) = unbounded_channel();
        let run = Run { concurrency: CONCURRENCY, metrics: Metrics::new(), stop: CancellationToken::new() };
        Self { passes: Passes::new(work.clone(), add, sender), marks, run, controllers: JoinSet::new() }
    }

    pub fn passes(&self) -> Arc<Passes> {
        Arc::clone(&self.passes)
    }

    /// Waits for the next pass that begins.
    pub async fn next(&mut self) -> Result<Mark> {
        self.marks.recv().await.context("the side has ended")
    }

    /// Stops the controllers.
    pub async fn end(mut self) {
        self.run.stop.cancel();
        while self.controllers.join_next().await.is_some() {}
    }
}
