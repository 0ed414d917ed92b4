//! Tests of the health and the status of a pool in each of its states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;

use crate::file::{JobList, ListChange, ListedJob, Published};
use crate::handover::{HandoverInput, HandoverPlan, HandoverRules, WorkerPod, WorkerReport};
use crate::jobs::{JobTable, Repeated};
use crate::state::{PoolState, health, status};
use crate::workers::PoolWorkers;
use crate::{Job, PoolProblem};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::status::{PoolChange, PoolWorkerState, SwarmPoolStatus};
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};
use ganglion_core::conditions::{Health, Stamp};

/// Seconds since version 2 was written, for all cases.
const WAITED: i64 = 20;

/// Two workers with one job each, `a` and `b`, which both report version 2 of the file. Each case changes some of it.
struct Scene {
    table: JobTable,
    workers: PoolWorkers,
    published: Published,
    desired: BTreeMap<String, Vec<Arc<str>>>,
    pods: BTreeMap<String, WorkerPod>,
    rules: HandoverRules,
    unassigned: Vec<Arc<str>>,
    sharing: usize,
    problems: Vec<PoolProblem>,
    budget: Option<&'static str>,
    missing_since: Option<Timestamp>,
    timeout: SignedDuration,
    now: Timestamp,
}

fn reports(version: i64) -> Option<WorkerReport> {
    Some(WorkerReport { version, has_others: false })
}

fn held(name: &str) -> ListedJob {
    ListedJob { name: name.into(), since: 1 }
}

impl Scene {
    fn new() -> Self {
        let now = Timestamp::from_millisecond(1_000_000_750).expect("a time");
        let written = now - SignedDuration::from_secs(WAITED);
        let job = |name: &str| Job { name: name.into(), weight: 1, dedicated: false };
        let list = |name: &str| JobList { version: 2, jobs: vec![held(name)], ..JobList::default() };
        let pod = WorkerPod { runs: true, ready: true, report: reports(2), ..WorkerPod::default() };
        let of = |worker: usize| format!("w-{worker}");
        let change = ListChange { at: written, why: "first deal".to_owned() };
        Self {
            table: JobTable { jobs: vec![job("a"), job("b")], ..JobTable::default() },
            workers: PoolWorkers { ready: 2, wanted: 2, ..PoolWorkers::default() },
            published: Published {
                lists: [(of(0), list("a")), (of(1), list("b"))].into(),
                version: 2,
                changes: [(2, change)].into(),
                ..Published::default()
            },
            desired: [(of(0), vec!["a".into()]), (of(1), vec!["b".into()])].into(),
            pods: [(of(0), pod.clone()), (of(1), pod)].into(),
            rules: HandoverRules {
                handover: HandoverPolicy::Strict,
                refresh: RefreshPolicy::HotReload,
                max_unavailable: 1,
                reports: true,
                confirmed: BTreeMap::new(),
                patience: SignedDuration::ZERO,
                names_return: true,
            },
            unassigned: Vec::new(),
            sharing: 0,
            problems: Vec::new(),
            budget: None,
            missing_since: None,
            timeout: SignedDuration::from_secs(300),
            now,
        }
    }

    /// A worker, by its number.
    fn pod(&mut self, worker: usize) -> &mut WorkerPod {
        self.pods.entry(format!("w-{worker}")).or_default()
    }

    fn list(&mut self, worker: usize) -> &mut JobList {
        self.published.lists.entry(format!("w-{worker}")).or_default()
    }

    /// Computes the health, the states of the workers, and the status.
    fn report(&self) -> (Health<PoolReason>, Vec<PoolWorkerState>, SwarmPoolStatus) {
        let input = HandoverInput {
            published: &self.published,
            desired: &self.desired,
            pods: &self.pods,
            stopped: &BTreeMap::new(),
            gone: &BTreeMap::new(),
            reserved: &BTreeSet::new(),
            rules: &self.rules,
            now: self.now,
        };
        let state = PoolState {
            table: &self.table,
            workers: &self.workers,
            input: &input,
            plan: &HandoverPlan::default(),
            unassigned: &self.unassigned,
            sharing: self.sharing,
            problems: &self.problems,
            budget: self.budget,
            missing_since: self.missing_since,
            timeout: self.timeout,
        };
        let health = health(&state);
        let change = PoolChange { at: Time(self.now), version: 2, why: "first deal".to_owned() };
        let stamp = Stamp { generation: 1, now: self.now };
        let status = status(&SwarmPoolStatus::default(), &state, &health, Some((&change, 0)), stamp);
        (health, status.workers.iter().map(|worker| worker.state).collect(), status)
    }
}

/// Kind, reason and message of a health.
fn said(health: &Health<PoolReason>) -> (&'static str, PoolReason, &str) {
    match health {
        Health::Good(reason, message) => ("good", *reason, message),
        Health::Working { reason, message, .. } => ("working", *reason, message),
        Health::Suspended(reason, message) => ("suspended", *reason, message),
        Health::Retrying(reason, message) => ("retrying", *reason, message),
        Health::Stalled(reason, message) => ("stalled", *reason, message),
    }
}

fn releases(scene: &mut Scene) {
    scene.list(0).releasing = [("c".into(), 2)].into();
    scene.pod(0).report = reports(1);
}

fn is_short(scene: &mut Scene) {
    scene.timeout = SignedDuration::from_secs(WAITED);
}

#[rstest]
#[case::converged(|_: &mut Scene| {}, "good", PoolReason::Converged, "2 jobs with 2 workers")]
#[case::one(
    |scene: &mut Scene| { scene.table.jobs.pop(); scene.desired.pop_last(); scene.published.lists.pop_last(); },
    "good", PoolReason::Converged, "1 job with 1 worker"
)]
#[case::repeated(
    |scene: &mut Scene| {
        let sources = ["ConfigMap x".into(), "ConfigMap y".into()];
        scene.table.repeated = 1;
        scene.table.first_repeated = Some(Repeated { name: "a".into(), sources });
    },
    "good", PoolReason::Converged, "listed more than once: 1 job, such as a (in ConfigMap x and ConfigMap y)"
)]
#[case::no_jobs(
    |scene: &mut Scene| {
        scene.table.jobs.clear();
        scene.published.lists.values_mut().for_each(|list| list.jobs.clear());
        scene.desired.values_mut().for_each(Vec::clear);
    },
    "good", PoolReason::NoJobs, "there are no jobs"
)]
#[case::no_workers(
    |scene: &mut Scene| scene.workers.wanted = 0,
    "stalled", PoolReason::NoWorkers, "2 jobs without a worker: scale"
)]
#[case::unassigned(
    |scene: &mut Scene| scene.unassigned = vec!["c".into()],
    "stalled", PoolReason::JobsUnassigned, "1 of 2 jobs without a worker, such as c"
)]
#[case::sharing(
    |scene: &mut Scene| scene.sharing = 2,
    "stalled", PoolReason::WorkersMissing, "no dedicated worker for 2 dedicated jobs: add 2 workers"
)]
#[case::problem(
    |scene: &mut Scene| scene.problems = vec![PoolProblem::passing(PoolReason::WriteFailed, "no")],
    "retrying", PoolReason::WriteFailed, "no"
)]
#[case::releasing(releases, "working", PoolReason::Releasing, "moving 1 job: waiting for w-0 to confirm version 2")]
#[case::not_released_in_time(
    |scene: &mut Scene| {
        releases(scene);
        is_short(scene);
        scene.problems = vec![PoolProblem::passing(PoolReason::WriteFailed, "no")];
    },
    "stalled", PoolReason::HandoverTimedOut,
    "w-0 has not confirmed version 2 within 20 s, so 1 job cannot move: delete its pod; or, if the worker has \
     certainly stopped them, set handover.confirmed: [{worker: w-0, version: 2}]"
)]
#[case::missing(
    |scene: &mut Scene| { scene.pod(1).ready = false; scene.workers.ready = 1; },
    "working", PoolReason::WaitingForWorkers, "1 of 2 workers are Ready"
)]
#[case::missing_for_long(
    |scene: &mut Scene| {
        scene.pod(1).ready = false;
        scene.workers.ready = 1;
        scene.missing_since = Some(scene.now - SignedDuration::from_secs(300));
    },
    "retrying", PoolReason::WorkerNotReady,
    "1 of 2 workers are Ready after 300 s; to move the jobs of w-1 to other workers, list w-1"
)]
#[case::refreshing(
    |scene: &mut Scene| scene.pod(1).report = reports(1),
    "working", PoolReason::Refreshing, "1 of 2 workers must read their lists, such as w-1 (version 2)"
)]
#[case::restarting(
    |scene: &mut Scene| { scene.pod(1).report = reports(1); scene.rules.refresh = RefreshPolicy::Restart; },
    "working", PoolReason::Refreshing, "1 of 2 workers must restart and read their lists, such as w-1 (version 2)"
)]
#[case::budget(
    |scene: &mut Scene| { scene.pod(1).report = reports(1); scene.budget = Some("no disruption"); },
    "working", PoolReason::BudgetBlocked, "a restart is blocked: no disruption"
)]
#[case::budget_for_long(
    |scene: &mut Scene| { scene.pod(1).report = reports(1); scene.budget = Some("no disruption"); is_short(scene); },
    "retrying", PoolReason::BudgetBlocked, "w-1 cannot be restarted: no disruption"
)]
#[case::outdated(
    |scene: &mut Scene| { scene.pod(1).report = reports(1); is_short(scene); },
    "stalled", PoolReason::WorkerOutdated, "w-1 has not picked up version 2 for 20 s, and reports version 1: check that"
)]
#[case::silent(
    |scene: &mut Scene| { scene.pod(1).report = None; is_short(scene); },
    "stalled", PoolReason::WorkerOutdated, "reports no version: check spec.version"
)]
#[case::foreign(
    |scene: &mut Scene| { scene.pod(1).report = reports(57); is_short(scene); },
    "stalled", PoolReason::WorkerOutdated, "reports version 57, which this pool has not written"
)]
#[case::may_run_any(
    |scene: &mut Scene| { scene.pod(1).report = reports(57); scene.list(1).unknown = Some(2); is_short(scene); },
    "stalled", PoolReason::HandoverTimedOut, "so no job can move (it has read a list that this pool did not write)"
)]
#[case::with_others(
    |scene: &mut Scene| { scene.pod(1).report = Some(WorkerReport { version: 2, has_others: true }); is_short(scene); },
    "stalled", PoolReason::WorkerOutdated, "reports version 2, but also jobs that are not on its list"
)]
fn the_health_says_how_a_pool_is(
    #[case] change: fn(&mut Scene),
    #[case] kind: &str,
    #[case] reason: PoolReason,
    #[case] message: &str,
) {
    let mut scene = Scene::new();
    change(&mut scene);
    let (health, ..) = scene.report();
    let (found, why, text) = said(&health);
    assert_eq!((found, why), (kind, reason), "{text}");
    assert!(text.contains(message), "{text}");
}

#[rstest]
#[case::converged(|_: &mut Scene| {}, PoolWorkerState::Converged)]
#[case::by_hand(
    |scene: &mut Scene| { scene.pod(1).report = reports(1); scene.rules.confirmed = [("w-1".to_owned(), 2)].into(); },
    PoolWorkerState::Converged
)]
#[case::not_ready(|scene: &mut Scene| scene.pod(1).ready = false, PoolWorkerState::NotReady)]
#[case::terminating(|scene: &mut Scene| scene.pod(1).terminating = true, PoolWorkerState::NotReady)]
#[case::outdated(|scene: &mut Scene| scene.pod(1).report = reports(1), PoolWorkerState::Refreshing)]
#[case::to_get_more(|scene: &mut Scene| scene.desired.entry("w-1".to_owned()).or_default().push("c".into()), PoolWorkerState::Waiting)]
#[case::new(|scene: &mut Scene| { scene.published.lists.remove("w-1"); }, PoolWorkerState::Waiting)]
#[case::leaving(|scene: &mut Scene| { scene.desired.remove("w-1"); }, PoolWorkerState::Leaving)]
#[case::drained(
    |scene: &mut Scene| { scene.desired.remove("w-1"); scene.list(1).jobs.clear(); },
    PoolWorkerState::Drained
)]
#[case::not_drained_yet(
    |scene: &mut Scene| {
        scene.desired.remove("w-1");
        *scene.list(1) = JobList { version: 3, releasing: [("b".into(), 3)].into(), ..JobList::default() };
    },
    PoolWorkerState::Leaving
)]
fn each_worker_has_a_state(#[case] change: fn(&mut Scene), #[case] state: PoolWorkerState) {
    let mut scene = Scene::new();
    change(&mut scene);
    let (_, states, status) = scene.report();
    assert_eq!(states, [PoolWorkerState::Converged, state]);
    let settled = states.iter().filter(|state| **state == PoolWorkerState::Converged).count();
    assert_eq!(status.converged, Some(format!("{settled}/{}", scene.desired.len())));
}

/// A status must be equal after a round trip through the API server; otherwise it would be written again and again.
#[test]
fn times_are_as_the_api_server_keeps_them() {
    let mut scene = Scene::new();
    scene.missing_since = Some(scene.now);
    let (.., status) = scene.report();
    let text = serde_json::to_string(&status).expect("a status");
    let read: SwarmPoolStatus = serde_json::from_str(&text).expect("the same status");
    assert_eq!((read.last_change, read.waiting_since), (status.last_change, status.waiting_since));
}

#[test]
fn a_worker_that_reads_the_file_again_is_no_news() {
    let mut scene = Scene::new();
    scene.published.version = 7;
    let (.., before) = scene.report();
    scene.pod(1).report = reports(7);
    let (.., after) = scene.report();
    assert_eq!(before.workers, after.workers);
    assert_eq!(after.workers.last().and_then(|worker| worker.observed_version), Some(2));
}

#[test]
fn of_many_workers_those_are_listed_that_are_not_settled() {
    let mut scene = Scene::new();
    for nth in 2..150 {
        let name = format!("w-{nth}");
        scene.desired.insert(name.clone(), vec!["x".into()]);
        scene.published.lists.insert(name.clone(), JobList { version: 2, jobs: vec![held("x")], ..JobList::default() });
        let report = reports(if nth == 149 { 1 } else { 2 });
        scene.pods.insert(name, WorkerPod { runs: true, ready: true, report, ..WorkerPod::default() });
    }
    let (_, states, status) = scene.report();
    assert_eq!((states.len(), status.truncated), (100, Some(true)));
    let last = status.workers.last().expect("a worker");
    assert_eq!((last.name.as_str(), last.state), ("w-149", PoolWorkerState::Refreshing), "in order of numbers");
}
