//! The vectors of the agent `reward`, what containers are worth, and the bounds of its memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;

use super::{assert_real, vectors};
use crate::logic::placement::reward::{
    ContainerRun, PodReport, PodRun, RewardMemory, RewardRules, RewardSizes, RunEnd, pod_type, updated,
};
use crate::logic::placement::wire;

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
        let mut memory = RewardMemory::default();
        assert_eq!(rewards.len(), expected.trace.len(), "{id}");
        for (reward, value) in rewards.into_iter().zip(expected.trace) {
            memory.learn("web", "n1", reward, &rules);
            assert_real(&id, memory.of_type("web", &rules).of("n1"), value);
        }
        for value in [memory.of_node("n1"), memory.of_type_everywhere("web")] {
            assert_real(&id, value.expect("a value"), expected.value);
        }
        let score = memory.of_type("web", &rules).score("n1");
        assert_eq!((wire::score(score), wire::floored(score)), (expected.score, expected.score_floor), "{id}");
    }
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn end(exit_code: i32, started: i64, finished: i64) -> Option<RunEnd> {
    Some(RunEnd { exit_code, started: Some(second(started)), finished: Some(second(finished)) })
}

fn container(name: &str, restarts: i32, ended: Option<RunEnd>, before: Option<RunEnd>) -> ContainerRun {
    ContainerRun { name: name.to_owned(), restarts, running: ended.is_none(), ended, before }
}

fn waiting(name: &str) -> ContainerRun {
    ContainerRun { running: false, ..container(name, 0, None, None) }
}

/// The value after one report of a pod of these containers, with a weight of 1: the reward itself; None if there was none.
fn reward(run: PodRun) -> Option<f64> {
    let mut memory = RewardMemory::default();
    let pod = PodReport { uid: "u", pod_type: "web", node: "n", run };
    memory.observe(&pod, second(0), &RewardRules { weight: 1.0, ..RewardRules::default() });
    memory.of_node("n")
}

#[rstest]
#[case::running(vec![container("a", 0, None, None)], Some(1.0))]
#[case::no_container(vec![], None)]
#[case::starting(vec![waiting("a")], None)]
#[case::one_of_two_starts(vec![container("a", 0, None, None), waiting("b")], None)]
#[case::first_failure_soon(vec![container("a", 0, end(1, 0, 30), None)], Some(0.0))]
#[case::first_failure_late(vec![container("a", 0, end(1, 0, 601), None)], Some(0.5))]
#[case::failure_at_the_limit(vec![container("a", 0, end(1, 0, 600), None)], Some(0.0))]
#[case::failures_in_a_row(vec![container("a", 1, end(1, 40, 65), end(1, 0, 5))], Some(0.0))]
#[case::failures_over_a_minute_apart(vec![container("a", 1, end(1, 40, 4000), end(1, 0, 5))], Some(0.5))]
#[case::failure_after_success(vec![container("a", 1, end(1, 4000, 4010), end(0, 0, 5))], Some(0.0))]
#[case::no_times(vec![container("a", 0, Some(RunEnd { exit_code: 137, started: None, finished: None }), None)], Some(0.0))]
#[case::done(vec![container("a", 0, end(0, 0, 5), None)], None)]
#[case::done_beside_running(vec![container("a", 0, end(0, 0, 5), None), container("b", 0, None, None)], Some(1.0))]
#[case::again_after_failure(vec![container("a", 1, None, end(1, 0, 5))], None)]
#[case::failure_listed_first(vec![container("a", 0, end(1, 0, 5), None), container("b", 0, None, None)], Some(0.0))]
#[case::worst_listed_first(vec![container("a", 0, end(1, 0, 5), None), container("b", 0, end(1, 0, 900), None)], Some(0.0))]
#[case::worst_listed_last(vec![container("a", 0, end(1, 0, 900), None), container("b", 0, end(1, 0, 5), None)], Some(0.0))]
fn containers_are_worth(#[case] containers: Vec<ContainerRun>, #[case] expected: Option<f64>) {
    assert_eq!(reward(PodRun::Running(containers)), expected);
}

#[test]
fn phases_are_worth() {
    assert_eq!(reward(PodRun::Failed), Some(0.0));
    assert_eq!(reward(PodRun::Neutral), None);
}

/// How many rewards these reports give, as (time, uid, run).
fn rewards(reports: &[(i64, &str, PodRun)]) -> Vec<Option<f64>> {
    let rules = RewardRules::default();
    let mut memory = RewardMemory::default();
    let report = |(at, uid, run): &(i64, &str, PodRun)| {
        let before = memory.of_node("n");
        memory.observe(&PodReport { uid, pod_type: "web", node: "n", run: run.clone() }, second(*at), &rules);
        let after = memory.of_node("n");
        (before != after).then_some(after).flatten()
    };
    reports.iter().map(report).collect()
}

#[test]
fn each_run_counts_once() {
    let fails = |restarts| PodRun::Running(vec![container("a", restarts, end(1, 0, 5), None)]);
    let values = rewards(&[
        (0, "u", fails(0)),
        (1, "u", fails(0)),
        (2, "u", fails(1)),
        (3, "v", fails(1)),
        (4, "v", PodRun::Failed),
        (5, "v", PodRun::Failed),
    ]);
    let counted: Vec<bool> = values.iter().map(Option::is_some).collect();
    assert_eq!(counted, [true, false, true, true, true, false]);
}

#[test]
fn a_running_pod_is_rewarded_once_a_period() {
    let rules = RewardRules { initial: 0.0, ..RewardRules::default() };
    let mut memory = RewardMemory::default();
    let pod =
        PodReport { uid: "u", pod_type: "web", node: "n", run: PodRun::Running(vec![container("a", 0, None, None)]) };
    for at in [0, 1, 599, 600, 700, 1200] {
        memory.observe(&pod, second(at), &rules);
    }
    assert_real("three rewards", memory.of_node("n").expect("a value"), 1.0 - 0.9_f64.powi(3));
}

#[test]
fn unknown_nodes_have_the_initial_value() {
    let rules = RewardRules { initial: 0.7, ..RewardRules::default() };
    let mut memory = RewardMemory::default();
    assert_real("unknown type", memory.of_type("web", &rules).score("n2"), 7.0);
    memory.learn("web", "n1", 0.0, &rules);
    let values = memory.of_type("web", &rules);
    assert_real("known node", values.of("n1"), 0.63);
    assert_real("new node", values.of("n2"), 0.7);
    assert_real("other type", memory.of_type("db", &rules).of("n1"), 0.7);
}

#[test]
fn types_are_read_off_labels() {
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(pod_type(&labels(&[("app", "a"), ("podtype", "t"), ("name", "n")]), "pod"), "t");
    assert_eq!(pod_type(&labels(&[("app", "a"), ("name", "n")]), "pod"), "a");
    assert_eq!(pod_type(&labels(&[("app", ""), ("name", "n")]), "pod"), "n");
    assert_eq!(pod_type(&labels(&[]), "pod"), "pod");
}

fn small() -> RewardRules {
    RewardRules { sizes: RewardSizes { nodes: 3, types: 2, pairs: 4, counted: 5 }, ..RewardRules::default() }
}

#[test]
fn what_was_updated_least_recently_is_forgotten() {
    let rules = small();
    let mut memory = RewardMemory::default();
    for node in ["a", "b", "c", "a", "d"] {
        memory.learn("web", node, 0.0, &rules);
    }
    let known = ["a", "b", "c", "d"].map(|node| memory.of_node(node).is_some());
    assert_eq!(known, [true, false, true, true]);
    assert_real("kept", memory.of_node("a").expect("a value"), 0.81);
}

fn reports() -> impl Strategy<Value = Vec<(i64, String, String, String, PodRun)>> {
    let ended = prop::option::of((0..2_i32, 0..5000_i64, 0..5000_i64));
    let ended = ended.prop_map(|ended| ended.and_then(|(exit, from, to)| end(exit, from, to)));
    let container = ("[ab]", 0..3_i32, ended.clone(), ended)
        .prop_map(|(name, restarts, ended, before)| container(&name, restarts, ended, before));
    let run = prop_oneof![
        Just(PodRun::Neutral),
        Just(PodRun::Failed),
        proptest::collection::vec(container, 0..3).prop_map(PodRun::Running),
    ];
    proptest::collection::vec((0..10_000_i64, "u[0-9]", "t[0-9]", "n[0-9]", run), 0..60)
}

proptest! {
    #[test]
    fn memory_stays_bounded_and_values_are_parts(reports in reports()) {
        let rules = small();
        let mut memory = RewardMemory::default();
        for (at, uid, pod_type, node, run) in &reports {
            let pod = PodReport { uid, pod_type, node, run: run.clone() };
            memory.observe(&pod, second(*at), &rules);
            let RewardSizes { nodes, types, pairs, counted } = memory.sizes();
            let most = rules.sizes;
            prop_assert!(nodes <= most.nodes && types <= most.types && pairs <= most.pairs && counted <= most.counted);
            prop_assert!((0.0..=10.0).contains(&memory.of_type(pod_type, &rules).score(node)));
        }
        let text = serde_json::to_string(&memory).expect("a text");
        let mut again: RewardMemory = serde_json::from_str(&text).expect("what was written");
        prop_assert_eq!(again.sizes(), memory.sizes());
        for (_, _, pod_type, node, _) in &reports {
            let value = |memory: &RewardMemory| memory.of_type(pod_type, &rules).of(node);
            prop_assert!((value(&again) - value(&memory)).abs() < 1e-12);
        }
        // What is forgotten next is the same, too.
        memory.learn("t", "n", 0.0, &rules);
        again.learn("t", "n", 0.0, &rules);
        let known = |memory: &RewardMemory| reports.iter().map(|report| memory.of_node(&report.3).is_some()).collect::<Vec<_>>();
        prop_assert_eq!(known(&again), known(&memory));
    }

    #[test]
    fn a_value_stays_between_itself_and_the_reward(
        value in 0.0..=1.0_f64,
        reward in 0.0..=1.0_f64,
        weight in 0.0..=1.0_f64,
    ) {
        let after = updated(value, reward, weight);
        prop_assert!(after >= value.min(reward) - 1e-15 && after <= value.max(reward) + 1e-15);
    }
}
