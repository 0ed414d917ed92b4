//! The workload-action controller: executes the next step that the planner returns, stores the result, and plans again.
//!
//! Owns the reconcile loop, the delay before a wait is reported, the reservations of admissions in progress, and the
//! delivery of notifications. All decisions about replicas are in [`ganglion_actions_plan`]. A crash may lose
//! everything that this controller remembers.

mod act;
mod error;
mod events;
mod gate;
mod janitor;
mod notifier;
pub mod owners;
mod replacement;
mod reservation;
pub mod usage;
mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::{debug, info};

use error::ActError;
use ganglion_actions_plan::effect::{Effect, Next, Refusal, RefusalKind};
use ganglion_actions_plan::notify::is_pending;
use ganglion_actions_plan::rank::NodeRanker;
use ganglion_actions_plan::{Limits, NeededOwner, needed_owner, next, refused};
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::Key;
use ganglion_core::world::World;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::metrics::ReasonLabel;
use ganglion_runtime::run::{Action, Controller, ReconcileResult};
pub use gate::GateController;
pub use janitor::{Janitor, run as run_janitor};
pub use notifier::Notifier;
use reservation::{Reservation, taken_up};
use waits::Waits;

/// Maximum number of effects in one reconcile. The action is then enqueued again, so that other actions get a turn.
const MAX_EFFECTS: usize = 32;

/// Maximum number of conflicts in one reconcile that are retried at once. Further conflicts back off.
const MAX_CONFLICTS: usize = 4;

/// Requeue interval of a running action whose workload is of a kind that the operator does not watch.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Time for which requests must be forbidden before the action fails. A starting API server answers requests before it
/// has loaded its roles.
const DOUBT: SignedDuration = SignedDuration::from_secs(10);

/// The controller: its context, settings and memory.
pub struct WorkloadActionController {
    pub ctx: Context,
    pub limits: Limits,
    /// Ranks nodes by PlacementPolicies.
    pub ranker: Arc<dyn NodeRanker + Send + Sync>,
    /// Requeue interval of an unfinished action if nothing changes.
    pub resync: Duration,
    pub notifier: Arc<Notifier>,
    pub memory: ActionMemory,
}

/// State that the controller keeps between reconciles. A crash may lose it.
#[derive(Default)]
pub struct ActionMemory {
    /// Locked while an admission is planned and reserved.
    admission: tokio::sync::Mutex<()>,
    waits: Mutex<Waits>,
    /// Time at which the requests of an action were first forbidden.
    forbidden: Mutex<HashMap<Key, Timestamp>>,
    /// Effects whose requests had no answer, so that their outcome is unknown.
    unanswered: Mutex<HashMap<Key, Vec<Effect>>>,
    discovery: Discovery,
}

impl ActionMemory {
    /// Whether a request may be forbidden only because the API server is starting.
    fn doubts(&self, key: &Key, now: Timestamp) -> bool {
        let mut forbidden = self.forbidden.lock().unwrap_or_else(PoisonError::into_inner);
        let since = forbidden.entry(key.clone()).or_insert(now);
        // If the clock was set back, the time counts from now.
        *since = (*since).min(now);
        now.duration_since(*since) < DOUBT
    }

    fn trusts(&self, key: &Key) {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<Key, Vec<Effect>>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for WorkloadActionController {
    type Kind = WorkloadAction;
    const NAME: &'static str = "workload-action";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) = (Reason::InvalidObject.as_str(), (marks::STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<WorkloadAction>(&self.ctx, &key, reason, by).await {
            return done;
        }
        self.notice(&key);
        let mut failures = Failures::default();
        self.look_up(&key).await?;
        self.read_owner(&key).await?;
        let mut step = self.plan(&key);
        for _ in 0..MAX_EFFECTS {
            if self.ctx.stop.is_cancelled() {
                return Ok(Action::AwaitChange);
            }
            let effects = match step {
                Next::Do(effect) => vec![effect],
                Next::DoAll(effects) => effects,
                Next::Wait { until, report } => match self.wait(&key, until, report) {
                    Rest::Until(again) => return Ok(again),
                    Rest::Report(effect) => vec![*effect],
                },
            };
            let done = join_all(effects.into_iter().map(|effect| self.carry_out(&key, effect))).await;
            step = self.after(&key, &mut failures, done).await?;
        }
        Ok(Action::RequeueAfter(Duration::ZERO))
    }
}

/// Failures within one reconcile.
#[derive(Default)]
struct Failures {
    conflicts: usize,
    refused: bool,
}

/// Result of an effect. The error names the effect that failed.
type Done = Result<(), (Effect, ActError)>;

/// Outcome of a wait: pause, or report the wait in the status.
enum Rest {
    Until(Action),
    Report(Box<Effect>),
}

impl WorkloadActionController {
    /// Records when this process first planned the action.
    fn notice(&self, key: &Key) {
        let is_new = |world: &World| {
            let uid = world.action(key)?.metadata.uid.clone()?;
            world.noticed(&uid).is_none().then_some(uid)
        };
        if let Some(uid) = self.ctx.store.read(is_new) {
            self.ctx.store.write(|world| world.notice(&uid, self.ctx.now()));
        }
    }

    /// Returns the planner's next step. Notifications come first, since nothing waits for them: finished attempts are
    /// recorded, and due attempts are started.
    fn plan(&self, key: &Key) -> Next {
        let known = self.ctx.store.read(|world| world.action(key).filter(|action| is_pending(action)).cloned());
        if let Some(action) = known {
            if let Some(effect) = self.notifier.record(&action) {
                return Next::Do(effect);
            }
            self.notifier.begin(&action);
        }
        self.ctx.store.read(|world| next(key, world, self.ctx.now(), &self.limits, &*self.ranker))
    }

    async fn carry_out(&self, key: &Key, effect: Effect) -> Done {
        match effect {
            Effect::Admit { .. } => self.admit(key).await,
            effect => self.perform(&effect).await.map_err(|error| (effect, error)),
        }
    }

    /// Returns the next step after these effects, or the error that ends the reconcile.
    async fn after(&self, key: &Key, failures: &mut Failures, done: Vec<Done>) -> Result<Next, Error> {
        if done.iter().all(Result::is_ok) {
            self.memory.trusts(key);
            return Ok(self.plan(key));
        }
        let (mut step, mut stop) = (None, None);
        for (effect, error) in done.into_iter().filter_map(Result::err) {
            let is_refusal = matches!(error, ActError::Refused(_));
            match self.failed(key, failures, &effect, error).await {
                // A step that follows from a refusal wins: only the refusal leads to it. Other steps can be planned
                // again.
                Ok(next) if is_refusal || step.is_none() => step = Some(next),
                Ok(_) => {}
                Err(error) => stop = stop.or(Some(error)),
            }
        }
        match (step, stop) {
            // Other effects that failed will fail again after this step, and are handled then. An effect with an
            // unknown outcome is looked up first.
            (Some(step), _) if !self.memory.unanswered().contains_key(key) => Ok(step),
            (_, Some(error)) => Err(error),
            (step, None) => Ok(step.unwrap_or_else(|| self.plan(key))),
        }
    }

    /// Plans the admission again while no other admission is planned, and reserves its nodes and pods, so that no two
    /// admissions take the same place while their writes are in progress. The plan does not run under the store's write
    /// lock: a plan over thousands of nodes would block the watches.
    async fn admit(&self, key: &Key) -> Done {
        let turn = self.memory.admission.lock().await;
        let Next::Do(effect @ Effect::Admit { .. }) = self.plan(key) else {
            // Another admission was first: the reconcile continues with a new plan.
            return Ok(());
        };
        if let Effect::Admit { status, .. } = &effect {
            self.ctx.store.write(|world| world.reserve(key, taken_up(world, key, status)));
        }
        drop(turn);
        let mut reservation = Reservation { store: &self.ctx.store, key, open: false };
        let (admitted, ()) = tokio::join!(self.perform(&effect), self.write_receipt_of(&effect));
        reservation.open = matches!(&admitted, Err(ActError::Request(error)) if error.outcome_unknown());
        admitted.map_err(|error| (effect, error))
    }

    /// Writes the receipt in parallel with its admission. If that fails, the next plan writes the receipt again, or
    /// deletes it if the action ends first. The receipt is read to find out whether it was created.
    async fn write_receipt_of(&self, admission: &Effect) {
        let Effect::Admit { receipt: Some(receipt), .. } = admission else { return };
        let effect = Effect::WriteReceipt(receipt.clone());
        if let Err(error) = self.perform(&effect).await {
            debug!(on = %receipt.key, %error, "the receipt was not written beside the admission");
            // If this read fails, too, the next plan writes the receipt again.
            let _ = act::look_again(&self.ctx, &effect).await;
        }
    }

    /// Performs one effect. The store contains the result before the next plan.
    async fn perform(&self, effect: &Effect) -> Result<(), ActError> {
        let before = self.status_of(effect);
        act::act(&self.ctx, effect).await?;
        let on = act::target(effect);
        info!(effect = act::name(effect), on = %on, slot = act::slot(effect), "done");
        if let Effect::Record { action, status } | Effect::Admit { action, status, .. } = effect
            && let Some(event) = events::transition_event(before.as_ref(), status)
                .or_else(|| events::given_up_event(before.as_ref(), status))
        {
            self.ctx.events.publish(events::subject(action), event);
        }
        Ok(())
    }

    /// The status that the effect replaces.
    fn status_of(&self, effect: &Effect) -> Option<WorkloadActionStatus> {
        let (Effect::Record { action, .. } | Effect::Admit { action, .. }) = effect else { return None };
        self.ctx.store.read(|world| world.action(&action.key).and_then(|known| known.status.clone()))
    }

    /// Returns the next step after a failed effect, or the error that ends the reconcile.
    async fn failed(
        &self,
        key: &Key,
        failures: &mut Failures,
        effect: &Effect,
        error: ActError,
    ) -> Result<Next, Error> {
        self.ctx.metrics.api_errors.get_or_create(&ReasonLabel { reason: error.reason() }).inc();
        debug!(effect = act::name(effect), on = %act::target(effect), %error, "effect failed");
        match error {
            ActError::Refused(refusal)
                if refusal.kind == RefusalKind::Forbidden && self.memory.doubts(key, self.ctx.now()) =>
            {
                Err(Error::Doubtful(refusal.message))
            }
            ActError::Refused(refusal) if !failures.refused && !is_own_record(effect) => {
                failures.refused = true;
                Ok(self.after_refusal(key, effect, &refusal))
            }
            ActError::Request(Error::Conflict(_) | Error::AlreadyExists(_) | Error::NotFound(_))
                if failures.conflicts < MAX_CONFLICTS =>
            {
                failures.conflicts += 1;
                act::look_again(&self.ctx, effect).await?;
                Ok(self.plan(key))
            }
            ActError::Request(error) if error.outcome_unknown() => {
                self.memory.unanswered().entry(key.clone()).or_default().push(effect.clone());
                Err(error)
            }
            error => Err(error.into()),
        }
    }

    /// Reads the objects again whose last requests had no answer. The watches may be far behind, and a plan on stale
    /// facts would be wrong.
    async fn look_up(&self, key: &Key) -> Result<(), Error> {
        let Some(effects) = self.memory.unanswered().get(key).cloned() else { return Ok(()) };
        for effect in &effects {
            match act::look_again(&self.ctx, effect).await {
                // The read is forbidden, and a retry would not change that.
                Err(Error::Forbidden(_) | Error::Denied(_)) => {}
                done => drop(done?),
            }
        }
        self.memory.unanswered().remove(key);
        self.ctx.store.write(|world| world.release(key));
        Ok(())
    }

    /// Reads the owner of another kind (such as an Argo Rollout) whose replicas the action changes, if there is one.
    async fn read_owner(&self, key: &Key) -> Result<(), Error> {
        let Some(needed) = self.needed_owner(key) else { return Ok(()) };
        match owners::read(&self.ctx, &self.memory.discovery, &needed).await {
            Err(Error::Forbidden(refused)) if self.memory.doubts(key, self.ctx.now()) => Err(Error::Doubtful(refused)),
            Err(Error::Forbidden(refused)) => {
                let reading = owners::forbidden(&needed, &refused);
                self.ctx.store.write(|world| world.put_owner(&needed.uid, reading, self.ctx.now()));
                Ok(())
            }
            done => done,
        }
    }

    /// Requeue interval of an unfinished action. It is shorter if no watch reports the change that the action waits
    /// for.
    fn resync_of(&self, key: &Key) -> Duration {
        if self.needed_owner(key).is_some_and(|needed| needed.working) { UNWATCHED } else { self.resync }
    }

    fn needed_owner(&self, key: &Key) -> Option<NeededOwner> {
        self.ctx.store.read(|world| needed_owner(world, world.action(key)?))
    }

    fn after_refusal(&self, key: &Key, effect: &Effect, refusal: &Refusal) -> Next {
        let now = self.ctx.now();
        self.ctx.store.read(|world| refused(key, world, now, effect, refusal))
    }

    /// Waits. A wait is written to the status only after it has lasted for some time: most waits are shorter.
    fn wait(&self, key: &Key, until: Option<Timestamp>, report: Option<Box<WorkloadActionStatus>>) -> Rest {
        let known = self.ctx.store.read(|world| world.action(key).cloned());
        let mut waits = self.memory.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(action) = known else {
            waits.forget(key);
            self.memory.trusts(key);
            self.notifier.forget(key);
            return Rest::Until(Action::AwaitChange);
        };
        let unfinished = action.status.as_ref().is_none_or(|status| status.finished_at.is_none());
        let now = self.ctx.now();
        let pause = waits::pause(now, until, unfinished.then(|| self.resync_of(key)), fastrand::f64());
        let Some(status) = report.filter(|report| Some(&**report) != action.status.as_ref()) else {
            waits.forget(key);
            return Rest::Until(pause.map_or(Action::AwaitChange, Action::RequeueAfter));
        };
        match waits.remaining(key, &status, now) {
            Some(left) => Rest::Until(Action::RequeueAfter(pause.map_or(left, |pause| pause.min(left)))),
            None => Rest::Report(Box::new(Effect::Record { action: (&action.metadata).into(), status })),
        }
    }
}

/// Whether the effect writes the action itself, so that its refusal cannot be recorded in the action.
fn is_own_record(effect: &Effect) -> bool {
    match effect {
        Effect::Record { .. } | Effect::Admit { .. } | Effect::AddFinalizer { .. } | Effect::RemoveFinalizer { .. } => {
            true
        }
        Effect::DeleteAction { .. }
        | Effect::WriteReceipt(_)
        | Effect::FailReceipt { .. }
        | Effect::DeleteReceipt { .. }
        | Effect::CreatePart { .. }
        | Effect::CreatePod(_)
        | Effect::ChangePod { .. }
        | Effect::Evict { .. }
        | Effect::DeletePod { .. }
        | Effect::Scale { .. }
        | Effect::ReleasePod { .. }
        | Effect::ClearLedger { .. } => false,
    }
}

#[cfg(test)]
mod tests;
