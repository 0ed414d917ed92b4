//! What is written next, so that every worker ends with the jobs that the deal gives it, and no two workers have one job.
//!
//! | step | what | until |
//! |---|---|---|
//! | release | a job leaves the list of its worker, and is recorded as being released by it | the worker has stopped it: it reports the version, or does not run any more, which is read from the API server after the version was written |
//! | give | the job enters the list of its new worker | that worker reports the version |
//!
//! Everything that a step needs is in the ConfigMaps, so that a crash between any two writes loses nothing. With the handover
//! Immediate, both steps are one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::file::{HeldJob, Holding, ListChange, Published};
use ganglion_api::swarm_pool::handover::{HandoverPolicy, RefreshPolicy};

/// What a worker reported of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// The version that it works by.
    pub version: i64,
    /// It still runs a job that its list does not have.
    pub has_others: bool,
}

/// The pod of a worker, as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPod {
    pub uid: String,
    /// It is bound to a node, and has not ended.
    pub runs: bool,
    pub ready: bool,
    pub terminating: bool,
    /// It was not restarted for its list, and goes on reporting an older version.
    pub outdated: bool,
    /// The version that it was annotated with.
    pub told: Option<i64>,
    /// It was told long ago, and has not confirmed: its kubelet may not have had the new file by then.
    pub deaf: bool,
    pub report: Option<WorkerReport>,
}

/// How jobs move.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoverRules {
    pub handover: HandoverPolicy,
    pub refresh: RefreshPolicy,
    pub max_unavailable: usize,
    /// Workers report versions.
    pub reports: bool,
    /// Confirmations by hand, by worker.
    pub confirmed: BTreeMap<String, i64>,
    /// How long a worker that is to get several jobs waits for those that others still have.
    pub patience: SignedDuration,
}

/// What the plan is made from.
#[derive(Clone, Debug)]
pub struct HandoverInput<'a> {
    pub published: &'a Published,
    /// The jobs of each worker by the deal, sorted by name.
    pub target: &'a BTreeMap<String, Vec<Arc<str>>>,
    /// The pods of the workload, by name; no entry for one that does not exist.
    pub pods: &'a BTreeMap<String, WorkerPod>,
    /// Workers that did not run when the API server was asked, by the version of their list at that time.
    pub stopped: &'a BTreeMap<String, i64>,
    pub rules: &'a HandoverRules,
    pub now: Timestamp,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandoverPlan {
    /// The lists that change; None: the worker is gone, and its entry with it.
    pub lists: BTreeMap<String, Option<Holding>>,
    /// Workers that do not run, it seems, and have something to release: the API server is asked.
    pub verify: BTreeSet<String>,
    /// Pods to be annotated with the version of their list.
    pub tell: BTreeMap<String, i64>,
    /// Pods to be evicted: name and uid.
    pub restart: Vec<(String, String)>,
    /// How many jobs leave their workers for others by this plan.
    pub moving: usize,
    /// How many jobs wait for workers that have not released them.
    pub waiting: usize,
    /// When a worker that waits for several jobs takes those that there are.
    pub due: Option<Timestamp>,
}

/// Whether the worker has stopped everything that its list took from it.
#[must_use]
pub fn has_released(name: &str, holding: &Holding, input: &HandoverInput<'_>) -> bool {
    let rules = input.rules;
    if input.stopped.get(name).is_some_and(|version| *version >= holding.version)
        || rules.confirmed.get(name).is_some_and(|version| *version >= holding.version)
    {
        return true;
    }
    let Some(pod) = input.pods.get(name) else { return false };
    if rules.reports {
        return pod.report.is_some_and(|report| report.version >= holding.version && !report.has_others);
    }
    // A pod that was not there when the list was written has read it, if it is Ready.
    rules.refresh != RefreshPolicy::Restart || pod.ready && holding.pod.as_deref() != Some(&pod.uid)
}

/// Whether the worker works by its list.
#[must_use]
pub fn follows(name: &str, holding: &Holding, input: &HandoverInput<'_>) -> bool {
    let is_there = input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating);
    let by_hand = input.rules.confirmed.get(name).is_some_and(|version| *version >= holding.version);
    let Some(pod) = input.pods.get(name).filter(|_| is_there) else { return false };
    if input.rules.reports && !by_hand {
        return pod.report.is_some_and(|report| report.version >= holding.version && !report.has_others);
    }
    by_hand || input.rules.refresh != RefreshPolicy::Restart || holding.pod.as_deref() != Some(&pod.uid)
}

/// The next step.
#[must_use]
pub fn plan(input: &HandoverInput<'_>) -> HandoverPlan {
    let planner = Planner { input, holders: holders(input), version: input.published.version.saturating_add(1) };
    let mut plan = HandoverPlan::default();
    let names: BTreeSet<&String> = input.target.keys().chain(input.published.holdings.keys()).collect();
    for name in names {
        let holding = input.published.holdings.get(name);
        match (input.target.get(name), holding) {
            (None, Some(holding)) if planner.is_over(name, holding) => drop(plan.lists.insert(name.clone(), None)),
            (jobs, holding) => planner.list(&mut plan, name, holding, jobs.map_or(&[], Vec::as_slice)),
        }
    }
    plan.moving = planner.moving(&plan);
    refresh(&mut plan, input);
    plan
}

/// Whether the worker runs, as far as is known.
fn runs(name: &str, input: &HandoverInput<'_>) -> bool {
    input.pods.get(name).is_some_and(|pod| pod.runs)
}

/// The workers that may have each of the jobs that some worker is to get.
fn holders<'a>(input: &HandoverInput<'a>) -> HashMap<&'a str, Vec<&'a str>> {
    if input.rules.handover == HandoverPolicy::Immediate {
        return HashMap::new();
    }
    let gained = input.target.iter().flat_map(|(name, jobs)| {
        let held = input.published.holdings.get(name).map_or(&[][..], |holding| &holding.jobs);
        missing(jobs, held)
    });
    // Of a pool that is as it should be, with a million jobs, this is empty.
    let mut holders: HashMap<&str, Vec<&str>> = gained.map(|job| (&**job, Vec::new())).collect();
    if holders.is_empty() {
        return holders;
    }
    for (name, holding) in &input.published.holdings {
        let released = has_released(name, holding, input);
        let releasing = holding.releasing.iter().filter(|_| !released);
        for job in holding.jobs.iter().map(|job| &job.name).chain(releasing) {
            if let Some(of) = holders.get_mut(&**job) {
                of.push(name);
            }
        }
    }
    holders
}

/// Plans lists.
struct Planner<'a> {
    input: &'a HandoverInput<'a>,
    /// The workers that may have each job.
    holders: HashMap<&'a str, Vec<&'a str>>,
    /// The version that changed lists get.
    version: i64,
}

impl Planner<'_> {
    /// Whether a worker that takes no part any more can be forgotten.
    fn is_over(&self, name: &str, holding: &Holding) -> bool {
        let input = self.input;
        let has_nothing =
            holding.jobs.is_empty() && (holding.releasing.is_empty() || has_released(name, holding, input));
        !input.pods.contains_key(name) && (input.rules.handover == HandoverPolicy::Immediate || has_nothing)
    }

    /// The others that may have this job.
    fn others(&self, job: &str, name: &str) -> impl Iterator<Item = &str> {
        self.holders.get(job).into_iter().flatten().copied().filter(move |worker| *worker != name)
    }

    /// Plans the list of one worker.
    fn list(&self, plan: &mut HandoverPlan, name: &String, holding: Option<&Holding>, jobs: &[Arc<str>]) {
        let (input, empty) = (self.input, Holding::default());
        let old = holding.unwrap_or(&empty);
        let (mut list, mut blocked) = (Vec::with_capacity(jobs.len()), Vec::new());
        let mut known = old.jobs.iter().peekable();
        for job in jobs {
            while known.next_if(|held| held.name < *job).is_some() {}
            match known.next_if(|held| held.name == *job) {
                Some(held) => list.push(held.clone()),
                None if self.others(job, name).next().is_some() => blocked.push(job),
                None => list.push(HeldJob { name: Arc::clone(job), since: self.version }),
            }
        }
        plan.waiting += blocked.len();
        if !blocked.is_empty() && list.iter().any(|job| job.since == self.version) {
            // Each change of a list is a restart or a reload: what is free waits for what is about to be.
            if let Some(due) = self.patience(name, &blocked).filter(|due| *due > input.now) {
                plan.due = Some(plan.due.map_or(due, |known| known.min(due)));
                list.retain(|job| job.since != self.version);
            }
        }
        let released = has_released(name, old, input);
        if holding.is_some() && list == old.jobs {
            if !old.releasing.is_empty() && !runs(name, input) && !released {
                plan.verify.insert(name.clone());
            }
            return;
        }
        if holding.is_none() && list.is_empty() {
            // It has nothing to read.
            plan.lists.insert(name.clone(), Some(Holding::default()));
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
        plan.lists.insert(name.clone(), Some(Holding { version: self.version, jobs: list, releasing, pod }));
    }

    /// Until when a worker waits for these jobs, which others still have: some time after the last of them had to release jobs.
    fn patience(&self, name: &str, blocked: &[&Arc<str>]) -> Option<Timestamp> {
        let blocking: BTreeSet<&str> = blocked.iter().flat_map(|job| self.others(job, name)).collect();
        let published = self.input.published;
        let since = blocking.into_iter().filter_map(|worker| {
            let holding = published.holdings.get(worker)?;
            // What is only about to leave it has not been waited for at all.
            if holding.releasing.is_empty() {
                return Some(self.input.now);
            }
            published.changes.get(&holding.version).map(|change| change.at)
        });
        since.max().and_then(|since| since.checked_add(self.input.rules.patience).ok())
    }

    /// How many jobs leave a worker by this plan and are for another one.
    fn moving(&self, plan: &HandoverPlan) -> usize {
        let holdings = &self.input.published.holdings;
        let changes = plan.lists.iter().filter_map(|(name, list)| {
            let new = list.as_ref().map_or(&[][..], |list| list.jobs.as_slice());
            Some((&holdings.get(name)?.jobs, new))
        });
        let lost: Vec<&HeldJob> = changes.flat_map(|(old, new)| missing(old, new)).collect();
        if lost.is_empty() {
            return 0;
        }
        let wanted: HashSet<&str> = self.input.target.values().flatten().map(AsRef::as_ref).collect();
        lost.into_iter().filter(|job| wanted.contains(&*job.name)).count()
    }
}

/// The jobs of the first list that the second does not have; both are sorted.
fn missing<'a, A: AsRef<str>, B: AsRef<str>>(jobs: &'a [A], others: &'a [B]) -> impl Iterator<Item = &'a A> {
    let mut others = others.iter().peekable();
    jobs.iter().filter(move |job| {
        let job = (*job).as_ref();
        while others.next_if(|other| (*other).as_ref() < job).is_some() {}
        others.peek().is_none_or(|other| (*other).as_ref() != job)
    })
}

/// The lists for a pool whose workers may have read something that was not written here: every worker has to confirm its list
/// anew, and a job that is in no list may be with any of them.
#[must_use]
pub fn distrusted(input: &HandoverInput<'_>, now: Timestamp) -> Published {
    let mut lists = input.published.clone();
    lists.version += 1;
    lists.changes.insert(lists.version, ListChange { at: now, why: "lists were changed by somebody else".to_owned() });
    let listed: HashSet<Arc<str>> =
        lists.holdings.values().flat_map(|holding| &holding.jobs).map(|job| Arc::clone(&job.name)).collect();
    let unlisted = || input.target.values().flatten().filter(|job| !listed.contains(*job)).cloned();
    for name in input.pods.keys() {
        lists.holdings.entry(name.clone()).or_default();
    }
    for (name, holding) in &mut lists.holdings {
        holding.version = lists.version;
        holding.releasing.extend(unlisted());
        holding.pod = input.pods.get(name).map(|pod| pod.uid.clone());
    }
    lists.edited = false;
    lists
}

/// Plans what has workers read their lists.
fn refresh(plan: &mut HandoverPlan, input: &HandoverInput<'_>) {
    // Lists that change now are told of, and read, when they have been written.
    let settled = || input.published.holdings.iter().filter(|(name, _)| !plan.lists.contains_key(*name));
    match input.rules.refresh {
        RefreshPolicy::None => {}
        RefreshPolicy::HotReload => {
            let due = settled().filter_map(|(name, holding)| {
                let pod = input.pods.get(name).filter(|pod| !pod.terminating)?;
                // One that has had no list yet has nothing to read.
                let is_due = holding.version > 0
                    && (pod.told != Some(holding.version) || pod.deaf)
                    && !follows(name, holding, input);
                is_due.then(|| (name.clone(), holding.version))
            });
            plan.tell = due.collect();
        }
        RefreshPolicy::Restart => {
            let due: Vec<(&String, &Holding, &WorkerPod)> = settled()
                .filter_map(|(name, holding)| Some((name, holding, input.pods.get(name)?)))
                .filter(|(name, holding, pod)| {
                    let stale = pod.outdated || holding.pod.as_deref() == Some(&pod.uid);
                    stale && !pod.terminating && !follows(name, holding, input)
                })
                .collect();
            plan.restart = restarts(due, input);
        }
    }
}

/// The pods that are restarted now: those first that others wait for, and never more than may be unavailable.
fn restarts(mut due: Vec<(&String, &Holding, &WorkerPod)>, input: &HandoverInput<'_>) -> Vec<(String, String)> {
    let is_available = |name: &String| input.pods.get(name).is_some_and(|pod| pod.ready && !pod.terminating);
    let unavailable = input.target.keys().filter(|name| !is_available(name)).count();
    let mut allowed = input.rules.max_unavailable.saturating_sub(unavailable);
    due.sort_by_key(|(name, holding, _)| (holding.releasing.is_empty(), holding.version, (*name).clone()));
    let mut restarts = Vec::new();
    for (name, _, pod) in due {
        // One that is not Ready cannot become less available.
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
