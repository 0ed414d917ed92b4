//! Writes the status of a pool if it is worth a write, at a limited rate while jobs move.

use jiff::{SignedDuration, Timestamp};

use super::workers::Refreshed;
use super::{STATUS, SwarmPoolController};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{SwarmPool, SwarmPoolStatus};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};
use ganglion_core::words::counted;
use ganglion_pools_plan::PoolProblem;
use ganglion_pools_plan::handover::runs_its_list;
use ganglion_pools_plan::refusals::{WriteRefusal, slots_condition, surplus_condition, versions_problem};
use ganglion_pools_plan::replicas::{self, RefusedWrite, follow_condition};
use ganglion_pools_plan::state::{PoolState, health, refused, status};
use ganglion_pools_plan::step::{ObservedPool, PlannedHandover, PoolMemory, timeout};
use ganglion_pools_plan::workers::{AnnotatedVersion, OUTDATED_AFTER, WorkerMemory};
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, EventText, condition_events};
use ganglion_runtime::frame::Next;

/// Reasons change many times during a handover, so they share a write.
const POLICY: StatusPolicy = StatusPolicy { details_after: SignedDuration::from_secs(1), heartbeat: None };

/// Delay before a live read or a blocked eviction is repeated.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// Interval between two checks whether there is memory for sources that were not read for want of it.
const ROOM_CHECK: SignedDuration = SignedDuration::from_secs(60);

impl SwarmPoolController {
    /// Writes the status of a pool whose lists are published, and returns the time of the next reconcile.
    pub(super) async fn report_handover(
        &self,
        observed: &ObservedPool,
        handover: &PlannedHandover,
        refreshed: &Refreshed,
        memory: &mut PoolMemory,
    ) -> Result<Next, Error> {
        let now = observed.now;
        let mut problems = handover.problems.clone();
        problems.extend(unannotated(handover, &memory.workers));
        let (next_timeout, health, status) = {
            let input = handover.input(&memory.workers);
            let state = PoolState {
                table: &handover.desired.table,
                workers: &handover.workers.assigned,
                input: &input,
                plan: &handover.plan,
                unassigned: &handover.desired.unassigned,
                sharing: handover.desired.sharing,
                problems: &problems,
                budget: refreshed.budget.as_deref(),
                missing_since: memory.workers.missing.since(),
                timeout: timeout(&observed.pool),
            };
            let health = health(&state);
            let old = observed.pool.status.clone().unwrap_or_default();
            let change = memory.assignment.change.as_ref().map(|change| (&change.change, change.moved));
            let status = status(&old, &state, &health, change, self.stamp(&observed.pool));
            (state.next_due(), health, status)
        };
        let status = self.with_scale(status, observed, memory.follow_refused.as_ref());
        let status = self.with_refusals(status, observed, memory);
        let report_at = self.report_changed(&observed.pool, memory, &status).await?;
        let must_retry = refreshed.retry || matches!(health, Health::Retrying(PoolReason::BudgetBlocked, _));
        let retry_at = if must_retry { now.checked_add(RETRY).ok() } else { None };
        let refresh_at = next_refresh(observed, handover, &memory.workers);
        // Another pool may have released memory, which wakes nobody.
        let room_at = if memory.sources.lacks_room() { now.checked_add(ROOM_CHECK).ok() } else { None };
        let (given_at, waits_until) = (handover.plan.due, handover.workers.waits_until);
        let numbers = [&memory.scale_refused, &memory.follow_refused].into_iter().flatten();
        let others = [&memory.workers.slots_refused, &memory.workers.versions_refused, &memory.output.delete_refused];
        let refusals = numbers.map(|refused| &refused.refusal).chain(others.into_iter().flatten());
        let refused_until = refusals.filter_map(WriteRefusal::retry_at).filter(|at| *at > now).min();
        let scale_at = replicas::retry_at(&memory.scaled).filter(|at| *at > now);
        Ok(Next::earliest([
            next_timeout,
            report_at,
            retry_at,
            refresh_at,
            room_at,
            given_at,
            waits_until,
            scale_at,
            refused_until,
        ]))
    }

    /// Reports the reason for which the pool is not reconciled.
    pub(super) async fn report_refused(&self, pool: &SwarmPool, health: &Health<PoolReason>) -> Result<(), Error> {
        let old = pool.status.clone().unwrap_or_default();
        let status = refused(&old, health, self.stamp(pool));
        if old == status { Ok(()) } else { self.write_status(pool, &old, &status).await }
    }

    /// Writes the status if it is worth a write now; otherwise returns the time at which it is due.
    async fn report_changed(
        &self,
        pool: &SwarmPool,
        memory: &mut PoolMemory,
        status: &SwarmPoolStatus,
    ) -> Result<Option<Timestamp>, Error> {
        let now = self.ctx.now();
        let change = match &pool.status {
            Some(old) if old == status => StatusChange::None,
            Some(old) if conditions::alike(&old.conditions, &status.conditions) => StatusChange::Details,
            _ => StatusChange::Edge,
        };
        match POLICY.timing(change, memory.reported_at, now) {
            StatusTiming::Never => Ok(None),
            StatusTiming::At(at) => Ok(Some(at)),
            StatusTiming::Now => {
                let old = pool.status.clone().unwrap_or_default();
                self.write_status(pool, &old, status).await?;
                memory.reported_at = Some(now);
                Ok(None)
            }
        }
    }

    pub(super) async fn write_status(
        &self,
        pool: &SwarmPool,
        old: &SwarmPoolStatus,
        status: &SwarmPoolStatus,
    ) -> Result<(), Error> {
        STATUS.write(&self.ctx, pool, status, events(old, status)).await
    }

    /// Adds the fields that the scale subresource reads, and whether the API server refuses to show the replicas there.
    fn with_scale(
        &self,
        status: SwarmPoolStatus,
        observed: &ObservedPool,
        refused: Option<&RefusedWrite>,
    ) -> SwarmPoolStatus {
        let Some(workload) = &observed.workload else { return status };
        let selector = Some(workload.selector.clone()).filter(|selector| !selector.is_empty());
        let mut conditions = status.conditions;
        conditions.extend(follow_condition(&observed.pool, workload, refused, self.stamp(&observed.pool)));
        SwarmPoolStatus { replicas: Some(workload.status_replicas), selector, conditions, ..status }
    }

    /// Adds a condition for each refused write without which the pool goes on.
    fn with_refusals(&self, status: SwarmPoolStatus, observed: &ObservedPool, memory: &PoolMemory) -> SwarmPoolStatus {
        let (pool, stamp) = (&observed.pool, self.stamp(&observed.pool));
        let surplus: Vec<&str> = memory.output.surplus().collect();
        let mut conditions = status.conditions;
        conditions.extend(slots_condition(pool, memory.workers.slots_refused.as_ref(), stamp));
        conditions.extend(surplus_condition(pool, &surplus, memory.output.delete_refused.as_ref(), stamp));
        SwarmPoolStatus { conditions, ..status }
    }

    fn stamp(&self, pool: &SwarmPool) -> Stamp {
        Stamp { generation: pool.metadata.generation.unwrap_or(0), now: self.ctx.now() }
    }
}

/// Problem of a pool whose pods cannot be annotated. It matters while workers do not run their lists.
fn unannotated(handover: &PlannedHandover, memory: &WorkerMemory) -> Option<PoolProblem> {
    let refusal = memory.versions_refused.as_ref()?;
    let input = handover.input(memory);
    let mut lists = handover.published.lists.iter();
    lists.any(|(name, list)| !runs_its_list(name, list, &input)).then(|| versions_problem(refusal))
}

/// Time of the next action for workers that do not run their lists yet: another annotation, or a restart.
fn next_refresh(observed: &ObservedPool, handover: &PlannedHandover, memory: &WorkerMemory) -> Option<Timestamp> {
    let input = handover.input(memory);
    let mut earliest = None;
    for (name, list) in &handover.published.lists {
        if runs_its_list(name, list, &input) {
            continue;
        }
        let Some(pod) = observed.workload.as_ref().and_then(|workload| workload.pods.get(name)) else { continue };
        let outdated_at = pod.ready_from().and_then(|since| since.checked_add(OUTDATED_AFTER).ok());
        let annotate_at = memory.annotation(&pod.id, list.version).and_then(AnnotatedVersion::again_at);
        for at in [outdated_at, annotate_at].into_iter().flatten().filter(|at| *at > observed.now) {
            earliest = Some(earliest.map_or(at, |earlier: Timestamp| earlier.min(at)));
        }
    }
    earliest
}

/// Conditions of a pool that have events.
const EVENTS: [ConditionEvent; 2] = [
    ConditionEvent::warning("Stalled", "True", ConditionChange::Reason),
    ConditionEvent::normal("Ready", "True", ConditionChange::Reason),
];

/// Events for a new status: the assignment changed, all workers converged, or somebody has to solve a problem.
fn events(old: &SwarmPoolStatus, new: &SwarmPoolStatus) -> Vec<EventText> {
    let mut events = Vec::new();
    if let Some(change) = new.last_change.as_ref().filter(|_| old.last_change != new.last_change) {
        let note = format!("{}: {} to move to another worker", change.why, counted(new.moved.unwrap_or(0), "job"));
        events.push(EventText::normal("Dealt", note));
    }
    let was_working =
        old.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown");
    for event in condition_events(&EVENTS, &old.conditions, &new.conditions) {
        // A new process waits for the workers again, and they converge on the same version once more.
        events.push(match new.version.filter(|_| was_working && !event.warning) {
            Some(version) => event.in_occurrence(&format!("version {version}")),
            None => event,
        });
    }
    events
}
