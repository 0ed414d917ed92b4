//! The decision controller, the second stage of a loop: it turns alarms into at most one decision. A decision takes
//! effect once it is written.
//!
//! | step | content |
//! |---|---|
//! | observe | the Decision, and the cached Monitoring and Execution of the loop |
//! | plan | `ganglion_loops_plan::decision` |
//! | act | nothing: the execution controller acts |
//! | report | `Decision.status`, with the resourceVersion that was read |
//!
//! Everything in memory may be lost in a crash.

use std::sync::Arc;

use crate::status_cache::StatusCache;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Decision, DecisionSpec, DecisionStatus};
use ganglion_api::execution::Execution;
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::common::{FieldError, PARSE_AGAIN};
use ganglion_loops_plan::decision::{Decided, DecisionInput, DecisionRules, Executor};
use ganglion_loops_plan::world::{Family, LoopsWorld};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};

const STATUS: StatusWriter = StatusWriter {
    manager: marks::DECISION_STATUS_MANAGER,
    effect: "RecordDecision",
    invalid: LoopReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// Controller and its dependencies.
pub struct DecisionController {
    pub ctx: Context,
    pub memories: Memories<DecisionMemory>,
}

/// In-memory state of one Decision.
#[derive(Default)]
pub struct DecisionMemory {
    status: StatusCache<Decision>,
    /// uid of the Monitoring whose samples the status refers to.
    monitoring: Option<String>,
    /// Last parsed spec, with its rules or the error.
    rules: Option<(DecisionSpec, Result<Arc<DecisionRules>, FieldError>)>,
}

/// A Decision and what it is decided from.
pub struct ObservedDecision {
    object: Arc<Decision>,
    monitoring: Option<Arc<Monitoring>>,
    execution: Option<Arc<Execution>>,
    /// Current status: the stored one, or a newer one that is not worth a write.
    before: Arc<DecisionStatus>,
    /// Whether the spec is what the loop says.
    is_agreed: bool,
}

/// Decision about the alarms.
pub enum DecisionPlan {
    /// There are no alarms or no rules to decide by, until this time or a change.
    Wait(Next),
    Decide(Box<Decided>),
}

impl Reconciler for DecisionController {
    type Kind = Decision;
    type Memory = DecisionMemory;
    type Observed = ObservedDecision;
    type Plan = DecisionPlan;
    type Done = ();
    const NAME: &'static str = "decision";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<DecisionMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<Decision>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<Decision>(&self.ctx, key, problem).await
    }

    fn observe(self: &Arc<Self>, key: &Key, memory: &mut DecisionMemory) -> Option<ObservedDecision> {
        let family = self.ctx.store.read(|world| world.family(key)).map(Family::own)?;
        if family.parent.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let is_agreed = family.agreed_decision().is_some();
        let object = family.decision?;
        let monitoring = family.monitoring.filter(|monitoring| monitoring.status.is_some());
        let uid = monitoring.as_ref().and_then(|monitoring| monitoring.metadata.uid.as_ref());
        if uid.is_some() && memory.monitoring.as_ref() != uid {
            // A recreated Monitoring continues its sequence numbers from the stored status, so an unwritten status
            // would look newer.
            memory.status = StatusCache::default();
            memory.monitoring = uid.cloned();
        }
        let before = memory.status.current(&object);
        Some(ObservedDecision { object, monitoring, execution: family.execution, before, is_agreed })
    }

    /// Decides on the alarms that monitoring wrote, and records the outcome of the last decision.
    fn plan(&self, observed: &ObservedDecision, memory: &mut DecisionMemory) -> DecisionPlan {
        let ObservedDecision { object, monitoring, execution, before, is_agreed } = observed;
        if !is_agreed {
            return DecisionPlan::Wait(Next::AwaitChange);
        }
        let Some(alarms) = monitoring.as_ref().and_then(|monitoring| monitoring.status.as_ref()) else {
            return DecisionPlan::Wait(Next::AwaitChange);
        };
        let now = self.ctx.now();
        // The loop's status reports an invalid spec.
        let rules = match rules(&object.spec, memory) {
            Ok(rules) => rules,
            Err(error) => return DecisionPlan::Wait(error.passing.then(|| now + PARSE_AGAIN).into()),
        };
        let nothing = DecisionStatus::default();
        let input = DecisionInput {
            monitoring: alarms,
            executor: execution.as_deref().and_then(Executor::from_execution),
            written: object.status.as_ref().unwrap_or(&nothing),
            generation: object.metadata.generation.unwrap_or(0),
            term: &self.ctx.term,
            now,
        };
        DecisionPlan::Decide(Box::new(rules.decide(before, input)))
    }

    /// Does nothing: the execution controller acts.
    async fn act(
        self: &Arc<Self>,
        _: &ObservedDecision,
        _: &DecisionPlan,
        _: &mut DecisionMemory,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Writes the decision, or caches a status that is not worth a write. An outcome alone causes no write.
    async fn report(
        self: &Arc<Self>,
        observed: &ObservedDecision,
        plan: &DecisionPlan,
        _: Result<&(), &Error>,
        memory: &mut DecisionMemory,
    ) -> Result<Next, Error> {
        let decided = match plan {
            DecisionPlan::Wait(next) => return Ok(*next),
            DecisionPlan::Decide(decided) => decided,
        };
        let object = &observed.object;
        if decided.write {
            STATUS.write(&self.ctx, &**object, &decided.status, []).await?;
        }
        // The store may hold a newer version, or another object if the Decision was recreated.
        let stored = self.ctx.store.read(|world| world.table::<Decision>().get(&object.id().key).cloned());
        match stored {
            Some(stored) if decided.write => memory.status.set(&stored, None),
            Some(_) => memory.status.set(object, Some(Arc::new(decided.status.clone()))),
            None => memory.status = StatusCache::default(),
        }
        Ok(decided.again.into())
    }
}

/// Returns the rules of this spec, cached until the spec changes. Temporary errors are not cached.
fn rules(spec: &DecisionSpec, memory: &mut DecisionMemory) -> Result<Arc<DecisionRules>, FieldError> {
    if let Some((_, rules)) = memory.rules.as_ref().filter(|(known, _)| known == spec) {
        return rules.clone();
    }
    let rules = DecisionRules::parse(spec).map(Arc::new);
    let passing = rules.as_ref().is_err_and(|error| error.passing);
    memory.rules = (!passing).then(|| (spec.clone(), rules.clone()));
    rules
}
