//! Tests of the world with random histories: indexes equal a scan of the facts, and stale events change nothing.

mod lists;
mod reduced;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::facts::{NodeName, Owner, PodFact, PodHold, Requests};

/// One event for one of a few pods.
#[derive(Clone, Debug)]
enum Event {
    Put { pod: u8, node: Option<u8>, set: Option<u8>, cpu: i64, finished: bool },
    Gone { pod: u8 },
    Own { pod: u8, node: u8, behind: u64 },
    Relist { keep: Vec<u8> },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let small = || 0..4_u8;
    let put = (small(), prop::option::of(small()), prop::option::of(small()), 0..500_i64, any::<bool>())
        .prop_map(|(pod, node, set, cpu, finished)| Event::Put { pod, node, set, cpu, finished });
    let own = (small(), small(), 0..3_u64).prop_map(|(pod, node, behind)| Event::Own { pod, node, behind });
    let relist = prop::collection::vec(small(), 0..4).prop_map(|keep| Event::Relist { keep });
    let gone = small().prop_map(|pod| Event::Gone { pod });
    prop::collection::vec(prop_oneof![6 => put, 2 => gone, 2 => own, 1 => relist], 0..60)
}

fn pod(number: u8, version: u64) -> PodFact {
    let id = Identity {
        key: Key::new("n", format!("p{number}")),
        uid: format!("u{number}").into(),
        version: version.to_string(),
    };
    PodFact { id, ..PodFact::default() }
}

/// A list that is answered at once.
fn list(world: &mut World, namespace: Option<&str>, pods: impl IntoIterator<Item = PodFact>) {
    let mut list = world.begin_list::<PodFact>(namespace);
    pods.into_iter().for_each(|pod| drop(world.apply_listed(&mut list, pod)));
    world.end_list(&list);
}

fn play(events: Vec<Event>) -> World {
    let mut world = World::default();
    let mut version = 10;
    for event in events {
        version += 1;
        match event {
            Event::Put { pod: number, node, set, cpu, finished } => {
                let fact = PodFact {
                    node: node.map(|node| format!("node{node}").into()),
                    controller: set.map(|set| Owner {
                        kind: "ReplicaSet".into(),
                        name: String::new(),
                        uid: format!("s{set}").into(),
                    }),
                    hold: PodHold {
                        requests: Requests { cpu, memory: cpu * 7, ..Requests::default() },
                        ..PodHold::default()
                    },
                    finished,
                    ..pod(number, version)
                };
                world.apply(fact, Origin::Watch);
            }
            Event::Gone { pod: number } => {
                world.remove::<PodFact>(&pod(number, version).id);
            }
            Event::Own { pod: number, node, behind } => {
                let fact = PodFact { node: Some(format!("node{node}").into()), ..pod(number, version - behind) };
                world.apply(fact, Origin::Own);
            }
            Event::Relist { keep } => {
                let kept: BTreeMap<Key, PodFact> = keep
                    .iter()
                    .filter_map(|number| world.pod(&pod(*number, 0).id.key))
                    .map(|pod| (pod.id.key.clone(), pod.clone()))
                    .collect();
                list(&mut world, None, kept.into_values());
            }
        }
    }
    world
}

proptest! {
    #[test]
    fn indexes_equal_a_scan(events in events()) {
        let world = play(events);
        let all: Vec<&PodFact> = world.table::<PodFact>().values().map(Arc::as_ref).collect();
        for number in 0..4 {
            let node = NodeName::from(format!("node{number}"));
            let there = all.iter().filter(|pod| pod.node.as_ref() == Some(&node) && !pod.finished);
            let (count, requests) = world.usage(&node);
            prop_assert_eq!(count, i64::try_from(there.clone().count()).unwrap_or(-1));
            prop_assert_eq!(requests.cpu, there.map(|pod| pod.hold.requests.cpu).sum::<i64>());
            let set = format!("s{number}").into();
            let mut scanned: Vec<&Key> = all.iter().filter(|pod| pod.is_of(&set)).map(|pod| &pod.id.key).collect();
            scanned.sort();
            let indexed: Vec<&Key> = world.pods_of(&set).map(|pod| &pod.id.key).collect();
            prop_assert_eq!(indexed, scanned);
        }
    }

    /// An answer to a write of ours that the watch has overtaken must not restore a deleted pod.
    #[test]
    fn what_is_gone_stays_gone(at in 20..100_u64, behind in 1..19_u64) {
        let mut world = World::default();
        world.apply(pod(1, at - behind), Origin::Watch);
        world.remove::<PodFact>(&pod(1, at).id);
        world.apply(pod(1, at - behind), Origin::Own);
        prop_assert!(world.pod(&pod(1, 0).id.key).is_none());
    }

    /// Our own write is visible at once, and an older watch event does not undo it.
    #[test]
    fn own_writes_are_seen(at in 20..100_u64, ahead in 1..19_u64) {
        let mut world = World::default();
        world.apply(pod(1, at), Origin::Watch);
        let written = PodFact { node: Some("mine".into()), ..pod(1, at + ahead) };
        world.apply(written, Origin::Own);
        world.apply(pod(1, at + ahead - 1), Origin::Watch);
        prop_assert_eq!(world.pod(&pod(1, 0).id.key).and_then(|pod| pod.node.clone()), Some("mine".into()));
    }
}

/// After an accepted eviction, the watch first reports a condition of a pod that is not terminating yet.
#[test]
fn a_pod_that_ends_does_not_come_back_but_its_successor_does() {
    let mut world = World::default();
    let ends = |world: &World| world.pod(&pod(0, 0).id.key).is_some_and(|pod| pod.terminating);
    world.apply(pod(0, 1), Origin::Watch);
    world.apply(PodFact { terminating: true, ..pod(0, 1) }, Origin::Own);
    world.apply(pod(0, 2), Origin::Watch);
    assert!(ends(&world));
    let mut next = pod(0, 3);
    next.id.uid = "another".into();
    world.apply(next, Origin::Watch);
    assert!(!ends(&world));
}

/// Number of pods. Each change requeues an object that has this number as its name.
#[derive(Default)]
struct PodCount(usize);

impl State for PodCount {
    fn empty() -> &'static Self {
        static NONE: PodCount = PodCount(0);
        &NONE
    }
}

impl Follows<PodFact> for PodCount {
    fn update(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        self.0 = self.0 + usize::from(new.is_some()) - usize::from(old.is_some());
    }

    fn requeue(world: &World, _old: Option<&PodFact>, _new: Option<&PodFact>) -> Requeue {
        let number = world.state::<Self>().0.to_string();
        Requeue::one::<PodFact>(Key::new("count", number))
    }
}

#[test]
fn a_follower_is_called_once_and_requeues_by_its_new_state() {
    let mut world = World::default();
    assert!(world.apply(pod(0, 1), Origin::Watch).is_empty() && world.state::<PodCount>().0 == 0, "not registered");
    let mut world = World::default();
    world.follow::<PodCount, PodFact>();
    world.follow::<PodCount, PodFact>();
    let requeue = |number: &str| Requeue::one::<PodFact>(Key::new("count", number));
    assert_eq!(world.apply(pod(0, 1), Origin::Watch), requeue("1"));
    assert_eq!(world.apply(pod(1, 2), Origin::Watch), requeue("2"));
    assert_eq!(world.apply(pod(1, 3), Origin::Watch), Requeue::none(), "only the version differs");
    assert_eq!(world.remove::<PodFact>(&pod(0, 4).id), requeue("1"));
}
