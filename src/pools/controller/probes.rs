//! Probes workers for the version of the job list that they run: eagerly while the pool waits for a worker, otherwise
//! rarely.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::SwarmPoolController;
use super::memory::Memory;
use super::observe::Seen;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::handover::{HandoverPolicy, RefreshPolicy, VersionProbe};
use ganglion_core::facts::{Key, PodFact};
use ganglion_outbound::web::Call;
use ganglion_pools_plan::plan::{WorkerReport, follows, has_released};
use ganglion_runtime::polls::{BrokenOff, PollLimits, PollOutcome, PollTarget, Poller, run};

/// Probe interval of a worker that the pool does not wait for.
const CALM: Duration = Duration::from_secs(30);

/// Probe interval of a worker that the pool waits for, by the number of seconds that it has waited.
const EAGER: [(i64, Duration); 3] =
    [(0, Duration::from_millis(20)), (2, Duration::from_millis(200)), (20, Duration::from_secs(2))];

/// Minimum probe interval per eagerly probed worker of the pool, which bounds the total probe rate.
const EAGER_EACH: Duration = Duration::from_millis(2);

/// Delay before a worker is probed after its list or the annotation of its pod changed.
const SOON: Duration = Duration::from_millis(10);

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

/// State of the probe of one worker.
pub struct Probed {
    uid: String,
    ip: IpAddr,
    probe: VersionProbe,
    target: PollTarget,
    /// Version of the worker's list, and its jobs, sorted by name.
    list: (i64, Arc<[Arc<str>]>),
    report: Option<WorkerReport>,
}

impl Probed {
    /// Last report of the pod with this uid.
    pub fn report_of(&self, uid: &str) -> Option<WorkerReport> {
        self.report.filter(|_| self.uid == uid)
    }
}

/// JSON answer of a worker.
#[derive(Deserialize)]
struct VersionAnswer<'a> {
    version: i64,
    #[serde(borrow, default)]
    jobs: Option<Vec<Cow<'a, str>>>,
}

impl SwarmPoolController {
    /// Registers, updates and removes the probes of a pool.
    pub(super) fn keep_probes(&self, pool: &SwarmPool, memory: &Memory, seen: &Seen) {
        let key = super::own_key(pool);
        let Some(probe) = pool.spec.version.as_ref().and_then(|version| version.probe.as_ref()) else {
            self.drop_probes(&key);
            return;
        };
        let eager = eager(memory, seen);
        let least = EAGER_EACH.saturating_mul(u32::try_from(eager.len()).unwrap_or(u32::MAX));
        let mut all = self.memory.probed();
        let known = all.entry(key.clone()).or_default();
        known.retain(|name, one| {
            let stays = seen.pods.get(name).is_some_and(|pod| address(pod) == Some(one.ip) && pod.id.uid == one.uid);
            if !stays {
                self.polls.remove(ProbeKey { pool: key.clone(), pod: name.clone() });
            }
            stays
        });
        for (name, pod) in &seen.pods {
            let Some(ip) = address(pod).filter(|_| !pod.finished) else { continue };
            let Some(holding) = seen.published.holdings.get(name) else { continue };
            let interval = eager.get(name).map_or(CALM, |waited| interval(*waited).max(least));
            let target = PollTarget {
                host: format!("{ip}:{}", probe.port).into(),
                at_once: 1,
                tenant: key.namespace.as_str().into(),
                interval,
                timeout: TIMEOUT + Duration::from_secs(1),
            };
            let poll = ProbeKey { pool: key.clone(), pod: name.clone() };
            let before = known.get(name);
            let (is_new, report) = (before.is_none(), before.and_then(|one| one.report));
            let list_is_new = before.is_none_or(|one| one.list.0 != holding.version);
            if before.is_none_or(|one| one.target != target) {
                self.polls.put(poll.clone(), target.clone());
            }
            if is_new || list_is_new && interval != CALM {
                self.polls.wake(poll, SOON);
            }
            let list = match before {
                Some(one) if !list_is_new => one.list.clone(),
                _ => (holding.version, holding.jobs.iter().map(|job| Arc::clone(&job.name)).collect()),
            };
            let (uid, probe) = (pod.id.uid.clone(), probe.clone());
            known.insert(name.clone(), Probed { uid, ip, probe, target, list, report });
        }
    }

    /// Probes a worker soon after the annotation of its pod.
    pub(super) fn ask_soon(&self, pool: &SwarmPool, name: &str) {
        self.polls.wake(ProbeKey { pool: super::own_key(pool), pod: name.to_owned() }, SOON);
    }

    /// Removes all probes of a pool.
    pub(super) fn drop_probes(&self, key: &Key) {
        for name in self.memory.probed().remove(key).into_iter().flat_map(BTreeMap::into_keys) {
            self.polls.remove(ProbeKey { pool: key.clone(), pod: name });
        }
    }

    async fn ask(&self, key: &ProbeKey) -> PollOutcome {
        let asked = self.memory.probed().get(&key.pool).and_then(|pool| {
            let one = pool.get(&key.pod)?;
            Some((url(one.ip, &one.probe), one.uid.clone(), one.list.clone()))
        });
        let Some((url, uid, list)) = asked else { return PollOutcome::Ok };
        let call = Call {
            url,
            auth: None,
            ca: None,
            insecure: false,
            redirects: false,
            within: TIMEOUT,
            limit: MAX_ANSWER,
            tenant: key.pool.namespace.clone(),
        };
        let answer = self.outbound.web().get(&call).await;
        let report = answer.ok().and_then(|answer| read(answer.good().ok()?, &list));
        let Some(report) = report else { return PollOutcome::Failed };
        let changed = {
            let mut all = self.memory.probed();
            let one = all.get_mut(&key.pool).and_then(|pool| pool.get_mut(&key.pod)).filter(|one| one.uid == uid);
            one.is_some_and(|one| one.report.replace(report) != Some(report))
        };
        if changed {
            self.ctx.store.queue::<SwarmPool>().add([key.pool.clone()]);
        }
        PollOutcome::Ok
    }
}

/// Probe interval of a worker that the pool has waited for this number of seconds.
fn interval(waited: i64) -> Duration {
    let [(_, first), ..] = EAGER;
    EAGER.iter().rev().find(|(from, _)| waited >= *from).map_or(first, |(_, interval)| *interval)
}

/// Workers that the pool waits for, and for how many seconds.
fn eager(memory: &Memory, seen: &Seen) -> BTreeMap<String, i64> {
    let input = seen.input(&memory.stopped);
    let strict = seen.rules.handover == HandoverPolicy::Strict;
    let restarts = seen.rules.refresh == RefreshPolicy::Restart;
    let waits = seen.published.holdings.iter().filter(|(name, holding)| {
        // A pod that still has to be restarted runs an older list; probing it is useless.
        let is_old = restarts && seen.pods.get(*name).is_some_and(|pod| holding.pod.as_ref() == Some(&pod.id.uid));
        let releases = strict && !holding.releasing.is_empty() && !has_released(name, holding, &input);
        !is_old && (releases || !follows(name, holding, &input))
    });
    let waited = |version: i64| {
        let change = seen.published.changes.get(&version);
        change.map_or(0, |change| seen.now.duration_since(change.at).as_secs())
    };
    waits.map(|(name, holding)| (name.clone(), waited(holding.version))).collect()
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
fn read(body: &[u8], (version, list): &(i64, Arc<[Arc<str>]>)) -> Option<WorkerReport> {
    let answer: VersionAnswer<'_> = serde_json::from_slice(body).ok()?;
    let is_own = |job: &Cow<'_, str>| list.binary_search_by(|own| (**own).cmp(job)).is_ok();
    let has_others = answer.version >= *version && answer.jobs.is_some_and(|jobs| !jobs.iter().all(is_own));
    Some(WorkerReport { version: answer.version, has_others })
}

impl Poller for SwarmPoolController {
    type Key = ProbeKey;
    /// Short, because the pool waits for most probes.
    const GATHER: Duration = Duration::from_millis(2);

    async fn poll(self: Arc<Self>, key: ProbeKey) -> PollOutcome {
        self.ask(&key).await
    }

    fn broken_off(&self, _key: &ProbeKey, _how: BrokenOff) {}
}

/// Probes workers until this replica stops being the leader or shuts down.
pub async fn run_probes(controller: Arc<SwarmPoolController>, limits: PollLimits) {
    let (polls, ctx) = (Arc::clone(&controller.polls), controller.ctx.clone());
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

    fn list() -> (i64, Arc<[Arc<str>]>) {
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
            let report = read(body.as_bytes(), &list()).map(|report| (report.version, report.has_others));
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
