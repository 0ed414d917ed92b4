//! The loop's own status: how it is, and the last decision in short.

use jiff::{SignedDuration, Timestamp};

use super::Memory;
use super::assessed::Assessed;
use super::events;
use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_core::world::loops::Family;
use ganglion_loops_plan::validate::assessment::{self, ChildStatuses, LoopProblem};
use ganglion_loops_plan::validate::preflight::Preflight;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Minimum time between two writes of the loop's status that change only the summary of decisions; the hops record each
/// decision. A random time of up to the same length is added, so that loops that started together are not all written in the
/// same second.
const SUMMARY: SignedDuration = SignedDuration::from_secs(15);

/// Minimum time between a decision and its summary: the outcome usually follows within that time, so that one write covers
/// both. A random time of up to three times this length is added.
const OUTCOME: SignedDuration = SignedDuration::from_secs(1);

/// Writes how the loop is, where that is news; when a summary that was put off is due.
///
/// # Errors
/// The write did not succeed.
pub async fn write(
    ctx: &Context,
    key: &Key,
    assessed: &Assessed,
    (not_owned, preflight): (Option<&str>, Option<&Preflight>),
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
        preflight,
    };
    let assessment = &assessed.assessment;
    let status = assessment::status(&case, assessment, children, parent.metadata.generation.unwrap_or(0));
    let edge = !assessment::same_edges(&stored, &status);
    if !edge {
        if stored.summary == status.summary {
            memory.summary_due = None;
            return Ok(None);
        }
        let last = memory.reported_at;
        let due = *memory.summary_due.get_or_insert_with(|| summary_due(last, now));
        if due > now {
            return Ok(Some(due));
        }
    }
    if let Some(problem) = assessment.problem.as_ref().map(LoopProblem::message).filter(|_| edge) {
        tracing::info!(problem, "loop does not act");
    }
    // Others write here, too: each its tuning.
    let id = parent.id();
    let write = ctx.writer.apply_status::<ClosedLoop>(marks::LOOP_STATUS_MANAGER, &id, &status);
    ctx.write_own::<ClosedLoop, ClosedLoop>("RecordClosedLoop", &**parent, write).await?;
    (memory.reported_at, memory.summary_due) = (Some(now), None);
    if let Some(event) = events::transition_event(&stored, &status) {
        ctx.events.publish(events::subject(parent), event);
    }
    // Another loop may have tuned this one between our reading and our writing.
    let tuning = |object: &ClosedLoop| object.status.as_ref().map(|status| status.tuning.clone());
    let written = ctx.store.read(|world| world.table::<ClosedLoop>().get(key).and_then(|object| tuning(object)));
    Ok((written.unwrap_or_default() != tuning(parent).unwrap_or_default()).then_some(now))
}

/// When to write a change of the summary that was first seen now; `last` is the last write of the status.
fn summary_due(last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let after = |time: Timestamp, least: SignedDuration, more: f64| {
        let wait = least.saturating_add(SignedDuration::from_secs_f64(least.as_secs_f64() * more * fastrand::f64()));
        time.checked_add(wait).unwrap_or(time)
    };
    let settled = after(now, OUTCOME, 3.0);
    last.map_or(settled, |last| settled.max(after(last, SUMMARY, 1.0)))
}
