//! Observes the workload and its pods, and computes the workers and the assignment of jobs from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::memory::{LastDeal, Memory};
use super::sources::JobSources;
use super::{Stop, SwarmPoolController, namespace, output};
use ganglion_api::swarm_pool::handover::{HandoverPolicy, RefreshPolicy, VersionSource};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{PoolWorkloadKind, SwarmPool};
use ganglion_core::facts::{DeploymentFact, Key, PodFact, ScaleFact, StatefulSetFact};
use ganglion_pools_plan::crew::{Admission, Crew, PoolWorkloadFact, crew};
use ganglion_pools_plan::deal::{Deal, DealRules, deal_from};
use ganglion_pools_plan::file::Published;
use ganglion_pools_plan::jobs::JobTable;
use ganglion_pools_plan::plan::{HandoverInput, HandoverRules, WorkerPod, WorkerReport};
use ganglion_pools_plan::state::PoolProblem;
use ganglion_pools_plan::world::PoolsWorld;

/// Default of `spec.handover.timeoutSeconds`.
const TIMEOUT: i32 = 300;

/// Time that a pod must be Ready before it can count as outdated.
pub const OUTDATED: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of evictions of an outdated worker per version.
const MAX_AGAIN: u32 = 3;

/// Number of jobs above which computing the assignment may block the runtime for too long.
const LARGE: usize = 20_000;

/// Observed workload of a pool.
pub struct Workload {
    pub key: Key,
    pub uid: String,
    pub version: String,
    pub scale: ScaleFact,
    pub fact: PoolWorkloadFact,
    /// `status.replicas`.
    pub pods: i32,
    /// Label selector of its pods.
    pub selector: String,
}

/// Everything that one reconcile observed or derived from the caches.
pub struct Seen {
    pub namespace: String,
    pub pods: BTreeMap<String, PodFact>,
    pub crew: Crew,
    pub table: Arc<JobTable>,
    pub deal: Arc<Deal>,
    /// Desired jobs of each worker, by pod name.
    pub target: Lists,
    /// Jobs without a worker, because all workers have the maximum number of jobs.
    pub unassigned: Vec<Arc<str>>,
    pub published: Published,
    pub workers: BTreeMap<String, WorkerPod>,
    pub rules: HandoverRules,
    pub timeout: SignedDuration,
    pub problems: Vec<PoolProblem>,
    pub now: Timestamp,
    /// Time at which the pool stops waiting for missing workers.
    pub waits_until: Option<Timestamp>,
}

impl Seen {
    /// Input of the planner.
    pub fn input<'a>(&'a self, stopped: &'a BTreeMap<String, i64>) -> HandoverInput<'a> {
        HandoverInput {
            published: &self.published,
            target: &self.target,
            pods: &self.workers,
            stopped,
            rules: &self.rules,
            now: self.now,
        }
    }
}

impl SwarmPoolController {
    /// Reads the workload from the store.
    pub(super) fn workload(&self, pool: &SwarmPool) -> Result<Workload, Stop> {
        let (kind, name) = (pool.spec.workload.kind, &pool.spec.workload.name);
        let key = Key::new(namespace(pool), name.clone());
        let found = self.ctx.store.read(|world| match kind {
            PoolWorkloadKind::StatefulSet => {
                world.get::<StatefulSetFact>(&key).filter(|set| !set.terminating).map(|set| {
                    let of = (set.id.clone(), set.set.scale.clone(), set.status_replicas, set.selector.clone());
                    (of, set.first_ordinal)
                })
            }
            PoolWorkloadKind::Deployment => world
                .get::<DeploymentFact>(&key)
                .filter(|set| !set.terminating)
                .map(|set| ((set.id.clone(), set.scale.clone(), set.status_replicas, set.selector.clone()), 0)),
        });
        let Some(((id, scale, pods, selector), first_ordinal)) = found else {
            let message = format!("{} {name} does not exist: create it. Job lists stay unchanged.", kind.as_str());
            return Err(PoolProblem::new(PoolReason::WorkloadNotFound, message).into());
        };
        let replicas = u32::try_from(scale.replicas).unwrap_or(0);
        let fact = PoolWorkloadFact { kind, name: name.clone(), replicas, first_ordinal };
        Ok(Workload { key, uid: id.uid, version: id.version, scale, fact, pods, selector })
    }

    /// Derives workers, jobs and their assignment from the caches and the memory.
    pub(super) fn observe(
        &self,
        pool: &SwarmPool,
        workload: &Workload,
        memory: &mut Memory,
        sources: JobSources,
    ) -> Seen {
        let now = self.ctx.now();
        let pods = self.pods(workload);
        let published = self.with_known_version(pool, output::published(memory));
        let rules = rules(pool);
        let (crew, waits_until) = crew_of(pool, workload, memory, &pods, &published, &rules, now);
        let (table, problems) = Self::table(pool, memory, sources);
        let deal = dealt(pool, memory, &table, &crew, &published);
        let (target, unassigned) = lists(&crew, &table, &deal);
        let workers = self.workers(pool, memory, &pods, &published, now);
        let timeout = timeout(pool);
        Seen {
            namespace: workload.key.namespace.clone(),
            pods,
            crew,
            table,
            deal,
            target,
            unassigned,
            published,
            workers,
            rules,
            timeout,
            problems,
            now,
            waits_until,
        }
    }

    /// Pods of the workload, by name. If a stale cache holds two pods of one name, the newer wins.
    fn pods(&self, workload: &Workload) -> BTreeMap<String, PodFact> {
        self.ctx.store.read(|world| {
            let named = |pod: &PodFact| (pod.id.key.name.clone(), pod.clone());
            match workload.fact.kind {
                PoolWorkloadKind::StatefulSet => world.pods_of(&workload.uid).map(named).collect(),
                PoolWorkloadKind::Deployment => {
                    let deployment = world.get::<DeploymentFact>(&workload.key);
                    deployment.into_iter().flat_map(|set| world.pods_of_deployment(set)).map(named).collect()
                }
            }
        })
    }

    /// Raises the version of the lists to at least the version in the status: the ConfigMaps may have been deleted.
    fn with_known_version(&self, pool: &SwarmPool, published: Published) -> Published {
        let known = pool.status.as_ref().and_then(|status| status.version).unwrap_or(0);
        Published { version: published.version.max(known), ..published }
    }

    /// Pods in the form that the planner reads.
    fn workers(
        &self,
        pool: &SwarmPool,
        memory: &mut Memory,
        pods: &BTreeMap<String, PodFact>,
        published: &Published,
        now: Timestamp,
    ) -> BTreeMap<String, WorkerPod> {
        let source = pool.spec.version.as_ref().map(|version| version.source);
        let probed = self.memory.probed();
        let probed = probed.get(&super::own_key(pool));
        let worker = |pod: &PodFact| {
            let name = &pod.id.key.name;
            let report = match source {
                None => None,
                Some(VersionSource::Probe) => probed.and_then(|probed| probed.get(name)?.report_of(&pod.id.uid)),
                Some(VersionSource::Annotation) => annotated(pod),
            };
            let version = published.holdings.get(name).map_or(0, |holding| holding.version);
            let is_behind = report.is_some_and(|report| report.version < version);
            let long = pod.ready_since.is_some_and(|since| now.duration_since(since) >= OUTDATED);
            let outdated = is_behind && long && may_again(memory.again.get(name), version);
            let runs = pod.node.is_some() && !pod.finished;
            let told = pod.marks.job_version.as_deref().and_then(told_version);
            let again = memory.told.get(name).filter(|told| told.version == version).and_then(|told| told.again_at());
            let deaf = again.is_some_and(|again| again <= now);
            let (uid, ready, terminating) = (pod.id.uid.clone(), pod.is_ready(), pod.terminating);
            (name.clone(), WorkerPod { uid, runs, ready, terminating, outdated, told, deaf, report })
        };
        pods.values().map(worker).collect()
    }
}

/// Version in the annotation of a pod, such as `7`, or `7.2` after two repetitions; see [`super::act`].
fn told_version(text: &str) -> Option<i64> {
    text.split('.').next()?.parse().ok()
}

/// Reports whether a pod may be evicted once more for a version.
fn may_again(known: Option<&(i64, u32)>, version: i64) -> bool {
    known.is_none_or(|(of, times)| *of != version || *times < MAX_AGAIN)
}

/// Version that a worker reports by annotating its own pod.
fn annotated(pod: &PodFact) -> Option<WorkerReport> {
    let version = pod.marks.observed_version.as_deref()?.trim().parse().ok()?;
    Some(WorkerReport { version, has_others: false })
}

fn rules(pool: &SwarmPool) -> HandoverRules {
    let spec = &pool.spec;
    let refresh = spec.refresh.clone().unwrap_or_default();
    let handover = spec.handover.clone().unwrap_or_default();
    let patience = match refresh.policy {
        // Each change of a list costs a restart, so it is worth waiting for more jobs to change together.
        RefreshPolicy::Restart => timeout(pool),
        RefreshPolicy::HotReload | RefreshPolicy::None => SignedDuration::from_secs(2),
    };
    HandoverRules {
        handover: handover.policy,
        refresh: refresh.policy,
        max_unavailable: refresh.max_unavailable.and_then(|most| usize::try_from(most).ok()).unwrap_or(1).max(1),
        reports: spec.version.is_some(),
        confirmed: handover.confirmed.into_iter().flatten().map(|one| (one.worker, one.version)).collect(),
        patience,
    }
}

fn timeout(pool: &SwarmPool) -> SignedDuration {
    let seconds = pool.spec.handover.as_ref().and_then(|handover| handover.timeout_seconds);
    SignedDuration::from_secs(i64::from(seconds.unwrap_or(TIMEOUT)))
}

/// Workers of the pool, and the time until which the pool waits for missing ones.
fn crew_of(
    pool: &SwarmPool,
    workload: &Workload,
    memory: &mut Memory,
    pods: &BTreeMap<String, PodFact>,
    published: &Published,
    rules: &HandoverRules,
    now: Timestamp,
) -> (Crew, Option<Timestamp>) {
    let pods: Vec<&PodFact> = pods.values().collect();
    let members: BTreeSet<&str> = published.holdings.keys().map(String::as_str).collect();
    let drained = pool.spec.drain.as_deref().unwrap_or_default();
    let patience = match rules.refresh {
        RefreshPolicy::Restart => SignedDuration::from_secs(60),
        RefreshPolicy::HotReload | RefreshPolicy::None => SignedDuration::from_secs(10),
    };
    let look = |waited: bool| {
        crew(&workload.fact, &pods, Admission { members: &members, slots: &memory.slots, drained, waited })
    };
    let first = look(false);
    if first.is_complete() {
        memory.missing_since = None;
        return (first, None);
    }
    let since = *memory.missing_since.get_or_insert(now);
    let until = since.checked_add(patience).unwrap_or(now);
    if until <= now { (look(true), None) } else { (first, Some(until)) }
}

/// Assignment of jobs to slots, recomputed only if jobs, slots or rules changed. Jobs stay with their worker where
/// possible.
fn dealt(
    pool: &SwarmPool,
    memory: &mut Memory,
    table: &Arc<JobTable>,
    crew: &Crew,
    published: &Published,
) -> Arc<Deal> {
    let assignment = pool.spec.assignment.clone().unwrap_or_default();
    let max_jobs = assignment.max_jobs_per_worker.and_then(|most| usize::try_from(most).ok());
    let rules = DealRules { strategy: assignment.strategy, max_jobs };
    let slots: Vec<u32> = crew.slots.keys().copied().collect();
    if let Some(last) = &memory.deal
        && Arc::ptr_eq(&last.table, table)
        && last.slots == slots
        && last.rules == rules
    {
        return Arc::clone(&last.deal);
    }
    let previous = previous(memory, table, crew, published);
    let make = || deal_from(&table.jobs, &slots, rules, &previous);
    // A large assignment takes up to a second; other reconciles must go on meanwhile.
    let made = if table.jobs.len() > LARGE { tokio::task::block_in_place(make) } else { make() };
    let deal = Arc::new(made);
    memory.deal = Some(LastDeal { table: Arc::clone(table), slots, rules, deal: Arc::clone(&deal) });
    deal
}

/// Previous worker of each job, as an index into the slots. Taken from the last assignment of this process, whose
/// handover may still be running; without one, from the published lists, unless somebody else may have edited them.
fn previous(memory: &Memory, table: &JobTable, crew: &Crew, published: &Published) -> Vec<Option<u32>> {
    let mut previous = vec![None; table.jobs.len()];
    let indices: HashMap<u32, u32> = crew.slots.keys().copied().zip(0..).collect();
    let mut set = |name: &str, slot: u32| {
        let at = table.jobs.binary_search_by(|job| (*job.name).cmp(name)).ok();
        if let Some(one) = at.and_then(|at| previous.get_mut(at)) {
            *one = indices.get(&slot).copied();
        }
    };
    if let Some(last) = &memory.deal {
        for (job, owner) in last.table.jobs.iter().zip(&last.deal.owner) {
            if let Some(slot) = owner.and_then(|owner| last.slots.get(usize::try_from(owner).ok()?)) {
                set(&job.name, *slot);
            }
        }
    } else if !memory.distrusts {
        for (slot, name) in crew.slots.iter().filter_map(|(slot, name)| Some((*slot, name.as_ref()?))) {
            for job in published.holdings.get(name).iter().flat_map(|holding| &holding.jobs) {
                set(&job.name, slot);
            }
        }
    }
    previous
}

/// Job names of each worker, by pod name.
type Lists = BTreeMap<String, Vec<Arc<str>>>;

/// Splits the assignment into the jobs of each worker and the jobs without a worker. Jobs of a slot that waits for a
/// pod are in neither.
fn lists(crew: &Crew, table: &JobTable, deal: &Deal) -> (Lists, Vec<Arc<str>>) {
    let names: Vec<Option<&String>> = crew.slots.values().map(Option::as_ref).collect();
    let mut lists: Vec<Vec<Arc<str>>> = names.iter().map(|_| Vec::new()).collect();
    let mut unassigned = Vec::new();
    for (job, owner) in table.jobs.iter().zip(&deal.owner) {
        match owner.and_then(|owner| lists.get_mut(usize::try_from(owner).ok()?)) {
            Some(list) => list.push(Arc::clone(&job.name)),
            // Without any slot, all jobs wait for the first worker.
            None if names.is_empty() => {}
            None => unassigned.push(Arc::clone(&job.name)),
        }
    }
    let lists = names.into_iter().zip(lists).filter_map(|(name, list)| Some((name?.clone(), list)));
    (lists.collect(), unassigned)
}

/// Reports whether a job moves only after its previous worker released it.
pub fn is_strict(seen: &Seen) -> bool {
    seen.rules.handover == HandoverPolicy::Strict
}
