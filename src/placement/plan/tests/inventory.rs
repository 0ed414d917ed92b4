//! Tests of the node records: their values, and that the order of changes does not matter.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::answered::ExpectedLoad;
use crate::inventory::Inventory;
use crate::learned::LearnedValues;
use crate::pigeon::LearnedDemand;
use crate::pigeon::SMOOTHING;
use crate::record::{NodeRecord, SampleRules, demand};
use crate::world::{PlacementWorld, registered};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{
    CONGESTION, Identity, Key, NodeFact, NodeName, Owner, PodFact, PodHold, Requests, USAGE_SAMPLED_AT,
};
use ganglion_core::world::{Origin, World};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

pub fn identity(namespace: &str, name: &str, version: u64) -> Identity {
    Identity { key: Key::new(namespace, name), uid: name.into(), version: version.to_string() }
}

/// A node with 8 cores and 16 GiB.
pub fn node(name: &str, version: u64, published: &[(&'static str, &str)]) -> NodeFact {
    let size = Requests { cpu: 8000, memory: 16 << 30, ..Requests::default() };
    NodeFact {
        id: identity("", name, version),
        ready: true,
        allocatable: size,
        capacity: size,
        pod_capacity: 110,
        published: published.iter().map(|(key, text)| (*key, (*text).to_owned())).collect(),
        ..NodeFact::default()
    }
}

pub fn pod(name: &str, version: u64, node: Option<&str>, hold: PodHold) -> PodFact {
    let (id, scheduler) = (identity("n", name, version), "default-scheduler".to_owned());
    PodFact { id, node: node.map(NodeName::from), hold, scheduler, ..PodFact::default() }
}

pub fn hold(cpu: i64, bound: i64) -> PodHold {
    PodHold {
        requests: Requests { cpu, memory: cpu << 20, ..Requests::default() },
        cores: cpu,
        bound: at(bound),
        pending: false,
        priority: 0,
    }
}

fn config(name: &str, node: &str, version: u64, status: Value) -> NodeConfig {
    let object = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
        "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": {"nodeName": node}, "status": status,
    });
    serde_json::from_value(object).expect("a NodeConfig")
}

fn measured(percent: &str, sampled: i64, until: i64) -> Value {
    json!({"validUntil": at(until).to_string(), "cpu": {"value": percent, "deviation": "5", "sampledAt": at(sampled).to_string()}})
}

pub fn policy(agents: &Value) -> PlacementPolicy {
    let object = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "green", "uid": "green", "resourceVersion": "1"}, "spec": {"agents": agents},
    });
    serde_json::from_value(object).expect("a PlacementPolicy")
}

fn record(world: &World, name: &str) -> NodeRecord {
    let mut inventory = Inventory::default();
    inventory.refresh(world, at(0));
    inventory.node(name).expect("a node").clone()
}

const USED: [(&str, &str); 2] = [("mean-used-cpu", "4000"), ("std-used-cpu", "400")];

/// Share of CPU that counts as used.
fn used(record: &NodeRecord, now: i64, rules: SampleRules) -> Option<f64> {
    let usage = record.usage(&ExpectedLoad::default(), at(now), &rules).cpu;
    usage.with(0.0, &Default::default()).map(|moments| moments.mean)
}

#[test]
fn pods_that_a_sample_does_not_contain_are_added_to_it() {
    let mut world = registered();
    world.apply(node("a", 1, &[USED[0], USED[1], (USAGE_SAMPLED_AT, "1970-01-01T00:16:40Z")]), Origin::Watch);
    for (name, bound) in [("old", 940), ("late", 970), ("later", 1200)] {
        world.apply(pod(name, 2, Some("a"), hold(800, bound)), Origin::Watch);
    }
    world.apply(pod("elsewhere", 2, Some("b"), hold(800, 1100)), Origin::Watch);
    let before = record(&world, "a");
    assert_eq!(used(&before, 1001, SampleRules::default()), Some(0.65), "the sample, one pod, and half of another");
    let wide = SampleRules { window: SignedDuration::from_secs(120), ..SampleRules::default() };
    assert_eq!(used(&before, 1001, wide), Some(0.725), "one pod, half of one, and three quarters of another");
    assert_eq!(used(&before, 1300, SampleRules::default()), Some(0.65));
    assert_eq!(used(&before, 1301, SampleRules::default()), None, "older than maxAge");
    world.apply(pod("late", 3, Some("a"), PodHold { pending: true, ..hold(800, 970) }), Origin::Watch);
    let after = record(&world, "a");
    assert_eq!(used(&after, 1001, SampleRules::default()), Some(0.7), "a pod that has not run is not measured");
}

#[rstest]
#[case::annotations_come_first(&USED, measured("25", 990, 2000), 1000, Some(0.5))]
#[case::without_them(&[], measured("25", 990, 2000), 1000, Some(0.25))]
#[case::until_its_validity_ends(&[], measured("25", 990, 2000), 2001, None)]
#[case::as_long_as_it_is_valid(&[], measured("25", 1, 2000), 2000, Some(0.25))]
#[case::old_annotations_do_not_count(&[USED[0], (USAGE_SAMPLED_AT, "1970-01-01T00:00:01Z")], measured("25", 990, 2000), 1000, Some(0.25))]
#[case::nor_those_with_a_time_that_is_none(&[USED[0], (USAGE_SAMPLED_AT, "now")], measured("25", 990, 2000), 1000, Some(0.25))]
#[case::nor_those_of_a_time_far_ahead(&[USED[0], (USAGE_SAMPLED_AT, "1970-01-01T00:21:41Z")], measured("25", 990, 2000), 1000, Some(0.25))]
#[case::without_a_time_they_hold(&USED, json!({}), 1_000_000, Some(0.5))]
#[case::nothing(&[], json!({}), 1000, None)]
#[case::stale(&[], json!({"validUntil": at(2000).to_string(), "cpu": {"value": "25", "stale": true}}), 1000, None)]
#[case::no_number(&[("mean-used-cpu", "NaN")], json!({}), 1000, None)]
fn usage_is_that_of_annotations_or_else_of_a_node_config(
    #[case] published: &[(&'static str, &str)],
    #[case] status: Value,
    #[case] now: i64,
    #[case] expected: Option<f64>,
) {
    let mut world = registered();
    world.apply(node("a", 1, published), Origin::Watch);
    world.apply(config("a", "a", 2, status), Origin::Watch);
    assert_eq!(used(&record(&world, "a"), now, SampleRules::default()), expected);
}

#[test]
fn pods_on_their_way_are_pending_with_the_cores_that_power_counts() {
    let mut world = registered();
    world.apply(node("a", 1, &[]), Origin::Watch);
    let mut inventory = Inventory::default();
    inventory.refresh(&world, at(0));
    // The larger amounts come from an init container, or from a limit if the request is 0.
    for (requested, cores) in [(4000, 100), (0, 500)] {
        inventory.add(&"a".into(), 1, hold(requested, 1).requests, cores, at(1000));
    }
    let record = inventory.node("a").expect("a node");
    assert_eq!((record.pods, record.requests.cpu, record.pending), (2, 4000, 600));
}

#[test]
fn demand_is_learned_once_from_each_pod_of_the_scheduler() {
    let mut world = registered();
    world.apply(policy(&json!([{"name": "a", "pigeon": {}}])), Origin::Watch);
    let mut inventory = Inventory::default();
    let mut expected = LearnedDemand::default();
    for (name, cpu) in [("p1", 100), ("p2", 900), ("p3", 400)] {
        let mut pod = pod(name, 3, None, hold(cpu, 5));
        world.apply(pod.clone(), Origin::Watch);
        expected.learn(&demand(pod.hold.requests), SMOOTHING);
        inventory.refresh(&world, at(0));
        // The pod is bound, runs and ends, but counts once.
        for (version, node) in [("4", "a"), ("5", "a")] {
            (pod.id.version, pod.node) = (version.to_owned(), Some(node.into()));
            world.apply(pod.clone(), Origin::Watch);
            inventory.refresh(&world, at(0));
        }
    }
    let mut other = pod("other", 3, None, hold(7000, 5));
    other.scheduler = "other".to_owned();
    world.apply(other, Origin::Watch);
    let mut daemon = pod("daemon", 3, None, hold(7000, 5));
    daemon.controller = Some(Owner { kind: "DaemonSet".into(), name: "d".into(), uid: "d".into() });
    world.apply(daemon, Origin::Watch);
    inventory.refresh(&world, at(0));
    assert_eq!(inventory.learned.demand("default-scheduler"), expected);
    assert_eq!(inventory.learned.demand("other"), LearnedDemand::default(), "no policy is for it");
    let mut anew = Inventory::default();
    anew.refresh(&world, at(0));
    assert_eq!(anew.learned.demand("default-scheduler"), expected, "after a restart");
}

#[test]
fn saved_demand_goes_on_with_the_pods_that_were_made_later() {
    let mut world = registered();
    world.apply(policy(&json!([{"name": "a", "pigeon": {}}])), Origin::Watch);
    let made =
        |name: &str, cpu: i64, created: i64| PodFact { created: at(created), ..pod(name, 3, None, hold(cpu, 5)) };
    world.apply(made("p1", 100, 10), Origin::Watch);
    world.apply(made("p2", 900, 20), Origin::Watch);
    let mut before = Inventory::default();
    before.refresh(&world, at(0));
    let learned = before.learned.demand("default-scheduler");
    let save =
        |now: i64, learned| LearnedValues::of_demand(at(now), [("default-scheduler".to_owned(), learned)].into());
    // One of two pods was deleted, and another one was created.
    world.remove::<PodFact>(&identity("n", "p1", 4));
    world.apply(made("p3", 400, 21), Origin::Watch);
    let mut expected = learned;
    expected.learn(&demand(hold(400, 5).requests), SMOOTHING);
    let mut after = Inventory::default();
    after.learned.restore(&save(20, learned));
    after.learned.restore(&save(19, LearnedDemand::default()));
    after.refresh(&world, at(0));
    assert_eq!(after.learned.demand("default-scheduler"), expected);
    after.refresh(&world, at(0));
    assert_eq!(after.learned.demand("default-scheduler"), expected);
}

#[test]
fn policies_for_very_many_schedulers_do_not_make_each_refresh_learn_anew() {
    let mut world = registered();
    for nth in 0..20 {
        let mut object = policy(&json!([{"name": "a", "pigeon": {}}]));
        object.metadata.name = Some(format!("p{nth}"));
        object.spec.scheduler_names = Some((0..16).map(|scheduler| format!("s{nth}-{scheduler}")).collect());
        world.apply(object, Origin::Watch);
    }
    let mut inventory = Inventory::default();
    inventory.refresh(&world, at(0));
    assert!(!inventory.is_behind(&world, at(0)));
}

/// Each refusal counts once. One that this process has not seen was counted by an earlier one.
#[test]
fn refused_pods_are_counted() {
    let mut world = registered();
    let refused = |name: &str, version| PodFact { refused: true, ..pod(name, version, Some("n1"), hold(100, 5)) };
    world.apply(refused("before", 1), Origin::Watch);
    world.apply(pod("p1", 1, Some("n1"), hold(100, 5)), Origin::Watch);
    assert_eq!(world.refused_pods(), 0);
    world.apply(refused("p1", 2), Origin::Watch);
    world.apply(refused("p1", 3), Origin::Watch);
    world.remove::<PodFact>(&identity("n", "p1", 4));
    assert_eq!(world.refused_pods(), 1);
}

/// A change of the cluster.
#[derive(Clone, Debug)]
enum Change {
    Node(u8, bool),
    NodeGone(u8),
    Pod(u8, Option<u8>, u16, bool),
    PodGone(u8),
    Config(u8, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let node = 0..4_u8;
    prop_oneof![
        (node.clone(), any::<bool>()).prop_map(|(node, ready)| Change::Node(node, ready)),
        node.clone().prop_map(Change::NodeGone),
        (0..6_u8, proptest::option::of(node.clone()), 1..900_u16, any::<bool>())
            .prop_map(|(pod, node, cpu, finished)| Change::Pod(pod, node, cpu, finished)),
        (0..6_u8).prop_map(Change::PodGone),
        (node, 0..100_u8).prop_map(|(node, percent)| Change::Config(node, percent)),
    ]
}

fn make(world: &mut World, version: u64, change: Change) {
    match change {
        Change::Node(name, ready) => {
            let fact = NodeFact { ready, ..node(&format!("n{name}"), version, &[(CONGESTION, "5")]) };
            world.apply(fact, Origin::Watch);
        }
        Change::NodeGone(name) => drop(world.remove::<NodeFact>(&identity("", &format!("n{name}"), version))),
        Change::Pod(name, on, cpu, finished) => {
            let on = on.map(|on| format!("n{on}"));
            let fact = PodFact { finished, ..pod(&format!("p{name}"), version, on.as_deref(), hold(cpu.into(), 5)) };
            world.apply(fact, Origin::Watch);
        }
        Change::PodGone(name) => drop(world.remove::<PodFact>(&identity("n", &format!("p{name}"), version))),
        Change::Config(name, percent) => {
            let name = format!("n{name}");
            world.apply(config(&name, &name, version, measured(&percent.to_string(), 10, 90)), Origin::Watch);
        }
    }
}

proptest! {
    #[test]
    fn an_inventory_that_followed_is_like_one_made_anew(
        changes in proptest::collection::vec((change(), any::<bool>()), 1..60),
    ) {
        let mut world = registered();
        let mut followed = Inventory::default();
        for (version, (change, refreshes)) in (1..).zip(changes) {
            make(&mut world, version, change);
            if refreshes {
                followed.refresh(&world, at(0));
            }
        }
        followed.refresh(&world, at(0));
        prop_assert!(!followed.is_behind(&world, at(0)));
        let mut anew = Inventory::default();
        anew.refresh(&world, at(0));
        let told = |inventory: &Inventory| {
            // A node update that changes only the resource version is not applied.
            let told = |record: &NodeRecord| {
                let mut record = record.clone();
                record.place = 0;
                Arc::make_mut(&mut record.node).id.version.clear();
                format!("{record:?}")
            };
            let mut all: Vec<String> = inventory.nodes().map(told).collect();
            all.sort();
            all
        };
        prop_assert_eq!(told(&followed), told(&anew));
        for name in ["n0", "n1", "n2", "n3"] {
            prop_assert_eq!(followed.node(name).is_some(), world.node(&name.into()).is_some());
            prop_assert!(followed.node(name).is_none_or(|record| record.name() == name));
        }
    }
}
