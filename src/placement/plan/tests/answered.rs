//! Tests of the pods that schedulers got nodes for: where they count, for how long, and that no choice of a scheduler
//! breaks a limit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::inventory::{at, hold, node, pod, policy};
use crate::answered::PreemptedPod;
use crate::inventory::Inventory;
use crate::learned::LearnedRewards;
use crate::pigeon::LearnedDemand;
use crate::policy::{CompiledPolicy, best};
use crate::preempted;
use crate::question::{NodeRejection, PlacedPod, PlacementQuestion, Siblings};
use crate::world::{PlacementWorld, registered, waits};
use ganglion_core::facts::{
    Key, NodeFact, OutsidePodFact, Owner, PodFact, ReplicaSetFact, Requests, ScaleFact, USAGE_SAMPLED_AT,
};
use ganglion_core::world::{Origin, World};

const ZONE: &str = "topology.kubernetes.io/zone";

/// The caches of the operator, for a scheduler that asks about all nodes.
struct Scene {
    world: World,
    inventory: Inventory,
    policy: Arc<CompiledPolicy>,
    names: Vec<String>,
    now: Timestamp,
    /// Version of the last object.
    version: u64,
}

fn placed(name: &str) -> PlacedPod {
    PlacedPod {
        key: Key::new("n", name),
        uid: name.into(),
        requests: Requests { cpu: 100, ..Requests::default() },
        cores: 100,
        scheduler: "default-scheduler".into(),
        controller: Some(set()),
        ..PlacedPod::default()
    }
}

fn set() -> Owner {
    Owner { kind: "ReplicaSet".to_owned(), name: "web".to_owned(), uid: "web".into() }
}

fn limit(pods: usize) -> Value {
    json!([{"name": "few", "expression": {"filter": format!("node.pods < {pods}")}}])
}

impl Scene {
    fn new(agents: &Value, nodes: impl IntoIterator<Item = NodeFact>) -> Self {
        let mut world = registered();
        let mut names = Vec::new();
        for node in nodes {
            names.push(node.id.key.name.clone());
            world.apply(node, Origin::Watch);
        }
        let policy = Arc::new(CompiledPolicy::compile(&policy(agents)).expect("a policy"));
        Self { world, inventory: Inventory::default(), policy, names, now: at(1000), version: 1 }
    }

    /// Nodes on which a policy allows this number of pods.
    fn few(pods: usize, nodes: usize) -> Self {
        Self::new(&limit(pods), (0..nodes).map(|at| node(&format!("n{at}"), 1, &[])))
    }

    /// Nodes in these zones, with a policy that spreads this number of replicas.
    fn spread(replicas: i32, zones: &[&str]) -> Self {
        let nodes = zones.iter().enumerate().map(|(at, zone)| NodeFact {
            labels: [(ZONE.to_owned(), (*zone).to_owned())].into(),
            ..node(&format!("n{at}"), 1, &[])
        });
        let mut scene = Self::new(&json!([{"name": "spread", "podSpread": {"rate": "1"}}]), nodes);
        let id = super::inventory::identity("n", "web", 1);
        let scale = ScaleFact { replicas, ..ScaleFact::default() };
        scene.world.apply(ReplicaSetFact { id, scale, ..ReplicaSetFact::default() }, Origin::Watch);
        scene
    }

    fn question<R>(
        &mut self,
        pod: &PlacedPod,
        leaving: &[PreemptedPod],
        ask: impl FnOnce(&CompiledPolicy, &PlacementQuestion<'_>) -> R,
    ) -> R {
        self.inventory.refresh(&self.world, self.now);
        let siblings = Siblings::from_world(&self.world, &self.inventory, pod);
        let leaving = preempted::leaving(&self.world, &self.inventory, leaving, &self.policy.rules, self.now);
        let candidates: Vec<_> = self.names.iter().map(|name| self.inventory.node(name)).collect();
        ask(
            &self.policy,
            &PlacementQuestion {
                pod,
                inventory: &self.inventory,
                arriving: self.inventory.answered.others(&pod.uid),
                candidates: &candidates,
                now: self.now,
                rules: self.policy.rules,
                learned: &LearnedDemand::default(),
                siblings: siblings.as_ref(),
                rewards: &LearnedRewards::default(),
                leaving: &leaving,
                narrows: false,
                one_more: false,
                counts_arriving: true,
            },
        )
    }

    /// Rejection reasons of all nodes.
    fn rejected(&mut self, pod: &PlacedPod) -> Vec<Option<String>> {
        let rejections = self.question(pod, &[], |policy, question| policy.filter(question));
        rejections.into_iter().map(|one| one.map(|NodeRejection(reason)| reason)).collect()
    }

    /// Answers a scheduler: the nodes that it may choose from.
    fn offered(&mut self, pod: &PlacedPod) -> Vec<String> {
        let rejections = self.question(pod, &[], |policy, question| policy.offer(question));
        let open = self.names.iter().zip(&rejections).filter(|(_, rejection)| rejection.is_none());
        let open: Vec<String> = open.map(|(name, _)| name.clone()).collect();
        let places = open.iter().map(|name| self.inventory.node(name).expect("a node").place).collect();
        self.inventory.answered.record(pod, places, None, true, self.now);
        open
    }

    /// Answers a scheduler that asks for scores: the scores.
    fn scored(&mut self, pod: &PlacedPod) -> Vec<f64> {
        let (totals, best) = self.question(pod, &[], |policy, question| {
            let totals = policy.score(question).totals;
            let best = best(question.candidates, &totals, |record| question.likely(record).pods);
            (totals, best.and_then(|at| Some(question.candidates[at]?.place)))
        });
        let places = self.inventory.nodes().map(|record| record.place).collect();
        self.inventory.answered.record(pod, places, best, true, self.now);
        totals
    }

    fn apply(&mut self, fact: PodFact) {
        self.version += 1;
        let mut fact = fact;
        fact.id.version = self.version.to_string();
        self.world.apply(fact, Origin::Watch);
    }

    /// The watch delivers a pod, bound to a node if there is one.
    fn watched(&mut self, name: &str, node: Option<&str>) {
        self.apply(PodFact { controller: Some(set()), ..pod(name, 1, node, hold(100, 1000)) });
    }
}

#[test]
fn a_pod_counts_on_every_node_that_it_may_choose_until_it_is_bound() {
    let mut scene = Scene::few(2, 2);
    scene.watched("p0", None);
    assert_eq!(scene.offered(&placed("p0")), ["n0", "n1"]);
    let reason = |pods: &str| Some(format!("few: node.pods < 2 is false, with {pods} on the way"));
    scene.watched("p1", Some("n0"));
    assert_eq!(scene.rejected(&placed("p2")), [reason("1 pod"), None]);
    assert_eq!(scene.rejected(&placed("p0")), [None, None], "not for itself");
    scene.watched("p0", Some("n1"));
    assert_eq!(scene.rejected(&placed("p2")), [None, None]);
}

#[rstest]
#[case::at_once(0, true)]
#[case::while_etcd_stands_still(4, true)]
#[case::while_a_volume_is_created(6, false)]
fn a_rejection_is_too_early_while_a_pod_is_bound(#[case] later: i64, #[case] is_too_early: bool) {
    let mut scene = Scene::few(1, 2);
    scene.watched("p0", None);
    assert_eq!(scene.offered(&placed("p0")), ["n0", "n1"]);
    scene.now = at(1000 + later);
    let found = scene.question(&placed("p1"), &[], |policy, question| {
        let rejections = policy.offer(question);
        assert!(rejections.iter().all(Option::is_some));
        policy.awaited(question, &rejections)
    });
    let expected: &[&str] = if is_too_early { &["n"] } else { &[] };
    assert!(found.iter().eq(expected), "{found:?}");
}

#[test]
fn arriving_pods_are_part_of_pods() {
    let agents = json!([{"name": "x", "expression": {"filter": "node.arriving == 0 || node.pods != 1"}}]);
    let mut scene = Scene::new(&agents, [node("n0", 1, &[])]);
    scene.watched("p0", None);
    scene.offered(&placed("p0"));
    let reason = "x: node.arriving == 0 || node.pods != 1 is false, with 1 pod on the way";
    assert_eq!(scene.rejected(&placed("p1")), [Some(reason.to_owned())]);
    scene.watched("p0", Some("n0"));
    assert_eq!(scene.rejected(&placed("p1")), [None]);
}

#[rstest]
#[case::waits(|scene: &mut Scene| scene.watched("p0", None), 29, true)]
#[case::is_late(|scene: &mut Scene| scene.watched("p0", None), 31, false)]
#[case::is_gone(|_: &mut Scene| {}, 0, false)]
#[case::is_another(|scene: &mut Scene| {
    let mut other = pod("p0", 1, None, hold(100, 1000));
    other.id.uid = "other".into();
    scene.apply(other);
}, 0, false)]
#[case::has_finished(
    |scene: &mut Scene| scene.apply(PodFact { finished: true, ..pod("p0", 1, None, hold(100, 1000)) }), 0, false)]
#[case::is_deleted(
    |scene: &mut Scene| scene.apply(PodFact { terminating: true, ..pod("p0", 1, None, hold(100, 1000)) }), 0, false)]
#[case::is_bound_elsewhere(|scene: &mut Scene| scene.watched("p0", Some("unknown")), 0, false)]
#[case::waits_in_a_namespace_that_is_not_watched(|scene: &mut Scene| {
    let PodFact { id, hold, .. } = pod("p0", 1, None, hold(100, 1000));
    scene.world.apply(OutsidePodFact { id, hold, ..OutsidePodFact::default() }, Origin::Watch);
}, 29, true)]
fn a_pod_counts_as_long_as_it(#[case] happens: fn(&mut Scene), #[case] later: i64, #[case] counts: bool) {
    let mut scene = Scene::few(1, 1);
    assert_eq!(scene.offered(&placed("p0")), ["n0"]);
    happens(&mut scene);
    scene.now = at(1000 + later);
    assert_eq!(scene.rejected(&placed("p1"))[0].is_some(), counts);
}

#[test]
fn a_pod_that_the_watch_has_not_delivered_counts_for_a_short_time() {
    let mut scene = Scene::few(1, 1);
    scene.inventory.refresh(&scene.world, scene.now);
    scene.inventory.answered.record(&placed("p0"), [0].into_iter().collect(), None, false, scene.now);
    assert!(scene.rejected(&placed("p1"))[0].is_some());
    scene.now = at(1006);
    assert!(scene.rejected(&placed("p1"))[0].is_none());
}

/// The watch delivers and deletes a pod between two requests of the scheduler.
#[rstest]
#[case::before_it_was_bound(None)]
#[case::after_it_was_bound(Some("n0"))]
fn a_deleted_pod_does_not_count(#[case] node: Option<&str>) {
    let mut scene = Scene::few(1, 1);
    scene.inventory.refresh(&scene.world, scene.now);
    scene.inventory.answered.record(&placed("p0"), [0].into_iter().collect(), None, false, scene.now);
    scene.watched("p0", None);
    scene.watched("p0", node);
    let id = scene.world.pod(&Key::new("n", "p0")).expect("the pod").id.clone();
    scene.world.remove::<PodFact>(&id);
    assert!(scene.rejected(&placed("p1"))[0].is_none());
}

#[test]
fn what_clients_send_is_bounded() {
    let mut scene = Scene::few(1, 1);
    let long = placed(&"x".repeat(254));
    scene.watched(&long.key.name, None);
    assert_eq!(scene.offered(&long), ["n0"]);
    assert!(scene.inventory.answered.is_empty());
    for (name, cpu) in [("small", 100), ("huge", i64::MAX), ("other", i64::MAX)] {
        let pod = PlacedPod { requests: Requests { cpu, ..Requests::default() }, ..placed(name) };
        scene.watched(name, None);
        scene.inventory.answered.record(&pod, [0].into_iter().collect(), None, true, scene.now);
    }
    scene.inventory.answered.record(&placed("huge"), Default::default(), None, true, scene.now);
    scene.inventory.answered.record(&placed("other"), Default::default(), None, true, scene.now);
    assert_eq!(scene.inventory.answered.others(&"x".into()).possible(0).requests.cpu, 100);
    let preempted = |pods: usize| {
        let pod = |at: usize| PreemptedPod { key: Key::new("n", "x"), uid: at.to_string().into(), node: "n0".into() };
        (0..pods).map(pod).collect::<Vec<_>>()
    };
    scene.inventory.answered.record_preempted(&long, preempted(1), true, scene.now);
    assert_eq!(scene.inventory.answered.len(), 1, "the small one");
    for at in 0..10 {
        scene.inventory.answered.record_preempted(&placed(&format!("p{at}")), preempted(2000), true, scene.now);
    }
    let all: usize = (0..10).map(|at| scene.inventory.answered.preempted_for(&format!("p{at}").into()).len()).sum();
    assert_eq!(all, 8192);
}

#[test]
fn the_last_answer_counts() {
    let mut scene = Scene::few(1, 2);
    scene.watched("p0", None);
    scene.offered(&placed("p0"));
    scene.watched("other", Some("n0"));
    assert_eq!(scene.offered(&placed("p0")), ["n1"]);
    scene.watched("another", Some("n1"));
    assert!(scene.offered(&placed("p0")).is_empty());
    assert!(scene.inventory.answered.is_empty());
}

/// Each pod of a burst gets some node: those that do not know where earlier ones went get a node of their own.
#[test]
fn a_burst_is_not_held_up_by_unknown_choices() {
    let mut scene = Scene::few(3, 3);
    let offered: Vec<usize> = (0..6)
        .map(|at| {
            scene.watched(&format!("p{at}"), None);
            scene.offered(&placed(&format!("p{at}"))).len()
        })
        .collect();
    assert_eq!(offered, [3, 3, 1, 1, 1, 0]);
    // Where one pod fits on each node, only the first pod of a burst has a choice.
    let mut scene = Scene::few(1, 100);
    scene.watched("first", None);
    scene.offered(&placed("first"));
    scene.watched("first", Some("n0"));
    let own: HashSet<String> = (0..99)
        .flat_map(|at| {
            let name = format!("p{at}");
            scene.watched(&name, None);
            scene.offered(&placed(&name))
        })
        .collect();
    assert_eq!(own.len(), 99);
    // A pod that comes alone has the choice again.
    let mut scene = Scene::few(1, 3);
    scene.watched("first", Some("n0"));
    scene.now = at(1010);
    assert_eq!(scene.offered(&placed("alone")), ["n1", "n2"]);
}

#[test]
fn the_best_of_the_nodes_with_room_for_one_pod_is_offered() {
    let mut agents = limit(2);
    agents[0]["expression"]["score"] = json!("node.name == 'n1' ? 9.0 : 1.0");
    let mut scene = Scene::new(&agents, ["n0", "n1", "n2", "n3"].map(|name| node(name, 1, &[])));
    for name in ["n0", "n1", "n2"] {
        scene.watched(&format!("on-{name}"), Some(name));
    }
    scene.watched("p0", None);
    assert_eq!(scene.offered(&placed("p0")).len(), 4, "not a burst yet");
    scene.watched("p0", Some("n3"));
    let mut scene_with_room = scene;
    scene_with_room.names.push("n4".to_owned());
    scene_with_room.world.apply(node("n4", 1, &[]), Origin::Watch);
    assert_eq!(scene_with_room.offered(&placed("p1")), ["n1", "n4"]);
}

#[test]
fn a_score_counts_a_pod_on_its_best_node_only() {
    let agents = json!([{"name": "x", "expression": {"score": "10.0 - 2.0 * double(node.pods)"}}]);
    let mut scene = Scene::new(&agents, ["n0", "n1"].map(|name| node(name, 1, &[])));
    scene.watched("p0", None);
    assert_eq!(scene.scored(&placed("p0")), [10.0, 10.0]);
    scene.watched("p1", None);
    assert_eq!(scene.scored(&placed("p1")), [8.0, 10.0]);
    scene.watched("p2", None);
    assert_eq!(scene.scored(&placed("p2")), [8.0, 8.0]);
    assert_eq!(scene.scored(&placed("p0")), [8.0, 8.0], "two on n0, of which it is one itself");
}

#[rstest]
#[case(json!({"pigeon": {"objective": "LoadBalance"}}))]
#[case(json!({"expression": {"score": "10.0 * (1.0 - node.cpu.requestedShare)"}}))]
#[case(json!({"safe": {"filter": false}}))]
fn pods_on_the_way_change_the_scores_of(#[case] agent: Value) {
    let mut agent = agent;
    agent["name"] = json!("x");
    let sampled = [("mean-used-cpu", "4000"), ("std-used-cpu", "900"), (USAGE_SAMPLED_AT, "1970-01-01T00:16:00Z")];
    let mut scene = Scene::new(&json!([agent]), ["n0", "n1"].map(|name| node(name, 1, &sampled)));
    let big = |name: &str| PlacedPod {
        requests: Requests { cpu: 2000, memory: 1 << 30, ..Requests::default() },
        ..placed(name)
    };
    scene.watched("p0", None);
    let before = scene.scored(&big("p0"));
    assert!((before[0] - before[1]).abs() < 1e-9, "{before:?}");
    let after = scene.scored(&big("p1"));
    assert!(after[0] < after[1], "{after:?}");
}

#[test]
fn safe_rejects_a_node_that_pods_on_the_way_may_overload() {
    let sampled = [("mean-used-cpu", "5000"), ("std-used-cpu", "100"), (USAGE_SAMPLED_AT, "1970-01-01T00:16:00Z")];
    let mut scene = Scene::new(&json!([{"name": "s", "safe": {}}]), [node("n0", 1, &sampled)]);
    let big = |name: &str| PlacedPod { requests: Requests { cpu: 1500, ..Requests::default() }, ..placed(name) };
    scene.watched("p0", None);
    assert_eq!(scene.offered(&big("p0")), ["n0"]);
    let reason = scene.rejected(&big("p1")).remove(0).expect("a rejection");
    assert!(reason.starts_with("s: cpu risk") && reason.ends_with(", with 1 pod on the way"), "{reason}");
}

/// The nodes that each pod of a burst may choose.
fn burst(scene: &mut Scene, pods: usize) -> Vec<Vec<String>> {
    let choices = (0..pods).map(|at| {
        let name = format!("p{at}");
        scene.watched(&name, None);
        scene.offered(&placed(&name))
    });
    choices.collect()
}

#[test]
fn replicas_of_a_burst_go_to_one_zone_after_the_other() {
    let mut scene = Scene::spread(5, &["a", "b", "b"]);
    let (a, b) = (vec!["n0"], vec!["n1", "n2"]);
    let expected = [b.clone(), a.clone(), b, a, vec!["n0", "n1", "n2"]];
    assert_eq!(burst(&mut scene, 5), expected, "the last one has the choice");
}

/// The pods come before the new size of their ReplicaSet.
#[test]
fn replicas_of_a_set_that_grows_go_to_one_zone_after_the_other() {
    let mut scene = Scene::spread(0, &["a", "b", "b"]);
    let (a, b) = (vec!["n0"], vec!["n1", "n2"]);
    assert_eq!(burst(&mut scene, 4), [b.clone(), a.clone(), b, a]);
}

#[test]
fn a_pod_counts_without_those_that_it_preempts() {
    let mut scene = Scene::few(2, 2);
    for (name, node) in [("low-0", "n0"), ("high-0", "n0"), ("high-1", "n1"), ("high-2", "n1")] {
        scene.watched(name, Some(node));
    }
    let uids = |names: &[&'static str]| names.iter().copied().collect::<HashSet<&str>>();
    let victims = HashMap::from([("n0", uids(&["low-0", "unknown"])), ("n1", uids(&["low-0"]))]);
    let found = preempted::find(&scene.world, &victims);
    assert_eq!(found.iter().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["low-0"]);
    let new = placed("new");
    let rejected = |scene: &mut Scene, leaving: &[PreemptedPod]| {
        scene
            .question(&new, leaving, |policy, question| policy.filter(question))
            .iter()
            .map(Option::is_some)
            .collect::<Vec<_>>()
    };
    assert_eq!(rejected(&mut scene, &[]), [true, true]);
    assert_eq!(rejected(&mut scene, &found), [false, true]);
}

/// Usage that was measured while a pod ran does not fall when it is preempted; a pod that it does not include yet does
/// not count any more.
#[rstest]
#[case::measured(800, true)]
#[case::not_yet_measured(990, false)]
fn safe_counts_preempted_pods_as_long_as_they_are_measured(#[case] bound: i64, #[case] rejects: bool) {
    let sampled = [
        ("mean-used-cpu", if rejects { "7600" } else { "5000" }),
        ("std-used-cpu", "100"),
        (USAGE_SAMPLED_AT, "1970-01-01T00:16:00Z"),
    ];
    let mut scene = Scene::new(&json!([{"name": "s", "safe": {}}]), [node("n0", 1, &sampled)]);
    scene.apply(pod("low", 1, Some("n0"), hold(2600, bound)));
    let new = placed("new");
    assert!(scene.rejected(&new)[0].is_some());
    let found = preempted::find(&scene.world, &HashMap::from([("n0", HashSet::from(["low"]))]));
    let rejections = scene.question(&new, &found, |policy, question| policy.filter(question));
    assert_eq!(rejections[0].is_some(), rejects);
}

/// The log of pods that were bound has a bound. A reader that is behind it looks at every pod.
#[test]
fn a_pod_that_was_bound_before_thousands_of_others_does_not_count() {
    let mut scene = Scene::few(1, 1);
    scene.watched("p0", None);
    assert_eq!(scene.offered(&placed("p0")), ["n0"]);
    assert!(scene.rejected(&placed("new"))[0].is_some());
    scene.watched("p0", Some("unknown"));
    for other in 0..5000 {
        scene.watched(&format!("other-{other}"), Some("unknown"));
    }
    assert_eq!(scene.rejected(&placed("new")), [None]);
}

/// A change that a property test makes to one of a few pods.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A scheduler gets an answer about it; whether it is in the cache by then.
    Answered(bool),
    Waits,
    WaitsOutside,
    Bound,
    Finished,
    Deleted,
    /// This number of seconds passes.
    Later(i64),
    /// A request refreshes the inventory.
    Refreshed,
}

fn any_change() -> impl Strategy<Value = Change> {
    use Change::{Answered, Bound, Deleted, Finished, Later, Refreshed, Waits, WaitsOutside};
    prop_oneof![
        3 => any::<bool>().prop_map(Answered),
        2 => Just(Waits),
        1 => Just(WaitsOutside),
        2 => Just(Bound),
        1 => Just(Finished),
        1 => Just(Deleted),
        1 => (0_i64..20).prop_map(Later),
        2 => Just(Refreshed),
    ]
}

/// A pod that a scheduler has placed: its name, its node, and the number of later answers before its binding is seen.
type Choice = (String, String, usize);

proptest! {
    /// A scheduler chooses any of the nodes that are left open, and its bindings are seen in any order.
    #[test]
    fn no_choice_of_a_scheduler_exceeds_a_limit(
        limit in 1_usize..4,
        nodes in 1_usize..5,
        choices in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8, 0_i64..2), 1..40),
    ) {
        let mut scene = Scene::few(limit, nodes);
        let mut unseen: Vec<Choice> = Vec::new();
        let mut counts = HashMap::<String, usize>::new();
        let mut waiting: Vec<String> = Vec::new();
        for (at, (choice, delay, pause)) in choices.into_iter().enumerate() {
            waiting.push(format!("p{at}"));
            scene.watched(&format!("p{at}"), None);
            scene.now = scene.now.checked_add(jiff::SignedDuration::from_secs(pause)).expect("a time");
            let name = waiting.remove(choice.index(waiting.len()));
            match scene.offered(&placed(&name)).as_slice() {
                [] => waiting.push(name),
                open => {
                    let node = open[choice.index(open.len())].clone();
                    let count = counts.entry(node.clone()).or_default();
                    *count += 1;
                    prop_assert!(*count <= limit, "{} pods on {}", *count, node);
                    unseen.push((name, node, delay));
                }
            }
            let (seen, rest): (Vec<_>, Vec<_>) = unseen.into_iter().partition(|(_, _, delay)| *delay == 0);
            unseen = rest.into_iter().map(|(name, node, delay)| (name, node, delay - 1)).collect();
            seen.iter().for_each(|(name, node, _)| scene.watched(name, Some(node)));
        }
        // Once all bindings are seen, every node is filled.
        unseen.iter().for_each(|(name, node, _)| scene.watched(name, Some(node)));
        for name in waiting {
            let open = scene.offered(&placed(&name));
            prop_assert_eq!(open.is_empty(), counts.values().sum::<usize>() == limit * nodes);
            if let Some(node) = open.first() {
                *counts.entry(node.clone()).or_default() += 1;
                scene.watched(&name, Some(node));
            }
        }
    }

    /// The log of the world shows each pod that is settled, as a look at every pod would.
    #[test]
    fn exactly_the_settled_pods_are_forgotten(changes in prop::collection::vec((0_usize..4, any_change()), 1..60)) {
        let mut scene = Scene::few(1, 1);
        scene.inventory.refresh(&scene.world, scene.now);
        // Time of the answer, and whether the pod was in the cache.
        let mut answered = HashMap::<usize, (Timestamp, bool)>::new();
        for (place, change) in changes {
            let name = format!("p{place}");
            let PodFact { id, hold, .. } = pod(&name, 1, None, hold(100, 1000));
            match change {
                Change::Answered(cached) => {
                    let nodes = [place].into_iter().collect();
                    scene.inventory.answered.record(&placed(&name), nodes, None, cached, scene.now);
                    answered.entry(place).or_insert((scene.now, cached)).0 = scene.now;
                }
                Change::Waits => scene.watched(&name, None),
                Change::WaitsOutside => {
                    scene.world.apply(OutsidePodFact { id, hold, ..OutsidePodFact::default() }, Origin::Watch);
                }
                Change::Bound => scene.watched(&name, Some("n0")),
                Change::Finished => scene.apply(PodFact { finished: true, ..pod(&name, 1, None, hold) }),
                Change::Deleted => {
                    if let Some(id) = scene.world.pod(&id.key).map(|pod| pod.id.clone()) {
                        scene.world.remove::<PodFact>(&id);
                    }
                }
                Change::Later(seconds) => scene.now += jiff::SignedDuration::from_secs(seconds),
                Change::Refreshed => {
                    let before = answered.len();
                    answered.retain(|place, (at, cached)| {
                        let pod = placed(&format!("p{place}"));
                        let age = scene.now.duration_since(*at).as_secs();
                        match waits(&scene.world, &pod.key, &pod.uid) {
                            Some(waits) => waits && age <= 30,
                            None => !*cached && age <= 5 && !scene.world.was_deleted(&pod.uid),
                        }
                    });
                    let is_behind = scene.inventory.is_behind(&scene.world, scene.now);
                    prop_assert!(is_behind || answered.len() == before, "a request would not refresh");
                    scene.inventory.refresh(&scene.world, scene.now);
                    prop_assert!(!scene.inventory.is_behind(&scene.world, scene.now));
                    let others = scene.inventory.answered.others(&"x".into());
                    let left: Vec<usize> = (0..4).filter(|place| others.likely(*place).pods > 0).collect();
                    let mut expected: Vec<usize> = answered.keys().copied().collect();
                    expected.sort_unstable();
                    prop_assert_eq!(left, expected);
                }
            }
        }
    }

    /// The sums equal the pods, and nothing is left once all pods are settled.
    #[test]
    fn sums_are_exact(
        answers in prop::collection::vec((0_usize..5, prop::collection::vec(0_usize..130, 0..6)), 0..40),
    ) {
        let mut scene = Scene::few(1, 1);
        scene.inventory.refresh(&scene.world, scene.now);
        let mut last = HashMap::<usize, Vec<usize>>::new();
        for (pod, nodes) in &answers {
            let set = nodes.iter().copied().collect();
            scene.inventory.answered.record(&placed(&format!("p{pod}")), set, None, true, scene.now);
            last.insert(*pod, nodes.clone());
        }
        for place in 0..131 {
            let expected = last.values().filter(|nodes| nodes.contains(&place)).count();
            let load = scene.inventory.answered.others(&"x".into()).possible(place);
            prop_assert_eq!((load.pods, load.requests.cpu), (expected as i64, 100 * expected as i64));
            let first = last.values().filter(|nodes| nodes.iter().min() == Some(&place)).count();
            prop_assert_eq!(scene.inventory.answered.others(&"x".into()).likely(place).pods, first as i64);
        }
        scene.inventory.refresh(&scene.world, scene.now);
        prop_assert!(scene.inventory.answered.is_empty());
        prop_assert!((0..131).all(|place| scene.inventory.answered.others(&"x".into()).possible(place).pods == 0));
    }
}
