//! Tests of facts without the texts of users, for which their namespace has no room.

use std::collections::BTreeMap;

use ganglion_api::marks;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::super::*;
use crate::facts::{BudgetFact, DeploymentFact, Key, Ledger, NodeName, PodFact, ServiceFact, SlimPod};

/// A pod on node `n1` whose labels have about this many bytes as JSON.
fn pod(namespace: &str, name: &str, version: u64, size: usize) -> PodFact {
    let labels: BTreeMap<String, String> = (0..size / 100).map(|at| (format!("{at:0>40}"), "v".repeat(54))).collect();
    let pod = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": labels},
        "spec": {"nodeName": "n1", "containers": []},
    });
    serde_json::from_value::<SlimPod>(pod).unwrap().into()
}

/// A world in which a namespace has room for the texts of some pods.
fn world() -> World {
    World::default().with_limits(OccupancyLimits { per_namespace: 1 << 20, in_all: 10 << 20 })
}

fn is_reduced(world: &World, namespace: &str, name: &str) -> bool {
    world.pod(&Key::new(namespace, name)).unwrap().reduced
}

fn occupied(world: &World, namespace: &str) -> usize {
    world.occupancy().find(|(name, _)| *name == namespace).map_or(0, |(_, bytes)| bytes)
}

const SIZE: usize = 100 << 10;

#[test]
fn a_full_namespace_keeps_all_facts_without_the_texts_of_users() {
    let mut world = world();
    for at in 1..=20 {
        world.apply(pod("a", &format!("p{at:02}"), at, SIZE), Origin::Watch);
    }
    let reduced = world.within::<PodFact>("a").filter(|pod| pod.reduced).count();
    assert!((10..20).contains(&reduced), "{reduced}");
    assert_eq!(world.usage(&NodeName::from("n1")).0, 20, "none is missing on its node");
    assert!(occupied(&world, "a") <= 1 << 20);
    world.apply(pod("b", "other", 30, SIZE), Origin::Watch);
    assert!(!is_reduced(&world, "b", "other"), "other namespaces are not affected");
    // A small change of a pod that is not reduced leaves it so.
    world.apply(PodFact { finished: true, ..pod("a", "p01", 31, SIZE) }, Origin::Watch);
    assert!(!is_reduced(&world, "a", "p01"));
    // Answers to requests of ours count, too.
    world.apply(pod("a", "p20", 32, SIZE), Origin::Own);
    assert!(is_reduced(&world, "a", "p20"));
    world.apply(pod("a", "p20", 33, 1 << 10), Origin::Watch);
    assert!(!is_reduced(&world, "a", "p20"), "usual labels do not count");
}

/// Without its ledger, a slot would change the replicas a second time.
#[test]
fn the_longest_ledger_and_list_of_peers_are_kept_whole() {
    let peers = vec!["p".repeat(63); 400];
    let ledger = Ledger { slot: "0123456789abcdef".into(), undone: true, from: i32::MIN, to: i32::MIN, peers };
    let annotations = json!({marks::LEDGER: ledger.render(), marks::PEERS: ledger.peers.join(",")});
    let metadata =
        json!({"namespace": "a", "name": "x", "uid": "x", "resourceVersion": "1", "annotations": annotations});
    let deployment: Deployment = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(Ledger::parse(DeploymentFact::from(deployment).scale.ledger.as_deref()), Some(ledger.clone()));
    let pod: SlimPod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(PodFact::from(pod).marks.peers, Some(ledger.peers.join(",")));
}

#[test]
fn reduced_facts_are_read_again_once_there_is_room() {
    let mut world = world();
    for at in 1..=8 {
        world.apply(pod("a", &format!("p{at}"), at, SIZE), Origin::Watch);
    }
    assert!(is_reduced(&world, "a", "p8") && world.readmissible::<PodFact>(None, 9).is_empty());
    for at in 1..=4 {
        world.remove::<PodFact>(&pod("a", &format!("p{at}"), 10 + at, 0).id);
    }
    let names: Vec<String> = world.readmissible::<PodFact>(None, 9).into_iter().map(|id| id.key.name).collect();
    assert!(names.contains(&"p8".to_owned()) && !names.contains(&"p1".to_owned()), "{names:?}");
    world.readmit(pod("a", "p8", 8, SIZE));
    assert!(!is_reduced(&world, "a", "p8"));
    assert!(world.readmit(pod("a", "p1", 1, SIZE)).is_empty() && world.pod(&Key::new("a", "p1")).is_none(), "deleted");
}

#[test]
fn a_list_keeps_texts_while_there_is_room() {
    let mut world = world();
    let mut list = world.begin_list::<PodFact>(None);
    for at in 1..=100 {
        world.apply_listed(&mut list, pod("a", &format!("p{at}"), at, SIZE));
    }
    world.end_list(&list);
    let kept = world.all::<PodFact>().filter(|pod| !pod.reduced).count();
    assert!((2..10).contains(&kept), "{kept}");
    assert_eq!((world.table::<PodFact>().len(), world.usage(&NodeName::from("n1")).0), (100, 100));
}

#[test]
fn a_selector_that_is_not_kept_may_select_any_pod() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let id = Identity { key: Key::new("a", "x"), ..Identity::default() };
    let mut budget = BudgetFact { id: id.clone(), ..BudgetFact::default() };
    let mut service = ServiceFact { id, ..ServiceFact::default() };
    assert!(!budget.guards("a", &labels) && !budget.may_mention("app") && !service.may_select_by(&labels, "app"));
    Fact::reduce(&mut budget);
    Fact::reduce(&mut service);
    assert!(budget.guards("a", &labels) && budget.may_mention("app") && service.may_select_by(&labels, "app"));
    assert!(!budget.guards("b", &labels), "of its namespace");
}
