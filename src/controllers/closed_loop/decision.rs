//! The second hop: alarms become at most one decision, which counts once it is written.

use std::sync::Arc;

use super::memory::StatusCache;
use super::objects::{self, Precondition};
use super::{ClosedLoopController, Pass};
use crate::api::decision::DecisionStatus;
use crate::controllers::error::Error;
use crate::logic::closed_loop::decision::{Decided, DecisionInput, DecisionRules, Executor};

/// Decides about what monitoring saw, and takes over what became of the last decision; the latter alone is no write.
///
/// # Errors
/// The write did not succeed; then nothing was decided.
pub async fn hop(ctx: &ClosedLoopController, pass: &mut Pass, rules: &DecisionRules) -> Result<(), Error> {
    let Some(object) = pass.family.decision.clone() else { return Ok(()) };
    let before = pass.memory.decision.of(&object);
    let execution = pass.family.execution.clone();
    let nothing = DecisionStatus::default();
    let input = DecisionInput {
        monitoring: pass.memory.monitoring.now(),
        executor: execution.as_deref().and_then(Executor::of),
        written: object.status.as_ref().unwrap_or(&nothing),
        generation: object.metadata.generation.unwrap_or(0),
        now: ctx.now(),
    };
    let Decided { status, write, again } = rules.decide(&before, input);
    pass.memory.again = again;
    if let Some(again) = again {
        pass.again(again);
    }
    if write {
        objects::record(ctx, pass, &*object, &status, Precondition::Version).await?;
    }
    match &pass.family.decision {
        Some(stored) => pass.memory.decision.keep(stored, (!write).then(|| Arc::new(status))),
        // It was deleted meanwhile, and what was decided with it.
        None => pass.memory.decision = StatusCache::default(),
    }
    Ok(())
}
