//! The frame of every controller: four steps, observe, plan, act and report, and a typed memory per object.
//!
//! Owns what all controllers do alike: objects that do not parse, deleted objects, the memory, rounds, errors, and the
//! time of the next reconcile. A controller owns the four steps. Nothing here knows a kind of ours.
//!
//! ```text
//! key -> unreadable? -> unguarded? -> begin -> observe -> plan -> act -> report -> Next
//!            |              |                     |                                 |- Again: the next round
//!            |              |                     '- None: forget the object        |- AwaitChange
//!            |              '- the status says which admission policies are missing '- At: requeue
//!            '- the status says which field is wrong
//! ```
//!
//! A kind whose admission policies are not in force is read, and not acted on: anybody may have written its objects.
//! The same holds for a kind whose CRD is older than the operator: the API server drops what the operator records.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::context::Context;
use crate::error::Error;
use crate::queue::Queue;
use crate::run::{self, Action, ReconcileResult, Run};
use ganglion_core::definitions::{DroppedField, GuardProblem};
use ganglion_core::facts::{Key, Uid};
use ganglion_core::world::{Fact, Requeue};

/// When the frame runs the steps of an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once, in this reconcile: an effect changed what the next plan reads.
    Again,
    /// When something changes.
    AwaitChange,
    /// At this time, or earlier if something changes.
    At(Timestamp),
}

impl Next {
    /// At the earliest of these times; when something changes if there is none.
    pub fn earliest(times: impl IntoIterator<Item = Option<Timestamp>>) -> Self {
        times.into_iter().flatten().min().map_or(Self::AwaitChange, Self::At)
    }
}

impl From<Option<Timestamp>> for Next {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::AwaitChange, Self::At)
    }
}

/// A controller in four steps. A step without a client cannot write: `observe` and `plan` are synchronous, and see
/// caches and memory only.
pub trait Reconciler: Send + Sync + 'static {
    /// The reconciled kind, as the store holds it.
    type Kind: Fact;
    /// State of one object between reconciles. It may be lost at any time: what must survive is in the status.
    type Memory: Default + Send + 'static;
    /// Input of the plan.
    type Observed: Send + Sync;
    /// Decision about the next effects.
    type Plan: Send + Sync;
    /// Results of the effects.
    type Done: Send + Sync;

    /// Name in logs and metrics.
    const NAME: &'static str;

    /// Maximum number of rounds of the steps in one reconcile. Further rounds follow in a later reconcile, so that
    /// other objects get a turn.
    const MAX_ROUNDS: usize = 1;

    /// Pause after [`Self::MAX_ROUNDS`].
    const PAUSE: Duration = Duration::ZERO;

    /// The shared dependencies.
    fn ctx(&self) -> &Context;

    /// The memory of all objects.
    fn memories(&self) -> &Memories<Self::Memory>;

    /// Reports an object that does not parse; None if it parses. Controllers of custom resources call
    /// [`StatusWriter::report_unreadable`]. Default: facts of other kinds always parse.
    ///
    /// [`StatusWriter::report_unreadable`]: crate::status::StatusWriter::report_unreadable
    fn unreadable(&self, _: &Key) -> impl Future<Output = Option<Result<(), Error>>> + Send {
        std::future::ready(None)
    }

    /// Reports why objects of the kind are not acted on. Controllers of custom resources call
    /// [`StatusWriter::report_unguarded`]. Default: other kinds need no policies.
    ///
    /// [`StatusWriter::report_unguarded`]: crate::status::StatusWriter::report_unguarded
    fn unguarded(&self, _: &Key, _: &GuardProblem) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Begins a reconcile, before its first round: drops what the last reconcile left in the memory, and reads what no
    /// watch delivers. Default: there is nothing to do.
    fn begin(&self, _: &Key, _: &mut Self::Memory) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Reads the caches. None if the object does not exist or is being deleted: the frame then forgets it.
    fn observe(self: &Arc<Self>, key: &Key, memory: &mut Self::Memory) -> Option<Self::Observed>;

    /// Decides. Delegates to the planner of the product, which is pure and total.
    fn plan(&self, observed: &Self::Observed, memory: &mut Self::Memory) -> Self::Plan;

    /// Carries out the plan. Stops at the first error that the report cannot describe.
    fn act(
        self: &Arc<Self>,
        observed: &Self::Observed,
        plan: &Self::Plan,
        memory: &mut Self::Memory,
    ) -> impl Future<Output = Result<Self::Done, Error>> + Send;

    /// Writes status and events if they are worth a write, also after a failed act. The error of act is returned to the
    /// runtime in any case: reporting never masks the cause.
    fn report(
        self: &Arc<Self>,
        observed: &Self::Observed,
        plan: &Self::Plan,
        done: Result<&Self::Done, &Error>,
        memory: &mut Self::Memory,
    ) -> impl Future<Output = Result<Next, Error>> + Send;

    /// Discards what the controller keeps of an object outside its memory, such as polls and metric series. Called when
    /// the object is gone or does not parse, and before the first reconcile of an object with the name of an earlier
    /// one.
    fn forget(&self, _: &Key) {}
}

/// Runs a controller until `stop` is cancelled and its last reconcile has finished. Dropping the future aborts running
/// reconciles.
pub async fn run<R: Reconciler>(controller: Arc<R>, queue: Arc<Queue>, run: Run) {
    run::run(R::NAME, |key| reconcile(Arc::clone(&controller), key), queue, run).await;
}

/// Reconciles one object once.
pub async fn reconcile<R: Reconciler>(controller: Arc<R>, key: Key) -> ReconcileResult {
    let (ctx, memories) = (controller.ctx(), controller.memories());
    if let Some(reported) = controller.unreadable(&key).await {
        memories.take(&key);
        controller.forget(&key);
        return finish(ctx, reported.map(|()| Some(Next::AwaitChange)), R::PAUSE);
    }
    if let Some(problem) = guard_problem::<R>(ctx) {
        memories.take(&key);
        controller.forget(&key);
        let next = Next::from(problem.recheck());
        return finish(ctx, controller.unguarded(&key, &problem).await.map(|()| Some(next)), R::PAUSE);
    }
    let uid = ctx.store.read(|world| world.table::<R::Kind>().get(&key).map(|object| object.id().uid));
    let mut memory = match memories.take(&key) {
        Some((owner, memory)) if Some(&owner) == uid.as_ref() => memory,
        Some(_) if uid.is_some() => {
            controller.forget(&key);
            R::Memory::default()
        }
        Some(_) | None => R::Memory::default(),
    };
    let result = rounds(&controller, &key, &mut memory).await;
    if let Err(Error::Dropped(path)) = &result {
        suspend::<R>(ctx, path);
    }
    match (&result, uid) {
        (Ok(None), _) | (_, None) => controller.forget(&key),
        (_, Some(uid)) => memories.put(key, uid, memory),
    }
    finish(ctx, result, R::PAUSE)
}

/// Why objects of the controller's kind must not be acted on.
fn guard_problem<R: Reconciler>(ctx: &Context) -> Option<GuardProblem> {
    let now = ctx.now();
    ctx.store.read(|world| world.guard_problem(R::Kind::KIND, now))
}

/// Acts on no object of the kind until the next check of its CRD, and enqueues all of them, so that they say so.
fn suspend<R: Reconciler>(ctx: &Context, path: &str) {
    let dropped = DroppedField { path: path.to_owned(), at: ctx.now() };
    ctx.store.write(|world| world.field_dropped(R::Kind::KIND, dropped));
    ctx.store.requeue(ctx.store.read(|world| Requeue::all::<R::Kind>(world.table::<R::Kind>().keys().cloned())));
}

/// Runs the steps. None if the object is gone.
async fn rounds<R: Reconciler>(controller: &Arc<R>, key: &Key, memory: &mut R::Memory) -> Result<Option<Next>, Error> {
    for round in 0..R::MAX_ROUNDS {
        if controller.ctx().is_over() {
            return Ok(Some(Next::AwaitChange));
        }
        if round == 0 {
            controller.begin(key, memory).await?;
        }
        let Some(observed) = controller.observe(key, memory) else { return Ok(None) };
        let plan = controller.plan(&observed, memory);
        if guard_problem::<R>(controller.ctx()).is_some() {
            // The change of the policies, or the dropped field, has requeued the object.
            return Ok(Some(Next::AwaitChange));
        }
        let done = controller.act(&observed, &plan, memory).await;
        let reported = controller.report(&observed, &plan, done.as_ref(), memory).await;
        done?;
        match reported? {
            Next::Again => {}
            next => return Ok(Some(next)),
        }
    }
    Ok(Some(Next::Again))
}

/// Maximum random delay added to a requeue, to spread objects with the same deadline.
const JITTER: Duration = Duration::from_millis(50);

fn finish(ctx: &Context, result: Result<Option<Next>, Error>, pause: Duration) -> ReconcileResult {
    if let Err(error) = &result {
        ctx.count(error);
    }
    Ok(match result? {
        None | Some(Next::AwaitChange) => Action::AwaitChange,
        Some(Next::Again) => Action::RequeueAfter(pause),
        Some(Next::At(at)) => {
            let left = Duration::try_from(at.duration_since(ctx.now())).unwrap_or(Duration::ZERO);
            Action::RequeueAfter(left + JITTER.mul_f64(fastrand::f64()))
        }
    })
}

/// In-memory state by object. An entry belongs to one uid: a recreated object starts without memory.
pub struct Memories<M>(Mutex<HashMap<Key, (Uid, M)>>);

impl<M> Default for Memories<M> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<M> Memories<M> {
    /// Removes the memory of an object, and returns it with the uid of the object that it belongs to.
    fn take(&self, key: &Key) -> Option<(Uid, M)> {
        self.lock().remove(key)
    }

    fn put(&self, key: Key, uid: Uid, memory: M) {
        self.lock().insert(key, (uid, memory));
    }

    /// Number of objects with a memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no object has a memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A panic loses the memory of its object only, since that was taken out of the map.
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (Uid, M)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
