//! The execution controller, the third stage of a loop: it claims a decision, carries it out, and records the result.
//!
//! | step | content |
//! |---|---|
//! | observe | the Execution, and the loop's Decision if it was written in this leader term |
//! | plan | `ganglion_loops_plan::execution` |
//! | act | reads the target, or changes it as the loop's account (`target`); webhooks in tasks (`webhook`) |
//! | report | `Execution.status`, with the resourceVersion that was read: only one of two processes claims a decision |
//!
//! A decision takes several rounds: read the target, record the claim, carry it out, read the target, record the
//! result.
//! Everything in memory may be lost in a crash.

use ganglion_core::definitions::GuardProblem;
use ganglion_loops_plan::world::LoopsWorld;
mod events;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use crate::target::{self, Actor, Targets};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Decision, DecisionStatus};
use ganglion_api::execution::{Execution, ExecutionStatus};
use ganglion_api::marks;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::Fact;
use ganglion_loops_plan::acted;
use ganglion_loops_plan::children::Children;
use ganglion_loops_plan::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, Sent, TargetState, after_effect, is_due, next_step,
    rung_to_read,
};
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::background::TaskState;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference, reference_to};
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::refusals::Refusals;
use ganglion_runtime::status::{StatusMethod, StatusWriter};
use webhook::SentEvent;
pub use webhook::Webhooks;

const STATUS: StatusWriter = StatusWriter {
    manager: marks::EXECUTION_STATUS_MANAGER,
    effect: "RecordExecution",
    invalid: LoopReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// Controller and its dependencies.
pub struct ExecutionController {
    pub ctx: Context,
    pub outbound: Arc<OutboundClient>,
    pub targets: Targets,
    pub memories: Memories<ExecutionMemory>,
    pub webhooks: Webhooks,
}

/// In-memory state of one Execution.
#[derive(Default)]
pub struct ExecutionMemory {
    /// Requests of the loop's account that were forbidden.
    refusals: Refusals,
    round: Round,
}

/// Position in a reconcile. A reconcile leaves nothing to the next one: others may change the target in between.
struct Round {
    /// State of the target, if it was read in this reconcile, and the rung for which it was read.
    target_state: Option<(Rung, TargetState)>,
    /// Whether the claim in the status may have been carried out.
    sent: Sent,
}

impl Default for Round {
    fn default() -> Self {
        Self { target_state: None, sent: Sent::Maybe }
    }
}

/// Execution with its loop and Decision.
pub struct ObservedExecution {
    parent: Arc<ClosedLoop>,
    id: Identity,
    execution: Arc<Execution>,
    status: ExecutionStatus,
    decision: Option<Arc<Decision>>,
    /// Specs of the children that follow from the loop, if the spec of the Execution is among them.
    says: Option<Arc<Children>>,
    /// Task that sends the claimed event. Its answer is a result that is not recorded yet.
    webhook: Option<TaskState<SentEvent>>,
}

/// Result of a step.
pub enum ExecutionDone {
    /// There is nothing more to do, until this time or a change.
    Rest(Next),
    /// The target was read.
    Read { target_state: Box<(Rung, TargetState)>, sent: Sent },
    /// The step ends with this status.
    Record(Box<ExecutionStatus>),
}

impl ObservedExecution {
    /// Describes the change of a decision that was carried out, and the alarm that caused it.
    fn describe_change(&self, status: &ExecutionStatus) -> Option<String> {
        let decision = self.decision_status()?;
        let change = acted::change(status, decision)?;
        Some(match acted::cause(status, decision, &self.parent.spec.metrics) {
            Some(cause) => format!("{change}: {cause}"),
            None => change,
        })
    }

    /// Status of the loop's Decision, as last written.
    fn decision_status(&self) -> Option<&DecisionStatus> {
        self.decision.as_ref()?.status.as_ref()
    }
}

impl Reconciler for ExecutionController {
    type Kind = Execution;
    type Memory = ExecutionMemory;
    type Observed = ObservedExecution;
    type Plan = ExecutionStep;
    type Done = ExecutionDone;
    const NAME: &'static str = "execution";
    const MAX_ROUNDS: usize = 16;
    /// Repeated conflicts on the target take many rounds.
    const PAUSE: Duration = Duration::from_secs(1);

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<ExecutionMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<Execution>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<Execution>(&self.ctx, key, problem).await
    }

    async fn begin(&self, _: &Key, memory: &mut ExecutionMemory) -> Result<(), Error> {
        memory.round = Round::default();
        Ok(())
    }

    fn observe(self: &Arc<Self>, key: &Key, _: &mut ExecutionMemory) -> Option<ObservedExecution> {
        let family = self.ctx.store.read(|world| world.family(key))?.own();
        if family.parent.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let says = family.says.clone().filter(|_| family.agreed_execution().is_some());
        let execution = family.execution?;
        let status = execution.status.clone().unwrap_or_default();
        let webhook = self.webhooks.state(key, |seq| Some(*seq) == webhook::claimed_seq(&status));
        Some(ObservedExecution {
            parent: family.parent,
            id: execution.id(),
            execution,
            status,
            decision: family.decision,
            says,
            webhook,
        })
    }

    fn plan(&self, observed: &ObservedExecution, memory: &mut ExecutionMemory) -> ExecutionStep {
        let context = self.context(observed, &memory.round);
        match &observed.webhook {
            Some(TaskState { answer: Some(sent), .. }) => after_effect(&context, &sent.effect, &sent.result),
            Some(task) if !task.has_ended => ExecutionStep::Nothing,
            Some(_) | None if observed.says.is_none() => ExecutionStep::Nothing,
            Some(_) | None => next_step(&context),
        }
    }

    async fn act(
        self: &Arc<Self>,
        observed: &ObservedExecution,
        step: &ExecutionStep,
        memory: &mut ExecutionMemory,
    ) -> Result<ExecutionDone, Error> {
        let effect = match step {
            ExecutionStep::Nothing => return Ok(ExecutionDone::Rest(Next::AwaitChange)),
            ExecutionStep::Wait(at) => return Ok(ExecutionDone::Rest(Next::At(*at))),
            ExecutionStep::Record(status) => return Ok(ExecutionDone::Record(status.clone())),
            ExecutionStep::ReadTarget => return self.read_target(observed, memory, memory.round.sent).await,
            ExecutionStep::Act(effect) => effect,
        };
        if let (ExecutionEffect::Send { .. }, Some(seq)) = (&**effect, webhook::claimed_seq(&observed.status)) {
            let decision = observed.decision_status().cloned().unwrap_or_default();
            self.start_webhook(self.actor(observed, memory), decision, seq, (**effect).clone());
            return Ok(ExecutionDone::Rest(Next::AwaitChange));
        }
        let result = self.change_target(observed, memory, effect).await?;
        // The API server refuses the write with a conflict, so any change of the target since then was made by others.
        let sent = if result == EffectResult::Conflict { memory.round.sent } else { Sent::Maybe };
        // Limits count from the time of the change, so the clock is read again after the request.
        let context = self.context(observed, &memory.round);
        match after_effect(&context, effect, &result) {
            ExecutionStep::Nothing => Ok(ExecutionDone::Rest(Next::AwaitChange)),
            ExecutionStep::Wait(at) => Ok(ExecutionDone::Rest(Next::At(at))),
            ExecutionStep::Record(status) => Ok(ExecutionDone::Record(status)),
            ExecutionStep::ReadTarget | ExecutionStep::Act(_) => self.read_target(observed, memory, sent).await,
        }
    }

    /// Records the result of the step, and starts the next round.
    async fn report(
        self: &Arc<Self>,
        observed: &ObservedExecution,
        _: &ExecutionStep,
        done: Result<&ExecutionDone, &Error>,
        memory: &mut ExecutionMemory,
    ) -> Result<Next, Error> {
        match done {
            Err(_) => return Ok(Next::AwaitChange),
            Ok(ExecutionDone::Rest(next)) => return Ok(*next),
            Ok(ExecutionDone::Read { target_state, sent }) => {
                memory.round = Round { target_state: Some((**target_state).clone()), sent: *sent };
            }
            Ok(ExecutionDone::Record(status)) => {
                self.record(observed, status).await?;
                if status.claim.is_some() && status.claim != observed.status.claim {
                    // Reads the decision again: it may have been withdrawn in the meantime.
                    self.ctx.refresh::<Decision>(&observed.execution.id()).await?;
                    memory.round.sent = Sent::NotYet;
                } else {
                    // The finished claim may have changed the target, so it is read again before the next claim.
                    memory.round = Round::default();
                }
            }
        }
        Ok(Next::Again)
    }

    fn forget(&self, key: &Key) {
        self.webhooks.cancel(key);
    }
}

impl ExecutionController {
    fn context<'a>(&'a self, observed: &'a ObservedExecution, round: &'a Round) -> ExecutionContext<'a> {
        let decision = observed.decision_status();
        let says = observed.says.as_ref().map(|says| &says.decision);
        let context = ExecutionContext {
            spec: &observed.execution.spec,
            actions: says.map(|says| says.actions.as_slice()).unwrap_or_default(),
            status: &observed.status,
            uid: &observed.id.uid,
            generation: observed.execution.metadata.generation.unwrap_or(0),
            loop_name: &observed.id.key.name,
            mode: says.map(|says| says.mode).unwrap_or_default(),
            chosen: decision.and_then(|decision| decision.chosen.as_ref()),
            // A decision of an earlier leader term is begun only after the decision controller has confirmed it.
            is_confirmed: decision.is_some_and(|decision| decision.term.as_deref() == Some(&*self.ctx.term)),
            tag: decision.and_then(|decision| decision.tag.as_ref()),
            seen: None,
            sent: round.sent,
            now: self.ctx.now(),
        };
        // A state that was read for another rung may be about another container.
        let rung = rung_to_read(&context);
        let seen =
            round.target_state.as_ref().filter(|(read_for, _)| rung.as_ref() == Some(read_for)).map(|(_, state)| state);
        ExecutionContext { seen, ..context }
    }

    fn actor(&self, observed: &ObservedExecution, memory: &ExecutionMemory) -> Actor {
        let (id, spec) = (&observed.id, &observed.execution.spec);
        let actor = Actor::new(&self.targets, &id.key, &spec.target, spec.service_account_name.as_deref());
        let owners = observed.parent.status.as_ref().map(|status| status.owners.as_slice()).unwrap_or_default();
        actor.executing(id.uid.clone()).after(memory.refusals).remembering(owners)
    }

    async fn read_target(
        &self,
        observed: &ObservedExecution,
        memory: &mut ExecutionMemory,
        sent: Sent,
    ) -> Result<ExecutionDone, Error> {
        let context = self.context(observed, &memory.round);
        let Some(rung) = rung_to_read(&context) else { return Ok(ExecutionDone::Rest(Next::AwaitChange)) };
        let claim = observed.status.claim.as_ref().filter(|_| !is_due(&context));
        let mut actor = self.actor(observed, memory);
        let read = target::read(&self.targets, &mut actor, &rung, claim).await;
        memory.refusals = actor.refusals;
        Ok(ExecutionDone::Read { target_state: Box::new((rung, read?)), sent })
    }

    async fn change_target(
        &self,
        observed: &ObservedExecution,
        memory: &mut ExecutionMemory,
        effect: &ExecutionEffect,
    ) -> Result<EffectResult, Error> {
        let mut actor = self.actor(observed, memory);
        let result = target::act(&self.targets, &mut actor, effect).await;
        memory.refusals = actor.refusals;
        result
    }

    /// Writes the status, and publishes an event of the loop about the end of a decision.
    async fn record(&self, observed: &ObservedExecution, status: &ExecutionStatus) -> Result<(), Error> {
        STATUS.write(&self.ctx, &*observed.execution, status, []).await?;
        let event = events::transition_event(&observed.status, status, || observed.describe_change(status));
        if let Some(event) = event {
            self.publish_event(observed, status, event);
        }
        Ok(())
    }

    /// Publishes an event of the loop, and of its target if the loop has changed it.
    fn publish_event(&self, observed: &ObservedExecution, status: &ExecutionStatus, event: EventText) {
        let (parent, target) = (observed.parent.id(), &observed.execution.spec.target);
        let key = Key::new(&parent.key.namespace, &target.name);
        let uid = observed.status.claim.as_ref().and_then(|claim| claim.uid.as_ref());
        let regarding = reference::<ClosedLoop>(&parent);
        let related = reference_to(&target.api_version, &target.kind, &key, uid);
        // The number of the decision identifies its end, together with the reason.
        let event = event.in_occurrence(&format!("{}/{}", observed.id.uid, status.seq.unwrap_or_default()));
        if !event.warning && uid.is_some() {
            let note = format!("ClosedLoop {}: {}", parent.key.name, event.note);
            self.ctx
                .events
                .publish(related.clone(), EventText { note, ..event.clone() }.with_related(regarding.clone()));
        }
        let note = format!("{}/{}: {}", target.kind, target.name, event.note);
        self.ctx.events.publish(regarding, EventText { note, ..event }.with_related(related));
    }
}
