//! The workers of a pool: maps pods to slots, and selects the slots that get jobs.
//!
//! A slot is a number that outlives its pod. In a StatefulSet it is the ordinal. In a Deployment the pod is annotated
//! with it; when that pod terminates, a Ready pod without a slot takes it over.

use std::collections::{BTreeMap, BTreeSet};

use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_core::facts::PodFact;

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
pub struct Crew {
    /// Slots that get jobs, each with the name of its pod. A slot without a pod keeps its jobs for the next pod.
    pub slots: BTreeMap<u32, Option<String>>,
    /// Pods of a Deployment that must be annotated with a slot now.
    pub taking: Vec<(String, u32)>,
    /// Number of wanted workers that are Ready.
    pub ready: usize,
    /// Number of wanted workers, without drained ones.
    pub wanted: usize,
}

impl Crew {
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
pub fn crew(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> Crew {
    match workload.kind {
        PoolWorkloadKind::StatefulSet => ordinals(workload, pods, admission),
        PoolWorkloadKind::Deployment => numbers(workload, pods, admission),
    }
}

fn ordinals(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> Crew {
    let ready: BTreeSet<&str> = pods.iter().filter(|pod| pod.is_ready()).map(|pod| pod.id.key.name.as_str()).collect();
    let name = |slot: u32| format!("{}-{}", workload.name, i64::from(workload.first_ordinal) + i64::from(slot));
    let wanted = (0..workload.replicas).map(|slot| (slot, name(slot)));
    let wanted: Vec<_> = wanted.filter(|(_, name)| !admission.is_drained(name)).collect();
    let is_ready = |name: &str| ready.contains(name);
    let mut crew = Crew {
        ready: wanted.iter().filter(|(_, name)| is_ready(name)).count(),
        wanted: wanted.len(),
        ..Crew::default()
    };
    let complete = crew.is_complete();
    let takes_part = |slot: u32, name: &str| {
        admission.members.contains(name) || is_ready(name) && admission.admits(slot, name, complete)
    };
    let slots = wanted.into_iter().filter(|(slot, name)| takes_part(*slot, name));
    crew.slots = slots.map(|(slot, name)| (slot, Some(name))).collect();
    crew
}

fn numbers(workload: &PoolWorkloadFact, pods: &[&PodFact], admission: Admission<'_>) -> Crew {
    let mut active: Vec<&PodFact> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    active.sort_by_key(|pod| (pod.created, &pod.id.key.name));
    let (drained, active): (Vec<&PodFact>, Vec<&PodFact>) =
        active.into_iter().partition(|pod| admission.is_drained(&pod.id.key.name));
    let mut held: BTreeMap<u32, &PodFact> = BTreeMap::new();
    let mut spare = Vec::new();
    for pod in active {
        match slot_of(pod) {
            Some(slot) if !held.contains_key(&slot) => drop(held.insert(slot, pod)),
            _ => spare.push(pod),
        }
    }
    let wanted = usize::try_from(workload.replicas).unwrap_or(usize::MAX).saturating_sub(drained.len());
    let vacancies = wanted.saturating_sub(held.len());
    let vacant: Vec<u32> = (0..MAX_SLOTS).filter(|slot| !held.contains_key(slot)).take(vacancies).collect();
    let takers = spare.into_iter().filter(|pod| pod.is_ready());
    let taking: Vec<(String, u32)> = takers.zip(&vacant).map(|(pod, slot)| (pod.id.key.name.clone(), *slot)).collect();
    let ready = held.values().filter(|pod| pod.is_ready()).count() + taking.len();
    let mut crew = Crew { taking, ready, wanted, slots: BTreeMap::new() };
    let complete = crew.is_complete();
    let names = held.iter().map(|(slot, pod)| (*slot, pod.id.key.name.clone()));
    let names = names.chain(crew.taking.iter().map(|(name, slot)| (*slot, name.clone())));
    crew.slots = names
        .filter(|(slot, name)| admission.admits(*slot, name, complete))
        .map(|(slot, name)| (slot, Some(name)))
        .collect();
    if !admission.waited {
        // The jobs of vacant slots wait for the pods that take these over.
        let known = vacant.iter().skip(crew.taking.len()).filter(|slot| admission.slots.contains(slot));
        crew.slots.extend(known.map(|slot| (*slot, None)));
    }
    crew
}

/// Slot in the annotation of a pod of a Deployment.
pub fn slot_of(pod: &PodFact) -> Option<u32> {
    // A large number, which somebody else wrote, would cost memory.
    pod.marks.worker.as_deref()?.parse().ok().filter(|slot| *slot < MAX_SLOTS)
}

/// Maximum number of slots; no workload has as many pods.
const MAX_SLOTS: u32 = 20_000;
