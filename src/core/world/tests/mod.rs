//! Tests of the world with random histories: indexes equal a scan of the facts, and stale events change nothing.

mod lists;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::facts::{Marks, Owner, PodFact, PodHold, PodRun, Requests, RunFailure};
use ganglion_api::targets::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;

/// One event for one of a few pods.
#[derive(Clone, Debug)]
enum Event {
    Put { pod: u8, node: Option<u8>, set: Option<u8>, slot: Option<u8>, cpu: i64, finished: bool },
    Gone { pod: u8 },
    Own { pod: u8, node: u8, behind: u64 },
    Relist { keep: Vec<u8> },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let small = || 0..4_u8;
    let put = (
        small(),
        prop::option::of(small()),
        prop::option::of(small()),
        prop::option::of(small()),
        0..500_i64,
        any::<bool>(),
    )
        .prop_map(|(pod, node, set, slot, cpu, finished)| Event::Put { pod, node, set, slot, cpu, finished });
    let own = (small(), small(), 0..3_u64).prop_map(|(pod, node, behind)| Event::Own { pod, node, behind });
    let relist = prop::collection::vec(small(), 0..4).prop_map(|keep| Event::Relist { keep });
    let gone = small().prop_map(|pod| Event::Gone { pod });
    prop::collection::vec(prop_oneof![6 => put, 2 => gone, 2 => own, 1 => relist], 0..60)
}

fn pod(number: u8, version: u64) -> PodFact {
    let id =
        Identity { key: Key::new("n", format!("p{number}")), uid: format!("u{number}"), version: version.to_string() };
    PodFact { id, ..PodFact::default() }
}

/// A list that is answered at once.
fn list(world: &mut World, namespace: Option<&str>, pods: impl IntoIterator<Item = PodFact>) {
    let mut list = world.begin_list::<PodFact>(namespace);
    pods.into_iter().for_each(|pod| list.add(pod));
    world.end_list(list);
}

fn play(events: Vec<Event>) -> World {
    let mut world = World::default();
    let mut version = 10;
    for event in events {
        version += 1;
        match event {
            Event::Put { pod: number, node, set, slot, cpu, finished } => {
                let fact = PodFact {
                    node: node.map(|node| format!("node{node}")),
                    controller: set.map(|set| Owner {
                        kind: "ReplicaSet".into(),
                        name: String::new(),
                        uid: format!("s{set}"),
                    }),
                    marks: Marks { slot: slot.map(|slot| format!("slot{slot}")), ..Marks::default() },
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
                let fact = PodFact { node: Some(format!("node{node}")), ..pod(number, version - behind) };
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
            let node = format!("node{number}");
            let there = all.iter().filter(|pod| pod.node.as_ref() == Some(&node) && !pod.finished);
            let (count, requests) = world.usage(&node);
            prop_assert_eq!(count, i64::try_from(there.clone().count()).unwrap_or(-1));
            prop_assert_eq!(requests.cpu, there.map(|pod| pod.hold.requests.cpu).sum::<i64>());
            let set = format!("s{number}");
            let mut scanned: Vec<&Key> = all.iter().filter(|pod| pod.is_of(&set)).map(|pod| &pod.id.key).collect();
            scanned.sort();
            let indexed: Vec<&Key> = world.pods_of(&set).map(|pod| &pod.id.key).collect();
            prop_assert_eq!(indexed, scanned);
            let slot = format!("slot{number}");
            let marked = all.iter().filter(|pod| pod.is_marked_by(&slot)).count();
            prop_assert_eq!(world.pods_marked(&slot).count(), marked);
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
        prop_assert_eq!(world.pod(&pod(1, 0).id.key).and_then(|pod| pod.node.as_deref()), Some("mine"));
    }
}

/// State of an action: its slots (workload, node, step), and whether it has ended. None if it is deleted.
type News = (u8, Option<(Vec<(u8, u8, Step)>, bool)>);

fn news() -> impl Strategy<Value = Vec<News>> {
    let step = prop::sample::select(vec![Step::Queued, Step::Readying, Step::Evicting, Step::Succeeded]);
    let slots = prop::collection::vec((0..3_u8, 0..3_u8, step), 0..3);
    prop::collection::vec((0..4_u8, prop::option::weighted(0.8, (slots, any::<bool>()))), 0..40)
}

#[test]
fn how_containers_run_wakes_no_action_and_what_else_is_new_does() {
    let mut world = World::default();
    world.apply(action(0, 1, &[(0, 0, Step::Queued)], false), Origin::Watch);
    let of_set = |version, run| {
        let owner = Owner { kind: "ReplicaSet".into(), name: "r0".into(), uid: "r0".into() };
        PodFact { controller: Some(owner), run, ..pod(0, version) }
    };
    let failing = || PodRun::Failing([RunFailure::default()].into());
    let mut woken = |pod: PodFact| world.apply(pod, Origin::Watch).into_iter().count();
    assert_eq!(woken(of_set(1, PodRun::Neutral)), 1);
    assert_eq!(woken(of_set(2, PodRun::Steady)), 0);
    assert_eq!(woken(PodFact { ready_since: Some(Timestamp::UNIX_EPOCH), ..of_set(3, failing()) }), 1);
    assert_eq!(woken(PodFact { ready_since: Some(Timestamp::UNIX_EPOCH), ..of_set(4, PodRun::Steady) }), 0);
    assert_eq!(world.pod(&Key::new("n", "p0")).expect("a pod").run, PodRun::Steady);
}

fn action(number: u8, version: usize, slots: &[(u8, u8, Step)], ended: bool) -> WorkloadAction {
    let slot = |index: usize, (workload, node, step): &(u8, u8, Step)| {
        json!({
            "id": format!("s{number}-{index}"), "index": index, "attempt": 0, "step": step, "label": "hash",
            "since": "2026-01-01T00:00:00Z",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("w{workload}")},
            "replicaSet": {"name": format!("r{workload}"), "uid": format!("r{workload}")},
            "replacement": {"name": "new", "node": format!("n{node}")},
        })
    };
    let slots: Vec<_> = slots.iter().enumerate().map(|(index, one)| slot(index, one)).collect();
    let finished = ended.then_some("2026-01-01T00:00:00Z");
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": "n", "name": format!("a{number}"), "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"delete": {"pod": {"name": "p"}}},
        "status": {"slots": slots, "finishedAt": finished},
    }))
    .expect("a valid action")
}

proptest! {
    #[test]
    fn indexes_of_actions_equal_a_scan(news in news()) {
        let mut world = World::default();
        for (version, (number, known)) in news.iter().enumerate() {
            let (slots, ended) = known.clone().unwrap_or_default();
            let action = action(*number, version + 10, &slots, ended);
            match known {
                Some(_) => world.apply(action, Origin::Watch),
                None => world.remove::<WorkloadAction>(&action.id()),
            };
        }
        let scan = |is_it: &dyn Fn(&Slot) -> bool| {
            let running = world.actions().filter(|action| action.status.as_ref()
                .is_some_and(|one| one.finished_at.is_none()));
            let slots = running.flat_map(|action| action.status.iter().flat_map(|status| &status.slots));
            let mut ids: Vec<&str> = slots.filter(|slot| !slot.step.is_end() && is_it(slot))
                .map(|slot| slot.id.as_str()).collect();
            ids.sort_unstable();
            ids
        };
        let ids = |slots: Vec<&Slot>| {
            let mut ids: Vec<String> = slots.into_iter().map(|slot| slot.id.clone()).collect();
            ids.sort_unstable();
            ids
        };
        prop_assert_eq!(ids(world.slots_at_work().map(|(_, slot)| slot).collect()),
            scan(&|slot| slot.step != Step::Queued));
        for number in 0..3 {
            let (name, set, node) = (format!("w{number}"), format!("r{number}"), format!("n{number}"));
            let workload = WorkloadRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.clone() };
            let of_it = world.slots_of_workload("n", &workload).map(|(_, slot)| slot).collect();
            prop_assert_eq!(ids(of_it), scan(&|slot| slot.workload.name == name));
            prop_assert_eq!(world.slots_of_workload("other", &workload).count(), 0);
            prop_assert_eq!(ids(world.slots_on(&set).collect()), scan(&|slot| slot.replica_set.uid == set));
            let to_it = world.slots_to(&node).map(|(_, slot)| slot).collect();
            prop_assert_eq!(ids(to_it), scan(&|slot| slot.replacement.as_ref().is_some_and(|pod| pod.node == node)));
        }
        let running = world.actions().filter(|action| action.status.as_ref()
            .is_some_and(|one| one.finished_at.is_none()));
        prop_assert_eq!(world.running().count(), running.count());
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
