//! The loop's own status: how it is, and the last decision in short.

use jiff::{SignedDuration, Timestamp};

use super::Memory;
use super::assessed::Assessed;
use super::events;
use crate::api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use crate::api::marks;
use crate::logic::closed_loop::validate::assessment::{self, ChildStatuses, LoopProblem};
use crate::logic::facts::Key;
use crate::logic::world::Fact;
use crate::logic::world::loops::Family;
use crate::runtime::context::Context;
use crate::runtime::error::Error;

/// The least time between two writes of the loop's status that only tell of another decision: the hops tell of each.
const SUMMARY: SignedDuration = SignedDuration::from_secs(10);

/// Writes how the loop is, where that is news; when a summary that was put off is due.
///
/// # Errors
/// The write did not succeed.
pub async fn write(
    ctx: &Context,
    key: &Key,
    assessed: &Assessed,
    not_owned: Option<&str>,
    memory: &mut Memory,
) -> Result<Option<Timestamp>, Error> {
    // The children as they are now: this pass may have made them.
    let Some(family) = ctx.store.read(|world| world.family(key)).map(Family::own) else { return Ok(None) };
    let parent = &family.parent;
    let stored = ClosedLoopStatus { tuning: Vec::new(), ..parent.status.clone().unwrap_or_default() };
    let now = ctx.now();
    let case = assessed.relations.case(parent, &stored, now);
    let children = ChildStatuses {
        monitoring: family.monitoring.as_ref().and_then(|object| object.status.as_ref()),
        decision: family.decision.as_ref().and_then(|object| object.status.as_ref()),
        execution: family.execution.as_ref().and_then(|object| object.status.as_ref()),
        not_owned,
    };
    let assessment = &assessed.assessment;
    let status = assessment::status(&case, assessment, children, parent.metadata.generation.unwrap_or(0));
    let edge = !assessment::same_edges(&stored, &status);
    if !edge && stored.summary == status.summary {
        return Ok(None);
    }
    let next = memory.reported_at.and_then(|last| last.checked_add(SUMMARY).ok()).filter(|next| *next > now);
    if let Some(next) = next.filter(|_| !edge) {
        return Ok(Some(next));
    }
    if let Some(problem) = assessment.problem.as_ref().map(LoopProblem::message).filter(|_| edge) {
        tracing::info!(problem, "loop does not act");
    }
    // Others write here, too: each its tuning.
    let id = parent.id();
    let write = ctx.writer.apply_status::<ClosedLoop>(marks::LOOP_STATUS_MANAGER, &id, &status);
    ctx.write_own::<ClosedLoop, ClosedLoop>("RecordClosedLoop", &**parent, write).await?;
    memory.reported_at = Some(now);
    if let Some(event) = events::transition_event(&stored, &status) {
        ctx.events.publish(events::subject(parent), event);
    }
    // Another loop may have tuned this one between our reading and our writing.
    let tuning = |object: &ClosedLoop| object.status.as_ref().map(|status| status.tuning.clone());
    let written = ctx.store.read(|world| world.table::<ClosedLoop>().get(key).and_then(|object| tuning(object)));
    Ok((written.unwrap_or_default() != tuning(parent).unwrap_or_default()).then_some(now))
}
