//! Probes workers for the version of the job list that they run: eagerly while the pool waits for a worker, otherwise
//! rarely.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::SwarmPoolController;
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy, SwarmPool, VersionProbe};
use ganglion_core::document::all_texts;
use ganglion_core::facts::{Key, PodFact, Uid};
use ganglion_outbound::private::AddressOrigin;
use ganglion_outbound::web::Call;
use ganglion_pools_plan::file::JobList;
use ganglion_pools_plan::handover::{WorkerReport, has_released, runs_its_list, waiting_since};
use ganglion_pools_plan::step::{ObservedPool, PlannedHandover};
use ganglion_pools_plan::workers::WorkerMemory;
use ganglion_runtime::polls::{BrokenOff, PollLimits, PollOutcome, PollSet, PollTarget, Poller, run};

/// Probe interval of a worker that the pool does not wait for.
const CALM: Duration = Duration::from_secs(30);

/// Probe interval of a worker that the pool waits for, by the number of seconds that it has waited.
const EAGER: [(i64, Duration); 3] =
    [(0, Duration::from_millis(20)), (2, Duration::from_millis(200)), (20, Duration::from_secs(2))];

/// Minimum probe interval per eagerly probed worker of the pool, which bounds the total probe rate.
const EAGER_EACH: Duration = Duration::from_millis(2);

/// Delay before a worker is probed after its list or the annotation of its pod changed.
const SOON: Duration = Duration::from_millis(10);

/// Maximum time until a worker that does not answer is probed again, unless its interval is longer. A pod without a
/// readiness probe does not show that its worker has recovered.
const FAILED_PAUSE: Duration = Duration::from_secs(15);

/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of an answer, in bytes: a list of jobs may be as large as a ConfigMap.
const MAX_ANSWER: usize = 1 << 20;

/// Key of the probe of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeKey {
    pool: Key,
    pod: String,
}

/// Version of a worker's list, and its jobs, sorted by name.
pub type ProbedList = (i64, Arc<[Arc<str>]>);

/// State of the probe of one worker.
struct ProbedWorker {
    uid: Uid,
    ip: IpAddr,
    ready: bool,
    probe: VersionProbe,
    target: PollTarget,
    list: ProbedList,
    report: Option<WorkerReport>,
    /// true: a probe has ended, with or without an answer.
    has_ended: bool,
}

/// A worker to probe.
struct Probed {
    url: String,
    uid: Uid,
    list: ProbedList,
    interval: Duration,
}

/// JSON answer of a worker.
#[derive(Deserialize)]
struct VersionAnswer<'a> {
    version: i64,
    #[serde(borrow, default)]
    jobs: Option<&'a RawValue>,
}

/// Probes of the workers of all pools, and their last answers.
#[derive(Default)]
pub struct WorkerProbes {
    polls: Arc<PollSet<ProbeKey>>,
    /// By pool, then by pod name.
    probed: Mutex<HashMap<Key, BTreeMap<String, ProbedWorker>>>,
}

impl WorkerProbes {
    /// Last answers of these pods, by name, and the pods whose first probe has not ended.
    pub fn reports(
        &self,
        pool: &SwarmPool,
        pods: &BTreeMap<String, PodFact>,
    ) -> (BTreeMap<String, WorkerReport>, BTreeSet<String>) {
        let (mut reports, mut unprobed) = (BTreeMap::new(), BTreeSet::new());
        if pool.spec.version.as_ref().is_none_or(|version| version.probe.is_none()) {
            return (reports, unprobed);
        }
        let all = self.lock();
        let probed = all.get(&super::key_of(pool));
        for (name, pod) in pods {
            let worker = probed.and_then(|probed| probed.get(name)).filter(|worker| worker.uid == pod.id.uid);
            if let Some(report) = worker.and_then(|worker| worker.report) {
                reports.insert(name.clone(), report);
            }
            if worker.is_none_or(|worker| !worker.has_ended) && address(pod).is_some() {
                unprobed.insert(name.clone());
            }
        }
        (reports, unprobed)
    }

    /// Registers, updates and removes the probes of a pool.
    pub fn update(&self, observed: &ObservedPool, handover: &PlannedHandover, memory: &WorkerMemory) {
        let key = super::key_of(&observed.pool);
        let version = observed.pool.spec.version.as_ref();
        let (Some(probe), Some(workload)) = (version.and_then(|version| version.probe.as_ref()), &observed.workload)
        else {
            self.remove(&key);
            return;
        };
        let eager = eager(handover, memory);
        let min_interval = EAGER_EACH.saturating_mul(u32::try_from(eager.len()).unwrap_or(u32::MAX));
        let empty = JobList::default();
        let mut all = self.lock();
        let probed = all.entry(key.clone()).or_default();
        probed.retain(|name, worker| {
            let pod = workload.pods.get(name);
            let stays = pod.is_some_and(|pod| address(pod) == Some(worker.ip) && pod.id.uid == worker.uid);
            if !stays {
                self.polls.remove(ProbeKey { pool: key.clone(), pod: name.clone() });
            }
            stays
        });
        for (name, pod) in &workload.pods {
            let Some(ip) = address(pod).filter(|_| !pod.finished) else { continue };
            // Before its first lists, the pool looks what workers run.
            let none = handover.published.lists.is_empty().then_some(&empty);
            let Some(list) = handover.published.lists.get(name).or(none) else { continue };
            let interval = eager.get(name).map_or(CALM, |waited| interval(*waited).max(min_interval));
            let target = PollTarget {
                host: format!("{ip}:{}", probe.port).into(),
                at_once: 1,
                tenant: key.namespace.as_str().into(),
                interval,
                timeout: TIMEOUT + Duration::from_secs(1),
            };
            let poll = ProbeKey { pool: key.clone(), pod: name.clone() };
            let last = probed.get(name);
            let (is_new, report) = (last.is_none(), last.and_then(|worker| worker.report));
            let has_ended = last.is_some_and(|worker| worker.has_ended);
            let list_is_new = last.is_none_or(|worker| worker.list.0 != list.version);
            match last {
                // A worker that recovers answers at once: the pause after its failures is over.
                Some(worker) if worker.probe != *probe || !worker.ready && pod.is_ready() => {
                    self.polls.restart(poll.clone(), target.clone())
                }
                Some(worker) if worker.target == target => {}
                Some(_) | None => self.polls.put(poll.clone(), target.clone()),
            }
            let has_recovered = last.is_some_and(|worker| !worker.ready) && pod.is_ready();
            if is_new || has_recovered || list_is_new && interval != CALM {
                self.polls.wake(poll, SOON);
            }
            let probed_list = match last {
                Some(worker) if !list_is_new => worker.list.clone(),
                _ => (list.version, list.jobs.iter().map(|job| Arc::clone(&job.name)).collect()),
            };
            let (uid, ready, probe) = (pod.id.uid.clone(), pod.is_ready(), probe.clone());
            probed.insert(
                name.clone(),
                ProbedWorker { uid, ip, ready, probe, target, list: probed_list, report, has_ended },
            );
        }
    }

    /// Probes a worker soon after the annotation of its pod.
    pub fn wake(&self, pool: &Key, name: &str) {
        self.polls.wake(ProbeKey { pool: pool.clone(), pod: name.to_owned() }, SOON);
    }

    /// Number of workers of a pool that are probed.
    #[cfg(test)]
    pub fn count(&self, pool: &Key) -> usize {
        self.lock().get(pool).map_or(0, BTreeMap::len)
    }

    /// Removes all probes of a pool.
    pub fn remove(&self, pool: &Key) {
        for name in self.lock().remove(pool).into_iter().flat_map(BTreeMap::into_keys) {
            self.polls.remove(ProbeKey { pool: pool.clone(), pod: name });
        }
    }

    /// The worker to probe.
    fn find(&self, key: &ProbeKey) -> Option<Probed> {
        let all = self.lock();
        let worker = all.get(&key.pool)?.get(&key.pod)?;
        let (url, interval) = (url(worker.ip, &worker.probe), worker.target.interval);
        Some(Probed { url, uid: worker.uid.clone(), list: worker.list.clone(), interval })
    }

    /// Records the end of a probe of the pod with this uid, and its report if it answered. Returns true if the report
    /// changed, or if it was the first probe.
    fn record(&self, key: &ProbeKey, uid: &Uid, report: Option<WorkerReport>) -> bool {
        let mut all = self.lock();
        let worker = all.get_mut(&key.pool).and_then(|pool| pool.get_mut(&key.pod)).filter(|worker| worker.uid == *uid);
        let Some(worker) = worker else { return false };
        let before = (worker.report, worker.has_ended);
        (worker.report, worker.has_ended) = (report.or(worker.report), true);
        before != (worker.report, true)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<String, ProbedWorker>>> {
        self.probed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SwarmPoolController {
    /// Probes one worker, and enqueues its pool if the report changed.
    async fn probe(&self, key: &ProbeKey) -> PollOutcome {
        let Some(Probed { url, uid, list, interval }) = self.probes.find(key) else { return PollOutcome::Ok };
        let call = Call {
            url,
            auth: None,
            headers: Vec::new(),
            ca: None,
            insecure: false,
            redirects: false,
            within: TIMEOUT,
            limit: MAX_ANSWER,
            tenant: key.pool.namespace.clone(),
            // The address of a worker is private, and users cannot choose it.
            origin: AddressOrigin::OwnPod,
        };
        let answer = self.outbound.web().get(&call).await;
        let report = answer.ok().and_then(|answer| parse_answer(answer.good().ok()?, &list));
        if self.probes.record(key, &uid, report) {
            self.ctx.store.queue::<SwarmPool>().add([key.pool.clone()]);
        }
        if report.is_some() {
            return PollOutcome::Ok;
        }
        self.probes.polls.wake(key.clone(), FAILED_PAUSE.max(interval));
        PollOutcome::Failed
    }
}

/// Probe interval of a worker that the pool has waited for this number of seconds.
fn interval(waited: i64) -> Duration {
    let [(_, first), ..] = EAGER;
    EAGER.iter().rev().find(|(from, _)| waited >= *from).map_or(first, |(_, interval)| *interval)
}

/// Workers that the pool waits for, and for how many seconds.
fn eager(handover: &PlannedHandover, memory: &WorkerMemory) -> BTreeMap<String, i64> {
    let input = handover.input(memory);
    let is_strict = handover.rules.handover == HandoverPolicy::Strict;
    let restarts = handover.rules.refresh == RefreshPolicy::Restart;
    let mut eager = BTreeMap::new();
    for (name, list) in &handover.published.lists {
        // A pod that still has to be restarted runs an older list; probing it is useless.
        let is_old = restarts && input.pods.get(name).is_some_and(|pod| list.pod.as_ref() == Some(&pod.uid));
        let releases = is_strict && !has_released(name, list, &input);
        if !is_old && (releases || !runs_its_list(name, list, &input)) {
            let since = waiting_since(name, list, &input);
            let waited = since.map_or(0, |since| handover.now.duration_since(since).as_secs());
            eager.insert(name.clone(), waited);
        }
    }
    eager
}

fn address(pod: &PodFact) -> Option<IpAddr> {
    pod.ip.as_deref()?.parse().ok()
}

fn url(ip: IpAddr, probe: &VersionProbe) -> String {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{host}:{}{}", probe.port, probe.path)
}

/// Parses an answer and compares its jobs with the worker's list. None if the answer is invalid.
pub fn parse_answer(body: &[u8], (version, list): &ProbedList) -> Option<WorkerReport> {
    let answer: VersionAnswer<'_> = serde_json::from_slice(body).ok()?;
    let is_own = |job: &str| list.binary_search_by(|own| (**own).cmp(job)).is_ok();
    let all_own = answer.jobs.map_or(Ok(true), |jobs| all_texts(jobs.get(), is_own)).ok()?;
    let has_others = answer.version >= *version && !all_own;
    Some(WorkerReport { version: answer.version, has_others })
}

impl Poller for SwarmPoolController {
    type Key = ProbeKey;
    /// Short, because the pool waits for most probes.
    const GATHER: Duration = Duration::from_millis(2);

    async fn poll(self: Arc<Self>, key: ProbeKey) -> PollOutcome {
        self.probe(&key).await
    }

    fn broken_off(&self, _key: &ProbeKey, _how: BrokenOff) {}
}

/// Probes workers until this replica stops being the leader or shuts down.
pub async fn run_probes(controller: Arc<SwarmPoolController>, limits: PollLimits) {
    let (polls, ctx) = (Arc::clone(&controller.probes.polls), controller.ctx.clone());
    let until = async {
        tokio::select! {
            () = ctx.writer.fenced() => {}
            () = ctx.stop.cancelled() => {}
        }
    };
    run(controller, polls, limits, until).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> ProbedList {
        (3, ["a", "b"].map(Arc::from).into())
    }

    #[test]
    fn a_worker_counts_by_its_version_and_if_it_has_no_other_job() {
        for (body, expected) in [
            (r#"{"version": 3}"#, Some((3, false))),
            (r#"{"version": 4, "jobs": ["b"], "more": {}}"#, Some((4, false))),
            (r#"{"version": 3, "jobs": null}"#, Some((3, false))),
            (r#"{"version": 3, "jobs": ["a", "c\n"]}"#, Some((3, true))),
            (r#"{"version": 2, "jobs": ["c"]}"#, Some((2, false))),
            (r#"{"version": "3"}"#, None),
            (r#"{"jobs": []}"#, None),
            ("", None),
            ("[", None),
        ] {
            let report = parse_answer(body.as_bytes(), &list()).map(|report| (report.version, report.has_others));
            assert_eq!(report, expected, "{body}");
        }
    }

    #[test]
    fn an_address_of_version_6_has_brackets() {
        let probe = VersionProbe { path: "/v".to_owned(), port: 9090 };
        assert_eq!(url("10.0.0.1".parse().unwrap(), &probe), "http://10.0.0.1:9090/v");
        assert_eq!(url("fd00::1".parse().unwrap(), &probe), "http://[fd00::1]:9090/v");
    }
}
