//! Writes the status of the loop: its conditions, and a summary of the last decision. Publishes an event when the loop
//! stops acting.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::assessed::Assessed;
use super::{ClosedLoopMemory, STATUS};
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use ganglion_core::status::StatusChange;
use ganglion_core::world::Fact;
use ganglion_loops_plan::validate::assessment::{self, ChildStatuses, LoopProblem};
use ganglion_loops_plan::world::{Family, LoopsWorld};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, condition_events};

/// Minimum time between two writes of the loop's status that change only the summary of decisions; the children record
/// each decision. A random time of up to the same length is added, so that loops that started together do not all write
/// in the same second.
const SUMMARY: SignedDuration = SignedDuration::from_secs(15);

/// Minimum time between a decision and the write of its summary. The outcome usually follows within that time, so that
/// one write covers both. A random time is added.
const OUTCOME: SignedDuration = SignedDuration::from_secs(1);

/// Maximum of the time that is added for a loop that tracks: its alarm ends one interval after the change, and one
/// write covers that, too.
const TRACKED: SignedDuration = SignedDuration::from_secs(15);

/// Maximum of the random time.
const SPREAD: SignedDuration = SignedDuration::from_secs(3);

/// Conditions that say why a loop does not act, which have events.
const EVENTS: [ConditionEvent; 3] = [
    ConditionEvent::warning("Stalled", "True", ConditionChange::Message),
    ConditionEvent::warning("Conflict", "True", ConditionChange::Message),
    ConditionEvent::warning("Preflight", "False", ConditionChange::Message),
];

/// Why children could not be written.
#[derive(Clone, Copy)]
pub struct ChildProblems<'a> {
    /// See [`ChildStatuses::not_owned`].
    pub not_owned: Option<&'a str>,
    /// See [`ChildStatuses::refused`].
    pub refused: Option<&'a str>,
}

/// Writes the status of the loop if it changed. Returns the time at which it changes next without any event: a
/// postponed summary is due, or the condition about undone changes names one field less.
pub async fn write(
    ctx: &Context,
    observed: &Family,
    assessed: &Assessed,
    problems: ChildProblems<'_>,
    memory: &mut ClosedLoopMemory,
) -> Result<Option<Timestamp>, Error> {
    let key = observed.parent.id().key;
    // Reads the children again: this reconcile may have created them.
    let Some(family) = ctx.store.read(|world| world.family(&key)).map(Family::own) else { return Ok(None) };
    let parent = &family.parent;
    let stored = ClosedLoopStatus { tuning: Vec::new(), ..parent.status.clone().unwrap_or_default() };
    let now = ctx.now();
    let status = next_status(&family, &stored, assessed, problems, memory, now);
    let execution = family.execution.as_ref().and_then(|object| object.status.as_ref());
    let undone_until = assessment::undone_until(execution, now);
    match assessment::status_change(&stored, &status) {
        StatusChange::None => {
            memory.summary_due = None;
            return Ok(undone_until);
        }
        StatusChange::Details => {
            let last = memory.reported_at;
            let watches = assessed.assessment.stages.as_ref().map(|(watches, _)| watches);
            let tracks = watches.filter(|watches| watches.tracking.is_some());
            let pass = tracks.map_or(SignedDuration::ZERO, |watches| watches.interval.min(TRACKED));
            let settles = OUTCOME.saturating_add(pass);
            let due = *memory.summary_due.get_or_insert_with(|| summary_due(last, now, settles));
            if due > now {
                return Ok(undone_until.map_or(Some(due), |until| Some(until.min(due))));
            }
        }
        StatusChange::Edge => {
            if let Some(problem) = assessed.assessment.problem.as_ref().map(LoopProblem::message) {
                tracing::info!(problem, "loop does not act");
            }
        }
    }
    STATUS.write(ctx, &**parent, &status, condition_events(&EVENTS, &stored.conditions, &status.conditions)).await?;
    (memory.reported_at, memory.summary_due) = (Some(now), None);
    // The own write causes no reconcile. If another loop tuned this one between the read and the write, or the path of
    // the replicas has become known, on which conflicts depend, reconcile again at once.
    let written = ctx.store.read(|world| world.table::<ClosedLoop>().get(&key).cloned());
    let tuned = tunings(written.as_ref()) != tunings(Some(parent));
    let is_input = tuned || status.replicas_path != stored.replicas_path;
    Ok(if is_input { Some(now) } else { undone_until })
}

fn next_status(
    family: &Family,
    stored: &ClosedLoopStatus,
    assessed: &Assessed,
    problems: ChildProblems<'_>,
    memory: &ClosedLoopMemory,
    now: Timestamp,
) -> ClosedLoopStatus {
    let children = ChildStatuses {
        monitoring: family.monitoring.as_ref().and_then(|object| object.status.as_ref()),
        decision: family.decision.as_ref().and_then(|object| object.status.as_ref()),
        execution: family.execution.as_ref().and_then(|object| object.status.as_ref()),
        not_owned: problems.not_owned,
        refused: problems.refused,
        preflight: memory.preflight.as_ref().map(|preflight| &preflight.verdict),
        owners: memory.preflight.as_ref().map(|preflight| preflight.owners.as_slice()),
        replicas_path: memory.preflight.as_ref().and_then(|preflight| preflight.replicas_path.as_deref()),
    };
    let input = assessed.relations.input(&family.parent, stored, now);
    let generation = family.parent.metadata.generation.unwrap_or(0);
    assessment::status(&input, &assessed.assessment, children, generation)
}

/// Tunings that other loops wrote into the status of this one.
fn tunings(parent: Option<&Arc<ClosedLoop>>) -> &[Tuning] {
    parent.and_then(|parent| parent.status.as_ref()).map(|status| status.tuning.as_slice()).unwrap_or_default()
}

/// Returns when to write a summary that has changed now. `last` is the time of the last status write, and `settles` the
/// time after which the change is complete.
fn summary_due(last: Option<Timestamp>, now: Timestamp, settles: SignedDuration) -> Timestamp {
    let after = |time: Timestamp, least: SignedDuration, most: SignedDuration| {
        let wait = least.saturating_add(SignedDuration::from_secs_f64(most.as_secs_f64() * fastrand::f64()));
        time.checked_add(wait).unwrap_or(time)
    };
    let settled = after(now, settles, SPREAD);
    last.map_or(settled, |last| settled.max(after(last, SUMMARY, SUMMARY)))
}
