//! Performs the effects of a step, and decides what follows from those that failed.

use futures::future::join_all;
use tracing::{debug, info};

use super::error::ActError;
use super::events::OtherEvent;
use super::reservation::{Reservation, RunningEffect, replaced_slots};
use super::{ActionMemory, WorkloadActionController, act, events};
use ganglion_actions_plan::effect::{self, Effect, Refusal, RefusalKind};
use ganglion_actions_plan::refused;
use ganglion_actions_plan::world::ActionsWorld;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::{Identity, Key, SlotId};
use ganglion_runtime::error::Error;
use ganglion_runtime::events::reference;
use ganglion_runtime::metrics::ReasonLabel;

/// Maximum number of conflicts in one reconcile that are retried at once. Further conflicts back off.
pub const MAX_CONFLICTS: usize = 4;

/// Failures within one reconcile.
#[derive(Default)]
pub struct Failures {
    conflicts: usize,
    refused: bool,
}

/// A failed effect.
struct Failure {
    effect: Effect,
    error: ActError,
}

impl WorkloadActionController {
    /// Performs the effects concurrently. Returns an error if the reconcile cannot go on.
    pub(super) async fn perform_all(
        &self,
        key: &Key,
        effects: &[Effect],
        memory: &mut ActionMemory,
    ) -> Result<(), Error> {
        let results = join_all(effects.iter().map(|effect| self.carry_out(key, effect))).await;
        if results.iter().all(Result::is_ok) {
            memory.refusals.clear_forbidden();
            memory.failing_since = None;
            return Ok(());
        }
        let mut is_handled = false;
        let mut first_error = None;
        for failure in results.into_iter().filter_map(Result::err) {
            match self.handle_failure(key, failure, memory).await {
                Ok(()) => is_handled = true,
                Err(error) if first_error.is_none() => first_error = Some(error),
                Err(error) => self.ctx.count(&error),
            }
        }
        match first_error {
            // Other effects that failed will fail again in a later round, and are handled then. An effect with an
            // unknown outcome is looked up first, by a new reconcile.
            Some(error) if is_handled && memory.unanswered.is_empty() => {
                self.ctx.count(&error);
                Ok(())
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn carry_out(&self, key: &Key, effect: &Effect) -> Result<(), Failure> {
        match effect {
            Effect::Admit { .. } => self.admit(key).await,
            effect if effect.creates_pod() => self.create_pod(key, effect).await,
            effect => self.perform(effect).await.map_err(|error| Failure { effect: effect.clone(), error }),
        }
    }

    /// Plans the admission again while no other admission is planned, and reserves its nodes and pods, so that no two
    /// admissions take the same place while their writes are in progress. The plan does not run under the store's write
    /// lock: a plan over thousands of nodes would block the watches.
    async fn admit(&self, key: &Key) -> Result<(), Failure> {
        let turn = self.shared.admission.lock().await;
        let effect::NextStep::Do(effect @ Effect::Admit { .. }) = self.next_step(key) else {
            // Another admission was first: the next round plans again.
            return Ok(());
        };
        if let Effect::Admit { status, .. } = &effect {
            self.ctx.store.write(|world| world.reserve(key, replaced_slots(world, key, status)));
        }
        drop(turn);
        let mut reservation = Reservation { store: &self.ctx.store, key, open: false };
        let (admitted, ()) = tokio::join!(self.perform(&effect), self.write_receipt_of(&effect));
        reservation.open = matches!(&admitted, Err(ActError::Request(error)) if error.outcome_unknown());
        admitted.map_err(|error| Failure { effect, error })
    }

    /// Plans an effect that creates a pod again, while nobody else plans to take the room of that pod. Until the world
    /// contains its result, it counts as a pod without a node.
    async fn create_pod(&self, key: &Key, effect: &Effect) -> Result<(), Failure> {
        let turn = self.shared.admission.lock().await;
        if !self.next_step(key).performs(effect) {
            return Ok(());
        }
        let mut running = RunningEffect::begin(&self.ctx.store, key);
        drop(turn);
        let done = self.perform(effect).await;
        running.open = matches!(&done, Err(ActError::Request(error)) if error.outcome_unknown());
        done.map_err(|error| Failure { effect: effect.clone(), error })
    }

    /// Writes the receipt in parallel with its admission. If that fails, the next plan writes the receipt again, or
    /// deletes it if the action ends first. The receipt is read to find out whether it was created.
    pub(super) async fn write_receipt_of(&self, admission: &Effect) {
        let Effect::Admit { receipt: Some(receipt), .. } = admission else { return };
        let effect = Effect::WriteReceipt(receipt.clone());
        if let Err(error) = self.perform(&effect).await {
            debug!(on = %receipt.key, %error, "the receipt was not written beside the admission");
            // If this read fails, too, the next plan writes the receipt again.
            let _ = act::read_target(&self.ctx, &effect).await;
        }
    }

    /// Performs one effect. The store contains the result before the next plan.
    pub(super) async fn perform(&self, effect: &Effect) -> Result<(), ActError> {
        let before = self.replaced_status(effect);
        act::act(&self.ctx, effect).await?;
        info!(effect = effect.name(), on = %effect.target().key(), slot = effect.slot().map(SlotId::as_str), "done");
        if let Effect::Record { action, status } | Effect::Admit { action, status, .. } = effect {
            self.publish_events(action, before.as_ref(), status);
        }
        Ok(())
    }

    /// Publishes the events about this change of the status: of the action, and of the objects that it changes.
    fn publish_events(&self, action: &Identity, before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) {
        let own = events::transition_event(before, after).or_else(|| events::given_up_event(before, after));
        let Some(own) = own else { return };
        self.ctx.events.publish(reference::<WorkloadAction>(action), own.in_occurrence(action.uid.as_str()));
        let others = self.ctx.store.read(|world| events::other_events(action, before, after, world));
        for OtherEvent { object, text } in others {
            self.ctx.events.publish(object, text);
        }
    }

    /// The status that the effect replaces.
    fn replaced_status(&self, effect: &Effect) -> Option<WorkloadActionStatus> {
        let (Effect::Record { action, .. } | Effect::Admit { action, .. }) = effect else { return None };
        self.ctx.store.read(|world| world.action(&action.key).and_then(|cached| cached.status.clone()))
    }

    /// Prepares the next round after a failed effect. Returns the error if the reconcile cannot go on.
    async fn handle_failure(&self, key: &Key, failure: Failure, memory: &mut ActionMemory) -> Result<(), Error> {
        let Failure { effect, error } = failure;
        let reason = error.reason();
        debug!(effect = effect.name(), on = %effect.target().key(), %error, "effect failed");
        let failures = &mut memory.pass.failures;
        match error {
            ActError::Refused(refusal) => {
                if refusal.kind == RefusalKind::Forbidden {
                    memory.refusals.note_forbidden(&refusal.message, self.ctx.now())?;
                }
                if failures.refused || effect.updates_action() {
                    return Err(ActError::Refused(refusal).into());
                }
                failures.refused = true;
                let now = self.ctx.now();
                let step = self.ctx.store.read(|world| refused(key, world, now, &effect, &refusal));
                memory.pass.follow_up = Some(step);
            }
            ActError::Request(Error::Conflict(_) | Error::AlreadyExists(_) | Error::NotFound(_))
                if failures.conflicts < MAX_CONFLICTS =>
            {
                failures.conflicts += 1;
                act::read_target(&self.ctx, &effect).await?;
            }
            ActError::Request(error) => {
                let is_first = !failures.refused;
                let words = memory.words_of_lasting(&error, self.ctx.now()).filter(|_| is_first);
                if let Some(message) = words.filter(|_| !effect.updates_action()) {
                    memory.pass.failures.refused = true;
                    let (now, refusal) = (self.ctx.now(), Refusal { kind: RefusalKind::Failing, message });
                    let step = self.ctx.store.read(|world| refused(key, world, now, &effect, &refusal));
                    memory.pass.follow_up = Some(step);
                    memory.unanswered.push(effect);
                    self.ctx.count(&error);
                    return Ok(());
                }
                if error.outcome_unknown() {
                    memory.unanswered.push(effect);
                }
                return Err(error);
            }
        }
        self.ctx.metrics.api_errors.get_or_create(&ReasonLabel { reason }).inc();
        Ok(())
    }
}
