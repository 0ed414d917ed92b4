//! How a pool is: its status, from the deal, the plan and the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::crew::Crew;
use super::file::{Holding, Published};
use super::jobs::JobTable;
use super::plan::{HandoverInput, HandoverPlan, follows, has_released};
use ganglion_api::swarm_pool::handover::{HandoverPolicy, RefreshPolicy};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::status::{PoolChange, PoolWorker, PoolWorkerState, SwarmPoolStatus, Unassigned};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::words::counted;

/// Workers in the status.
const MAX_WORKERS: usize = 100;

/// Names of jobs without a worker in the status.
const MAX_NAMES: usize = 10;

/// Why a pool is not as it should be, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProblem {
    pub reason: PoolReason,
    pub message: String,
    /// It passes without anybody doing something.
    pub passing: bool,
}

impl PoolProblem {
    /// A problem that somebody has to solve.
    #[must_use]
    pub fn new(reason: PoolReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), passing: false }
    }

    /// A problem that passes.
    #[must_use]
    pub fn passing(reason: PoolReason, message: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(reason, message) }
    }

    /// The health of a pool with this problem.
    #[must_use]
    pub fn health(&self) -> Health<PoolReason> {
        let (reason, message) = (self.reason, self.message.clone());
        if self.passing { Health::Retrying(reason, message) } else { Health::Stalled(reason, message) }
    }
}

/// What the status is made from.
pub struct PoolState<'a> {
    pub table: &'a JobTable,
    pub crew: &'a Crew,
    pub input: &'a HandoverInput<'a>,
    pub plan: &'a HandoverPlan,
    /// Jobs that no worker may have.
    pub unassigned: &'a [Arc<str>],
    /// Dedicated jobs without a worker of their own.
    pub sharing: usize,
    /// Problems with sources, replicas and writes, the most important first.
    pub problems: &'a [PoolProblem],
    /// The message of the API server on a budget that does not allow a restart.
    pub budget: Option<&'a str>,
    /// Since when workers have been missing.
    pub missing_since: Option<Timestamp>,
    /// How long workers may take.
    pub timeout: SignedDuration,
}

impl PoolState<'_> {
    fn published(&self) -> &Published {
        self.input.published
    }

    fn holding(&self, name: &str) -> Option<&Holding> {
        self.published().holdings.get(name)
    }

    /// When the list of a worker was written.
    fn written(&self, holding: &Holding) -> Option<Timestamp> {
        self.published().changes.get(&holding.version).map(|change| change.at)
    }

    fn is_overdue(&self, holding: &Holding) -> bool {
        self.due(holding).is_some_and(|due| due <= self.input.now)
    }

    fn due(&self, holding: &Holding) -> Option<Timestamp> {
        self.written(holding)?.checked_add(self.timeout).ok()
    }

    fn is_releasing(&self, name: &str, holding: &Holding) -> bool {
        self.input.rules.handover == HandoverPolicy::Strict
            && !holding.releasing.is_empty()
            && !has_released(name, holding, self.input)
    }

    /// How far a worker is.
    fn worker(&self, name: &str) -> PoolWorkerState {
        let Some(holding) = self.holding(name) else { return PoolWorkerState::Waiting };
        let Some(jobs) = self.input.target.get(name) else {
            let has_none = holding.jobs.is_empty() && !self.is_releasing(name, holding);
            return if has_none { PoolWorkerState::Drained } else { PoolWorkerState::Leaving };
        };
        if !self.input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating) {
            return PoolWorkerState::NotReady;
        }
        if self.is_releasing(name, holding) {
            return PoolWorkerState::Releasing;
        }
        if !follows(name, holding, self.input) {
            return PoolWorkerState::Refreshing;
        }
        let has_all =
            holding.jobs.len() == jobs.len() && holding.jobs.iter().zip(jobs).all(|(held, job)| held.name == *job);
        if has_all { PoolWorkerState::Converged } else { PoolWorkerState::Waiting }
    }

    /// How far each worker is, by name.
    fn workers(&self) -> BTreeMap<&str, PoolWorkerState> {
        let names = self.input.target.keys().chain(self.published().holdings.keys());
        names.map(|name| (name.as_str(), self.worker(name))).collect()
    }

    /// When the health may be another one, though nothing changes.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let unsettled = self.published().holdings.iter().filter(|(name, holding)| {
            self.is_releasing(name, holding) || self.worker(name) == PoolWorkerState::Refreshing
        });
        let missing = self.missing_since.and_then(|since| since.checked_add(self.timeout).ok());
        let dues = unsettled.filter_map(|(_, holding)| self.due(holding)).chain(missing);
        dues.filter(|due| *due > self.input.now).min()
    }
}

/// Health of a pool.
#[must_use]
pub fn health(state: &PoolState<'_>) -> Health<PoolReason> {
    if let Some(health) = overdue(state) {
        return health;
    }
    if let Some(problem) = state.problems.first() {
        return problem.health();
    }
    let jobs = state.table.jobs.len();
    if jobs > 0 && state.crew.wanted == 0 {
        let message = format!(
            "{} without a worker: scale the pool or its workload up, or take workers out of drain",
            counted(jobs, "job")
        );
        return Health::Stalled(PoolReason::NoWorkers, message);
    }
    if let Some(health) = progress(state) {
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
            "no worker of its own for {}: add {}",
            counted(state.sharing, "dedicated job"),
            counted(state.sharing, "worker")
        );
        return Health::Stalled(PoolReason::WorkersMissing, message);
    }
    if jobs == 0 {
        return Health::Good(PoolReason::NoJobs, "there are no jobs".to_owned());
    }
    let (jobs, workers) = (counted(jobs, "job"), counted(state.input.target.len(), "worker"));
    Health::Good(PoolReason::Converged, format!("{jobs} with {workers}{}", repeated(state.table)))
}

/// Names the jobs that are listed more than once, which may be a mistake.
fn repeated(table: &JobTable) -> String {
    let Some(first) = &table.first_repeated else { return String::new() };
    let [one, other] = &first.sources;
    format!(
        "; listed more than once: {}, such as {} (in {one} and {other})",
        counted(table.repeated, "job"),
        first.name
    )
}

/// The health of a pool that has waited for somebody for too long.
fn overdue(state: &PoolState<'_>) -> Option<Health<PoolReason>> {
    let holdings = || state.published().holdings.iter();
    let seconds = state.timeout.as_secs();
    let stuck = |(name, holding): &(&String, &Holding)| state.is_releasing(name, holding) && state.is_overdue(holding);
    if let Some((name, holding)) = holdings().find(stuck) {
        let (version, jobs) = (holding.version, counted(holding.releasing.len(), "job"));
        let message = format!(
            "{name} has not confirmed version {version} within {seconds} s, and {jobs} cannot move before: delete its pod, or if \
             it has stopped them for certain, set handover.confirmed: [{{worker: {name}, version: {version}}}]"
        );
        return Some(Health::Stalled(PoolReason::HandoverTimedOut, message));
    }
    let missing = state.missing_since.and_then(|since| since.checked_add(state.timeout).ok());
    if missing.is_some_and(|due| due <= state.input.now) {
        let workers = state.workers();
        let first = workers.iter().find(|(_, how)| **how == PoolWorkerState::NotReady).map(|(name, _)| *name);
        let Crew { ready, wanted, .. } = state.crew;
        let advice = first.map_or_else(String::new, |name| {
            format!("; to have its jobs go to others until it is, list {name} in drain")
        });
        let message = format!("{ready} of {wanted} workers are Ready, for {seconds} s{advice}");
        return Some(Health::Retrying(PoolReason::WorkerNotReady, message));
    }
    let outdated = |(name, holding): &(&String, &Holding)| {
        state.worker(name) == PoolWorkerState::Refreshing && state.is_overdue(holding)
    };
    let (name, holding) = holdings().find(outdated)?;
    let version = holding.version;
    if let Some(words) = state.budget {
        return Some(Health::Retrying(PoolReason::BudgetBlocked, format!("{name} waits for its restart: {words}")));
    }
    let reported = state.input.pods.get(name).and_then(|pod| pod.report);
    let reports = match reported {
        None => "reports no version: see that spec.version is right, and that it listens".to_owned(),
        Some(report) if report.version >= version => {
            format!("reports version {version}, and jobs that are not its own")
        }
        Some(report) => format!("reports version {}: see that it reads the file, or delete its pod", report.version),
    };
    let message = format!("{name} should work by version {version} since {seconds} s, and {reports}");
    Some(Health::Stalled(PoolReason::WorkerOutdated, message))
}

/// The health of a pool that is on its way.
fn progress(state: &PoolState<'_>) -> Option<Health<PoolReason>> {
    let workers = state.workers();
    let first = |how: PoolWorkerState| workers.iter().find(|(_, one)| **one == how).map(|(name, _)| *name);
    let count = |how: PoolWorkerState| workers.values().filter(|one| **one == how).count();
    let version = |name: &str| state.holding(name).map_or(0, |holding| holding.version);
    let working = |reason, message| Some(Health::working(reason, message));
    if let Some(words) = state.budget {
        return working(PoolReason::BudgetBlocked, format!("a restart waits: {words}"));
    }
    let holdings = state.published().holdings.iter();
    if let Some((name, holding)) = holdings.clone().find(|(name, holding)| state.is_releasing(name, holding)) {
        let jobs: usize =
            holdings.filter(|(name, one)| state.is_releasing(name, one)).map(|(_, one)| one.releasing.len()).sum();
        let message =
            format!("moving {}: waiting for {name} to confirm version {}", counted(jobs, "job"), holding.version);
        return working(PoolReason::Releasing, message);
    }
    let Crew { ready, wanted, .. } = state.crew;
    if !state.crew.is_complete() {
        return working(PoolReason::WaitingForWorkers, format!("{ready} of {wanted} workers are Ready"));
    }
    if let Some(name) = first(PoolWorkerState::Refreshing) {
        let how = match state.input.rules.refresh {
            RefreshPolicy::Restart => "be restarted and read",
            RefreshPolicy::HotReload | RefreshPolicy::None => "read",
        };
        let message = format!(
            "{} of {} workers must {how} their lists, {name} version {}",
            count(PoolWorkerState::Refreshing),
            workers.len(),
            version(name)
        );
        return working(PoolReason::Refreshing, message);
    }
    let unsettled = workers.values().any(|how| !is_settled(*how));
    (unsettled || !state.plan.lists.is_empty())
        .then(|| Health::working(PoolReason::Refreshing, "lists are being written".to_owned()))
}

/// Whether nothing is left to be done for a worker.
fn is_settled(how: PoolWorkerState) -> bool {
    matches!(how, PoolWorkerState::Converged | PoolWorkerState::Drained)
}

/// The status of a pool. `change`: the last change of who has what, and how many jobs it moved.
#[must_use]
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
    let taking_part = state.input.target.len();
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

/// A change, as a status has it.
fn written(change: &PoolChange) -> PoolChange {
    PoolChange { at: seconds(change.at.0), ..change.clone() }
}

/// A time, as a status has it: read again, it is the same.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The workers of the status: those first that do not work by their lists.
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
    let holding = state.holding(name);
    // The file has one version for all workers, and a list its own, at most that: a worker that reads the file again, though its
    // list is the same, is no news.
    let reported = state.input.pods.get(name).and_then(|pod| pod.report).map(|report| report.version);
    let desired = holding.map(|holding| holding.version);
    let jobs = || holding.iter().flat_map(|holding| &holding.jobs);
    let weight = |job: &str| {
        let found = state.table.jobs.binary_search_by(|known| (*known.name).cmp(job));
        found.ok().and_then(|at| state.table.jobs.get(at)).map_or(1, |job| i64::from(job.weight))
    };
    PoolWorker {
        name: name.to_owned(),
        jobs: i64::try_from(jobs().count()).unwrap_or(i64::MAX),
        weight: jobs().map(|job| weight(&job.name)).sum(),
        desired_version: desired,
        observed_version: reported.map(|reported| desired.map_or(reported, |desired| desired.min(reported))),
        state: how,
    }
}

/// The status of a pool that nothing is done for.
#[must_use]
pub fn refused(old: &SwarmPoolStatus, health: &Health<PoolReason>, stamp: Stamp) -> SwarmPoolStatus {
    SwarmPoolStatus {
        observed_generation: Some(stamp.generation),
        conditions: conditions::summary(&old.conditions, health, stamp),
        ..old.clone()
    }
}
