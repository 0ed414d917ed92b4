//! Decides what the controller of a pool does next: one total match over what blocks the pool, and one step at a time.
//!
//! Scaling comes first, then reading, then the handover: each step is planned from the results of those before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::PoolProblem;
use super::desired::{AssignmentMemory, ChangeInputs, DesiredAssignment, record_kinds};
use super::file::{ListChange, Published, prune};
use super::handover::{
    HandoverInput, HandoverPlan, HandoverRules, WorkerPod, WorkerReport, confirm_all, confirm_foreign, next_version,
    plan_handover,
};
use super::jobs::JobTable;
use super::output::{ObservedOutputs, OutputMemory};
use super::replicas::{FollowStep, ObservedWorkload, RefusedWrite, ScaleWrite, follow_step, replicas_to_write};
use super::room::JobRoom;
use super::sources::{ObservedSources, SourceMemory};
use super::workers::{Admission, PoolWorkers, WorkerMemory, await_workers, workers_of};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{HandoverPolicy, PoolWorkloadKind, RefreshPolicy, SwarmPool};
use ganglion_core::conditions::Health;
use ganglion_core::facts::{Identity, PodFact};

/// Default of `spec.handover.timeoutSeconds`.
const TIMEOUT: i32 = 300;

/// State of one pool between reconciles, by subject. A crash may lose all of it.
#[derive(Default)]
pub struct PoolMemory {
    /// Writes of `spec.replicas` of the workload.
    pub scaled: Vec<ScaleWrite>,
    /// The last write of them that the API server refused.
    pub scale_refused: Option<RefusedWrite>,
    /// The last refused write that was to make the pool show the replicas of its workload.
    pub follow_refused: Option<RefusedWrite>,
    pub sources: SourceMemory,
    pub assignment: AssignmentMemory,
    pub output: OutputMemory,
    pub workers: WorkerMemory,
    /// true: this reconcile has read the ConfigMaps. The next one reads those that changed since then, so that sources
    /// that change all the time do not stop the pool.
    pub has_just_read: bool,
    /// Time of the last status write.
    pub reported_at: Option<Timestamp>,
}

/// A pool, and what it is planned from. Read from caches.
pub struct ObservedPool {
    pub pool: Arc<SwarmPool>,
    /// Reason for which the controller reads and writes nothing else for the pool.
    pub block: Option<PoolBlock>,
    /// None if it does not exist.
    pub workload: Option<ObservedWorkload>,
    pub sources: ObservedSources,
    /// An error if a ConfigMap of another owner is in the way.
    pub outputs: Result<ObservedOutputs, PoolProblem>,
    /// Last answers of workers to probes, by pod name.
    pub probed: BTreeMap<String, WorkerReport>,
    /// Workers whose first probe has not ended, if workers are probed.
    pub unprobed: BTreeSet<String>,
    /// Memory for the jobs of the pools of the namespace.
    pub room: JobRoom,
    pub now: Timestamp,
}

/// Reason for which the controller reads and writes nothing for a pool.
pub enum PoolBlock {
    /// Its namespace is refused, or an older pool has the same workload.
    Refused(PoolProblem),
    /// `spec.suspend` is true.
    Suspended,
    /// The watch for the ConfigMaps of the namespace starts.
    WatchStarts,
    /// RBAC forbids that watch.
    WatchForbidden,
}

/// Next step of the controller.
pub enum PoolStep {
    /// Report why the pool is not reconciled.
    Refuse(Health<PoolReason>),
    /// Wait until the watch for the ConfigMaps of the namespace runs.
    AwaitWatch,
    /// Report that RBAC forbids that watch.
    ReportForbiddenWatch,
    /// Set `spec.replicas` of the workload.
    Scale(i32),
    /// Make the pool show the replicas of the workload.
    Follow(FollowStep),
    /// Read the ConfigMaps that somebody else changed.
    Read { sources: Vec<Identity>, outputs: Vec<Identity> },
    /// Publish job lists, or make workers read them.
    HandOver(Box<PlannedHandover>),
}

/// Workers of a pool and their pods.
pub struct ObservedWorkers {
    pub assigned: PoolWorkers,
    pub pods: BTreeMap<String, WorkerPod>,
    /// Time at which the pool stops waiting for missing workers.
    pub waits_until: Option<Timestamp>,
}

/// Next step of the handover, and what it is planned from.
pub struct PlannedHandover {
    pub workers: ObservedWorkers,
    pub desired: DesiredAssignment,
    /// Assignment that is published now.
    pub published: Published,
    pub rules: HandoverRules,
    pub plan: HandoverPlan,
    pub publication: ListsToPublish,
    /// Problems with sources and replicas, the most important first.
    pub problems: Vec<PoolProblem>,
    pub now: Timestamp,
}

/// Job lists to publish.
pub enum ListsToPublish {
    /// The published lists stay. ConfigMaps that somebody else edited are written again.
    Unchanged,
    /// Nothing is written before the first answers of the workers.
    AwaitReports,
    Next(Published),
    /// Workers may have read lists that the operator did not write, so they have to confirm their lists again.
    Confirm(Published),
}

impl PlannedHandover {
    /// Input of the planner.
    pub fn input<'a>(&'a self, memory: &'a WorkerMemory) -> HandoverInput<'a> {
        HandoverInput {
            published: &self.published,
            desired: &self.desired.lists,
            pods: &self.workers.pods,
            stopped: &memory.stopped,
            gone: &memory.gone,
            reserved: &self.desired.reserved,
            rules: &self.rules,
            now: self.now,
        }
    }

    /// Job lists that the ConfigMaps should contain after this step.
    pub fn lists(&self) -> &Published {
        match &self.publication {
            ListsToPublish::Unchanged | ListsToPublish::AwaitReports => &self.published,
            ListsToPublish::Next(next) | ListsToPublish::Confirm(next) => next,
        }
    }
}

/// Returns the next step.
pub fn next_step(observed: &ObservedPool, memory: &mut PoolMemory) -> PoolStep {
    let pool = &*observed.pool;
    match &observed.block {
        Some(PoolBlock::Refused(problem)) => return PoolStep::Refuse(problem.health()),
        Some(PoolBlock::Suspended) => {
            let message = "spec.suspend is true: workers keep their current jobs".to_owned();
            return PoolStep::Refuse(Health::Suspended(PoolReason::Suspended, message));
        }
        Some(PoolBlock::WatchStarts) => return PoolStep::AwaitWatch,
        Some(PoolBlock::WatchForbidden) => return PoolStep::ReportForbiddenWatch,
        None => {}
    }
    let Some(workload) = &observed.workload else { return PoolStep::Refuse(workload_not_found(pool).health()) };
    let (writes, refused) = (&mut memory.scaled, memory.scale_refused.as_ref());
    let replicas_problem = match replicas_to_write(pool, workload, writes, refused, observed.now) {
        Ok(Some(replicas)) => return PoolStep::Scale(replicas),
        Ok(None) => None,
        Err(problem) => Some(problem),
    };
    if let Some(step) = follow_step(pool, workload, memory.follow_refused.as_ref(), observed.now) {
        return PoolStep::Follow(step);
    }
    if let Err(problem) = SourceMemory::check_count(&observed.sources) {
        return PoolStep::Refuse(problem.health());
    }
    let observed_outputs = match &observed.outputs {
        Ok(outputs) => outputs,
        Err(problem) => return PoolStep::Refuse(problem.health()),
    };
    let (sources, outputs) =
        (memory.sources.unread(&observed.sources, observed.room), memory.output.unread(observed_outputs));
    let is_stale = !memory.output.has_read || !sources.is_empty() || !outputs.is_empty();
    if is_stale && !memory.has_just_read {
        return PoolStep::Read { sources, outputs };
    }
    PoolStep::HandOver(Box::new(hand_over(observed, workload, memory, replicas_problem)))
}

fn workload_not_found(pool: &SwarmPool) -> PoolProblem {
    let (kind, name) = (pool.spec.workload.kind.as_str(), &pool.spec.workload.name);
    let message = format!("{kind} {name} does not exist: create it. Job lists stay unchanged.");
    PoolProblem::new(PoolReason::WorkloadNotFound, message)
}

/// Plans the next step of the handover.
fn hand_over(
    observed: &ObservedPool,
    workload: &ObservedWorkload,
    memory: &mut PoolMemory,
    replicas_problem: Option<PoolProblem>,
) -> PlannedHandover {
    let (pool, now) = (&*observed.pool, observed.now);
    let rules = handover_rules(pool);
    let published = memory.output.published(pool);
    let (assigned, waits_until) = assigned_workers(observed, workload, memory, &published, rules.refresh);
    let (table, mut problems) = memory.sources.merge(pool, &observed.sources, &published);
    problems.extend(replicas_problem);
    let trusted = (!memory.output.is_distrusted).then_some(&published);
    let desired = memory.assignment.desired(pool, table, &assigned, trusted);
    let pods = memory.workers.worker_pods(pool, &workload.pods, &observed.probed, &published, now);
    let mut handover = PlannedHandover {
        workers: ObservedWorkers { assigned, pods, waits_until },
        desired,
        published,
        rules,
        plan: HandoverPlan::default(),
        publication: ListsToPublish::Unchanged,
        problems,
        now,
    };
    let is_too_early = lacks_first_reports(&handover, &observed.unprobed);
    let first_reports_until = if is_too_early { memory.workers.await_first_reports(handover.now) } else { None };
    let input = handover.input(&memory.workers);
    if memory.output.is_distrusted {
        handover.publication = ListsToPublish::Confirm(confirm_all(&input));
        return handover;
    }
    if first_reports_until.is_some() {
        handover.plan.due = first_reports_until;
        handover.publication = ListsToPublish::AwaitReports;
        return handover;
    }
    if let Some(lists) = confirm_foreign(&input) {
        handover.publication = ListsToPublish::Confirm(lists);
        return handover;
    }
    let plan = plan_handover(&input);
    if !plan.lists.is_empty() {
        let inputs = ChangeInputs {
            workers: &handover.workers.assigned,
            table: &handover.desired.table,
            pods: &workload.pods,
            published: &handover.published,
            version: next_version(&input),
            now,
        };
        let version = next_version(&input);
        let why = memory.assignment.describe_change(pool, inputs, plan.moving);
        handover.publication =
            ListsToPublish::Next(next_lists(&handover.published, &plan, version, ListChange { at: now, why }));
    }
    handover.plan = plan;
    record_job_kinds(&mut handover, &mut memory.assignment);
    handover
}

/// Whether a pool without lists may still find out that workers have read other lists: some have not answered their
/// first probe.
fn lacks_first_reports(handover: &PlannedHandover, unprobed: &BTreeSet<String>) -> bool {
    let PlannedHandover { published, workers, rules, .. } = handover;
    let is_new = published.version == 0 && published.lists.is_empty();
    let awaits = |name: &String| workers.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating);
    is_new && rules.handover == HandoverPolicy::Strict && unprobed.iter().any(awaits)
}

/// Adds the kinds of jobs to the record of the lists. The files of workers do not change by that.
fn record_job_kinds(handover: &mut PlannedHandover, memory: &mut AssignmentMemory) {
    let table = &handover.desired.table;
    let is_recorded = |(recorded, version): &(Arc<JobTable>, i64)| {
        Arc::ptr_eq(recorded, table) && *version == handover.published.version
    };
    let is_unchanged = matches!(handover.publication, ListsToPublish::Unchanged);
    if is_unchanged && memory.recorded.as_ref().is_some_and(is_recorded) {
        return;
    }
    let mut lists = handover.lists().clone();
    record_kinds(&mut lists, table);
    if lists != *handover.lists() {
        handover.publication = ListsToPublish::Next(lists);
    } else if is_unchanged {
        memory.recorded = Some((Arc::clone(table), lists.version));
    }
}

/// Workers that get jobs, and the time until which the pool waits for missing ones.
fn assigned_workers(
    observed: &ObservedPool,
    workload: &ObservedWorkload,
    memory: &mut PoolMemory,
    published: &Published,
    refresh: RefreshPolicy,
) -> (PoolWorkers, Option<Timestamp>) {
    let pods: Vec<&PodFact> = workload.pods.values().collect();
    let members = published.lists.keys().map(String::as_str).collect();
    let drained = observed.pool.spec.drain.as_deref().unwrap_or_default();
    let (workers, assignment) = (&mut memory.workers, &memory.assignment);
    let remembered = workers.slots.clone();
    let (slots, remembered) = (&assignment.slots, &remembered);
    let assigned = |waited: bool| {
        workers_of(&workload.fact, &pods, Admission { members: &members, slots, remembered, drained, waited })
    };
    await_workers(&observed.pool, workers, refresh, assigned, observed.now)
}

/// The published lists with the changes of the plan.
fn next_lists(published: &Published, plan: &HandoverPlan, version: i64, change: ListChange) -> Published {
    let mut next = published.clone();
    next.advance(version);
    next.changes.insert(next.version, change);
    for (name, list) in &plan.lists {
        match list {
            Some(list) => {
                next.lists.insert(name.clone(), list.clone());
            }
            None => {
                next.lists.remove(name);
            }
        }
    }
    prune(&mut next);
    next
}

fn handover_rules(pool: &SwarmPool) -> HandoverRules {
    let refresh = pool.spec.refresh.clone().unwrap_or_default();
    let handover = pool.spec.handover.clone().unwrap_or_default();
    let patience = match refresh.policy {
        // Each change of a list costs a restart, so it is worth waiting for more jobs to change together.
        RefreshPolicy::Restart => timeout(pool),
        RefreshPolicy::HotReload | RefreshPolicy::None => SignedDuration::from_secs(2),
    };
    HandoverRules {
        handover: handover.policy,
        refresh: refresh.policy,
        max_unavailable: refresh.max_unavailable.and_then(|most| usize::try_from(most).ok()).unwrap_or(1).max(1),
        reports: pool.spec.version.is_some(),
        confirmed: handover.confirmed.into_iter().flatten().map(|entry| (entry.worker, entry.version)).collect(),
        patience,
        names_return: pool.spec.workload.kind == PoolWorkloadKind::StatefulSet,
    }
}

/// Time that a worker may take to become Ready or to confirm its list.
pub fn timeout(pool: &SwarmPool) -> SignedDuration {
    let seconds = pool.spec.handover.as_ref().and_then(|handover| handover.timeout_seconds);
    SignedDuration::from_secs(i64::from(seconds.unwrap_or(TIMEOUT)))
}
