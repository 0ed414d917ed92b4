//! Tests of the agent `pigeon`: its vectors, and a comparison with direct implementations of its formulas.

use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;

use super::{assert_real, vectors};
use crate::pigeon::SMOOTHING;
use crate::pigeon::{
    LearnedDemand, Matrix, Objective, PigeonCluster, PigeonNode, PigeonResource, PigeonRules, Row, priorities,
};
use crate::wire;

#[derive(Deserialize)]
struct Vector {
    id: String,
    policy: String,
    prime_resource_index: usize,
    smoothing_factor: f64,
    nodes: Vec<Node>,
    history_demands: Vec<Vec<f64>>,
    demand: Vec<f64>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Node {
    capacity: Vec<f64>,
    requested: Vec<f64>,
}

#[derive(Deserialize)]
struct Expected {
    objective: Vec<Option<f64>>,
    priority: Vec<u8>,
    objective_neg_std: Option<Vec<Option<f64>>>,
    priority_neg_std: Option<Vec<u8>>,
    gamma_demand: Option<f64>,
    gamma_system: Option<Vec<Option<f64>>>,
    demand_mean: Option<Vec<f64>>,
    demand_cov: Option<Vec<Vec<f64>>>,
}

fn row(values: &[f64]) -> Row {
    let mut row = Row::default();
    row.iter_mut().zip(values).for_each(|(place, value)| *place = *value);
    row
}

fn learned(demands: &[Row], smoothing: f64) -> LearnedDemand {
    let mut learned = LearnedDemand::default();
    demands.iter().for_each(|demand| learned.learn(demand, smoothing));
    learned
}

fn objectives(rules: PigeonRules, nodes: &[PigeonNode], demand: &Row, learned: &LearnedDemand) -> Vec<Option<f64>> {
    let cluster = PigeonCluster::new(rules, nodes.iter().copied());
    let placement = cluster.place(*demand, learned);
    nodes.iter().map(|node| placement.objective(node)).collect()
}

#[track_caller]
fn assert_objectives(id: &str, values: &[Option<f64>], objectives: &[Option<f64>], scores: &[u8]) {
    assert_eq!(values.len(), objectives.len(), "{id}");
    for (value, expected) in values.iter().zip(objectives) {
        assert_eq!(value.is_some(), expected.is_some(), "{id}");
        if let (Some(value), Some(expected)) = (value, expected) {
            assert_real(id, *value, *expected);
        }
    }
    let sent: Vec<u8> = priorities(values).into_iter().map(wire::score).collect();
    assert_eq!(sent, scores, "{id}");
}

#[test]
fn vectors_are_met() {
    for vector in vectors::<Vector>("pigeon") {
        let Vector { id, smoothing_factor, expected, .. } = &vector;
        let nodes: Vec<_> = vector.nodes.iter().map(|node| counted(&node.capacity, &node.requested)).collect();
        let demand = row(&vector.demand);
        let mut learned =
            learned(&vector.history_demands.iter().map(|one| row(one)).collect::<Vec<_>>(), *smoothing_factor);
        learned.learn(&demand, *smoothing_factor);
        let objective = match vector.policy.as_str() {
            "LOAD_BALANCE" => Objective::LoadBalance,
            "CONSOLIDATE" => Objective::Consolidate,
            "A_BINPACK" => Objective::AdaptiveBinPacking,
            policy => panic!("{id}: {policy}"),
        };
        let resources = vector.demand.len();
        let rules = PigeonRules { objective, resources, prime: vector.prime_resource_index };
        let values = objectives(rules, &nodes, &demand, &learned);
        assert_objectives(id, &values, &expected.objective, &expected.priority);
        if let (Some(objective), Some(scores)) = (&expected.objective_neg_std, &expected.priority_neg_std) {
            let rules = PigeonRules { objective: Objective::ConsolidateByDeviation, ..rules };
            assert_objectives(id, &objectives(rules, &nodes, &demand, &learned), objective, scores);
        }
        check_variability(id, rules, &nodes, &demand, &learned, expected);
    }
}

fn check_variability(
    id: &str,
    rules: PigeonRules,
    nodes: &[PigeonNode],
    demand: &Row,
    learned: &LearnedDemand,
    expected: &Expected,
) {
    let Some(gamma) = expected.gamma_demand else { return };
    let cluster = PigeonCluster::new(rules, nodes.iter().copied());
    let placement = cluster.place(*demand, learned);
    assert_real(id, placement.target, gamma);
    for (node, expected) in nodes.iter().zip(expected.gamma_system.iter().flatten()) {
        let fits = node.fits(demand, rules.resources);
        assert_eq!(fits, expected.is_some(), "{id}");
        if let Some(expected) = expected {
            assert_real(id, placement.variability(node).expect("it counts"), *expected);
        }
    }
    let (mean, covariance) = learned.relative_to(&naive_mean_capacity(nodes), rules.resources);
    let all = expected.demand_mean.iter().flatten().zip(&mean);
    all.for_each(|(expected, mean)| assert_real(id, *mean, *expected));
    for (expected, row) in expected.demand_cov.iter().flatten().zip(&covariance) {
        expected.iter().zip(row).for_each(|(expected, value)| assert_real(id, *value, *expected));
    }
}

fn counted(capacity: &[f64], requested: &[f64]) -> PigeonNode {
    PigeonNode { capacity: row(capacity), requested: row(requested), counted: true }
}

// Direct implementations of the formulas, which read all nodes for each candidate.

fn naive_mean_capacity(nodes: &[PigeonNode]) -> Row {
    std::array::from_fn(|j| {
        let all: Vec<f64> =
            nodes.iter().filter(|node| node.counted).map(|node| node.capacity[j]).filter(|c| *c > 0.0).collect();
        if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / all.len() as f64 }
    })
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn naive_gamma(mu: &Row, covariance: &Matrix) -> f64 {
    let (mut form, mut square) = (0.0, 0.0);
    for i in 0..mu.len() {
        square += mu[i] * mu[i];
        for j in 0..mu.len() {
            form += mu[i] * covariance[i][j] * mu[j];
        }
    }
    if square == 0.0 { 0.0 } else { form.max(0.0).sqrt() / square }
}

fn naive(
    rules: PigeonRules,
    nodes: &[PigeonNode],
    candidate: usize,
    demand: &Row,
    learned: &LearnedDemand,
) -> Option<f64> {
    let chosen = nodes[candidate];
    if (0..rules.resources).any(|j| demand[j] > chosen.capacity[j] - chosen.requested[j]) {
        return None;
    }
    let mut after: Vec<PigeonNode> = nodes.to_vec();
    (0..rules.resources).for_each(|j| after[candidate].requested[j] += demand[j]);
    after[candidate].counted = true;
    after.retain(|node| node.counted);
    let p = rules.prime;
    let prime: Vec<f64> =
        after.iter().filter(|node| node.capacity[p] > 0.0).map(|node| node.requested[p] / node.capacity[p]).collect();
    let deviation = |values: &[f64]| {
        let m = mean(values);
        mean(&values.iter().map(|u| (u - m) * (u - m)).collect::<Vec<_>>()).sqrt()
    };
    Some(match rules.objective {
        Objective::LoadBalance => deviation(&prime),
        Objective::ConsolidateByDeviation => -deviation(&prime),
        Objective::Consolidate => {
            let values: Vec<f64> = prime.iter().map(|u| u.clamp(0.0, 1.0)).collect();
            let m = mean(&values);
            if m <= 0.0 || m >= 1.0 {
                return Some(0.0);
            }
            let t = |u: f64| if u < m { (m - u) / m } else { (u - m) / (1.0 - m) };
            1.0 - mean(&values.iter().map(|u| t(*u) * t(*u)).collect::<Vec<_>>()).sqrt()
        }
        Objective::AdaptiveBinPacking => {
            let u = |node: &PigeonNode, j: usize| match (node.capacity[j] > 0.0, node.requested[j] > 0.0) {
                (true, _) => (node.requested[j] / node.capacity[j]).clamp(0.0, 1.0),
                (false, used) => f64::from(used),
            };
            let column = |j: usize| after.iter().map(|node| u(node, j)).collect::<Vec<_>>();
            let covariance = |j: usize, k: usize| {
                let (m, n) = (mean(&column(j)), mean(&column(k)));
                let products = column(j).into_iter().zip(column(k)).map(|(a, b)| (a - m) * (b - n));
                mean(&products.collect::<Vec<_>>())
            };
            let counts = |j: usize| j < rules.resources;
            let mu = std::array::from_fn(|j| if counts(j) { mean(&column(j)) } else { 0.0 });
            let s: Matrix = std::array::from_fn(|j| {
                std::array::from_fn(|k| if counts(j) && counts(k) { covariance(j, k) } else { 0.0 })
            });
            let (nu, d) = learned.relative_to(&naive_mean_capacity(nodes), rules.resources);
            (naive_gamma(&mu, &s) - naive_gamma(&nu, &d)).abs()
        }
    })
}

fn node() -> impl Strategy<Value = PigeonNode> {
    let size = || prop_oneof![4 => (1..64_u32).prop_map(|size| f64::from(size) * 1000.0), 1 => Just(0.0)];
    let sizes = (size(), size(), Just(110.0), size(), size()).prop_map(|(a, b, c, d, e)| [a, b, c, d, e]);
    let used = proptest::array::uniform5(prop_oneof![0.0..1.0_f64, Just(0.0), Just(1.0), Just(1.2)]);
    (sizes, used, prop::bool::weighted(0.9)).prop_map(|(capacity, used, counted)| PigeonNode {
        capacity,
        // Pods may stay on a node that no longer has a resource.
        requested: std::array::from_fn(|j| (capacity[j].max(1.0) * used[j]).floor()),
        counted,
    })
}

fn demand() -> impl Strategy<Value = Row> {
    proptest::array::uniform5(prop_oneof![(0..4000_u32).prop_map(f64::from), Just(0.0)])
}

fn rules() -> impl Strategy<Value = PigeonRules> {
    let objective = prop::sample::select(vec![
        Objective::LoadBalance,
        Objective::Consolidate,
        Objective::ConsolidateByDeviation,
        Objective::AdaptiveBinPacking,
    ]);
    (objective, 1..=5_usize).prop_flat_map(|(objective, resources)| {
        (0..resources).prop_map(move |prime| PigeonRules { objective, resources, prime })
    })
}

proptest! {
    #[test]
    fn one_replaced_row_equals_a_new_calculation(
        rules in rules(),
        nodes in proptest::collection::vec(node(), 1..30),
        history in proptest::collection::vec(demand(), 0..20),
        demand in demand(),
    ) {
        let learned = learned(&history, SMOOTHING);
        let values = objectives(rules, &nodes, &demand, &learned);
        for (candidate, value) in values.into_iter().enumerate() {
            let expected = naive(rules, &nodes, candidate, &demand, &learned);
            prop_assert_eq!(value.is_some(), expected.is_some());
            if let (Some(value), Some(expected)) = (value, expected) {
                // A root magnifies rounding errors near 0.
                let close = (value - expected).abs() <= 1e-9 * expected.abs().max(1.0);
                let close = close || (value * value - expected * expected).abs() < 1e-13;
                prop_assert!(close, "{rules:?}: {value} is not {expected}");
            }
        }
    }

    #[test]
    fn the_order_of_nodes_does_not_matter(
        rules in rules(),
        (nodes, order) in proptest::collection::vec(node(), 1..30).prop_flat_map(|nodes| {
            let order: Vec<usize> = (0..nodes.len()).collect();
            (Just(nodes), Just(order).prop_shuffle())
        }),
        demand in demand(),
    ) {
        let learned = learned(&[[500.0; 5], demand], SMOOTHING);
        let scores = priorities(&objectives(rules, &nodes, &demand, &learned));
        let other: Vec<_> = order.iter().map(|at| nodes[*at]).collect();
        let other = priorities(&objectives(rules, &other, &demand, &learned));
        for (at, score) in order.iter().zip(other) {
            prop_assert!((score - scores[*at]).abs() < 1e-4, "{score} is not {}", scores[*at]);
        }
    }

    #[test]
    fn the_best_scores_ten_and_what_does_not_fit_none(
        objectives in proptest::collection::vec(prop::option::of(prop_oneof![any::<f64>(), 0.0..1.0_f64]), 0..20),
    ) {
        let scores = priorities(&objectives);
        let feasible = |objective: &Option<f64>| objective.is_some_and(f64::is_finite);
        let best = objectives.iter().flatten().copied().filter(|one| one.is_finite()).reduce(f64::min);
        for (objective, score) in objectives.iter().zip(&scores) {
            prop_assert!((0.0..=10.0).contains(score), "{score}");
            prop_assert_eq!(feasible(objective), wire::score(*score) > 0);
            prop_assert!(*objective != best || best.is_none() || *score == 10.0);
        }
    }

    #[test]
    fn learning_equals_means_of_all(demands in proptest::collection::vec(demand(), 1..100)) {
        let learned = learned(&demands, SMOOTHING);
        let column = |j: usize| demands.iter().map(|demand| demand[j]).collect::<Vec<_>>();
        for j in 0..5 {
            let expected = mean(&column(j));
            prop_assert!((learned.mean[j] - expected).abs() <= 1e-9 * expected.max(1.0));
            for k in 0..5 {
                let products: Vec<f64> = column(j).into_iter().zip(column(k)).map(|(a, b)| a * b).collect();
                let expected = mean(&products) - mean(&column(j)) * mean(&column(k));
                prop_assert!((learned.covariance[j][k] - expected).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn numbers_from_outside_never_become_a_score_out_of_bounds(
        rules in rules(),
        numbers in proptest::collection::vec(proptest::array::uniform10(any::<f64>()), 1..6),
        demand in proptest::array::uniform5(any::<f64>()),
    ) {
        let half = |all: &[f64; 10], from: usize| -> Row { std::array::from_fn(|j| all[from + j]) };
        let node = |all: &[f64; 10]| PigeonNode { capacity: half(all, 0), requested: half(all, 5), counted: true };
        let nodes: Vec<_> = numbers.iter().map(node).collect();
        for score in priorities(&objectives(rules, &nodes, &demand, &learned(&[demand], SMOOTHING))) {
            prop_assert!((0.0..=10.0).contains(&score), "{score}");
        }
    }
}

#[test]
fn equal_demand_has_no_variability_at_all() {
    let learned = learned(&[[0.1, 1e12 / 3.0, 1.0, 0.0, 7.7]; 150], SMOOTHING);
    assert_eq!((learned.arrivals, learned.covariance), (100, Matrix::default()));
}

#[test]
fn small_differences_between_many_full_nodes_are_seen() {
    let rules = PigeonRules { objective: Objective::LoadBalance, resources: 1, prime: 0 };
    let nodes: Vec<_> = (0..3000).map(|i| counted(&[1e9], &[9e8 + f64::from(i % 3) * 10.0])).collect();
    let value = objectives(rules, &nodes, &Row::default(), &LearnedDemand::default())[0].expect("it fits");
    let expected = 1e-8 * (2.0_f64 / 3.0).sqrt();
    assert!((value / expected - 1.0).abs() < 1e-5, "{value} is not {expected}");
}

#[test]
fn what_is_no_number_is_not_learned() {
    let before = learned(&[[1.0; 5]], SMOOTHING);
    assert_eq!(learned(&[[1.0; 5], [f64::NAN; 5], [f64::INFINITY; 5]], SMOOTHING), before);
}

#[test]
fn what_was_learned_survives_a_restart() {
    let before = learned(&[[100.0, 0.1, 1.0, 0.0, 0.0], [250.0, 512.0, 1.0, 2.0, 1.0 / 3.0]], SMOOTHING);
    let text = serde_json::to_string(&before).expect("a text");
    let after: LearnedDemand = serde_json::from_str(&text).expect("what was written");
    assert_eq!(after.arrivals, before.arrivals);
    let all =
        |learned: &LearnedDemand| learned.covariance.iter().flatten().chain(&learned.mean).copied().collect::<Vec<_>>();
    all(&after).into_iter().zip(all(&before)).for_each(|(after, before)| assert_real("restarted", after, before));
}

#[test]
fn noise_between_equal_nodes_is_not_stretched() {
    assert_eq!(priorities(&[Some(0.1 + 0.2), Some(0.3), None]), [10.0, 10.0, 0.0]);
}

#[test]
fn a_node_that_does_not_count_is_still_scored() {
    let rules = PigeonRules { objective: Objective::LoadBalance, resources: 1, prime: 0 };
    let full = PigeonNode { counted: false, ..counted(&[10.0], &[9.0]) };
    let nodes = [counted(&[10.0], &[5.0]), counted(&[10.0], &[5.0]), full];
    let values = objectives(rules, &nodes, &row(&[1.0]), &LearnedDemand::default());
    let expected = [0.05, 0.05, (0.5_f64.powi(2) * 2.0 / 9.0).sqrt()];
    assert_objectives("not counted", &values, &expected.map(Some), &[10, 10, 1]);
}

#[rstest]
#[case(PigeonResource::Cpu, 0.0, 10.0)]
#[case(PigeonResource::Cpu, 250.0, 250.0)]
#[case(PigeonResource::Memory, 0.0, 16.0)]
#[case(PigeonResource::Memory, 1_048_575.0, 16.0)]
#[case(PigeonResource::Memory, 1_048_576.0, 1.0)]
#[case(PigeonResource::Memory, 3_000_000.0, 2.0)]
#[case(PigeonResource::Pods, 0.0, 1.0)]
#[case(PigeonResource::Gpu, 0.0, 0.0)]
#[case(PigeonResource::EphemeralStorage, 5e9, 4.0)]
fn demand_has_units(#[case] resource: PigeonResource, #[case] request: f64, #[case] demand: f64) {
    assert_eq!(resource.demand(request), demand);
}
