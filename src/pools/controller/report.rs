//! Writes the status of a pool if it changed, at a limited rate while jobs move.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::act::Acted;
use super::memory::Memory;
use super::observe::{OUTDATED, Seen, Workload};
use super::{Stop, SwarmPoolController, own_key};
use ganglion_api::marks;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{SwarmPool, SwarmPoolStatus};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::words::counted;
use ganglion_core::world::Fact;
use ganglion_pools_plan::plan::follows;
use ganglion_pools_plan::state::{PoolState, health, refused, status};
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, EventText, condition_events, reference};

/// Minimum time between two status writes that change no condition status: reasons change many times during a handover.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Delay before a live read or a blocked eviction is repeated.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

impl SwarmPoolController {
    /// Writes the status after a successful `act`, and returns the time of the next reconcile. A failure of `act` is
    /// returned unchanged.
    pub(super) async fn report(
        &self,
        pool: &Arc<SwarmPool>,
        memory: &mut Memory,
        seen: &Seen,
        workload: &Workload,
        acted: Result<Acted, Stop>,
    ) -> Result<Option<Timestamp>, Stop> {
        let acted = acted?;
        let now = seen.now;
        // The next step is planned from the lists just written. Enqueued directly, because a requeue time has jitter.
        if acted.wrote {
            self.ctx.store.queue::<SwarmPool>().add([own_key(pool)]);
            return Ok(None);
        }
        let (dues, health, status) = {
            let input = seen.input(&memory.stopped);
            let state = PoolState {
                table: &seen.table,
                crew: &seen.crew,
                input: &input,
                plan: &acted.plan,
                unassigned: &seen.unassigned,
                sharing: seen.deal.sharing,
                problems: &seen.problems,
                budget: acted.budget.as_deref(),
                missing_since: memory.missing_since,
                timeout: seen.timeout,
            };
            let health = health(&state);
            let old = pool.status.clone().unwrap_or_default();
            let change = memory.change.as_ref().map(|(change, moved)| (change, *moved));
            let status = status(&old, &state, &health, change, self.stamp(pool));
            (state.next_due(), health, status)
        };
        let selector = Some(workload.selector.clone()).filter(|selector| !selector.is_empty());
        let status = SwarmPoolStatus { replicas: Some(workload.pods), selector, ..status };
        let reported = self.record(pool, memory, &status).await?;
        let retry = acted.retry || matches!(health, Health::Retrying(PoolReason::BudgetBlocked, _));
        let retry = retry.then(|| now.checked_add(RETRY).ok()).flatten();
        let again = behind(memory, seen);
        Ok([dues, reported, retry, again, acted.plan.due, seen.waits_until].into_iter().flatten().min())
    }

    /// Reports the reason for which the pool is not reconciled.
    pub(super) async fn refuse(&self, pool: &Arc<SwarmPool>, health: &Health<PoolReason>) -> Result<(), Error> {
        let status = refused(&pool.status.clone().unwrap_or_default(), health, self.stamp(pool));
        self.write(pool, &status).await
    }

    fn stamp(&self, pool: &SwarmPool) -> Stamp {
        Stamp { generation: pool.metadata.generation.unwrap_or(0), now: self.ctx.now() }
    }

    /// Writes the status. If only details changed and the last write is too recent, returns the time at which it is
    /// due.
    async fn record(
        &self,
        pool: &Arc<SwarmPool>,
        memory: &mut Memory,
        status: &SwarmPoolStatus,
    ) -> Result<Option<Timestamp>, Error> {
        let old = pool.status.as_ref();
        if old == Some(status) {
            return Ok(None);
        }
        let now = self.ctx.now();
        let same = old.is_some_and(|old| conditions::alike(&old.conditions, &status.conditions));
        let due = memory.reported_at.and_then(|at| at.checked_add(PAUSE).ok());
        if let Some(due) = due.filter(|due| same && *due > now) {
            return Ok(Some(due));
        }
        self.write(pool, status).await?;
        memory.reported_at = Some(now);
        Ok(None)
    }

    async fn write(&self, pool: &Arc<SwarmPool>, status: &SwarmPoolStatus) -> Result<(), Error> {
        let old = pool.status.clone().unwrap_or_default();
        if old == *status {
            return Ok(());
        }
        let id = pool.id();
        let write = self.ctx.writer.replace_status::<SwarmPool>(marks::SWARM_STATUS_MANAGER, &id, status);
        self.ctx.write_own::<SwarmPool, SwarmPool>("RecordPool", &**pool, write).await?;
        for event in events(&old, status) {
            self.ctx.events.publish(reference::<SwarmPool>(&id), event);
        }
        Ok(())
    }
}

/// Time of the next action for workers that do not run their lists yet: another annotation, or a restart.
fn behind(memory: &Memory, seen: &Seen) -> Option<Timestamp> {
    let input = seen.input(&memory.stopped);
    let behind = seen.published.holdings.iter().filter(|(name, holding)| !follows(name, holding, &input));
    let dues = behind.flat_map(|(name, holding)| {
        let told = memory.told.get(name).filter(|told| told.version == holding.version);
        let ready = seen.pods.get(name).and_then(|pod| pod.ready_since?.checked_add(OUTDATED).ok());
        [told.and_then(|told| told.again_at()), ready]
    });
    dues.flatten().filter(|due| *due > seen.now).min()
}

/// Conditions of a pool that have events.
const EVENTS: [ConditionEvent; 2] = [
    ConditionEvent::warning("Stalled", "True", ConditionChange::Reason),
    ConditionEvent::normal("Ready", "True", ConditionChange::Reason),
];

/// Events for a new status: the assignment changed, all workers converged, or somebody has to solve a problem.
fn events(old: &SwarmPoolStatus, new: &SwarmPoolStatus) -> Vec<EventText> {
    // The version makes the events of two assignments differ, so that they are not aggregated.
    let about = new.version.map(|version| format!("version {version}"));
    let mut events = Vec::new();
    if let Some(change) = new.last_change.as_ref().filter(|_| old.last_change != new.last_change) {
        let note = format!("{}: {} to move to another worker", change.why, counted(new.moved.unwrap_or(0), "job"));
        events.push(EventText { warning: false, reason: "Dealt".to_owned(), note, about: about.clone() });
    }
    for event in condition_events(&EVENTS, &old.conditions, &new.conditions) {
        events.push(EventText { about: about.clone(), ..event });
    }
    events
}
