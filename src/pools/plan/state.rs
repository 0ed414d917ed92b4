//! Computes the health and the status of a pool from the assignment, the plan and the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::PoolProblem;
use super::file::{JobList, Published};
use super::handover::{
    HandoverInput, HandoverPlan, has_released, may_run_any, runs_its_list, unreleased, waiting_since,
};
use super::jobs::JobTable;
use super::workers::PoolWorkers;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::status::{PoolChange, PoolWorker, PoolWorkerState, SwarmPoolStatus, Unassigned};
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::words::counted;

/// Maximum number of workers in the status.
const MAX_WORKERS: usize = 100;

/// Maximum number of names of unassigned jobs in the status.
const MAX_NAMES: usize = 10;

/// Input of [`health`] and [`status`].
pub struct PoolState<'a> {
    pub table: &'a JobTable,
    pub workers: &'a PoolWorkers,
    pub input: &'a HandoverInput<'a>,
    pub plan: &'a HandoverPlan,
    /// Jobs without a worker, because all workers have the maximum number of jobs.
    pub unassigned: &'a [Arc<str>],
    /// Number of dedicated jobs that share a worker.
    pub sharing: usize,
    /// Problems with sources, replicas and writes, the most important first.
    pub problems: &'a [PoolProblem],
    /// Message of the API server if a PodDisruptionBudget blocks a restart.
    pub budget: Option<&'a str>,
    /// Time since which workers have been missing.
    pub missing_since: Option<Timestamp>,
    /// Time that a worker may take to become Ready or to confirm its list (`spec.handover.timeoutSeconds`).
    pub timeout: SignedDuration,
}

impl PoolState<'_> {
    fn published(&self) -> &Published {
        self.input.published
    }

    fn list(&self, name: &str) -> Option<&JobList> {
        self.published().lists.get(name)
    }

    fn is_overdue(&self, name: &str, list: &JobList) -> bool {
        self.due(name, list).is_some_and(|due| due <= self.input.now)
    }

    /// Time at which the pool has waited for the worker for the timeout.
    fn due(&self, name: &str, list: &JobList) -> Option<Timestamp> {
        waiting_since(name, list, self.input)?.checked_add(self.timeout).ok()
    }

    fn is_releasing(&self, name: &str, list: &JobList) -> bool {
        self.input.rules.handover == HandoverPolicy::Strict && !has_released(name, list, self.input)
    }

    /// Lists of workers that still have to release jobs.
    fn releasing_lists(&self) -> impl Iterator<Item = (&String, &JobList)> {
        self.published().lists.iter().filter(|(name, list)| self.is_releasing(name, list))
    }

    /// State of one worker.
    fn worker(&self, name: &str) -> PoolWorkerState {
        let Some(list) = self.list(name) else { return PoolWorkerState::Waiting };
        let Some(jobs) = self.input.desired.get(name) else {
            let has_none = list.jobs.is_empty() && !self.is_releasing(name, list);
            return if has_none { PoolWorkerState::Drained } else { PoolWorkerState::Leaving };
        };
        if !self.input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating) {
            return PoolWorkerState::NotReady;
        }
        if self.is_releasing(name, list) {
            return PoolWorkerState::Releasing;
        }
        if !runs_its_list(name, list, self.input) {
            return PoolWorkerState::Refreshing;
        }
        let has_all = list.jobs.len() == jobs.len() && list.jobs.iter().zip(jobs).all(|(held, job)| held.name == *job);
        if has_all { PoolWorkerState::Converged } else { PoolWorkerState::Waiting }
    }

    /// State of each worker, by name.
    fn workers(&self) -> BTreeMap<&str, PoolWorkerState> {
        let names = self.input.desired.keys().chain(self.published().lists.keys());
        names.map(|name| (name.as_str(), self.worker(name))).collect()
    }

    /// Next time at which a timeout changes the health.
    pub fn next_due(&self) -> Option<Timestamp> {
        let unsettled =
            self.published().lists.iter().filter(|(name, list)| {
                self.is_releasing(name, list) || self.worker(name) == PoolWorkerState::Refreshing
            });
        let missing = self.missing_since.and_then(|since| since.checked_add(self.timeout).ok());
        let dues = unsettled.filter_map(|(name, list)| self.due(name, list)).chain(missing);
        dues.filter(|due| *due > self.input.now).min()
    }
}

/// Health of a pool.
pub fn health(state: &PoolState<'_>) -> Health<PoolReason> {
    if let Some(health) = overdue_health(state) {
        return health;
    }
    if let Some(problem) = state.problems.first() {
        return problem.health();
    }
    let jobs = state.table.jobs.len();
    if jobs > 0 && state.workers.wanted == 0 {
        let message = format!(
            "{} without a worker: scale the pool or its workload up, or remove workers from drain",
            counted(jobs, "job")
        );
        return Health::Stalled(PoolReason::NoWorkers, message);
    }
    if let Some(health) = progress_health(state) {
        return health;
    }
    if let Some(first) = state.unassigned.first() {
        let message = format!(
            "{} of {jobs} jobs without a worker, such as {first}: add workers, or raise assignment.maxJobsPerWorker",
            state.unassigned.len()
        );
        return Health::Stalled(PoolReason::JobsUnassigned, message);
    }
    if state.sharing > 0 {
        let message = format!(
            "no dedicated worker for {}: add {}",
            counted(state.sharing, "dedicated job"),
            counted(state.sharing, "worker")
        );
        return Health::Stalled(PoolReason::WorkersMissing, message);
    }
    if jobs == 0 {
        return Health::Good(PoolReason::NoJobs, "there are no jobs".to_owned());
    }
    let (jobs, workers) = (counted(jobs, "job"), counted(state.input.desired.len(), "worker"));
    Health::Good(PoolReason::Converged, format!("{jobs} with {workers}{}", repeated(state.table)))
}

/// Describes jobs that the sources list more than once, which may be a mistake.
fn repeated(table: &JobTable) -> String {
    let Some(first) = &table.first_repeated else { return String::new() };
    let [one, other] = &first.sources;
    format!(
        "; listed more than once: {}, such as {} (in {one} and {other})",
        counted(table.repeated, "job"),
        first.name
    )
}

/// Health of a pool that has waited for a worker for longer than the timeout.
fn overdue_health(state: &PoolState<'_>) -> Option<Health<PoolReason>> {
    let seconds = state.timeout.as_secs();
    if let Some((name, list)) = state.releasing_lists().find(|(name, list)| state.is_overdue(name, list)) {
        let (version, jobs) = (list.version, counted(unreleased(name, list, state.input).count(), "job"));
        let jobs = match may_run_any(name, list, state.input) {
            true => "no job can move (it has read a list that this pool did not write)".to_owned(),
            false => format!("{jobs} cannot move"),
        };
        let message = format!(
            "{name} has not confirmed version {version} within {seconds} s, so {jobs}: delete its pod; or, \
             if the worker has certainly stopped them, set handover.confirmed: [{{worker: {name}, version: {version}}}]"
        );
        return Some(Health::Stalled(PoolReason::HandoverTimedOut, message));
    }
    let missing = state.missing_since.and_then(|since| since.checked_add(state.timeout).ok());
    if missing.is_some_and(|due| due <= state.input.now) {
        let workers = state.workers();
        let first = workers.iter().find(|(_, how)| **how == PoolWorkerState::NotReady).map(|(name, _)| *name);
        let PoolWorkers { ready, wanted, .. } = state.workers;
        let advice = first.map_or_else(String::new, |name| {
            format!("; to move the jobs of {name} to other workers, list {name} in drain")
        });
        let message = format!("{ready} of {wanted} workers are Ready after {seconds} s{advice}");
        return Some(Health::Retrying(PoolReason::WorkerNotReady, message));
    }
    let (name, list) = state
        .published()
        .lists
        .iter()
        .find(|(name, list)| state.worker(name) == PoolWorkerState::Refreshing && state.is_overdue(name, list))?;
    let version = list.version;
    if let Some(refusal) = state.budget {
        return Some(Health::Retrying(PoolReason::BudgetBlocked, format!("{name} cannot be restarted: {refusal}")));
    }
    let reported = state.input.pods.get(name).and_then(|pod| pod.report);
    let reports = match reported {
        None => "reports no version: check spec.version, and that the worker reports".to_owned(),
        Some(report) if !state.published().has_written(report.version) => format!(
            "reports version {}, which this pool has not written: check that it reads the file of this pool, or delete its \
             pod",
            report.version
        ),
        Some(report) if report.version >= version => {
            format!("reports version {version}, but also jobs that are not on its list")
        }
        Some(report) => format!("reports version {}: check that it reads the file, or delete its pod", report.version),
    };
    let message = format!("{name} has not picked up version {version} for {seconds} s, and {reports}");
    Some(Health::Stalled(PoolReason::WorkerOutdated, message))
}

/// Health of a pool whose assignment has not converged.
fn progress_health(state: &PoolState<'_>) -> Option<Health<PoolReason>> {
    if let Some(refusal) = state.budget {
        return Some(Health::working(PoolReason::BudgetBlocked, format!("a restart is blocked: {refusal}")));
    }
    if let Some((name, list)) = state.releasing_lists().next() {
        let unreleased = |(name, list): (&String, &JobList)| unreleased(name, list, state.input).count();
        let jobs: usize = state.releasing_lists().map(unreleased).sum();
        let message =
            format!("moving {}: waiting for {name} to confirm version {}", counted(jobs, "job"), list.version);
        return Some(Health::working(PoolReason::Releasing, message));
    }
    let PoolWorkers { ready, wanted, .. } = state.workers;
    if !state.workers.is_complete() {
        let message = format!("{ready} of {wanted} workers are Ready");
        return Some(Health::working(PoolReason::WaitingForWorkers, message));
    }
    let workers = state.workers();
    let refreshing: Vec<&str> =
        workers.iter().filter(|(_, how)| **how == PoolWorkerState::Refreshing).map(|(name, _)| *name).collect();
    if let Some(name) = refreshing.first() {
        let how = match state.input.rules.refresh {
            RefreshPolicy::Restart => "restart and read",
            RefreshPolicy::HotReload | RefreshPolicy::None => "read",
        };
        let message = format!(
            "{} of {} workers must {how} their lists, such as {name} (version {})",
            refreshing.len(),
            workers.len(),
            state.list(name).map_or(0, |list| list.version)
        );
        return Some(Health::working(PoolReason::Refreshing, message));
    }
    let unsettled = workers.values().any(|how| !is_settled(*how));
    (unsettled || !state.plan.lists.is_empty())
        .then(|| Health::working(PoolReason::Refreshing, "job lists are being written".to_owned()))
}

/// Returns true if nothing remains to be done for a worker.
fn is_settled(how: PoolWorkerState) -> bool {
    matches!(how, PoolWorkerState::Converged | PoolWorkerState::Drained)
}

/// Status of a pool. `change`: the last change of the assignment, and the number of jobs that it moved.
pub fn status(
    old: &SwarmPoolStatus,
    state: &PoolState<'_>,
    health: &Health<PoolReason>,
    change: Option<(&PoolChange, usize)>,
    stamp: Stamp,
) -> SwarmPoolStatus {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let workers = state.workers();
    let converged = workers.values().filter(|how| **how == PoolWorkerState::Converged).count();
    let taking_part = state.input.desired.len();
    let unassigned = (!state.unassigned.is_empty()).then(|| Unassigned {
        count: number(state.unassigned.len()),
        names: state.unassigned.iter().take(MAX_NAMES).map(ToString::to_string).collect(),
    });
    SwarmPoolStatus {
        observed_generation: Some(stamp.generation),
        conditions: conditions::summary(&old.conditions, health, stamp),
        version: Some(state.published().version),
        jobs: Some(number(state.table.jobs.len())),
        moved: change.map_or(old.moved, |(_, moved)| Some(number(moved))),
        last_change: change.map_or_else(|| old.last_change.clone(), |(change, _)| Some(written(change))),
        converged: Some(format!("{converged}/{taking_part}")),
        unassigned,
        truncated: (workers.len() > MAX_WORKERS).then_some(true),
        workers: listed(state, workers),
        waiting_since: state.missing_since.map(seconds),
        ..old.clone()
    }
}

/// Rounds the time of a change for the status.
fn written(change: &PoolChange) -> PoolChange {
    PoolChange { at: seconds(change.at.0), ..change.clone() }
}

/// Rounds a time to whole seconds, so that it is equal after a round trip through the API server.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Workers for the status, sorted by number. If there are too many, those that are not settled win.
fn listed(state: &PoolState<'_>, workers: BTreeMap<&str, PoolWorkerState>) -> Vec<PoolWorker> {
    let mut names: Vec<(&str, PoolWorkerState)> = workers.into_iter().collect();
    if names.len() > MAX_WORKERS {
        names.sort_by_key(|(_, how)| is_settled(*how));
        names.truncate(MAX_WORKERS);
    }
    let number = |text: &str| text.rsplit_once('-').and_then(|(_, number)| number.parse::<u32>().ok());
    names.sort_by(|(a, _), (b, _)| (number(a), a).cmp(&(number(b), b)));
    names.into_iter().map(|(name, how)| worker(state, name, how)).collect()
}

fn worker(state: &PoolState<'_>, name: &str, how: PoolWorkerState) -> PoolWorker {
    let list = state.list(name);
    // A worker reports the version of the whole file, which may be newer than that of its own list. The status shows at
    // most the version of the list, so that it does not change when the worker reads a file whose other lists changed.
    let reported = state.input.pods.get(name).and_then(|pod| pod.report).map(|report| report.version);
    let desired = list.map(|list| list.version);
    let jobs = || list.iter().flat_map(|list| &list.jobs);
    let weight = |job: &str| state.table.get(job).map_or(1, |job| i64::from(job.weight));
    PoolWorker {
        name: name.to_owned(),
        jobs: i64::try_from(jobs().count()).unwrap_or(i64::MAX),
        weight: jobs().map(|job| weight(&job.name)).sum(),
        desired_version: desired,
        observed_version: reported.map(|reported| desired.map_or(reported, |desired| desired.min(reported))),
        state: how,
    }
}

/// Status of a pool that is not reconciled.
pub fn refused(old: &SwarmPoolStatus, health: &Health<PoolReason>, stamp: Stamp) -> SwarmPoolStatus {
    SwarmPoolStatus {
        observed_generation: Some(stamp.generation),
        conditions: conditions::summary(&old.conditions, health, stamp),
        ..old.clone()
    }
}
