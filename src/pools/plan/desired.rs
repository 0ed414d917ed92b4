//! The desired assignment: which worker should have which job, with as few moves as possible.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::assign::{AssignmentRules, JobAssignment, reassign};
use super::file::{JobKind, Published};
use super::jobs::JobTable;
use super::workers::PoolWorkers;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::PoolChange;
use ganglion_core::facts::PodFact;
use ganglion_core::words::counted;

/// Maximum length of the description of a change, in characters.
const MAX_DESCRIPTION: usize = 200;

/// Job names of each worker, by pod name.
pub type JobNames = BTreeMap<String, Vec<Arc<str>>>;

/// Desired assignment of all jobs.
pub struct DesiredAssignment {
    pub table: Arc<JobTable>,
    /// Desired jobs of each worker. Jobs of a slot that waits for a pod are not in it.
    pub lists: JobNames,
    /// Jobs of slots that wait for a pod.
    pub reserved: BTreeSet<Arc<str>>,
    /// Jobs without a worker, because all workers have the maximum number of jobs.
    pub unassigned: Vec<Arc<str>>,
    /// Number of dedicated jobs that share a worker.
    pub sharing: usize,
}

/// Last assignment of this process, from which the next one moves as few jobs as possible.
#[derive(Default)]
pub struct AssignmentMemory {
    last: Option<LastAssignment>,
    /// Slots of the last assignment that was acted on.
    pub slots: BTreeSet<u32>,
    /// Inputs of the last assignment that changed a list; the next change is described by the difference.
    inputs: Option<AssignmentInputs>,
    /// Last change of the assignment.
    pub change: Option<AssignmentChange>,
    /// Table and version of the lists beside which the kinds of all jobs are recorded.
    pub recorded: Option<(Arc<JobTable>, i64)>,
}

/// A change of the assignment, which may take several versions of the lists.
pub struct AssignmentChange {
    pub change: PoolChange,
    /// Number of jobs that it moves.
    pub moved: usize,
}

/// The last computed assignment, with its inputs.
struct LastAssignment {
    table: Arc<JobTable>,
    slots: Vec<u32>,
    rules: AssignmentRules,
    assignment: Arc<JobAssignment>,
}

/// Inputs of an assignment, kept to describe the next change.
struct AssignmentInputs {
    workers: usize,
    drained: BTreeSet<String>,
    table: Arc<JobTable>,
}

impl AssignmentInputs {
    /// Describes what changed since `old`; None if nothing did.
    fn difference(&self, old: &Self) -> Option<String> {
        let mut changes = Vec::new();
        if old.workers != self.workers {
            changes.push(format!("{} to {}", old.workers, counted(self.workers, "worker")));
        }
        let drained: Vec<&str> = self.drained.difference(&old.drained).map(String::as_str).collect();
        if !drained.is_empty() {
            changes.push(format!("{} drained", drained.join(", ")));
        }
        let back: Vec<&str> = old.drained.difference(&self.drained).map(String::as_str).collect();
        if !back.is_empty() {
            changes.push(format!("{} no longer drained", back.join(", ")));
        }
        let (before, after) = (&old.table.jobs, &self.table.jobs);
        if before.len() != after.len() {
            changes.push(format!("{} to {}", before.len(), counted(after.len(), "job")));
        } else if !Arc::ptr_eq(&old.table, &self.table) && before != after {
            changes.push("jobs changed".to_owned());
        }
        (!changes.is_empty()).then(|| changes.join(", ").chars().take(MAX_DESCRIPTION).collect())
    }
}

/// Inputs of [`AssignmentMemory::describe_change`].
#[derive(Clone, Copy)]
pub struct ChangeInputs<'a> {
    pub workers: &'a PoolWorkers,
    pub table: &'a Arc<JobTable>,
    pub pods: &'a BTreeMap<String, PodFact>,
    /// Lists that are published before the change.
    pub published: &'a Published,
    /// Version of the changed lists.
    pub version: i64,
    pub now: Timestamp,
}

impl AssignmentMemory {
    /// Assigns the jobs to the slots. Computed again only if jobs, slots or rules changed.
    pub fn desired(
        &mut self,
        pool: &SwarmPool,
        table: Arc<JobTable>,
        workers: &PoolWorkers,
        published: Option<&Published>,
    ) -> DesiredAssignment {
        let spec = pool.spec.assignment.clone().unwrap_or_default();
        let max_jobs = spec.max_jobs_per_worker.and_then(|most| usize::try_from(most).ok());
        let rules = AssignmentRules { strategy: spec.strategy, max_jobs };
        let slots: Vec<u32> = workers.slots.keys().copied().collect();
        // The table is merged again after any change of the pool or of a source.
        let is_current = |last: &LastAssignment| {
            let has_same_jobs = Arc::ptr_eq(&last.table, &table) || last.table.jobs == table.jobs;
            has_same_jobs && last.slots == slots && last.rules == rules
        };
        let assignment = match &self.last {
            Some(last) if is_current(last) => Arc::clone(&last.assignment),
            _ => {
                let previous = self.previous_workers(&table, workers, published);
                Arc::new(reassign(&table.jobs, &slots, rules, &previous))
            }
        };
        let desired = split_by_worker(workers, &table, &assignment);
        self.last = Some(LastAssignment { table, slots, rules, assignment });
        desired
    }

    /// Previous worker of each job, as an index into the slots. Taken from the last assignment of this process, whose
    /// handover may still be running; without one, from the published lists. These are None if somebody else may have
    /// edited them.
    fn previous_workers(
        &self,
        table: &JobTable,
        workers: &PoolWorkers,
        published: Option<&Published>,
    ) -> Vec<Option<u32>> {
        let mut previous = vec![None; table.jobs.len()];
        let indices: HashMap<u32, u32> = workers.slots.keys().copied().zip(0..).collect();
        let mut set = |name: &str, slot: u32| {
            if let Some(worker) = table.index_of(name).and_then(|at| previous.get_mut(at)) {
                *worker = indices.get(&slot).copied();
            }
        };
        if let Some(last) = &self.last {
            for (job, owner) in last.table.jobs.iter().zip(&last.assignment.owner) {
                if let Some(slot) = owner.and_then(|owner| last.slots.get(usize::try_from(owner).ok()?)) {
                    set(&job.name, *slot);
                }
            }
        } else if let Some(published) = published {
            for (slot, name) in workers.slots.iter().filter_map(|(slot, name)| Some((*slot, name.as_ref()?))) {
                for job in published.lists.get(name).iter().flat_map(|list| &list.jobs) {
                    set(&job.name, slot);
                }
            }
        }
        previous
    }

    /// Describes what changed since the last assignment that changed a list, and records the new one. `moving`: number
    /// of jobs that move now.
    pub fn describe_change(&mut self, pool: &SwarmPool, inputs: ChangeInputs<'_>, moving: usize) -> String {
        let drained = pool.spec.drain.iter().flatten().filter(|name| inputs.pods.contains_key(*name));
        let new = AssignmentInputs {
            workers: inputs.workers.slots.len(),
            drained: drained.cloned().collect(),
            table: Arc::clone(inputs.table),
        };
        let difference = match &self.inputs {
            Some(old) => new.difference(old),
            None if inputs.published.lists.is_empty() => Some("first deal".to_owned()),
            None => None,
        };
        self.inputs = Some(new);
        match (difference, &mut self.change) {
            (None, Some(change)) => {
                change.moved += moving;
                "handover continues".to_owned()
            }
            (None, None) if moving == 0 => "handover continues".to_owned(),
            (difference, change) => {
                let why = difference.unwrap_or_else(|| "jobs or workers changed".to_owned());
                let described = PoolChange { at: Time(inputs.now), version: inputs.version, why: why.clone() };
                *change = Some(AssignmentChange { change: described, moved: moving });
                why
            }
        }
    }
}

/// Records the weight and kind of jobs beside the lists, so that these suffice to assign them if a source cannot be
/// read.
pub fn record_kinds(lists: &mut Published, table: &JobTable) {
    let has_special = table.jobs.iter().any(|job| JobKind::from(job) != JobKind::ORDINARY);
    for list in lists.lists.values_mut() {
        if !has_special && list.kinds.is_empty() && list.releasing.is_empty() {
            continue;
        }
        let mut kinds = BTreeMap::new();
        for job in &list.jobs {
            let kind = table.get(&job.name).map(JobKind::from).or_else(|| list.kinds.get(&job.name).copied());
            kinds.extend(kind.filter(|kind| *kind != JobKind::ORDINARY).map(|kind| (Arc::clone(&job.name), kind)));
        }
        for job in list.releasing.keys() {
            kinds.extend(table.get(job).map(|found| (Arc::clone(job), found.into())));
        }
        list.kinds = kinds;
    }
}

/// Splits the assignment into the jobs of each worker, those of slots that wait for a pod, and those without a worker.
fn split_by_worker(workers: &PoolWorkers, table: &Arc<JobTable>, assignment: &JobAssignment) -> DesiredAssignment {
    let names: Vec<Option<&String>> = workers.slots.values().map(Option::as_ref).collect();
    let mut lists: Vec<Vec<Arc<str>>> = names.iter().map(|_| Vec::new()).collect();
    let mut unassigned = Vec::new();
    for (job, owner) in table.jobs.iter().zip(&assignment.owner) {
        match owner.and_then(|owner| lists.get_mut(usize::try_from(owner).ok()?)) {
            Some(list) => list.push(Arc::clone(&job.name)),
            // Without any slot, all jobs wait for the first worker.
            None if names.is_empty() => {}
            None => unassigned.push(Arc::clone(&job.name)),
        }
    }
    let (mut named, mut reserved) = (JobNames::new(), BTreeSet::new());
    for (name, list) in names.into_iter().zip(lists) {
        match name {
            Some(name) => drop(named.insert(name.clone(), list)),
            None => reserved.extend(list),
        }
    }
    DesiredAssignment { table: Arc::clone(table), lists: named, reserved, unassigned, sharing: assignment.sharing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Job;

    #[test]
    fn an_assignment_is_kept_while_its_inputs_are_the_same() {
        let spec = json!({
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
            "jobs": {"inline": []}, "output": {"configMap": "lists"},
        });
        let pool = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": {}, "spec": spec});
        let pool: SwarmPool = serde_json::from_value(pool).unwrap();
        let workers = PoolWorkers { slots: [(0, None), (1, None)].into(), ..PoolWorkers::default() };
        let mut memory = AssignmentMemory::default();
        let mut assign = |weight: u32| {
            let jobs = [("a", 1), ("b", weight)];
            let jobs = jobs.map(|(name, weight)| Job { name: name.into(), weight, dedicated: false }).into();
            let table = Arc::new(JobTable { jobs, ..JobTable::default() });
            memory.desired(&pool, table, &workers, None);
            memory.last.as_ref().map(|last| Arc::clone(&last.assignment)).unwrap()
        };
        let first = assign(2);
        assert!(Arc::ptr_eq(&first, &assign(2)), "merged again");
        assert!(!Arc::ptr_eq(&first, &assign(3)));
    }
}
