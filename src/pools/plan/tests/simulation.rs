//! A simulated pool: a file, pods that run the jobs that they read from it, and an operator with a stale cache that can
//! crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::desired::JobNames;
use crate::file::{ListChange, Published, prune};
use crate::handover::{
    HandoverInput, HandoverPlan, HandoverRules, WorkerPod, WorkerReport, confirm_foreign, next_version, plan_handover,
    runs_its_list,
};
use crate::jobs::JobTable;
use crate::state::{PoolState, health};
use crate::workers::PoolWorkers;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};
use ganglion_core::conditions::Health;
use ganglion_core::facts::Uid;

/// A process that runs jobs.
#[derive(Clone, Debug)]
pub struct Process {
    pub uid: Uid,
    terminating: bool,
    /// Version of the whole file when the process last read it.
    version: i64,
    /// Version in the annotation of its pod.
    annotated: Option<i64>,
    pub running: BTreeSet<Arc<str>>,
}

/// An event of the simulation.
#[derive(Clone, Debug)]
pub enum Event {
    /// The operator's cache is updated.
    Look,
    /// The operator reconciles once, with the state of its cache.
    Pass,
    /// The operator restarts and loses its memory.
    Crash,
    /// This worker reads the file, if it can reload.
    Read(usize),
    /// This worker starts to terminate.
    Delete(usize),
    /// This worker ends, if it is terminating.
    End(usize),
    /// The workload is scaled to this number of workers.
    Scale(usize),
    /// The pool gets this number of jobs.
    Jobs(usize),
    /// The pool is deleted and created again, and its file with it.
    Recreate,
    /// Time passes.
    Wait(i64),
}

pub struct Pool {
    pub file: Published,
    pub processes: BTreeMap<String, Process>,
    pub rules: HandoverRules,
    /// The operator's cache of pods.
    seen: BTreeMap<String, WorkerPod>,
    /// The operator's memory, which a crash clears.
    stopped: BTreeMap<String, i64>,
    gone: BTreeMap<String, bool>,
    /// true: a pod has a name of its own, so the name of its predecessor does not return (Deployment).
    has_new_names: bool,
    pub now: Timestamp,
    uids: usize,
    replicas: usize,
    jobs: usize,
    pub writes: usize,
    pub restarts: usize,
    pub annotations: usize,
    /// An assignment instead of the default one.
    pub fixed: Option<JobNames>,
}

impl Pool {
    pub fn new(refresh: RefreshPolicy, reports: bool) -> Self {
        Self::with_names(refresh, reports, false)
    }

    /// Workers of a Deployment.
    pub fn of_deployment() -> Self {
        Self::with_names(RefreshPolicy::HotReload, true, true)
    }

    fn with_names(refresh: RefreshPolicy, reports: bool, has_new_names: bool) -> Self {
        let rules = HandoverRules {
            handover: HandoverPolicy::Strict,
            refresh,
            max_unavailable: 1,
            reports,
            confirmed: BTreeMap::new(),
            patience: SignedDuration::from_secs(5),
            names_return: !has_new_names,
        };
        let mut pool = Self {
            file: Published::default(),
            processes: BTreeMap::new(),
            rules,
            seen: BTreeMap::new(),
            stopped: BTreeMap::new(),
            gone: BTreeMap::new(),
            has_new_names,
            now: Timestamp::UNIX_EPOCH,
            uids: 0,
            replicas: 3,
            jobs: 10,
            writes: 0,
            restarts: 0,
            annotations: 0,
            fixed: None,
        };
        pool.start_missing();
        pool
    }

    fn worker(nth: usize) -> String {
        format!("w-{nth}")
    }

    /// The process with this number, whatever its name is.
    fn process(&self, nth: usize) -> String {
        if self.has_new_names { self.processes.keys().nth(nth).cloned().unwrap_or_default() } else { Self::worker(nth) }
    }

    /// Names of the workers by slot; None if a slot waits for its pod.
    fn slots(&self) -> Vec<Option<String>> {
        if !self.has_new_names {
            return (0..self.replicas).map(|nth| Some(Self::worker(nth))).collect();
        }
        let active = self.seen.iter().filter(|(_, pod)| !pod.terminating).map(|(name, _)| Some(name.clone()));
        active.chain(std::iter::repeat(None)).take(self.replicas).collect()
    }

    /// An assignment that moves many jobs, to cause handovers; and the jobs of slots that wait for a pod.
    fn assigned(&self) -> (JobNames, BTreeSet<Arc<str>>) {
        if let Some(fixed) = &self.fixed {
            return (fixed.clone(), BTreeSet::new());
        }
        let (slots, mut reserved) = (self.slots(), BTreeSet::new());
        let mut desired: BTreeMap<_, _> = slots.iter().flatten().map(|name| (name.clone(), Vec::new())).collect();
        let mut jobs: Vec<String> = (0..self.jobs).map(|job| format!("job-{job}")).collect();
        jobs.sort();
        for (nth, job) in jobs.iter().enumerate() {
            let Some(slot) = nth.checked_rem(self.replicas).and_then(|nth| slots.get(nth)) else { continue };
            match slot.as_ref().and_then(|name| desired.get_mut(name)) {
                Some(list) => list.push(Arc::from(job.as_str())),
                None => drop(reserved.insert(Arc::from(job.as_str()))),
            }
        }
        (desired, reserved)
    }

    pub fn desired(&self) -> JobNames {
        self.assigned().0
    }

    /// Creates missing pods, like the controller of the workload. A pod reads the file when it starts.
    fn start_missing(&mut self) {
        if self.has_new_names {
            let active = self.processes.values().filter(|process| !process.terminating).count();
            (active..self.replicas).for_each(|_| self.start(&format!("w-{}", self.uids)));
            return;
        }
        for name in (0..self.replicas).map(Self::worker) {
            if !self.processes.contains_key(&name) {
                self.start(&name);
            }
        }
    }

    /// Starts a pod, which reads the file.
    pub fn start(&mut self, name: &str) {
        self.uids += 1;
        let process = Process {
            uid: format!("uid-{}", self.uids).into(),
            terminating: false,
            version: self.file.version,
            annotated: None,
            running: self.listed(name),
        };
        self.processes.insert(name.to_owned(), process);
    }

    fn listed(&self, name: &str) -> BTreeSet<Arc<str>> {
        let jobs = self.file.lists.get(name).map(|list| &list.jobs);
        jobs.into_iter().flatten().map(|job| Arc::clone(&job.name)).collect()
    }

    fn look(&mut self) {
        let reports = self.rules.reports;
        let version = |name: &String| self.file.lists.get(name).map_or(0, |list| list.version);
        let pod = |name: &String, process: &Process| WorkerPod {
            uid: process.uid.clone(),
            runs: true,
            ready: true,
            terminating: process.terminating,
            outdated: reports && process.version < version(name),
            annotated_version: process.annotated,
            must_annotate_again: false,
            report: reports.then_some(WorkerReport { version: process.version, has_others: false }),
        };
        self.seen = self.processes.iter().map(|(name, process)| (name.clone(), pod(name, process))).collect();
    }

    fn input<'a>(&'a self, (desired, reserved): &'a (JobNames, BTreeSet<Arc<str>>)) -> HandoverInput<'a> {
        HandoverInput {
            published: &self.file,
            desired,
            pods: &self.seen,
            stopped: &self.stopped,
            gone: &self.gone,
            reserved,
            rules: &self.rules,
            now: self.now,
        }
    }

    fn plan_handover(&self) -> HandoverPlan {
        plan_handover(&self.input(&self.assigned()))
    }

    fn pass(&mut self) {
        if let Some(lists) = confirm_foreign(&self.input(&self.assigned())) {
            self.writes += 1;
            self.file = lists;
            return;
        }
        let plan = self.plan_handover();
        if !plan.lists.is_empty() {
            self.writes += 1;
            let version = next_version(&self.input(&self.assigned()));
            self.file.advance(version);
            self.file.changes.insert(version, ListChange { at: self.now, why: String::new() });
            for (name, list) in plan.lists {
                match list {
                    Some(list) => drop(self.file.lists.insert(name, list)),
                    None => drop(self.file.lists.remove(&name)),
                }
            }
            prune(&mut self.file);
            // The plan after the write follows at once, and is made from the cache of that time.
            return;
        }
        for name in plan.verify {
            let is_gone = !self.processes.contains_key(&name);
            if !self.seen.contains_key(&name) {
                self.gone.insert(name.clone(), is_gone);
            }
            if let (true, Some(list)) = (is_gone, self.file.lists.get(&name)) {
                self.stopped.insert(name, list.version);
            }
        }
        for (name, version) in plan.annotate {
            if let Some(process) = self.processes.get_mut(&name) {
                self.annotations += 1;
                process.annotated = Some(version);
            }
        }
        for (name, uid) in plan.restart {
            // An eviction applies to one uid.
            if let Some(process) = self.processes.get_mut(&name).filter(|process| process.uid == uid) {
                self.restarts += 1;
                process.terminating = true;
            }
        }
    }

    pub fn happen(&mut self, event: &Event) {
        match *event {
            Event::Look => self.look(),
            Event::Pass => self.pass(),
            Event::Crash => {
                self.forget();
            }
            Event::Read(nth) => self.read(&self.process(nth)),
            Event::Delete(nth) => {
                let name = self.process(nth);
                if let Some(process) = self.processes.get_mut(&name) {
                    process.terminating = true;
                }
                if self.has_new_names {
                    self.start_missing();
                }
            }
            Event::End(nth) => self.end(&self.process(nth)),
            Event::Scale(replicas) => self.scale(replicas),
            Event::Recreate => {
                self.file = Published::default();
                self.forget();
            }
            Event::Jobs(jobs) => self.jobs = jobs,
            Event::Wait(seconds) => self.now += SignedDuration::from_secs(seconds),
        }
    }

    /// The operator starts without memory, and with a new cache.
    fn forget(&mut self) {
        self.stopped.clear();
        self.gone.clear();
        self.look();
    }

    fn scale(&mut self, replicas: usize) {
        self.replicas = replicas;
        let mut active = 0;
        for (name, process) in self.processes.iter_mut().filter(|(_, process)| !process.terminating) {
            active += 1;
            process.terminating = if self.has_new_names {
                active > replicas
            } else {
                (0..replicas).all(|nth| Self::worker(nth) != *name)
            };
        }
        self.start_missing();
    }

    fn read(&mut self, name: &str) {
        let (version, listed) = (self.file.version, self.listed(name));
        if self.rules.refresh != RefreshPolicy::Restart
            && let Some(process) = self.processes.get_mut(name)
        {
            // A worker keeps its jobs if its file is gone.
            if version > 0 {
                process.version = version;
                process.running = listed;
            }
        }
    }

    fn end(&mut self, name: &str) {
        if self.processes.get(name).is_some_and(|process| process.terminating) {
            self.processes.remove(name);
            self.start_missing();
        }
    }

    /// Jobs that more than one worker runs.
    pub fn doubled(&self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let running = self.processes.values().flat_map(|process| &process.running);
        running.filter(|job| !seen.insert(Arc::clone(job))).cloned().collect()
    }

    /// Health of the pool, with this timeout in seconds.
    pub fn health(&self, timeout: i64) -> Health<PoolReason> {
        let assigned = self.assigned();
        let input = self.input(&assigned);
        health(&PoolState {
            table: &JobTable::default(),
            workers: &PoolWorkers { ready: self.replicas, wanted: self.replicas, ..PoolWorkers::default() },
            input: &input,
            plan: &plan_handover(&input),
            unassigned: &[],
            sharing: 0,
            problems: &[],
            budget: None,
            missing_since: None,
            timeout: SignedDuration::from_secs(timeout),
        })
    }

    /// Runs rounds of reads, terminations and reconciles until everything that is due has happened, but at most 200.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.run_round();
            if self.is_settled() {
                return;
            }
        }
    }

    pub fn run_round(&mut self) {
        for name in self.processes.keys().cloned().collect::<Vec<_>>() {
            self.read(&name);
            self.end(&name);
        }
        self.look();
        self.now += SignedDuration::from_secs(1);
        self.pass();
    }

    /// Returns true if every worker runs its desired jobs, and the next reconcile would change nothing.
    pub fn is_settled(&self) -> bool {
        let assigned = self.assigned();
        let (desired, input) = (&assigned.0, self.input(&assigned));
        let follow = self.file.lists.iter().all(|(name, list)| runs_its_list(name, list, &input));
        let runs = |name: &String, jobs: &Vec<Arc<str>>| {
            let wanted: BTreeSet<_> = jobs.iter().cloned().collect();
            self.processes.get(name).is_some_and(|process| process.running == wanted)
        };
        follow
            && confirm_foreign(&input).is_none()
            && self.plan_handover() == HandoverPlan::default()
            && self.file.lists.keys().eq(desired.keys())
            && desired.iter().all(|(name, jobs)| runs(name, jobs))
    }
}
