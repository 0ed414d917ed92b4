//! Tests with random histories: indexes equal a scan of the facts.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use ganglion_api::workload_action::status::PodOnNode;
use ganglion_core::facts::{Identity, Marks, NodeName, Owner, PodRun, RunFailure, Selector, Uid};
use ganglion_core::world::{Fact, Origin};

fn pod(number: u8, version: usize) -> PodFact {
    let id = Identity {
        key: Key::new("n", format!("p{number}")),
        uid: format!("u{number}").into(),
        version: version.to_string(),
    };
    PodFact { id, ..PodFact::default() }
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
    let mut world = registered();
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

#[test]
fn a_budget_wakes_the_actions_whose_pods_it_selects_by_any_label() {
    let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let template = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}, "spec": {}}).to_string();
    let set = ReplicaSetFact {
        id: Identity { key: Key::new("n", "r0"), uid: "r0".into(), version: "1".into() },
        selector: Selector { labels: labels(&[("app", "web")]), ..Selector::default() },
        template: Some(Arc::new(serde_json::from_str(&template).expect("a pod template"))),
        ..ReplicaSetFact::default()
    };
    let mut victim = action(0, 1, &[(0, 0, Step::Evicting)], false);
    let slot = &mut victim.status.as_mut().expect("a status").slots[0];
    slot.victim = Some(PodOnNode { name: "p0".into(), ..PodOnNode::default() });
    let budget = |version: usize, selected: &[(&str, &str)]| BudgetFact {
        id: Identity { key: Key::new("n", "budget"), uid: "b".into(), version: version.to_string() },
        selector: Some(Selector { labels: labels(selected), ..Selector::default() }),
        ..BudgetFact::default()
    };
    for (selected, wakes) in [
        (&[("app", "web")][..], true),
        (&[("tier", "front")], true),
        (&[("zone", "a")], true),
        (&[("app", "web"), ("tier", "front")], true),
        (&[("tier", "back")], false),
    ] {
        let mut world = registered();
        world.apply(set.clone(), Origin::Watch);
        world.apply(PodFact { labels: labels(&[("app", "web"), ("zone", "a")]), ..pod(0, 2) }, Origin::Watch);
        world.apply(victim.clone(), Origin::Watch);
        assert_eq!(world.apply(budget(3, selected), Origin::Watch).into_iter().count() > 0, wakes, "{selected:?}");
        let closed = world.apply(budget(4, &[("other", "x")]), Origin::Watch).into_iter().count() > 0;
        assert_eq!(closed, wakes, "{selected:?}: the budget selects the pods no longer");
    }
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
        let mut world = registered();
        for (version, (number, known)) in news.iter().enumerate() {
            let (slots, ended) = known.clone().unwrap_or_default();
            let action = action(*number, version + 10, &slots, ended);
            match known {
                Some(_) => world.apply(action, Origin::Watch),
                None => world.remove::<WorkloadAction>(&action.id()),
            };
        }
        let scan = |is_it: &dyn Fn(&Slot) -> bool| {
            let running = world.all::<WorkloadAction>().filter(|action| action.status.as_ref()
                .is_some_and(|one| one.finished_at.is_none()));
            let slots = running.flat_map(|action| action.status.iter().flat_map(|status| &status.slots));
            let mut ids: Vec<SlotId> = slots.filter(|slot| !slot.step.is_end() && is_it(slot))
                .map(|slot| slot.id.clone()).collect();
            ids.sort_unstable();
            ids
        };
        let ids = |slots: Vec<&Slot>| {
            let mut ids: Vec<SlotId> = slots.into_iter().map(|slot| slot.id.clone()).collect();
            ids.sort_unstable();
            ids
        };
        prop_assert_eq!(ids(world.slots_at_work().map(|(_, slot)| slot).collect()),
            scan(&|slot| slot.step != Step::Queued));
        for number in 0..3 {
            let (name, set, node) = (format!("w{number}"), Uid::from(format!("r{number}")), NodeName::from(format!("n{number}")));
            let workload = WorkloadRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.clone() };
            let of_it = world.slots_of_workload("n", &workload).map(|(_, slot)| slot).collect();
            prop_assert_eq!(ids(of_it), scan(&|slot| slot.workload.name == name));
            prop_assert_eq!(world.slots_of_workload("other", &workload).count(), 0);
            prop_assert_eq!(ids(world.slots_on(&set).collect()), scan(&|slot| slot.replica_set.uid == set));
            let to_it = world.slots_to(&node).map(|(_, slot)| slot).collect();
            prop_assert_eq!(ids(to_it), scan(&|slot| slot.replacement.as_ref().is_some_and(|pod| pod.node == node)));
        }
        let running = world.all::<WorkloadAction>().filter(|action| action.status.as_ref()
            .is_some_and(|one| one.finished_at.is_none()));
        prop_assert_eq!(world.running().count(), running.count());
    }
}

proptest! {
    #[test]
    fn marks_of_pods_equal_a_scan(news in prop::collection::vec((0..4_u8, prop::option::of(0..4_u8)), 0..40)) {
        let mut world = registered();
        for (version, (number, slot)) in news.into_iter().enumerate() {
            let marks = Marks { slot: slot.map(|slot| format!("slot{slot}").into()), ..Marks::default() };
            world.apply(PodFact { marks, ..pod(number, version + 10) }, Origin::Watch);
        }
        for number in 0..4 {
            let slot = SlotId::from(format!("slot{number}"));
            let marked = world.all::<PodFact>().filter(|pod| pod.is_marked_by(&slot)).count();
            prop_assert_eq!(world.pods_marked(&slot).count(), marked);
        }
        let marked = world.all::<PodFact>().filter(|pod| pod.marks.slot.is_some()).count();
        prop_assert_eq!(world.marked_pods().count(), marked);
    }
}
