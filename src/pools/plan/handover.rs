//! Plans the handover: the next job lists to write, so that every worker ends with its assigned jobs and no two workers
//! run the same job.
//!
//! 1. Release: the job is removed from the list of its old worker and recorded as releasing. The step ends when the
//!    worker has stopped the job: it reports the version of that list, or a read from the API server after the write
//!    shows that its pod does not run.
//! 2. Give: the job is added to the list of its new worker. The step ends when that worker reports the version.
//!
//! All state of a step is in the ConfigMaps, so a crash between any two writes loses nothing. With the handover policy
//! Immediate, both steps are one write.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::file::{JobList, ListChange, ListedJob, Published};
use ganglion_api::swarm_pool::{HandoverPolicy, RefreshPolicy};
use ganglion_core::facts::Uid;

/// Report of a worker about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Version of the job list that the worker runs.
    pub version: i64,
    /// true: the worker runs a job that is not on its list.
    pub has_others: bool,
}

/// Observed pod of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPod {
    pub uid: Uid,
    /// true: the pod is bound to a node and has not finished.
    pub runs: bool,
    pub ready: bool,
    pub terminating: bool,
    /// true: the pod has been Ready for some time but reports an older version than that of its list, and may be
    /// restarted again.
    pub outdated: bool,
    /// Version in the annotation of the pod.
    pub annotated_version: Option<i64>,
    /// true: the pod was annotated some time ago but has not reported the version. Its kubelet may not have had the new
    /// ConfigMap at that time, so the annotation is repeated.
    pub must_annotate_again: bool,
    pub report: Option<WorkerReport>,
}

/// Rules for moving jobs between workers.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoverRules {
    pub handover: HandoverPolicy,
    pub refresh: RefreshPolicy,
    pub max_unavailable: usize,
    /// true: workers report versions (`spec.version` is set).
    pub reports: bool,
    /// Versions in `spec.handover.confirmed`, by worker.
    pub confirmed: BTreeMap<String, i64>,
    /// Time that a worker waits for jobs that other workers still have, so that its list changes once for all of them.
    pub patience: SignedDuration,
}

/// Input of [`plan_handover`].
#[derive(Clone, Debug)]
pub struct HandoverInput<'a> {
    pub published: &'a Published,
    /// Desired jobs of each worker, sorted by name.
    pub desired: &'a BTreeMap<String, Vec<Arc<str>>>,
    /// Existing pods of the workload, by name.
    pub pods: &'a BTreeMap<String, WorkerPod>,
    /// Workers whose pod did not run according to a live read, with the version of their list at that time.
    pub stopped: &'a BTreeMap<String, i64>,
    pub rules: &'a HandoverRules,
    pub now: Timestamp,
}

/// Next step of the handover.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandoverPlan {
    /// Job lists to write; None removes the entry of a worker that is gone.
    pub lists: BTreeMap<String, Option<JobList>>,
    /// Workers with jobs to release whose pod does not seem to run: a live read must verify that.
    pub verify: BTreeSet<String>,
    /// Pods to be annotated with the version of their list.
    pub annotate: BTreeMap<String, i64>,
    /// Pods to be evicted: name and uid.
    pub restart: Vec<(String, Uid)>,
    /// Number of jobs that this plan removes from a worker and that another worker gets later.
    pub moving: usize,
    /// Number of jobs that wait because another worker has not released them.
    pub waiting: usize,
    /// Time at which a worker that waits for several jobs gets those that are free.
    pub due: Option<Timestamp>,
}

/// Returns true if the worker has stopped all jobs that were removed from its list.
pub fn has_released(name: &str, list: &JobList, input: &HandoverInput<'_>) -> bool {
    let rules = input.rules;
    if input.stopped.get(name).is_some_and(|version| *version >= list.version)
        || rules.confirmed.get(name).is_some_and(|version| *version >= list.version)
    {
        return true;
    }
    let Some(pod) = input.pods.get(name) else { return false };
    if rules.reports {
        return pod.report.is_some_and(|report| report.version >= list.version && !report.has_others);
    }
    // Without reports: a Ready pod that was created after the list was written has read it.
    rules.refresh != RefreshPolicy::Restart || pod.ready && list.pod.as_ref() != Some(&pod.uid)
}

/// Returns true if the worker is Ready and runs the jobs of its current list.
pub fn runs_its_list(name: &str, list: &JobList, input: &HandoverInput<'_>) -> bool {
    let is_there = input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating);
    let by_hand = input.rules.confirmed.get(name).is_some_and(|version| *version >= list.version);
    let Some(pod) = input.pods.get(name).filter(|_| is_there) else { return false };
    if input.rules.reports && !by_hand {
        return pod.report.is_some_and(|report| report.version >= list.version && !report.has_others);
    }
    by_hand || input.rules.refresh != RefreshPolicy::Restart || list.pod.as_ref() != Some(&pod.uid)
}

/// Plans the next step.
pub fn plan_handover(input: &HandoverInput<'_>) -> HandoverPlan {
    let planner = Planner { input, runners: runners(input), version: input.published.version.saturating_add(1) };
    let mut plan = HandoverPlan::default();
    let names: BTreeSet<&String> = input.desired.keys().chain(input.published.lists.keys()).collect();
    for name in names {
        let list = input.published.lists.get(name);
        match (input.desired.get(name), list) {
            (None, Some(list)) if planner.is_removable(name, list) => {
                plan.lists.insert(name.clone(), None);
            }
            (jobs, list) => planner.plan_list(&mut plan, name, list, jobs.map_or(&[], Vec::as_slice)),
        }
    }
    plan.moving = planner.count_moving(&plan);
    plan_refresh(&mut plan, input);
    plan
}

/// Returns true if the pod of the worker runs according to the cache.
fn runs(name: &str, input: &HandoverInput<'_>) -> bool {
    input.pods.get(name).is_some_and(|pod| pod.runs)
}

/// Workers that may still run a job, for each job that some worker still has to get.
fn runners<'a>(input: &HandoverInput<'a>) -> HashMap<&'a str, Vec<&'a str>> {
    if input.rules.handover == HandoverPolicy::Immediate {
        return HashMap::new();
    }
    let gained = input.desired.iter().flat_map(|(name, jobs)| {
        let held = input.published.lists.get(name).map_or(&[][..], |list| &list.jobs);
        missing(jobs, held)
    });
    // In a converged pool this is empty, even with a million jobs.
    let mut runners: HashMap<&str, Vec<&str>> = gained.map(|job| (&**job, Vec::new())).collect();
    if runners.is_empty() {
        return runners;
    }
    for (name, list) in &input.published.lists {
        let released = has_released(name, list, input);
        let releasing = list.releasing.iter().filter(|_| !released);
        for job in list.jobs.iter().map(|job| &job.name).chain(releasing) {
            if let Some(of) = runners.get_mut(&**job) {
                of.push(name);
            }
        }
    }
    runners
}

/// Plans the job lists.
struct Planner<'a> {
    input: &'a HandoverInput<'a>,
    /// Workers that may still run each job that has to move.
    runners: HashMap<&'a str, Vec<&'a str>>,
    /// Version for the lists that change.
    version: i64,
}

impl Planner<'_> {
    /// Returns true if the entry of a worker that no longer gets jobs can be removed.
    fn is_removable(&self, name: &str, list: &JobList) -> bool {
        let input = self.input;
        let has_nothing = list.jobs.is_empty() && (list.releasing.is_empty() || has_released(name, list, input));
        !input.pods.contains_key(name) && (input.rules.handover == HandoverPolicy::Immediate || has_nothing)
    }

    /// Workers other than `name` that may still run this job.
    fn others(&self, job: &str, name: &str) -> impl Iterator<Item = &str> {
        self.runners.get(job).into_iter().flatten().copied().filter(move |worker| *worker != name)
    }

    /// Plans the list of one worker.
    fn plan_list(&self, plan: &mut HandoverPlan, name: &String, current: Option<&JobList>, jobs: &[Arc<str>]) {
        let (input, empty) = (self.input, JobList::default());
        let old = current.unwrap_or(&empty);
        let (mut list, mut blocked) = (Vec::with_capacity(jobs.len()), Vec::new());
        let mut listed = old.jobs.iter().peekable();
        for job in jobs {
            while listed.next_if(|held| held.name < *job).is_some() {}
            match listed.next_if(|held| held.name == *job) {
                Some(held) => list.push(held.clone()),
                None if self.others(job, name).next().is_some() => blocked.push(job),
                None => list.push(ListedJob { name: Arc::clone(job), since: self.version }),
            }
        }
        plan.waiting += blocked.len();
        if !blocked.is_empty() && list.iter().any(|job| job.since == self.version) {
            // Each change of a list costs a restart or a reload: free jobs wait for jobs that become free soon.
            if let Some(due) = self.wait_until(name, &blocked).filter(|due| *due > input.now) {
                plan.due = Some(plan.due.map_or(due, |earlier| earlier.min(due)));
                list.retain(|job| job.since != self.version);
            }
        }
        let released = has_released(name, old, input);
        if current.is_some() && list == old.jobs {
            if !old.releasing.is_empty() && !runs(name, input) && !released {
                plan.verify.insert(name.clone());
            }
            return;
        }
        if current.is_none() && list.is_empty() {
            // The worker is new and has no jobs, so there is nothing to read.
            plan.lists.insert(name.clone(), Some(JobList::default()));
            return;
        }
        let mut releasing = if released { BTreeSet::new() } else { old.releasing.clone() };
        if input.rules.handover == HandoverPolicy::Strict {
            releasing.extend(missing(&old.jobs, &list).map(|job| Arc::clone(&job.name)));
        }
        for job in &list {
            releasing.remove(&job.name);
        }
        let pod = input.pods.get(name).map(|pod| pod.uid.clone());
        plan.lists.insert(name.clone(), Some(JobList { version: self.version, jobs: list, releasing, pod }));
    }

    /// Time until which a worker waits for jobs that others still have: the patience of the pool after the latest list
    /// change of those others.
    fn wait_until(&self, name: &str, blocked: &[&Arc<str>]) -> Option<Timestamp> {
        let blocking: BTreeSet<&str> = blocked.iter().flat_map(|job| self.others(job, name)).collect();
        let published = self.input.published;
        let since = blocking.into_iter().filter_map(|worker| {
            let list = published.lists.get(worker)?;
            // This worker has not been asked to release its job yet, so the wait starts now.
            if list.releasing.is_empty() {
                return Some(self.input.now);
            }
            published.changes.get(&list.version).map(|change| change.at)
        });
        since.max().and_then(|since| since.checked_add(self.input.rules.patience).ok())
    }

    /// Number of jobs that this plan removes from a worker and that are assigned to another one.
    fn count_moving(&self, plan: &HandoverPlan) -> usize {
        let lists = &self.input.published.lists;
        let changes = plan.lists.iter().filter_map(|(name, list)| {
            let new = list.as_ref().map_or(&[][..], |list| list.jobs.as_slice());
            Some((&lists.get(name)?.jobs, new))
        });
        let lost: Vec<&ListedJob> = changes.flat_map(|(old, new)| missing(old, new)).collect();
        if lost.is_empty() {
            return 0;
        }
        let wanted: HashSet<&str> = self.input.desired.values().flatten().map(AsRef::as_ref).collect();
        lost.into_iter().filter(|job| wanted.contains(&*job.name)).count()
    }
}

/// Jobs of the first list that the second does not contain. Both are sorted.
fn missing<'a, A: AsRef<str>, B: AsRef<str>>(jobs: &'a [A], others: &'a [B]) -> impl Iterator<Item = &'a A> {
    let mut others = others.iter().peekable();
    jobs.iter().filter(move |job| {
        let job = (*job).as_ref();
        while others.next_if(|other| (*other).as_ref() < job).is_some() {}
        others.peek().is_none_or(|other| (*other).as_ref() != job)
    })
}

/// Job lists for a pool whose workers may have read lists that the operator did not write. Every worker has to confirm
/// its list again, and every worker is assumed to run the jobs that are on no list.
pub fn confirm_all(input: &HandoverInput<'_>) -> Published {
    let mut next = input.published.clone();
    next.version += 1;
    next.changes
        .insert(next.version, ListChange { at: input.now, why: "ConfigMaps were edited or deleted".to_owned() });
    let listed: HashSet<Arc<str>> =
        next.lists.values().flat_map(|list| &list.jobs).map(|job| Arc::clone(&job.name)).collect();
    let unlisted = || input.desired.values().flatten().filter(|job| !listed.contains(*job)).cloned();
    for name in input.pods.keys() {
        next.lists.entry(name.clone()).or_default();
    }
    for (name, list) in &mut next.lists {
        list.version = next.version;
        list.releasing.extend(unlisted());
        list.pod = input.pods.get(name).map(|pod| pod.uid.clone());
    }
    next.edited = false;
    next
}

/// Plans the annotations or evictions that make workers read their lists.
fn plan_refresh(plan: &mut HandoverPlan, input: &HandoverInput<'_>) {
    // Only lists that are already published: those that this plan changes follow after the write.
    let unchanged = || input.published.lists.iter().filter(|(name, _)| !plan.lists.contains_key(*name));
    match input.rules.refresh {
        RefreshPolicy::None => {}
        RefreshPolicy::HotReload => {
            let due = unchanged().filter_map(|(name, list)| {
                let pod = input.pods.get(name).filter(|pod| !pod.terminating)?;
                // A worker that never had a job has nothing to read.
                let is_due = list.version > 0
                    && (pod.annotated_version != Some(list.version) || pod.must_annotate_again)
                    && !runs_its_list(name, list, input);
                is_due.then(|| (name.clone(), list.version))
            });
            plan.annotate = due.collect();
        }
        RefreshPolicy::Restart => {
            let due: Vec<(&String, &JobList, &WorkerPod)> = unchanged()
                .filter_map(|(name, list)| Some((name, list, input.pods.get(name)?)))
                .filter(|(name, list, pod)| {
                    let stale = pod.outdated || list.pod.as_ref() == Some(&pod.uid);
                    stale && !pod.terminating && !runs_its_list(name, list, input)
                })
                .collect();
            plan.restart = restarts(due, input);
        }
    }
}

/// Selects the pods to restart now, at most as many as may be unavailable. Workers that have to release jobs come
/// first.
fn restarts(mut due: Vec<(&String, &JobList, &WorkerPod)>, input: &HandoverInput<'_>) -> Vec<(String, Uid)> {
    let is_available = |name: &String| input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating);
    let unavailable = input.desired.keys().filter(|name| !is_available(name)).count();
    let mut allowed = input.rules.max_unavailable.saturating_sub(unavailable);
    due.sort_by_key(|(name, list, _)| (list.releasing.is_empty(), list.version, (*name).clone()));
    let mut restarts = Vec::new();
    for (name, _, pod) in due {
        // Restarting a pod that is not Ready makes nothing less available.
        if pod.ready {
            if allowed == 0 {
                continue;
            }
            allowed -= 1;
        }
        restarts.push((name.clone(), pod.uid.clone()));
    }
    restarts
}
