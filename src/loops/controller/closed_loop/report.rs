//! Writes the status of the loop: its conditions, and a summary of the last decision.

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

/// Minimum time between two writes of the loop's status that change only the summary of decisions; the children record
/// each decision. A random time of up to the same length is added, so that loops that started together do not all write
/// in the same second.
const SUMMARY: SignedDuration = SignedDuration::from_secs(15);

/// Minimum time between a decision and the write of its summary. The outcome usually follows within that time, so that
/// one write covers both. A random time of up to three times this length is added.
const OUTCOME: SignedDuration = SignedDuration::from_secs(1);

/// Writes the status of the loop if it changed. Returns the time at which a postponed summary is due.
pub async fn write(
    ctx: &Context,
    key: &Key,
    assessed: &Assessed,
    (not_owned, preflight): (Option<&str>, Option<&Preflight>),
    memory: &mut Memory,
) -> Result<Option<Timestamp>, Error> {
    // Reads the children again: this reconcile may have created them.
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
    // Uses server-side apply, since other loops write their tunings into the same status.
    let id = parent.id();
    let write = ctx.writer.apply_status::<ClosedLoop>(marks::LOOP_STATUS_MANAGER, &id, &status);
    ctx.write_own::<ClosedLoop, ClosedLoop>("RecordClosedLoop", &**parent, write).await?;
    (memory.reported_at, memory.summary_due) = (Some(now), None);
    if let Some(event) = events::transition_event(&stored, &status) {
        ctx.events.publish(events::subject(parent), event);
    }
    // If another loop tuned this one between the read and the write, reconcile again at once.
    let tuning = |object: &ClosedLoop| object.status.as_ref().map(|status| status.tuning.clone());
    let written = ctx.store.read(|world| world.table::<ClosedLoop>().get(key).and_then(|object| tuning(object)));
    Ok((written.unwrap_or_default() != tuning(parent).unwrap_or_default()).then_some(now))
}

/// Returns when to write a summary that has changed now. `last` is the time of the last status write.
fn summary_due(last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let after = |time: Timestamp, least: SignedDuration, more: f64| {
        let wait = least.saturating_add(SignedDuration::from_secs_f64(least.as_secs_f64() * more * fastrand::f64()));
        time.checked_add(wait).unwrap_or(time)
    };
    let settled = after(now, OUTCOME, 3.0);
    last.map_or(settled, |last| settled.max(after(last, SUMMARY, 1.0)))
}
