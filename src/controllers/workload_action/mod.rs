//! The workload-action controller: asks the planner what to do next, does it, tells it what came of it, and asks again.
//!
//! Owns the loop, the patience before a mere report is written, and the reservations of admissions under way. Decides
//! nothing about replicas: that is `logic::workload_action`. Keeps nothing that a crash must not lose.

mod act;
mod error;
mod events;
mod janitor;
mod replacement;
mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tracing::{debug, info};

use crate::api::workload_action::status::Slot;
use crate::api::workload_action::{WorkloadAction, WorkloadActionStatus};
use crate::logic::facts::Key;
use crate::logic::workload_action::effect::{Effect, Next, Refusal, RefusalKind};
use crate::logic::workload_action::{Limits, next, refused};
use crate::logic::world::World;
use crate::metrics::ReasonLabel;
use crate::runtime::context::Context;
use crate::runtime::error::Error;
use crate::runtime::run::{Again, Controller, Outcome};
use crate::runtime::store::Store;
use error::ActError;
pub use janitor::{Janitor, run as run_janitor};
use waits::Waits;

/// Steps of one pass; then others get their turn.
const MAX_EFFECTS: usize = 32;

/// Times in one pass that an object turned out to be another than known, before the backoff takes over.
const MAX_CONFLICTS: usize = 4;

/// How long a right must be missing to be believed so: an API server that has just started answers before it has read its
/// roles.
const DOUBT: SignedDuration = SignedDuration::from_secs(10);

/// Everything the controller works with.
pub struct WorkloadActionController {
    pub ctx: Context,
    pub limits: Limits,
    /// How often an action that has not ended is looked at though nothing changed.
    pub resync: Duration,
    pub memory: ActionMemory,
}

/// What the controller keeps between two passes; a crash may lose it.
#[derive(Default)]
pub struct ActionMemory {
    waits: Mutex<Waits>,
    /// Since when an action's effects are forbidden.
    forbidden: Mutex<HashMap<Key, Timestamp>>,
    /// The effects that no answer came for.
    unanswered: Mutex<HashMap<Key, Effect>>,
}

impl ActionMemory {
    /// Whether a right may be missing only because the API server has just started.
    fn doubts(&self, key: &Key, now: Timestamp) -> bool {
        let mut forbidden = self.forbidden.lock().unwrap_or_else(PoisonError::into_inner);
        let since = forbidden.entry(key.clone()).or_insert(now);
        // The clock was set back: the time is counted anew.
        *since = (*since).min(now);
        now.duration_since(*since) < DOUBT
    }

    fn trusts(&self, key: &Key) {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<Key, Effect>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for WorkloadActionController {
    type Kind = WorkloadAction;
    const NAME: &'static str = "workload-action";

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let mut failures = Failures::default();
        self.look_up(&key).await?;
        let mut step = self.plan(&key);
        for _ in 0..MAX_EFFECTS {
            if self.ctx.stop.is_cancelled() {
                return Ok(Again::OnChange);
            }
            let effect = match step {
                Next::Do(effect) => effect,
                Next::Wait { until, report } => match self.wait(&key, until, report) {
                    Rest::Until(again) => return Ok(again),
                    Rest::Report(effect) => *effect,
                },
            };
            let done = match effect {
                Effect::Admit { .. } => self.admit(&key).await,
                effect => self.perform(&effect).await.map_err(|error| (effect, error)),
            };
            step = match done {
                Ok(()) => {
                    self.memory.trusts(&key);
                    self.plan(&key)
                }
                Err((effect, error)) => self.failed(&key, &mut failures, &effect, error).await?,
            };
        }
        Ok(Again::After(Duration::ZERO))
    }
}

/// What one pass remembers.
#[derive(Default)]
struct Failures {
    conflicts: usize,
    refused: bool,
}

/// What to do about a wait.
enum Rest {
    Until(Again),
    Report(Box<Effect>),
}

impl WorkloadActionController {
    /// Asks the planner.
    fn plan(&self, key: &Key) -> Next {
        self.ctx.store.read(|world| next(key, world, self.ctx.now(), &self.limits))
    }

    /// Plans an admission again with the world to itself, and reserves in it what the admission takes up, so that no two
    /// take the same place while their writes are under way.
    async fn admit(&self, key: &Key) -> Result<(), (Effect, ActError)> {
        let planned = self.ctx.store.write(|world| {
            let Next::Do(effect @ Effect::Admit { .. }) = next(key, world, self.ctx.now(), &self.limits) else {
                // Somebody was quicker; the pass goes on with what is true now.
                return None;
            };
            if let Effect::Admit { status, .. } = &effect {
                world.reserve(key, taken_up(world, key, status));
            }
            Some(effect)
        });
        let Some(effect) = planned else { return Ok(()) };
        let mut reservation = Reservation { store: &self.ctx.store, key, open: false };
        let (admitted, ()) = tokio::join!(self.perform(&effect), self.write_receipt_of(&effect));
        reservation.open = matches!(&admitted, Err(ActError::Request(error)) if error.leaves_open());
        admitted.map_err(|error| (effect, error))
    }

    /// The receipt that may be written beside an admission. Where it fails, the next plan asks for it again; or takes it
    /// back, should the action end before it has begun, so whether it was made after all is looked up.
    async fn write_receipt_of(&self, admission: &Effect) {
        let Effect::Admit { receipt: Some(receipt), .. } = admission else { return };
        let effect = Effect::WriteReceipt(receipt.clone());
        if let Err(error) = self.perform(&effect).await {
            debug!(on = %receipt.key, %error, "the receipt was not written beside the admission");
            // Where that fails too, the next plan asks for the receipt again.
            let _ = act::look_again(&self.ctx, &effect).await;
        }
    }

    /// Does one thing, and takes what came of it into the world before anything else is planned.
    async fn perform(&self, effect: &Effect) -> Result<(), ActError> {
        let before = self.status_of(effect);
        act::act(&self.ctx, effect).await?;
        let on = act::target(effect);
        info!(effect = act::name(effect), on = %on, slot = act::slot(effect), "done");
        if let Effect::Record { action, status } | Effect::Admit { action, status, .. } = effect
            && let Some(event) = events::transition_event(before.as_ref(), status)
        {
            self.ctx.events.publish(events::subject(action), event);
        }
        Ok(())
    }

    /// The status that an effect is about to write over.
    fn status_of(&self, effect: &Effect) -> Option<WorkloadActionStatus> {
        let (Effect::Record { action, .. } | Effect::Admit { action, .. }) = effect else { return None };
        self.ctx.store.read(|world| world.action(&action.key).and_then(|known| known.status.clone()))
    }

    /// What follows from a failure: another plan, or the end of the pass.
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
            ActError::Request(Error::Conflict(_) | Error::Exists(_) | Error::Gone(_))
                if failures.conflicts < MAX_CONFLICTS =>
            {
                failures.conflicts += 1;
                act::look_again(&self.ctx, effect).await?;
                Ok(self.plan(key))
            }
            ActError::Request(error) if error.leaves_open() => {
                self.memory.unanswered().insert(key.clone(), effect.clone());
                Err(error)
            }
            error => Err(error.into()),
        }
    }

    /// What the last request of the action did, if no answer came: our watches may be far behind, and what is planned on them
    /// would start from what is no longer so.
    async fn look_up(&self, key: &Key) -> Result<(), Error> {
        let Some(effect) = self.memory.unanswered().get(key).cloned() else { return Ok(()) };
        match act::look_again(&self.ctx, &effect).await {
            // It may not be read, and will not be told later either.
            Err(Error::Forbidden(_) | Error::Denied(_)) => {}
            done => drop(done?),
        }
        self.memory.unanswered().remove(key);
        self.ctx.store.write(|world| world.release(key));
        Ok(())
    }

    fn after_refusal(&self, key: &Key, effect: &Effect, refusal: &Refusal) -> Next {
        let now = self.ctx.now();
        self.ctx.store.read(|world| refused(key, world, now, effect, refusal))
    }

    /// How to wait. A report is written only when the same wait has lasted a moment: most are over before.
    fn wait(&self, key: &Key, until: Option<Timestamp>, report: Option<Box<WorkloadActionStatus>>) -> Rest {
        let known = self.ctx.store.read(|world| world.action(key).cloned());
        let mut waits = self.memory.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(action) = known else {
            waits.forget(key);
            self.memory.trusts(key);
            return Rest::Until(Again::OnChange);
        };
        let unfinished = action.status.as_ref().is_none_or(|status| status.finished_at.is_none());
        let now = self.ctx.now();
        let pause = waits::pause(now, until, unfinished.then_some(self.resync), fastrand::f64());
        let Some(status) = report.filter(|report| Some(&**report) != action.status.as_ref()) else {
            waits.forget(key);
            return Rest::Until(pause.map_or(Again::OnChange, Again::After));
        };
        match waits.remaining(key, &status, now) {
            Some(left) => Rest::Until(Again::After(pause.map_or(left, |pause| pause.min(left)))),
            None => Rest::Report(Box::new(Effect::Record { action: (&action.metadata).into(), status })),
        }
    }
}

/// What counts as taken until an admission is known to be carried out: what its slots are to have, and what they have and
/// give up by it.
fn taken_up(world: &World, key: &Key, admitted: &WorkloadActionStatus) -> Vec<Slot> {
    let recorded = world.action(key).and_then(|action| action.status.as_ref());
    let recorded = recorded.map(|status| status.slots.as_slice()).unwrap_or_default();
    recorded.iter().filter(|slot| !admitted.slots.contains(slot)).chain(&admitted.slots).cloned().collect()
}

/// Ends with the write that it is for; or, while nobody knows whether that was carried out, when it is looked up.
struct Reservation<'a> {
    store: &'a Store,
    key: &'a Key,
    open: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.open {
            self.store.write(|world| world.release(self.key));
        }
    }
}

/// A write of our own bookkeeping: that it was refused cannot be written down either.
fn is_own_record(effect: &Effect) -> bool {
    match effect {
        Effect::Record { .. } | Effect::Admit { .. } | Effect::AddFinalizer { .. } | Effect::RemoveFinalizer { .. } => {
            true
        }
        Effect::DeleteAction { .. }
        | Effect::WriteReceipt(_)
        | Effect::FailReceipt { .. }
        | Effect::DeleteReceipt { .. }
        | Effect::CreatePod(_)
        | Effect::ChangePod { .. }
        | Effect::Evict { .. }
        | Effect::DeletePod { .. }
        | Effect::Scale { .. }
        | Effect::ClearLedger { .. } => false,
    }
}

#[cfg(test)]
mod tests;
