//! Tests of the workers: which pods get which slots.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::workers::{Admission, AnnotatedVersion, PoolWorkers, PoolWorkloadFact, WorkerMemory, workers_of};
use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_core::facts::{Identity, Key, PodFact};

fn workload(kind: PoolWorkloadKind, replicas: u32) -> PoolWorkloadFact {
    PoolWorkloadFact { kind, name: "w".to_owned(), replicas, first_ordinal: 0 }
}

/// A pod with this name, readiness and slot.
fn pod(name: &str, ready: bool, slot: Option<u32>) -> PodFact {
    let mut pod = PodFact { created: Timestamp::UNIX_EPOCH, ..PodFact::default() };
    pod.id.key = Key::new("n", name);
    pod.id.uid = name.into();
    pod.ready_since = ready.then_some(Timestamp::UNIX_EPOCH);
    pod.marks.worker = slot.map(|slot| slot.to_string());
    pod
}

struct Who<'a> {
    members: &'a [&'a str],
    slots: &'a [u32],
    /// By uid.
    remembered: &'a [(&'a str, u32)],
    drained: &'a [&'a str],
    waited: bool,
}

const NOBODY: Who<'_> = Who { members: &[], slots: &[], remembered: &[], drained: &[], waited: false };

fn seen(workload: &PoolWorkloadFact, pods: &[PodFact], who: &Who<'_>) -> PoolWorkers {
    let members: BTreeSet<&str> = who.members.iter().copied().collect();
    let slots: BTreeSet<u32> = who.slots.iter().copied().collect();
    let drained: Vec<String> = who.drained.iter().map(|name| (*name).to_owned()).collect();
    let remembered = who.remembered.iter().map(|(uid, slot)| ((*uid).into(), *slot)).collect();
    let admission =
        Admission { members: &members, slots: &slots, remembered: &remembered, drained: &drained, waited: who.waited };
    workers_of(workload, &pods.iter().collect::<Vec<_>>(), admission)
}

fn slots(workers: &PoolWorkers) -> Vec<(u32, Option<&str>)> {
    workers.slots.iter().map(|(slot, name)| (*slot, name.as_deref())).collect()
}

#[test]
fn new_ordinals_wait_for_each_other_and_known_ones_stay() {
    let set = workload(PoolWorkloadKind::StatefulSet, 3);
    let pods = [pod("w-0", false, None), pod("w-1", true, None)];
    assert!(seen(&set, &pods, &NOBODY).slots.is_empty(), "two of three are missing");
    let waited = seen(&set, &pods, &Who { waited: true, ..NOBODY });
    assert_eq!(slots(&waited), [(1, Some("w-1"))], "only who is Ready");
    let known = seen(&set, &pods, &Who { members: &["w-0"], ..NOBODY });
    assert_eq!(slots(&known), [(0, Some("w-0"))], "a member that is not Ready keeps its jobs");
    let all = [pod("w-0", true, None), pod("w-1", true, None), pod("w-2", true, None)];
    assert_eq!(seen(&set, &all, &NOBODY).slots.len(), 3);
    let drained = seen(&set, &all, &Who { drained: &["w-1"], members: &["w-1"], ..NOBODY });
    assert_eq!(slots(&drained), [(0, Some("w-0")), (2, Some("w-2"))]);
    assert!(drained.is_complete());
}

#[test]
fn ordinals_may_begin_anywhere() {
    let set = PoolWorkloadFact { first_ordinal: 5, ..workload(PoolWorkloadKind::StatefulSet, 1) };
    assert_eq!(slots(&seen(&set, &[pod("w-5", true, None)], &NOBODY)), [(0, Some("w-5"))]);
}

#[test]
fn a_pod_of_a_deployment_takes_over_the_slot_of_one_that_goes() {
    let set = workload(PoolWorkloadKind::Deployment, 3);
    let ending = PodFact { terminating: true, ..pod("b", true, Some(1)) };
    let pods = [pod("a", true, Some(0)), ending, pod("c", true, Some(2)), pod("d", true, None)];
    let who = Who { members: &["a", "b", "c"], slots: &[0, 1, 2], ..NOBODY };
    let taken = seen(&set, &pods, &who);
    assert_eq!(taken.unmarked, [("d".to_owned(), 1)]);
    assert_eq!(slots(&taken), [(0, Some("a")), (1, Some("d")), (2, Some("c"))]);
    let waits = seen(&set, &pods[..3], &who);
    assert_eq!(slots(&waits), [(0, Some("a")), (1, None), (2, Some("c"))], "its jobs wait");
    let given_up = seen(&set, &pods[..3], &Who { waited: true, ..who });
    assert_eq!(slots(&given_up), [(0, Some("a")), (2, Some("c"))], "its jobs go to the others");
}

#[test]
fn a_surplus_pod_of_a_rollout_is_a_spare() {
    let set = workload(PoolWorkloadKind::Deployment, 1);
    let pods = [pod("a", true, Some(0)), pod("b", true, None)];
    let workers = seen(&set, &pods, &Who { members: &["a"], ..NOBODY });
    assert_eq!((slots(&workers), workers.unmarked.len()), (vec![(0, Some("a"))], 0));
    let both = [pod("a", true, Some(0)), pod("b", true, Some(0))];
    assert_eq!(slots(&seen(&set, &both, &NOBODY)), [(0, Some("a"))], "one slot is for one pod");
    let wild = [pod("a", true, Some(u32::MAX))];
    assert_eq!(slots(&seen(&set, &wild, &NOBODY)), [(0, Some("a"))], "somebody wrote a number of their own");
}

/// Pods whose annotation is refused keep their slots, also if an older one of them goes.
#[test]
fn a_pod_that_cannot_be_annotated_keeps_its_slot() {
    let set = workload(PoolWorkloadKind::Deployment, 3);
    let pods = [pod("b", true, None), pod("c", true, None), pod("d", true, None)];
    let who = Who { members: &["a", "b", "c"], slots: &[0, 1, 2], remembered: &[("b", 1), ("c", 2)], ..NOBODY };
    let workers = seen(&set, &pods, &who);
    assert_eq!(slots(&workers), [(0, Some("d")), (1, Some("b")), (2, Some("c"))]);
    let unmarked = [("d".to_owned(), 0), ("b".to_owned(), 1), ("c".to_owned(), 2)];
    assert_eq!((workers.unmarked, workers.ready), (unmarked.to_vec(), 3));
}

/// A clock of annotations belongs to one pod: its successor of the same name is not annotated late.
#[test]
fn the_pause_between_annotations_starts_again_for_another_pod() {
    let (first, now) = (pod("w-0", true, None).id, Timestamp::UNIX_EPOCH);
    let mut memory = WorkerMemory::default();
    let values: Vec<String> = (0..3).map(|_| memory.record_annotation(&first, 7, now)).collect();
    assert_eq!(values, ["7", "7.1", "7.2"]);
    let again_at =
        |memory: &WorkerMemory, pod: &Identity| memory.annotation(pod, 7).and_then(AnnotatedVersion::again_at);
    assert_eq!(again_at(&memory, &first), Some(now + SignedDuration::from_secs(8)));
    let second = Identity { uid: "second".into(), ..first.clone() };
    assert_eq!(again_at(&memory, &second), None);
    assert_eq!(memory.record_annotation(&second, 7, now), "7");
    assert_eq!(again_at(&memory, &second), Some(now + SignedDuration::from_secs(2)));
}

proptest! {
    /// For any pods: no pod has two slots, no slot belongs to a drained or terminating pod, and there are no more slots
    /// than replicas or annotated pods.
    #[test]
    fn slots_are_for_one_pod_each(
        replicas in 0..6_u32,
        pods in prop::collection::vec((any::<bool>(), prop::option::of(0..8_u32), any::<bool>(), any::<bool>()), 0..8),
        waited: bool,
    ) {
        let set = workload(PoolWorkloadKind::Deployment, replicas);
        let drained: Vec<String> =
            pods.iter().enumerate().filter(|(_, one)| one.3).map(|(nth, _)| format!("p-{nth}")).collect();
        let drained: Vec<&str> = drained.iter().map(String::as_str).collect();
        let pods: Vec<PodFact> = pods
            .iter()
            .enumerate()
            .map(|(nth, (ready, slot, ends, _))| PodFact { terminating: *ends, ..pod(&format!("p-{nth}"), *ready, *slot) })
            .collect();
        let workers = seen(&set, &pods, &Who { drained: &drained, waited, ..NOBODY });
        let mut names = BTreeMap::new();
        for (slot, name) in workers.slots.iter().filter_map(|(slot, name)| Some((slot, name.as_ref()?))) {
            prop_assert!(names.insert(name, slot).is_none(), "{name} has two slots");
            let pod = pods.iter().find(|pod| pod.id.key.name == *name).unwrap();
            prop_assert!(!pod.terminating && !drained.contains(&name.as_str()));
        }
        let held: BTreeSet<_> = pods.iter().filter(|pod| !pod.terminating).filter_map(|pod| pod.marks.worker.clone())
            .collect();
        prop_assert!(workers.slots.len() <= held.len().max(replicas as usize));
        prop_assert!(workers.unmarked.iter().all(|(name, _)| pods.iter().any(|pod| pod.id.key.name == *name
            && pod.is_ready())));
    }
}
