//! The decision controller, the second stage of a loop: it turns alarms into at most one decision. A decision takes
//! effect once it is written.
//!
//! | step | content |
//! |---|---|
//! | observe | the Decision, and the cached Monitoring and Execution of the loop |
//! | plan | [`ganglion_loops_plan::decision`] |
//! | act | nothing: the execution controller acts |
//! | report | `Decision.status`, with the resourceVersion that was read |
//!
//! Everything in memory may be lost in a crash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::status_cache::StatusCache;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Decision, DecisionSpec, DecisionStatus};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_core::world::loops::Family;
use ganglion_loops_plan::common::{FieldError, PARSE_AGAIN};
use ganglion_loops_plan::decision::{Decided, DecisionInput, DecisionRules, Executor};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, PassResult};

/// Controller and its dependencies.
pub struct DecisionController {
    pub ctx: Context,
    pub memory: DecisionMemory,
}

/// In-memory state between reconciles.
#[derive(Default)]
pub struct DecisionMemory(Mutex<HashMap<Key, Memory>>);

/// In-memory state of one Decision.
#[derive(Default)]
struct Memory {
    status: StatusCache<Decision>,
    /// uid of the Monitoring whose samples the status refers to.
    monitoring: Option<String>,
    /// Last parsed spec, with its rules or the error.
    rules: Option<(DecisionSpec, Result<Arc<DecisionRules>, FieldError>)>,
}

impl DecisionMemory {
    fn objects(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for DecisionController {
    type Kind = Decision;
    const NAME: &'static str = "decision";

    async fn reconcile(self: Arc<Self>, key: Key) -> PassResult {
        let (reason, by) = (LoopReason::InvalidObject.as_str(), (marks::DECISION_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<Decision>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let mut memory = self.memory.objects().remove(&key).unwrap_or_default();
        let Some(family) = self.ctx.store.read(|world| world.family(&key)).map(Family::own) else {
            return self.ctx.finish(Ok(None));
        };
        let done = self.decide(family, &mut memory).await;
        self.memory.objects().insert(key, memory);
        self.ctx.finish(done)
    }
}

impl DecisionController {
    /// Decides on the alarms that monitoring wrote, and records the outcome of the last decision. An outcome alone
    /// causes no write.
    async fn decide(&self, family: Family, memory: &mut Memory) -> Result<Option<Timestamp>, Error> {
        let (Some(object), Some(monitoring)) = (family.decision, family.monitoring) else { return Ok(None) };
        let Some(seen) = monitoring.status.as_ref() else { return Ok(None) };
        // The loop's status reports an invalid spec.
        let rules = match rules(&object.spec, memory) {
            Ok(rules) => rules,
            Err(error) => return Ok(error.passing.then(|| self.ctx.now() + PARSE_AGAIN)),
        };
        if family.parent.metadata.deletion_timestamp.is_some() || self.ctx.is_over() {
            return Ok(None);
        }
        if memory.monitoring != monitoring.metadata.uid {
            // A recreated Monitoring continues its sequence numbers from the stored status, so an unwritten status
            // would look newer.
            memory.status = StatusCache::default();
            memory.monitoring.clone_from(&monitoring.metadata.uid);
        }
        let before = memory.status.of(&object);
        let nothing = DecisionStatus::default();
        let input = DecisionInput {
            monitoring: seen,
            executor: family.execution.as_deref().and_then(Executor::of),
            written: object.status.as_ref().unwrap_or(&nothing),
            generation: object.metadata.generation.unwrap_or(0),
            term: &self.ctx.term,
            now: self.ctx.now(),
        };
        let Decided { status, write, again } = rules.decide(&before, input);
        if write {
            let id = object.id();
            let write = self.ctx.writer.replace_status::<Decision>(marks::DECISION_STATUS_MANAGER, &id, &status);
            self.ctx.write_own::<Decision, Decision>("RecordDecision", &*object, write).await?;
        }
        // The store may hold a newer version, or another object if the Decision was recreated.
        let stored = self.ctx.store.read(|world| world.table::<Decision>().get(&object.id().key).cloned());
        match stored {
            Some(stored) if write => memory.status.keep(&stored, None),
            Some(_) => memory.status.keep(&object, Some(Arc::new(status))),
            None => memory.status = StatusCache::default(),
        }
        Ok(again)
    }
}

/// Returns the rules of this spec, cached until the spec changes. Temporary errors are not cached.
fn rules(spec: &DecisionSpec, memory: &mut Memory) -> Result<Arc<DecisionRules>, FieldError> {
    if let Some((_, rules)) = memory.rules.as_ref().filter(|(known, _)| known == spec) {
        return rules.clone();
    }
    let rules = DecisionRules::parse(spec).map(Arc::new);
    let passing = rules.as_ref().is_err_and(|error| error.passing);
    memory.rules = (!passing).then(|| (spec.clone(), rules.clone()));
    rules
}
