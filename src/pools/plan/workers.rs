//! The workers of a pool: maps pods to slots, and selects the slots that get jobs.
//!
//! A slot is a number that outlives its pod. In a StatefulSet it is the ordinal. In a Deployment the pod is annotated
//! with it; when that pod terminates, a Ready pod without a slot takes it over.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::file::Published;
use super::handover::{WorkerPod, WorkerReport};
use super::refusals::WriteRefusal;
use ganglion_api::swarm_pool::{PoolWorkloadKind, RefreshPolicy, SwarmPool, VersionSource};
use ganglion_core::facts::{Identity, PodFact, Uid};

/// Time that a pod must be Ready before it can count as outdated.
pub const OUTDATED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of evictions of an outdated worker per version.
const MAX_RESTARTS: u32 = 3;

/// Delay before a pod that does not report the version is annotated again. Doubles with each repetition.
const ANNOTATE_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// Time that a pool without lists waits for the first answers of its workers: they may run jobs of an earlier pool.
const FIRST_REPORTS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of slots; no workload has as many pods.
const MAX_SLOTS: u32 = 20_000;

/// Workload of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolWorkloadFact {
    pub kind: PoolWorkloadKind,
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u32,
    /// Ordinal of the first pod of a StatefulSet.
    pub first_ordinal: i32,
}

/// Workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWorkers {
    /// Slots that get jobs, each with the name of its pod. A slot without a pod keeps its jobs for the next pod.
    pub slots: BTreeMap<u32, Option<String>>,
    /// Pods of a Deployment that are not annotated with the slot that they occupy.
    pub unmarked: Vec<(String, u32)>,
    /// Number of wanted workers that are Ready.
    pub ready: usize,
    /// Number of wanted workers, without drained ones.
    pub wanted: usize,
}

impl PoolWorkers {
    /// Returns true if all wanted workers are Ready.
    pub fn is_complete(&self) -> bool {
        self.ready >= self.wanted
    }
}

/// Rules for which pods and slots get jobs.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// Names of the pods with a published job list.
    pub members: &'a BTreeSet<&'a str>,
    /// Slots of the previous assignment.
    pub slots: &'a BTreeSet<u32>,
    /// Slots of pods that could not be annotated with them.
    pub remembered: &'a BTreeMap<Uid, u32>,
    /// Names of the pods in `spec.drain`, which get no jobs.
    pub drained: &'a [String],
    /// true: the pool has waited long enough for missing workers. Until then, new slots get no jobs, so that jobs do
    /// not move again for each new worker.
    pub waited: bool,
}

impl Admission<'_> {
    fn is_drained(&self, name: &str) -> bool {
        self.drained.iter().any(|drained| drained == name)
    }

    fn admits(&self, slot: u32, name: &str, is_complete: bool) -> bool {
        self.waited || is_complete || self.members.contains(name) || self.slots.contains(&slot)
    }
}

/// Computes the workers of a workload from its pods.
pub fn workers_of(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> PoolWorkers {
    match workload.kind {
        PoolWorkloadKind::StatefulSet => stateful_set_workers(workload, pods, admission),
        PoolWorkloadKind::Deployment => deployment_workers(workload, pods, admission),
    }
}

/// Workers of a StatefulSet: the ordinals of the pods are the slots.
fn stateful_set_workers(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> PoolWorkers {
    let ready: BTreeSet<&str> = pods.iter().filter(|pod| pod.is_ready()).map(|pod| pod.id.key.name.as_str()).collect();
    let mut wanted = Vec::new();
    for slot in 0..workload.replicas {
        let name = format!("{}-{}", workload.name, i64::from(workload.first_ordinal) + i64::from(slot));
        if !admission.is_drained(&name) {
            wanted.push((slot, name));
        }
    }
    let mut workers = PoolWorkers {
        ready: wanted.iter().filter(|(_, name)| ready.contains(name.as_str())).count(),
        wanted: wanted.len(),
        ..PoolWorkers::default()
    };
    let is_complete = workers.is_complete();
    for (slot, name) in wanted {
        let is_ready = ready.contains(name.as_str());
        if admission.members.contains(name.as_str()) || is_ready && admission.admits(slot, &name, is_complete) {
            workers.slots.insert(slot, Some(name));
        }
    }
    workers
}

/// Workers of a Deployment: each pod is annotated with its slot.
fn deployment_workers(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> PoolWorkers {
    let mut active: Vec<&PodFact> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    active.sort_by_key(|pod| (pod.created, &pod.id.key.name));
    let (mut occupied, mut spare, mut drained) = (BTreeMap::<u32, &PodFact>::new(), Vec::new(), 0);
    for pod in active {
        if admission.is_drained(&pod.id.key.name) {
            drained += 1;
            continue;
        }
        match slot_of(pod).or_else(|| admission.remembered.get(&pod.id.uid).copied()) {
            Some(slot) if !occupied.contains_key(&slot) => {
                occupied.insert(slot, pod);
            }
            Some(_) | None => spare.push(pod),
        }
    }
    let wanted = usize::try_from(workload.replicas).unwrap_or(usize::MAX).saturating_sub(drained);
    let vacancies = wanted.saturating_sub(occupied.len());
    let vacant: Vec<u32> = (0..MAX_SLOTS).filter(|slot| !occupied.contains_key(slot)).take(vacancies).collect();
    let successors: Vec<(&PodFact, u32)> =
        spare.into_iter().filter(|pod| pod.is_ready()).zip(vacant.iter().copied()).collect();
    // The jobs of vacant slots without a successor wait for the pods that take these over.
    let waiting = vacant.into_iter().skip(successors.len()).filter(|slot| admission.slots.contains(slot));
    occupied.extend(successors.into_iter().map(|(pod, slot)| (slot, pod)));
    let ready = occupied.values().filter(|pod| pod.is_ready()).count();
    let mut workers = PoolWorkers { ready, wanted, ..PoolWorkers::default() };
    let is_complete = workers.is_complete();
    for (slot, pod) in occupied {
        let name = &pod.id.key.name;
        if slot_of(pod) != Some(slot) {
            workers.unmarked.push((name.clone(), slot));
        }
        if admission.admits(slot, name, is_complete) {
            workers.slots.insert(slot, Some(name.clone()));
        }
    }
    if !admission.waited {
        workers.slots.extend(waiting.map(|slot| (slot, None)));
    }
    workers
}

/// Slot in the annotation of a pod of a Deployment.
pub fn slot_of(pod: &PodFact) -> Option<u32> {
    // A large number, which somebody else wrote, would cost memory.
    pod.marks.worker.as_deref()?.parse().ok().filter(|slot| *slot < MAX_SLOTS)
}

/// Observations and actions of this process about the workers of a pool.
#[derive(Default)]
pub struct WorkerMemory {
    pub missing: MissingWorkers,
    /// Time since which the pool has been waiting for the first answers of its workers.
    first_reports_since: Option<Timestamp>,
    /// Workers whose pod did not run according to a live read, with the version of their list at that time.
    pub stopped: BTreeMap<String, i64>,
    /// Workers without a cached pod that were looked for by a live read. true: the pod did not exist, or had finished.
    pub gone: BTreeMap<String, bool>,
    /// Last evictions of each worker.
    pub restarts: BTreeMap<String, WorkerRestarts>,
    /// Last annotation of each pod with the version of its list.
    pub annotations: BTreeMap<String, AnnotatedVersion>,
    /// Slots of pods that the API server refuses to annotate with them. A restart loses them, and jobs may move.
    pub slots: BTreeMap<Uid, u32>,
    /// The last refused annotation of a pod with its slot.
    pub slots_refused: Option<WriteRefusal>,
    /// The last refused annotation of a pod with the version of its list, if none was accepted since.
    pub versions_refused: Option<WriteRefusal>,
}

/// Whether workers are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingWorkers {
    /// This process has not observed the workers yet: the status may have the time.
    #[default]
    Unknown,
    /// All are Ready.
    None,
    Since(Timestamp),
}

impl MissingWorkers {
    /// Time since which workers have been missing; None if all are Ready.
    pub fn since(self) -> Option<Timestamp> {
        match self {
            Self::Unknown | Self::None => None,
            Self::Since(at) => Some(at),
        }
    }
}

/// Evictions of a worker for one version of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerRestarts {
    pub version: i64,
    pub times: u32,
}

/// An annotation of a pod with the version of its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotatedVersion {
    /// The uid of the pod. Another pod of that name begins with a first annotation.
    pub pod: Uid,
    pub version: i64,
    /// Number of repetitions.
    pub times: u32,
    pub at: Timestamp,
}

impl AnnotatedVersion {
    /// Time at which the pod is annotated again, unless it reports the version earlier.
    pub fn again_at(&self) -> Option<Timestamp> {
        let pause = ANNOTATE_AGAIN_AFTER.checked_mul(1 << self.times.min(6))?;
        self.at.checked_add(pause).ok()
    }
}

impl WorkerMemory {
    /// Time until which a pool waits for the first answers of its workers, counted from the first call. None once it is
    /// over.
    pub fn await_first_reports(&mut self, now: Timestamp) -> Option<Timestamp> {
        let since = *self.first_reports_since.get_or_insert(now);
        since.checked_add(FIRST_REPORTS_WITHIN).ok().filter(|until| *until > now)
    }

    /// Records an eviction for this version.
    pub fn record_restart(&mut self, name: &str, version: i64) {
        let last = self.restarts.entry(name.to_owned()).or_default();
        let times = if last.version == version { last.times + 1 } else { 1 };
        *last = WorkerRestarts { version, times };
    }

    /// Records an annotation with this version, and returns its value, such as `7`, or `7.2` for the second repetition.
    pub fn record_annotation(&mut self, pod: &Identity, version: i64, now: Timestamp) -> String {
        let last = self.annotation(pod, version);
        let times = last.map_or(0, |last| last.times.saturating_add(1));
        let annotation = AnnotatedVersion { pod: pod.uid.clone(), version, times, at: now };
        self.annotations.insert(pod.key.name.clone(), annotation);
        if times == 0 { version.to_string() } else { format!("{version}.{times}") }
    }

    /// Last annotation of a pod, if it was for this version.
    pub fn annotation(&self, pod: &Identity, version: i64) -> Option<&AnnotatedVersion> {
        self.annotations.get(&pod.key.name).filter(|last| last.version == version && last.pod == pod.uid)
    }

    /// Returns true if a worker may be evicted once more for a version.
    fn may_restart(&self, name: &str, version: i64) -> bool {
        self.restarts.get(name).is_none_or(|last| last.version != version || last.times < MAX_RESTARTS)
    }

    /// Pods in the form that the planner reads. `probed`: last answers to probes, by pod name.
    pub fn worker_pods(
        &self,
        pool: &SwarmPool,
        pods: &BTreeMap<String, PodFact>,
        probed: &BTreeMap<String, WorkerReport>,
        published: &Published,
        now: Timestamp,
    ) -> BTreeMap<String, WorkerPod> {
        let source = pool.spec.version.as_ref().map(|version| version.source);
        let mut workers = BTreeMap::new();
        for (name, pod) in pods {
            let report = match source {
                None => None,
                Some(VersionSource::Probe) => probed.get(name).copied(),
                Some(VersionSource::Annotation) => annotated_report(pod),
            };
            let version = published.lists.get(name).map_or(0, |list| list.version);
            let is_behind =
                report.is_some_and(|report| report.version < version || !published.has_written(report.version));
            let is_long_ready = pod.ready_from().is_some_and(|since| now.duration_since(since) >= OUTDATED_AFTER);
            let annotate_again_at = self.annotation(&pod.id, version).and_then(AnnotatedVersion::again_at);
            let worker = WorkerPod {
                uid: pod.id.uid.clone(),
                runs: pod.node.is_some() && !pod.finished,
                ready: pod.is_ready(),
                terminating: pod.terminating,
                outdated: is_behind && is_long_ready && self.may_restart(name, version),
                annotated_version: pod.marks.job_version.as_deref().and_then(parse_annotation),
                must_annotate_again: annotate_again_at.is_some_and(|again| again <= now),
                report,
            };
            workers.insert(name.clone(), worker);
        }
        workers
    }
}

/// Version in the annotation of a pod; see [`WorkerMemory::record_annotation`].
fn parse_annotation(text: &str) -> Option<i64> {
    text.split('.').next()?.parse().ok()
}

/// Version that a worker reports by annotating its own pod.
fn annotated_report(pod: &PodFact) -> Option<WorkerReport> {
    let version = pod.marks.observed_version.as_deref()?.trim().parse().ok()?;
    Some(WorkerReport { version, has_others: false })
}

/// Computes the workers, and waits for missing ones: until the returned time, new slots get no jobs.
pub fn await_workers(
    pool: &SwarmPool,
    memory: &mut WorkerMemory,
    refresh: RefreshPolicy,
    workers: impl Fn(bool) -> PoolWorkers,
    now: Timestamp,
) -> (PoolWorkers, Option<Timestamp>) {
    let patience = match refresh {
        RefreshPolicy::Restart => SignedDuration::from_secs(60),
        RefreshPolicy::HotReload | RefreshPolicy::None => SignedDuration::from_secs(10),
    };
    let first = workers(false);
    if first.is_complete() {
        memory.missing = MissingWorkers::None;
        return (first, None);
    }
    let since = match memory.missing {
        MissingWorkers::Unknown => {
            let reported = pool.status.as_ref().and_then(|status| status.waiting_since.as_ref());
            reported.map_or(now, |time| time.0)
        }
        MissingWorkers::None => now,
        MissingWorkers::Since(since) => since,
    };
    memory.missing = MissingWorkers::Since(since);
    let until = since.checked_add(patience).unwrap_or(now);
    if until <= now { (workers(true), None) } else { (first, Some(until)) }
}
