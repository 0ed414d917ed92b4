//! The execution controller, the third stage of a loop: it claims a decision, carries it out, and records the result.
//!
//! | step | content |
//! |---|---|
//! | observe | the Execution, and the loop's Decision if it was written in this leader term |
//! | plan | [`ganglion_loops_plan::execution`] |
//! | act | the claim, then the effect as the loop's account (`crate::target`); webhooks in tasks (`webhooks`) |
//! | report | `Execution.status`, with the resourceVersion that was read: only one of two processes claims a decision |
//!
//! Everything in memory may be lost in a crash.

mod events;
mod webhook;
mod webhooks;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::target::{self, Actor, Targets};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Decision, DecisionStatus};
use ganglion_api::execution::{Claim, Execution, ExecutionStatus};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::acted;
use ganglion_loops_plan::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, Sent, TargetState, after_effect, next_step,
};
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, ReconcileResult};
use webhooks::Webhooks;

/// Maximum number of steps in one reconcile, so that other objects get their turn.
const STEPS: usize = 16;

/// Delay before the next reconcile after the maximum number of steps, such as after repeated conflicts on the target.
const RESTLESS: SignedDuration = SignedDuration::from_secs(1);

/// Minimum time between two events about successful decisions. The Decision's history lists all decisions.
const EVENTS: SignedDuration = SignedDuration::from_mins(1);

/// Controller and its dependencies.
pub struct ExecutionController {
    pub ctx: Context,
    pub outbound: Arc<OutboundClient>,
    pub targets: Targets,
    pub memory: ExecutionMemory,
}

/// In-memory state between reconciles.
#[derive(Default)]
pub struct ExecutionMemory {
    objects: Mutex<HashMap<Key, Memory>>,
    webhooks: Webhooks,
}

/// In-memory state of one Execution.
#[derive(Default)]
struct Memory {
    /// Time of the last event about a successful decision.
    last_event_at: Option<Timestamp>,
    /// Time when a permission was first found missing.
    forbidden: Option<Timestamp>,
}

impl ExecutionMemory {
    fn objects(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Execution with its loop and Decision.
struct Owned {
    parent: Arc<ClosedLoop>,
    execution: Arc<Execution>,
    decision: Option<Arc<Decision>>,
}

impl Owned {
    /// Describes the change of a decision that was carried out, and the alarm that caused it.
    fn done(&self, status: &ExecutionStatus) -> Option<String> {
        let decision = self.decision_status()?;
        let change = acted::change(status, decision)?;
        let cause = acted::cause(status, decision, &self.parent.spec.metrics);
        Some(cause.map_or_else(|| change.clone(), |cause| format!("{change}: {cause}")))
    }

    /// Status of the loop's Decision, as last written.
    fn decision_status(&self) -> Option<&DecisionStatus> {
        self.decision.as_ref()?.status.as_ref()
    }

    fn status(&self) -> ExecutionStatus {
        self.execution.status.clone().unwrap_or_default()
    }
}

impl Controller for ExecutionController {
    type Kind = Execution;
    const NAME: &'static str = "execution";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) = (LoopReason::InvalidObject.as_str(), (marks::EXECUTION_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<Execution>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let mut memory = self.memory.objects().remove(&key).unwrap_or_default();
        let done = self.carry_on(&key, &mut memory).await;
        if self.owned(&key).is_some() {
            self.memory.objects().insert(key, memory);
        } else {
            self.memory.webhooks.forget(&key);
        }
        self.ctx.finish(done)
    }
}

impl ExecutionController {
    /// Returns the Execution of this name, if its loop owns it and is not being deleted.
    fn owned(&self, key: &Key) -> Option<Owned> {
        let family = self.ctx.store.read(|world| world.family(key))?.own();
        let alive = family.parent.metadata.deletion_timestamp.is_none();
        Some(Owned { parent: family.parent, execution: family.execution?, decision: family.decision }).filter(|_| alive)
    }

    /// Takes steps until there is nothing to do. Returns the time of the next reconcile.
    async fn carry_on(self: &Arc<Self>, key: &Key, memory: &mut Memory) -> Result<Option<Timestamp>, Error> {
        let mut seen: Option<TargetState> = None;
        let mut sent = Sent::Maybe;
        for _ in 0..STEPS {
            let Some(owned) = self.owned(key) else { return Ok(None) };
            let status = owned.status();
            if self.memory.webhooks.is_under_way(key, &status) {
                return Ok(None);
            }
            let context = self.context(&owned, &status, seen.as_ref(), sent);
            let step = match self.memory.webhooks.answer(key, &status) {
                Some((effect, result)) => after_effect(&context, &effect, &result),
                None => next_step(&context),
            };
            let step = match step {
                ExecutionStep::Act(_) if self.ctx.is_over() => return Ok(None),
                ExecutionStep::Act(effect) if matches!(*effect, ExecutionEffect::Send { .. }) => {
                    let decision = owned.decision_status().cloned().unwrap_or_default();
                    webhooks::send(self, key, (self.actor(&owned, memory), decision), &status, *effect);
                    return Ok(None);
                }
                ExecutionStep::Act(effect) => {
                    let before = std::mem::replace(&mut sent, Sent::Maybe);
                    let result = self.act(&owned, memory, &effect).await?;
                    if result == EffectResult::Conflict {
                        // The API server refused the write, so any change of the target since then was made by others.
                        sent = before;
                    }
                    // Limits count from the time of the change, so the clock is read again after the request.
                    after_effect(&ExecutionContext { now: self.ctx.now(), ..context }, &effect, &result)
                }
                step => step,
            };
            match step {
                ExecutionStep::Nothing => return Ok(None),
                ExecutionStep::Wait(at) => return Ok(Some(at)),
                ExecutionStep::Record(new) => {
                    let claims = new.claim.is_some() && new.claim != status.claim;
                    self.record(&owned, memory, &new).await?;
                    sent = if claims { Sent::NotYet } else { Sent::Maybe };
                    if claims {
                        // Reads the decision again: it may have been withdrawn in the meantime.
                        self.ctx.refresh::<Decision>(&owned.execution.id()).await?;
                    } else {
                        // The finished claim may have changed the target, so it is read again before the next claim.
                        seen = None;
                    }
                }
                ExecutionStep::Look | ExecutionStep::Act(_) => {
                    let Some(rung) = rung(&owned, &status) else { return Ok(None) };
                    seen = Some(self.look(&owned, memory, &rung, status.claim.as_ref()).await?);
                }
            }
        }
        Ok(self.ctx.now().checked_add(RESTLESS).ok())
    }

    fn context<'a>(
        &self,
        owned: &'a Owned,
        status: &'a ExecutionStatus,
        seen: Option<&'a TargetState>,
        sent: Sent,
    ) -> ExecutionContext<'a> {
        let metadata = &owned.execution.metadata;
        // A decision of an earlier leader term is carried out only after the decision controller has confirmed it.
        let decision = owned.decision_status().filter(|decision| decision.term.as_deref() == Some(&*self.ctx.term));
        ExecutionContext {
            spec: &owned.execution.spec,
            status,
            uid: metadata.uid.as_deref().unwrap_or_default(),
            generation: metadata.generation.unwrap_or(0),
            loop_name: metadata.name.as_deref().unwrap_or_default(),
            chosen: decision.and_then(|decision| decision.chosen.as_ref()),
            tag: decision.and_then(|decision| decision.tag.as_ref()),
            seen,
            sent,
            now: self.ctx.now(),
        }
    }

    fn actor(&self, owned: &Owned, memory: &Memory) -> Actor {
        let (id, spec) = (owned.execution.id(), &owned.execution.spec);
        let actor = Actor::of(&self.targets, &id.key, &spec.target, spec.service_account_name.as_deref());
        actor.executing(id.uid, memory.forbidden)
    }

    async fn look(
        &self,
        owned: &Owned,
        memory: &mut Memory,
        rung: &Rung,
        claim: Option<&Claim>,
    ) -> Result<TargetState, Error> {
        let mut actor = self.actor(owned, memory);
        let seen = target::look(&self.targets, &mut actor, rung, claim).await;
        memory.forbidden = actor.doubt;
        seen
    }

    async fn act(&self, owned: &Owned, memory: &mut Memory, effect: &ExecutionEffect) -> Result<EffectResult, Error> {
        let mut actor = self.actor(owned, memory);
        let result = target::act(&self.targets, &mut actor, effect).await;
        memory.forbidden = actor.doubt;
        result
    }

    async fn record(&self, owned: &Owned, memory: &mut Memory, status: &ExecutionStatus) -> Result<(), Error> {
        let id = owned.execution.id();
        let write = self.ctx.writer.replace_status::<Execution>(marks::EXECUTION_STATUS_MANAGER, &id, status);
        self.ctx.write_own::<Execution, Execution>("RecordExecution", &*owned.execution, write).await?;
        let Some(event) = events::transition_event(&owned.status(), status, || owned.done(status)) else {
            return Ok(());
        };
        let now = self.ctx.now();
        let rests = |last: Timestamp| now.duration_since(last) < EVENTS;
        if event.warning || !memory.last_event_at.is_some_and(rests) {
            memory.last_event_at = (!event.warning).then_some(now).or(memory.last_event_at);
            self.ctx.events.publish(events::subject(&owned.parent), event);
        }
        Ok(())
    }
}

/// Returns the rung of the claim, or of the decision if there is no claim.
fn rung(owned: &Owned, status: &ExecutionStatus) -> Option<Rung> {
    let claimed = status.claim.as_ref().map(|claim| &claim.action);
    let decided = || Some(&owned.decision_status()?.chosen.as_ref()?.action);
    claimed.or_else(decided).cloned()
}
