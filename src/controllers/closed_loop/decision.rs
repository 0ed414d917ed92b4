//! The second hop: alarms become at most one decision, which counts once it is written.

use kube::ResourceExt;
use serde_json::json;

use super::objects::{self, Precondition};
use super::{ClosedLoops, Pass};
use crate::controllers::error::Error;
use crate::logic::closed_loop::decision::{Executor, Input, Rules};

/// Decides about what monitoring saw, and takes over what became of the last decision; the latter alone is no write.
///
/// # Errors
/// The write did not succeed; then nothing was decided.
pub async fn hop(ctx: &ClosedLoops, pass: &mut Pass, rules: &Rules) -> Result<(), Error> {
    let Some(object) = pass.family.decision.clone() else { return Ok(()) };
    let uid = object.uid().unwrap_or_default();
    let before = pass.memory.decision.of(&uid, object.status.as_ref());
    let execution = pass.family.execution.clone();
    let executor = execution.as_deref().and_then(Executor::of);
    let written = object.status.clone().unwrap_or_default();
    let input = Input {
        monitoring: pass.memory.monitoring.now(),
        executor,
        written: &written,
        generation: object.metadata.generation.unwrap_or(0),
        now: ctx.now(),
    };
    let decided = rules.decide(&before, input);
    pass.memory.again = decided.again;
    if let Some(again) = decided.again {
        pass.again(again);
    }
    let status = if decided.write {
        objects::record(ctx, pass, &*object, json!(decided.status), Precondition::Version).await?;
        pass.family.decision.as_ref().and_then(|object| object.status.clone()).unwrap_or_default()
    } else {
        decided.status
    };
    let stored = pass.family.decision.as_ref().and_then(|object| object.status.as_ref());
    pass.memory.decision.keep(&uid, stored, status);
    Ok(())
}
