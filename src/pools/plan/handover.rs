//! Plans the handover: the next job lists to write, so that every worker ends with its assigned jobs and no two workers
//! run the same job.
//!
//! 1. Release: the job is removed from the list of its old worker and recorded as releasing. The step ends when the
//!    worker has stopped the job: it reports the version of that list, or a read from the API server after the write
//!    shows that its pod does not run.
//! 2. Give: the job is added to the list of its new worker. The step ends when that worker reports the version.
//!
//! All state of a step is in the ConfigMaps, so a crash between any two writes loses nothing. Both steps are one write:
//!
//! - for jobs that no worker has, such as those of the first assignment
//! - for jobs of a worker that is gone for certain: a read from the API server does not find its pod, and no later pod
//!   has its name ([`HandoverRules::names_return`])
//! - with the handover policy Immediate

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::file::{JobList, ListChange, ListRequest, ListedJob, MAX_VERSION, Published, prune};
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
    /// true: a later pod may have the name of one that is gone, and reads the list of that name (StatefulSet).
    pub names_return: bool,
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
    /// Workers whose pod was looked for by a live read. true: it did not exist, or had finished.
    pub gone: &'a BTreeMap<String, bool>,
    /// Jobs of slots that wait for a pod.
    pub reserved: &'a BTreeSet<Arc<str>>,
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

/// Largest version that a worker reports or a user confirms above which the next version begins. Nothing counts that
/// far, and versions above it are left.
const MAX_FOREIGN: i64 = MAX_VERSION / 2;

/// Version of the next lists. Numbers that this pool has not written yet but that workers report, that pods are
/// annotated with, or that are in `spec.handover.confirmed`, are skipped: they come from another pool or from before a
/// restore, so no list may ever have them.
pub fn next_version(input: &HandoverInput<'_>) -> i64 {
    let confirmed = input.rules.confirmed.values().copied();
    let marked = input.pods.values().flat_map(|pod| [pod.report.map(|report| report.version), pod.annotated_version]);
    let skipped = confirmed.chain(marked.flatten()).filter(|version| *version <= MAX_FOREIGN);
    skipped.fold(input.published.version, i64::max).saturating_add(1)
}

/// Returns true if the worker no longer exists and no later pod has its name.
fn is_gone(name: &str, input: &HandoverInput<'_>) -> bool {
    !input.rules.names_return && input.gone.get(name) == Some(&true) && !input.pods.contains_key(name)
}

/// Latest version that the worker has confirmed: it has stopped all jobs that this version or an earlier one removes
/// from its list, by its own report, by a user, or because its pod does not run.
fn confirmed_version(name: &str, list: &JobList, input: &HandoverInput<'_>) -> Option<i64> {
    if is_gone(name, input) {
        return Some(i64::MAX);
    }
    let rules = input.rules;
    let by_user = rules.confirmed.get(name).copied().filter(|version| input.published.has_written(*version));
    let stopped = input.stopped.get(name).copied();
    by_user.max(stopped).max(input.pods.get(name).and_then(|pod| reported_version(pod, list, input)))
}

/// Latest version that the pod of a worker has read, by its report; or, if workers do not report, because of its uid.
fn reported_version(pod: &WorkerPod, list: &JobList, input: &HandoverInput<'_>) -> Option<i64> {
    if input.rules.reports {
        let report = pod.report.filter(|report| !report.has_others)?;
        return Some(report.version).filter(|version| input.published.has_written(*version));
    }
    // A Ready pod that was created after the list was written has read it.
    let has_read = input.rules.refresh != RefreshPolicy::Restart || pod.ready && list.pod.as_ref() != Some(&pod.uid);
    has_read.then_some(list.version)
}

/// Jobs that the worker may still run although they are not on its list.
pub fn unreleased<'a>(name: &str, list: &'a JobList, input: &HandoverInput<'_>) -> impl Iterator<Item = &'a Arc<str>> {
    let confirmed = if list.releasing.is_empty() { None } else { confirmed_version(name, list, input) };
    list.releasing.iter().filter(move |(_, removed)| Some(**removed) > confirmed).map(|(job, _)| job)
}

/// Returns true if the worker may run any job, because it has read a list that this pool did not write.
pub fn may_run_any(name: &str, list: &JobList, input: &HandoverInput<'_>) -> bool {
    list.unknown.is_some_and(|version| confirmed_version(name, list, input) < Some(version))
}

/// Returns true if the worker has stopped all jobs that were removed from its list.
pub fn has_released(name: &str, list: &JobList, input: &HandoverInput<'_>) -> bool {
    unreleased(name, list, input).next().is_none() && !may_run_any(name, list, input)
}

/// Returns true if the worker is Ready and runs the jobs of its current list.
pub fn runs_its_list(name: &str, list: &JobList, input: &HandoverInput<'_>) -> bool {
    let Some(pod) = input.pods.get(name).filter(|pod| pod.ready && !pod.terminating) else { return false };
    let by_user = input.rules.confirmed.get(name).copied().filter(|version| input.published.has_written(*version));
    by_user.max(reported_version(pod, list, input)) >= Some(list.version)
}

/// Time since which the pool has been waiting for the worker to confirm its list. It starts once: changes of the list
/// before the worker has confirmed the first of them do not start it again.
pub fn waiting_since(name: &str, list: &JobList, input: &HandoverInput<'_>) -> Option<Timestamp> {
    let first = list.asked.filter(|asked| confirmed_version(name, list, input) < Some(asked.version));
    if let Some(asked) = first {
        return Some(asked.at);
    }
    // Old changes are dropped: the next one that is recorded was made later than this list was written.
    let recorded = input.published.changes.range(list.version..).next().map(|(_, change)| change.at);
    recorded.or(list.asked.map(|asked| asked.at))
}

/// Plans the next step.
pub fn plan_handover(input: &HandoverInput<'_>) -> HandoverPlan {
    let is_strict = input.rules.handover == HandoverPolicy::Strict;
    let lists = input.published.lists.iter().filter(|_| is_strict);
    let unknown = lists.filter(|(name, list)| may_run_any(name, list, input)).map(|(name, _)| name.as_str()).collect();
    let planner = Planner { input, runners: runners(input), unknown, version: next_version(input) };
    let (mut plan, mut departed, mut new) = (HandoverPlan::default(), Vec::new(), Vec::new());
    let names: BTreeSet<&String> = input.desired.keys().chain(input.published.lists.keys()).collect();
    for name in names {
        match (input.desired.get(name), input.published.lists.get(name)) {
            (None, Some(list)) if planner.is_removable(name, list) => departed.push((name, list)),
            (None, Some(_)) if planner.may_be_gone(name) => {
                plan.verify.insert(name.clone());
            }
            (jobs, list) => {
                planner.plan_list(&mut plan, name, list, jobs.map_or(&[], Vec::as_slice));
                if list.is_none() && !plan.lists.contains_key(name) {
                    new.push(name.clone());
                }
            }
        }
    }
    planner.remove(&mut plan, departed);
    // A list without jobs is not worth a write of its own if a read may show that there are jobs for it.
    if !plan.lists.is_empty() || plan.verify.is_empty() {
        plan.lists.extend(new.into_iter().map(|name| (name, Some(JobList::default()))));
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
    for (name, list) in input.published.lists.iter().filter(|(name, _)| !is_gone(name, input)) {
        for job in list.jobs.iter().map(|job| &job.name).chain(unreleased(name, list, input)) {
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
    /// Workers that may run any job.
    unknown: Vec<&'a str>,
    /// Version for the lists that change.
    version: i64,
}

impl<'a> Planner<'a> {
    /// Returns true if the entry of a worker that no longer gets jobs can be removed.
    fn is_removable(&self, name: &str, list: &JobList) -> bool {
        let input = self.input;
        let has_nothing = list.jobs.is_empty() && has_released(name, list, input);
        let is_free = input.rules.handover == HandoverPolicy::Immediate || is_gone(name, input) || has_nothing;
        is_free && !input.pods.contains_key(name)
    }

    /// Returns true if a live read can show that the worker is gone for certain. Its jobs then move in one write.
    fn may_be_gone(&self, name: &str) -> bool {
        let HandoverInput { rules, pods, gone, .. } = self.input;
        !rules.names_return && !pods.contains_key(name) && !gone.contains_key(name)
    }

    /// Removes the entries of these workers. An entry stays while one of its jobs is on no other list although a worker
    /// gets it, or a slot that waits for its pod: otherwise nothing would record the job if its source became
    /// unreadable.
    fn remove(&self, plan: &mut HandoverPlan, departed: Vec<(&String, &JobList)>) {
        if departed.is_empty() {
            return;
        }
        let unplaced = self.unplaced(plan);
        for (name, list) in departed {
            let mut jobs = list.jobs.iter().map(|job| &job.name).chain(list.releasing.keys());
            if !jobs.any(|job| unplaced.contains(&**job)) {
                plan.lists.insert(name.clone(), None);
            }
        }
    }

    /// Jobs that a worker gets later than with this plan, or a slot that waits for its pod.
    fn unplaced(&self, plan: &HandoverPlan) -> HashSet<&'a str> {
        let input = self.input;
        let mut unplaced: HashSet<&str> = input.reserved.iter().map(AsRef::as_ref).collect();
        for (name, jobs) in input.desired {
            let list = plan.lists.get(name).and_then(Option::as_ref).or_else(|| input.published.lists.get(name));
            let held = list.map_or(&[][..], |list| &list.jobs);
            unplaced.extend(missing(jobs, held).map(AsRef::as_ref));
        }
        unplaced
    }

    /// Workers other than `name` that may still run this job.
    fn others(&self, job: &str, name: &str) -> impl Iterator<Item = &str> {
        let runners = self.runners.get(job).into_iter().flatten().chain(&self.unknown).copied();
        runners.filter(move |worker| *worker != name)
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
        if current.is_some() && list == old.jobs {
            if !runs(name, input) && !has_released(name, old, input) {
                plan.verify.insert(name.clone());
            }
            return;
        }
        if current.is_none() && list.is_empty() {
            // The worker is new and has no jobs, so there is nothing to read.
            return;
        }
        let pod = input.pods.get(name).map(|pod| pod.uid.clone());
        let (releasing, asked) = (self.releasing(name, old, &list), Some(self.asked(name, old)));
        let unknown = old.unknown.filter(|_| may_run_any(name, old, input));
        let kinds = old.kinds.clone();
        let new = JobList { version: self.version, jobs: list, releasing, asked, unknown, kinds, pod };
        plan.lists.insert(name.clone(), Some(new));
    }

    /// Jobs that the worker may still run when its list has these jobs.
    fn releasing(&self, name: &str, old: &JobList, jobs: &[ListedJob]) -> BTreeMap<Arc<str>, i64> {
        let unreleased = unreleased(name, old, self.input);
        let mut releasing: BTreeMap<Arc<str>, i64> =
            unreleased.filter_map(|job| Some((Arc::clone(job), *old.releasing.get(job)?))).collect();
        if self.input.rules.handover == HandoverPolicy::Strict {
            releasing.extend(missing(&old.jobs, jobs).map(|job| (Arc::clone(&job.name), self.version)));
        }
        for job in jobs {
            releasing.remove(&job.name);
        }
        releasing
    }

    /// The oldest change that the worker has not confirmed once its list is written again.
    fn asked(&self, name: &str, old: &JobList) -> ListRequest {
        let confirmed = confirmed_version(name, old, self.input);
        let first = old.asked.map_or(old.version, |asked| asked.version);
        // A worker without a list has nothing to confirm.
        if old.version == 0 || confirmed >= Some(first) {
            return ListRequest { version: self.version, at: self.input.now };
        }
        let since = || waiting_since(name, old, self.input).unwrap_or(self.input.now);
        old.asked.unwrap_or_else(|| ListRequest { version: first, at: since() })
    }

    /// Time until which a worker waits for jobs that others still have: the patience of the pool after the latest list
    /// change of those others.
    fn wait_until(&self, name: &str, blocked: &[&Arc<str>]) -> Option<Timestamp> {
        let blocking: BTreeSet<&str> = blocked.iter().flat_map(|job| self.others(job, name)).collect();
        let since = blocking.into_iter().filter_map(|worker| {
            let list = self.input.published.lists.get(worker)?;
            // This worker has not been asked to release its job yet, so the wait starts now.
            if list.releasing.is_empty() && list.unknown.is_none() {
                return Some(self.input.now);
            }
            waiting_since(worker, list, self.input)
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
fn missing<'a, A: AsRef<str>, B: AsRef<str>>(jobs: &'a [A], others: &[B]) -> impl Iterator<Item = &'a A> {
    let mut others = others.iter().peekable();
    jobs.iter().filter(move |job| {
        let job = (*job).as_ref();
        while others.next_if(|other| (*other).as_ref() < job).is_some() {}
        others.peek().is_none_or(|other| (*other).as_ref() != job)
    })
}

/// Job lists for a pool whose workers may have read lists that the operator did not write: every worker has to confirm
/// its list again, and may run any job until then.
pub fn confirm_all(input: &HandoverInput<'_>) -> Published {
    let names = input.pods.keys().chain(input.published.lists.keys());
    distrust(names, "ConfigMaps were edited, deleted or replaced", input)
}

/// Job lists for a pool of which some workers show by their report, or their pods by an annotation, that they have read
/// a list that this pool did not write: the list of an earlier pool, or one that a restore has undone. None if there
/// are no such workers, or they have been asked already.
pub fn confirm_foreign(input: &HandoverInput<'_>) -> Option<Published> {
    let is_foreign = |name: &String, pod: &WorkerPod| {
        let list = input.published.lists.get(name);
        let reported = pod.report.filter(|_| input.rules.reports).map(|report| report.version);
        // The annotation counts only before the first list of this pool, which replaces it.
        let annotated = pod.annotated_version.filter(|_| list.is_none_or(|list| list.version == 0));
        // Version 0 is that of a worker without a list.
        let is_other = |version: i64| version > 0 && !input.published.has_written(version);
        [reported, annotated].into_iter().flatten().any(is_other)
            && !list.is_some_and(|list| may_run_any(name, list, input))
    };
    let mut foreign = input.pods.iter().filter(|(name, pod)| is_foreign(name, pod)).map(|(name, _)| name).peekable();
    foreign.peek()?;
    Some(distrust(foreign, "workers have read lists that this pool did not write", input))
}

/// The published lists, with a new version that these workers have to confirm.
fn distrust<'a>(names: impl Iterator<Item = &'a String>, why: &str, input: &HandoverInput<'_>) -> Published {
    let mut next = input.published.clone();
    next.advance(next_version(input));
    next.changes.insert(next.version, ListChange { at: input.now, why: why.to_owned() });
    for name in names {
        let list = next.lists.entry(name.clone()).or_default();
        list.version = next.version;
        list.asked = Some(ListRequest { version: next.version, at: input.now });
        list.unknown = Some(next.version);
        list.releasing.values_mut().for_each(|removed| *removed = next.version);
        list.pod = input.pods.get(name).map(|pod| pod.uid.clone());
    }
    next.edited = false;
    prune(&mut next);
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
                let is_annotated = pod.annotated_version == Some(list.version);
                // A worker that does not report is annotated once: nothing shows whether it has read the list.
                let is_due = match input.rules.reports {
                    true => (!is_annotated || pod.must_annotate_again) && !runs_its_list(name, list, input),
                    false => !is_annotated,
                };
                // A worker that never had a job has nothing to read.
                (is_due && list.version > 0).then(|| (name.clone(), list.version))
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
