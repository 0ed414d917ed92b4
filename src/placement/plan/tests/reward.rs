//! Tests of the agent `reward`: its vectors, the rewards of failures, learning from a world, and the bounds of learned
//! values.

use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;

use super::inventory::{at, hold, identity, pod};
use super::{assert_real, vectors};
use crate::learned::LearnedValues;
use crate::learned::{LearnedRewards, RewardLearner, RewardRules, RewardSizes, updated};
use crate::wire;
use crate::world::{PodFailure, registered};
use ganglion_core::facts::{Owner, PodFact, PodRun, RunFailure};
use ganglion_core::world::{Origin, World};

#[derive(Deserialize)]
struct Vector {
    id: String,
    weight: f64,
    initial: f64,
    rewards: Vec<f64>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    trace: Vec<f64>,
    value: f64,
    score: u8,
    score_floor: u8,
}

#[test]
fn vectors_are_met() {
    for Vector { id, weight, initial, rewards, expected } in vectors("kuberl") {
        let rules = RewardRules { weight, initial, ..RewardRules::default() };
        let mut memory = LearnedRewards::default();
        assert_eq!(rewards.len(), expected.trace.len(), "{id}");
        for (reward, value) in rewards.into_iter().zip(expected.trace) {
            memory.learn(("web", &"n1".into()), reward, 1, &rules);
            assert_real(&id, memory.of_type("web", &rules).value("n1"), value);
        }
        assert_real(&id, memory.of_type("web", &rules).value("n1"), expected.value);
        let score = memory.of_type("web", &rules).score("n1");
        assert_eq!((wire::score(score), wire::floored(score)), (expected.score, expected.score_floor), "{id}");
    }
}

fn failure(container: &str, restarts: i32, started: i64, finished: i64) -> RunFailure {
    let (started, finished) = (Some(at(started)), Some(at(finished)));
    RunFailure { container: container.to_owned(), restarts, started, finished, failed_before: None }
}

fn failed(uid: &str, pod_type: &str, node: &str, failures: &[RunFailure]) -> PodFailure {
    PodFailure {
        clock: 0,
        scheduler: String::new(),
        uid: uid.into(),
        pod_type: pod_type.to_owned(),
        node: node.into(),
        failures: failures.into(),
        created: at(0),
    }
}

/// Value after one failed pod. With a weight of 1, it is the reward itself.
fn reward(failures: &[RunFailure]) -> f64 {
    let rules = RewardRules { weight: 1.0, ..RewardRules::default() };
    let mut memory = LearnedRewards::default();
    memory.fail(&failed("u", "web", "n", failures), &rules);
    memory.of_type("web", &rules).value("n")
}

#[rstest]
#[case::soon(&[failure("a", 0, 0, 30)], 0.0)]
#[case::late(&[failure("a", 0, 0, 601)], 0.5)]
#[case::at_the_limit(&[failure("a", 0, 0, 600)], 0.0)]
#[case::in_a_row(&[RunFailure { failed_before: Some(at(5)), ..failure("a", 1, 40, 65) }], 0.0)]
#[case::long_after_the_one_before(&[RunFailure { failed_before: Some(at(5)), ..failure("a", 1, 3990, 4000) }], 0.5)]
#[case::no_times(&[RunFailure { container: "a".into(), ..RunFailure::default() }], 0.0)]
#[case::the_pod(&[RunFailure::default()], 0.0)]
#[case::worst_listed_first(&[failure("a", 0, 0, 5), failure("b", 0, 0, 900)], 0.0)]
#[case::worst_listed_last(&[failure("a", 0, 0, 900), failure("b", 0, 0, 5)], 0.0)]
fn failures_are_worth(#[case] failures: &[RunFailure], #[case] expected: f64) {
    assert_eq!(reward(failures), expected);
}

#[test]
fn each_failure_counts_once() {
    let rules = RewardRules::default();
    let mut memory = LearnedRewards::default();
    let mut counts = |uid: &str, failure: RunFailure| {
        let before = memory.of_type("web", &rules).value("n");
        memory.fail(&failed(uid, "web", "n", &[failure]), &rules);
        memory.of_type("web", &rules).value("n") < before
    };
    let fails = |restarts| failure("a", restarts, 0, 5);
    let counted = [
        counts("u", fails(0)),
        counts("u", fails(0)),
        counts("u", fails(1)),
        counts("v", fails(1)),
        counts("v", RunFailure::default()),
        counts("v", RunFailure::default()),
    ];
    assert_eq!(counted, [true, false, true, true, true, false]);
}

#[test]
fn unknown_nodes_have_the_initial_value() {
    let rules = RewardRules { initial: 0.7, ..RewardRules::default() };
    let mut memory = LearnedRewards::default();
    assert_real("unknown type", memory.of_type("web", &rules).score("n2"), 7.0);
    memory.learn(("web", &"n1".into()), 0.0, 1, &rules);
    let values = memory.of_type("web", &rules);
    assert_real("known node", values.value("n1"), 0.63);
    assert_real("new node", values.value("n2"), 0.7);
    assert_real("other type", memory.of_type("db", &rules).value("n1"), 0.7);
    assert!(values.is_known() && !memory.of_type("db", &rules).is_known());
    let changed = RewardRules { initial: 0.2, ..rules };
    assert_real("what was learned stays", memory.of_type("web", &changed).value("n1"), 0.63);
}

#[test]
fn a_value_that_is_the_initial_one_again_needs_no_place() {
    let rules = RewardRules::default();
    let mut memory = LearnedRewards::default();
    memory.learn(("web", &"n".into()), 1.0, 1, &rules);
    assert_eq!(memory.len().0, 0);
    memory.learn(("web", &"n".into()), 0.0, 1, &rules);
    assert_eq!(memory.len().0, 1);
    memory.learn(("web", &"n".into()), 1.0, 1000, &rules);
    assert_eq!(memory.len().0, 0);
    assert!(!memory.of_type("web", &rules).is_known());
}

fn small() -> RewardRules {
    RewardRules { sizes: RewardSizes { pairs: 3, counted: 5 }, ..RewardRules::default() }
}

#[test]
fn what_was_updated_least_recently_is_forgotten() {
    let rules = small();
    let mut memory = LearnedRewards::default();
    for node in ["a", "b", "c", "a", "d"] {
        memory.learn(("web", &node.into()), 0.0, 1, &rules);
    }
    let values = memory.of_type("web", &rules);
    let known = ["a", "b", "c", "d"].map(|node| values.learned(node).is_some());
    assert_eq!(known, [true, false, true, true]);
    assert_real("kept", values.value("a"), 0.81);
}

/// A pod of type web.
fn web(name: &str, version: u64, node: &str, created: i64, run: PodRun) -> PodFact {
    let labels = [("app".to_owned(), "web".to_owned())].into();
    PodFact { labels, created: at(created), run, ..pod(name, version, Some(node), hold(1, 1)) }
}

fn fails(restarts: i32, finished: i64) -> PodRun {
    PodRun::Failing([failure("c", restarts, finished - 1, finished)].into())
}

const OURS: &dyn Fn(&str) -> bool = &|scheduler| scheduler == "default-scheduler";

fn value(learner: &RewardLearner, rules: &RewardRules, node: &str) -> f64 {
    learner.rewards().of_type("web", rules).value(node)
}

#[test]
fn failures_are_learned_as_they_come_and_once() {
    let rules = RewardRules::default();
    let mut world = registered();
    world.apply(web("p", 1, "a", 5, fails(0, 10)), Origin::Watch);
    let mut learner = RewardLearner::begin(&world, OURS, None, &rules);
    let mut expects = |world: &World, words: &str, node: &str, expected: f64| {
        learner.follow(world, OURS, &rules, at(20));
        assert_real(words, value(&learner, &rules, node), expected);
    };
    expects(&world, "the pod was there", "a", 0.9);
    // The watch restarts, at first without the pod.
    world.remove::<PodFact>(&identity("n", "p", 2));
    world.apply(web("p", 3, "a", 5, fails(0, 10)), Origin::Watch);
    expects(&world, "the same failure", "a", 0.9);
    world.apply(web("p", 4, "a", 5, PodRun::Neutral), Origin::Watch);
    world.apply(web("p", 5, "a", 5, fails(1, 14)), Origin::Watch);
    expects(&world, "another failure", "a", 0.81);
    let others = [
        PodFact { terminating: true, ..web("ending", 6, "a", 5, fails(0, 10)) },
        PodFact { mirror: true, ..web("static", 6, "a", 5, fails(0, 10)) },
        PodFact { scheduler: "other".into(), ..web("other", 6, "a", 5, fails(0, 10)) },
        PodFact {
            controller: Some(Owner { kind: "DaemonSet".into(), name: "d".into(), uid: "d".into() }),
            ..web("daemon", 6, "a", 5, fails(0, 10))
        },
        PodFact { node: None, ..web("nowhere", 6, "a", 5, fails(0, 10)) },
    ];
    others.into_iter().for_each(|pod| drop(world.apply(pod, Origin::Watch)));
    expects(&world, "what says nothing of the node", "a", 0.81);
    world.apply(web("q", 7, "b", 5, PodRun::Failing([RunFailure::default()].into())), Origin::Watch);
    expects(&world, "a pod as a whole", "b", 0.9);
}

#[test]
fn running_pods_are_rewarded_once_a_period() {
    let rules = RewardRules { initial: 0.0, ..RewardRules::default() };
    let mut world = registered();
    world.apply(web("p", 1, "a", 5, PodRun::Steady), Origin::Watch);
    world.apply(web("starts", 1, "b", 5, PodRun::Neutral), Origin::Watch);
    let mut learner = RewardLearner::begin(&world, OURS, None, &rules);
    let expected = |times: i32| 1.0 - 0.9_f64.powi(times);
    for (now, times) in [(650, 1), (651, 1), (1199, 1), (1200, 2), (1700, 2), (1900, 3)] {
        learner.follow(&world, OURS, &rules, at(now));
        assert_real("rewards", value(&learner, &rules, "a"), expected(times));
    }
    world.apply(web("q", 2, "a", 5, PodRun::Steady), Origin::Watch);
    learner.follow(&world, OURS, &rules, at(2400));
    assert_real("of two pods", value(&learner, &rules, "a"), expected(5));
    assert_eq!(learner.rewards().of_type("web", &rules).learned("b"), None);
}

#[test]
fn after_a_restart_nothing_counts_twice() {
    let rules = RewardRules { initial: 0.5, ..RewardRules::default() };
    let mut world = registered();
    world.apply(web("failed", 1, "a", 5, fails(0, 700)), Origin::Watch);
    world.apply(web("runs", 1, "b", 5, PodRun::Steady), Origin::Watch);
    world.apply(web("evicted", 1, "c", 5, PodRun::Failing([RunFailure::default()].into())), Origin::Watch);
    let mut before = RewardLearner::begin(&world, OURS, None, &rules);
    before.follow(&world, OURS, &rules, at(710));
    let saved = LearnedValues::of_demand(at(720), Default::default()).with_rewards(before.rewards(), before.rewarded());
    world.apply(web("later", 2, "d", 5, fails(0, 730)), Origin::Watch);
    world.apply(web("new", 2, "e", 725, PodRun::Failing([RunFailure::default()].into())), Origin::Watch);
    let mut after = RewardLearner::begin(&world, OURS, Some(&saved), &rules);
    after.follow(&world, OURS, &rules, at(740));
    let nodes = ["a", "b", "c", "d", "e"];
    let expected = [0.45, 0.55, 0.45, 0.45, 0.45];
    nodes
        .into_iter()
        .zip(expected)
        .for_each(|(node, expected)| assert_real(node, value(&after, &rules, node), expected));
    // The watch reports the pod again.
    world.remove::<PodFact>(&identity("n", "failed", 3));
    world.apply(web("failed", 4, "a", 5, fails(0, 700)), Origin::Watch);
    after.follow(&world, OURS, &rules, at(1200));
    let expected = [0.45, 0.595, 0.45, 0.45, 0.45];
    nodes
        .into_iter()
        .zip(expected)
        .for_each(|(node, expected)| assert_real(node, value(&after, &rules, node), expected));
}

#[test]
fn pods_that_differ_in_their_run_only_are_told_from_others() {
    let old = web("p", 1, "a", 5, PodRun::Neutral);
    assert!(old.differs_in_run_only(&web("p", 2, "a", 5, PodRun::Steady)));
    assert!(!old.differs_in_run_only(&web("p", 2, "a", 5, PodRun::Neutral)));
    assert!(!old.differs_in_run_only(&PodFact { terminating: true, ..web("p", 2, "a", 5, PodRun::Steady) }));
}

/// Event that changes the learned values.
#[derive(Clone, Debug)]
enum Happening {
    Failure(String, String, String, RunFailure),
    Reward(String, String, f64, i32),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let time = || prop::option::of((-5000..5000_i64).prop_map(at));
    let failure = ("[ab]?", 0..3_i32, time(), time(), time()).prop_map(
        |(container, restarts, started, finished, failed_before)| RunFailure {
            container,
            restarts,
            started,
            finished,
            failed_before,
        },
    );
    let happening = prop_oneof![
        ("u[0-9]", "t[0-9]", "n[0-9]", failure)
            .prop_map(|(uid, pod_type, node, failure)| Happening::Failure(uid, pod_type, node, failure)),
        ("t[0-9]", "n[0-9]", 0.0..=1.0_f64, 0..2000_i32)
            .prop_map(|(pod_type, node, reward, times)| Happening::Reward(pod_type, node, reward, times)),
    ];
    proptest::collection::vec(happening, 0..60)
}

proptest! {
    #[test]
    fn memory_stays_bounded_and_values_are_parts(happenings in happenings(), initial in 0.0..=1.0_f64) {
        let rules = RewardRules { initial, ..small() };
        let mut memory = LearnedRewards::default();
        for happening in &happenings {
            match happening {
                Happening::Failure(uid, pod_type, node, one) => {
                    memory.fail(&failed(uid, pod_type, node, std::slice::from_ref(one)), &rules);
                }
                Happening::Reward(pod_type, node, reward, times) => {
                    memory.learn((pod_type, &node.as_str().into()), *reward, *times, &rules);
                }
            }
            let (pairs, counted) = memory.len();
            prop_assert!(pairs <= rules.sizes.pairs && counted <= rules.sizes.counted);
            prop_assert_eq!(memory.values().count(), pairs);
            prop_assert!(memory.values().all(|(_, _, value)| (0.0..=1.0).contains(&value)));
        }
        let values: Vec<(String, String, f64)> =
            memory.values().map(|(pod_type, node, value)| (pod_type.to_owned(), node.to_owned(), value)).collect();
        let again = LearnedRewards::restored(&values, &rules);
        prop_assert!(again.values().eq(memory.values()));
    }

    #[test]
    fn a_value_stays_between_itself_and_the_reward(
        value in 0.0..=1.0_f64,
        reward in 0.0..=1.0_f64,
        weight in 0.0..=1.0_f64,
        times in 1..9_i32,
    ) {
        let after = updated(value, reward, weight, times);
        prop_assert!(after >= value.min(reward) - 1e-15 && after <= value.max(reward) + 1e-15);
        let one_by_one = (0..times).fold(value, |value, _| updated(value, reward, weight, 1));
        prop_assert!((after - one_by_one).abs() < 1e-12);
    }
}
