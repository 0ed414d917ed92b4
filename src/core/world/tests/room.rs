//! Tests of namespaces whose objects occupy more memory than they may.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::super::*;
use crate::facts::Key;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

/// An action whose labels have this many bytes.
fn action(namespace: &str, name: &str, version: u64, size: usize) -> WorkloadAction {
    let ready = json!({"type": "Ready", "status": "True", "reason": "r", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let object = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string(),
            "generation": 4, "labels": {"a": "b".repeat(size)}},
        "spec": {"delete": {"pod": {"name": "p"}}}, "status": {"conditions": [ready]},
    });
    serde_json::from_value(object).unwrap()
}

/// A world in which a namespace has room for about ten actions of ten kibibytes.
fn world() -> World {
    let bytes = action("a", "one", 1, 10 << 10).bytes();
    World::default().with_limits(OccupancyLimits { per_namespace: 10 * bytes + bytes / 2, in_all: 100 * bytes })
}

fn occupied(world: &World, namespace: &str) -> usize {
    world.occupancy().find(|(name, _)| *name == namespace).map_or(0, |(_, bytes)| bytes)
}

#[test]
fn a_full_namespace_keeps_the_identity_and_conditions_of_further_objects() {
    let mut world = world();
    let mut requeue = Requeue::none();
    for at in 0..20 {
        requeue = world.apply(action("a", &format!("n{at:02}"), at + 1, 10 << 10), Origin::Watch);
    }
    let actions = world.table::<WorkloadAction>();
    assert_eq!((actions.len(), actions.unreadable().len()), (10, 10));
    let last = &actions.unreadable()[&Key::new("a", "n19")];
    assert!(requeue.of::<WorkloadAction>().eq([&Key::new("a", "n19")]), "its controller reports it");
    assert_eq!((last.cause, last.metadata.generation), (UnreadableCause::NoRoom, Some(4)));
    assert_eq!(last.conditions().len(), 1);
    assert!(last.bytes() < 4096, "{}", last.bytes());
    world.apply(action("b", "other", 30, 10 << 10), Origin::Watch);
    assert!(world.get::<WorkloadAction>(&Key::new("b", "other")).is_some(), "other namespaces are not affected");
    // An action that runs sees its own writes, even if they make it larger.
    world.apply(action("a", "n01", 31, 20 << 10), Origin::Own);
    assert_eq!(world.get::<WorkloadAction>(&Key::new("a", "n01")).unwrap().id().version, "31");
}

#[test]
fn refused_objects_are_stored_once_others_are_deleted() {
    let mut world = world();
    for at in 0..12 {
        world.apply(action("a", &format!("n{at:02}"), at + 1, 10 << 10), Origin::Watch);
    }
    assert!(world.readmissible::<WorkloadAction>(None, 9).is_empty());
    world.remove::<WorkloadAction>(&action("a", "n00", 20, 0).id());
    let readmissible = world.readmissible::<WorkloadAction>(Some("a"), 9);
    assert_eq!(readmissible.iter().map(|id| id.key.name.as_str()).collect::<Vec<_>>(), ["n10", "n11"]);
    assert!(world.readmissible::<WorkloadAction>(Some("b"), 9).is_empty());
    world.readmit(action("a", "n10", 11, 10 << 10));
    assert!(world.get::<WorkloadAction>(&Key::new("a", "n10")).is_some());
    assert!(!world.table::<WorkloadAction>().unreadable().contains_key(&Key::new("a", "n10")));
    // The watch has reported the deletion of this one.
    world.remove::<WorkloadAction>(&action("a", "n11", 21, 0).id());
    world.readmit(action("a", "n11", 12, 10 << 10));
    assert!(world.get::<WorkloadAction>(&Key::new("a", "n11")).is_none());
}

#[test]
fn a_list_keeps_no_more_than_there_is_room_for() {
    let mut world = world();
    let mut list = world.begin_list::<WorkloadAction>(None);
    for at in 0..100 {
        world.apply_listed(&mut list, action("a", &format!("n{at:02}"), at + 1, 10 << 10));
    }
    world.end_list(&list);
    let actions = world.table::<WorkloadAction>();
    assert_eq!((actions.len(), actions.unreadable().len()), (10, 90));
}

#[test]
fn what_is_removed_is_counted_no_more() {
    let mut world = world();
    for round in 1..4 {
        for at in 0..10 {
            world.apply(action("a", &format!("n{at}"), 100 * round + at, (10 << 10) / round as usize), Origin::Watch);
        }
    }
    assert!(occupied(&world, "a") > 0);
    for at in 0..10 {
        world.remove::<WorkloadAction>(&action("a", &format!("n{at}"), 1000 + at, 0).id());
    }
    assert_eq!(occupied(&world, "a"), 0);
}

#[test]
fn unreadable_objects_of_a_namespace_are_bounded() {
    let mut world = World::default();
    let odd = |at: usize, size: usize| {
        let metadata = ObjectMeta {
            namespace: Some("a".to_owned()),
            name: Some(at.to_string()),
            resource_version: Some(at.to_string()),
            ..ObjectMeta::default()
        };
        let status = [("text".to_owned(), "x".repeat(size).into())].into_iter().collect();
        Unreadable { metadata, status, ..Unreadable::default() }
    };
    let parts = |world: &World| {
        let actions = world.table::<WorkloadAction>().unreadable();
        let is_stub = |object: &Unreadable| object.part == StatusPart::None;
        let stubs = actions.values().filter(|object| is_stub(object)).count();
        let bytes: usize = actions.values().map(|object| object.bytes()).sum();
        (actions.len() - stubs, stubs, bytes)
    };
    for at in 1..100 {
        assert_eq!(world.put_unreadable::<WorkloadAction>(odd(at, 100 << 10)).len(), 1, "each is reported");
    }
    let (whole, stubs, bytes) = parts(&world);
    assert!(whole > 3 && whole + stubs == 99 && bytes <= 4 << 20, "{whole} {stubs} {bytes}");
    for at in 100..10_000 {
        world.put_unreadable::<WorkloadAction>(odd(at, 1 << 10));
    }
    let (whole, stubs, bytes) = parts(&world);
    assert!(stubs > 1000 && bytes <= 8 << 20, "{stubs} {bytes}");
    let unreported =
        |world: &World| world.unreported().into_iter().find(|(kind, _)| *kind == "WorkloadAction").unwrap().1;
    assert_eq!(unreported(&world), u64::try_from(9999 - whole - stubs).unwrap(), "those are counted");
    // Other kinds count, too. Another namespace has room.
    assert!(world.put_unreadable::<SwarmPool>(odd(1, 100 << 10)).is_empty());
    let mut other = odd(1, 100 << 10);
    other.metadata.namespace = Some("b".to_owned());
    assert_eq!(world.put_unreadable::<SwarmPool>(other).len(), 1);
    // Deleted objects leave room.
    for object in world.table::<WorkloadAction>().unreadable().values().cloned().collect::<Vec<_>>() {
        world.remove::<WorkloadAction>(&object.id());
    }
    assert_eq!(world.put_unreadable::<SwarmPool>(odd(1, 100 << 10)).len(), 1);
    assert_eq!(world.table::<SwarmPool>().unreadable()[&Key::new("a", "1")].part, StatusPart::Whole);
    let mut list = world.begin_list::<WorkloadAction>(None);
    (1..10_000).for_each(|at| drop(world.put_listed(&mut list, odd(at, 1 << 10))));
    world.end_list(&list);
    let (whole, stubs, bytes) = parts(&world);
    assert!(whole > 100 && stubs > 1000 && bytes <= 8 << 20, "{whole} {stubs} {bytes}");
    assert!(unreported(&world) > 10_000);
}

#[test]
fn the_copy_of_the_manifest_in_the_annotations_is_dropped() {
    let mut large = action("a", "one", 1, 0);
    let annotations = large.metadata.annotations.get_or_insert_default();
    annotations.insert("kubectl.kubernetes.io/last-applied-configuration".to_owned(), "x".repeat(1 << 20));
    annotations.insert("argocd.argoproj.io/tracking-id".to_owned(), "a".to_owned());
    let mut world = World::default();
    world.apply(large, Origin::Watch);
    assert!(occupied(&world, "a") < 16 << 10);
    let stored = world.get::<WorkloadAction>(&Key::new("a", "one")).unwrap();
    assert_eq!(stored.metadata.annotations.as_ref().unwrap().len(), 1);
}

#[test]
fn an_object_that_is_deleted_stays_until_its_finalizer_is_removed() {
    let mut world = world();
    for at in 0..10 {
        world.apply(action("a", &format!("n{at:02}"), at + 1, 10 << 10), Origin::Watch);
    }
    world.apply(action("a", "n01", 31, 20 << 10), Origin::Own);
    let deleted = |version: u64, size: usize| {
        let mut action = action("a", "n02", version, size);
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        action.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
        action
    };
    world.apply(deleted(32, 10 << 10), Origin::Watch);
    let stored = world.get::<WorkloadAction>(&Key::new("a", "n02"));
    assert!(stored.is_some_and(|action| action.metadata.deletion_timestamp.is_some()));
    // Otherwise a tenant with a finalizer of its own could let deleted objects grow.
    world.apply(deleted(33, 11 << 10), Origin::Watch);
    assert!(world.table::<WorkloadAction>().unreadable().contains_key(&Key::new("a", "n02")));
}
