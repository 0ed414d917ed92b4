//! Tests of the agent `safe`: its vectors, statistics and reasons.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::congestion::text;
use super::{assert_real, vectors};
use crate::risk::{BetaFit, certain};
use crate::safe::{Basis, Judged, Moments, PerResource, SafeRules, StatisticKeys, Statistics, Usage};
use crate::safe::{CPU, MEMORY};
use crate::wire;
use ganglion_core::facts::PUBLISHED;

#[derive(Deserialize)]
struct Vector {
    id: String,
    node: Node,
    config: Config,
    expected: Expected,
}

#[derive(Deserialize)]
struct Node {
    allocatable_cpu_millicores: f64,
    allocatable_memory_bytes: f64,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Config {
    utilization_threshold: f64,
    percentile: f64,
    forecast_weight: f64,
    balance_margin: f64,
    balance_sensitivity: f64,
}

#[derive(Deserialize)]
struct Expected {
    pod_request: Request,
    cpu: Resource,
    memory: Resource,
    filter_accept: bool,
    overload_score_real: f64,
    overload_score: u8,
    overload_score_floor: u8,
    balance_score_real: f64,
    balance_score: u8,
}

#[derive(Deserialize)]
struct Request {
    cpu_millicores: f64,
    memory_bytes: f64,
}

#[derive(Deserialize)]
struct Resource {
    valid: bool,
    accept: bool,
    mu: Option<f64>,
    sigma: Option<f64>,
    sigma_effective: Option<f64>,
    alpha: Option<f64>,
    beta: Option<f64>,
    risk: Option<f64>,
    overload_score_real: Option<f64>,
    balance_score_real: Option<f64>,
}

fn usage(annotations: &BTreeMap<String, String>, keys: &StatisticKeys, capacity: f64) -> Usage {
    let statistics = keys.read(|key| annotations.get(key).map(String::as_str));
    Usage { capacity, statistics, unmeasured: 0.0 }
}

fn node(annotations: &BTreeMap<String, String>, cpu: f64, memory: f64) -> PerResource<Usage> {
    PerResource { cpu: usage(annotations, &CPU, cpu), memory: usage(annotations, &MEMORY, memory) }
}

#[test]
fn vectors_are_met() {
    for Vector { id, node: at, config, expected } in vectors("safe") {
        let rules = SafeRules {
            threshold: config.utilization_threshold,
            accepted: config.percentile,
            forecast_weight: config.forecast_weight,
            margin: config.balance_margin,
            sensitivity: config.balance_sensitivity,
        };
        let request =
            PerResource { cpu: expected.pod_request.cpu_millicores, memory: expected.pod_request.memory_bytes };
        let node = node(&at.annotations, at.allocatable_cpu_millicores, at.allocatable_memory_bytes);
        let moments = node.with(&request, &rules);
        let judged = moments.judge(&rules);
        check_resource(&format!("{id} cpu"), judged.cpu, &expected.cpu, &rules);
        check_resource(&format!("{id} memory"), judged.memory, &expected.memory, &rules);
        assert_eq!(judged.rejection(&rules).is_none(), expected.filter_accept, "{id}");
        let (overload, balance) = (judged.overload(&rules), moments.balance(&rules));
        assert_real(&id, overload, expected.overload_score_real);
        assert_real(&id, balance, expected.balance_score_real);
        assert_eq!(wire::score(overload), expected.overload_score, "{id}");
        assert_eq!(wire::floored(overload), expected.overload_score_floor, "{id}");
        assert_eq!(wire::score(balance), expected.balance_score, "{id}");
    }
}

fn check_resource(id: &str, judged: Option<Judged>, expected: &Resource, rules: &SafeRules) {
    assert_eq!(judged.is_some(), expected.valid, "{id}");
    let Some(judged) = judged else {
        assert!(expected.accept, "{id}: a resource that is not judged is accepted");
        return;
    };
    let real = |what: &str, value: f64, expected: Option<f64>| {
        assert_real(&format!("{id} {what}"), value, expected.expect("a value"));
    };
    let Moments { mean, deviation } = judged.moments;
    real("mu", mean, expected.mu);
    real("sigma", deviation, expected.sigma);
    real("risk", judged.risk, expected.risk);
    real("overload", judged.overload(rules), expected.overload_score_real);
    real("balance", judged.moments.balance(rules), expected.balance_score_real);
    assert_eq!(judged.is_accepted(rules), expected.accept, "{id}");
    let fit = certain(mean, deviation, rules.threshold).is_none().then(|| BetaFit::fit(mean, deviation));
    assert_eq!(fit.is_some(), expected.alpha.is_some(), "{id}: where the distribution counts");
    let sigma = match fit {
        Some(BetaFit { alpha, beta }) => {
            real("alpha", alpha, expected.alpha);
            real("beta", beta, expected.beta);
            (alpha * beta / (alpha + beta + 1.0)).sqrt() / (alpha + beta)
        }
        None => deviation,
    };
    real("effective sigma", sigma, expected.sigma_effective);
    let relative = (judged.risk / expected.risk.expect("a risk") - 1.0).abs();
    let certain = judged.risk == 0.0 || judged.risk == 1.0;
    assert!(certain || relative < 1e-9, "{id}: the relative error of the risk is {relative}");
}

fn statistics(basis: Basis, mean: f64) -> Option<Statistics> {
    Statistics::new(basis, mean, Some(100.0), None)
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn statistics_of_what_is_used_are_preferred() {
    let mut all = texts(&[("mean-free-cpu", "700"), ("std-free-cpu", "100"), ("mean-used-cpu", "400")]);
    let read = |all: &BTreeMap<String, String>| CPU.read(|key| all.get(key).map(String::as_str));
    assert_eq!(read(&all), statistics(Basis::Used, 400.0));
    all.insert("mean-used-cpu".to_owned(), "n/a".to_owned());
    assert_eq!(read(&all), statistics(Basis::Free, 700.0));
    all.insert("mean-free-cpu".to_owned(), "+Inf".to_owned());
    assert_eq!(read(&all), None);
}

#[test]
fn both_spellings_of_a_forecast_are_read() {
    for (first, second, expected) in [("10", "20", Some(10.0)), ("N/A", "20", Some(20.0)), ("N/A", "None", None)] {
        let all =
            texts(&[("mean-free-memory", "1"), ("forcasted-free-memory", first), ("forecasted-free-memory", second)]);
        let read = MEMORY.read(|key| all.get(key).map(String::as_str));
        assert_eq!(read, Statistics::new(Basis::Free, 1.0, None, expected));
    }
}

#[test]
fn a_negative_deviation_is_none() {
    let all = texts(&[("mean-used-cpu", "1"), ("std-used-cpu", "-1")]);
    let read = CPU.read(|key| all.get(key).map(String::as_str)).expect("statistics");
    assert_eq!(read.deviation(), None);
}

#[test]
fn statistics_from_anywhere_are_valid() {
    assert_eq!(Statistics::new(Basis::Used, f64::NAN, Some(1.0), None), None);
    let valid = Statistics::new(Basis::Used, 1.0, None, None);
    assert_eq!(Statistics::new(Basis::Used, 1.0, Some(f64::INFINITY), Some(f64::NAN)), valid);
}

#[test]
fn pods_that_were_not_measured_are_added() {
    let used = Usage { capacity: 1000.0, statistics: statistics(Basis::Used, 400.0), unmeasured: 50.0 };
    let free = Usage { statistics: statistics(Basis::Free, 600.0), ..used };
    for usage in [used, free] {
        let moments = usage.with(50.0, &SafeRules::default()).expect("statistics");
        assert_eq!(moments, Moments { mean: 0.5, deviation: 0.1 });
    }
}

#[test]
fn more_free_than_allocatable_is_unused() {
    let usage = Usage { capacity: 1000.0, statistics: statistics(Basis::Free, 1200.0), unmeasured: 0.0 };
    assert_eq!(usage.with(50.0, &SafeRules::default()).map(|moments| moments.mean), Some(0.05));
}

#[test]
fn rejections_have_a_reason() {
    let judged = |mean, risk| Some(Judged { moments: Moments { mean, deviation: 0.18 }, risk });
    let rules = SafeRules::default();
    let reason = |cpu, memory| PerResource { cpu, memory }.rejection(&rules);
    assert_eq!(reason(judged(0.71, 0.412), None).as_deref(), Some("cpu risk 0.412 > 0.300 (mu 0.71, sigma 0.18)"));
    assert_eq!(reason(judged(0.71, 0.3), None), None, "as much as is accepted");
    assert_eq!(
        reason(judged(0.6, 0.30001), judged(1.0, 1.0)).as_deref(),
        Some("cpu risk 0.30001 > 0.30000 (mu 0.60, sigma 0.18); memory risk 1.000 > 0.300 (mu 1.00, sigma 0.18)"),
    );
    assert_eq!(reason(None, judged(0.5, f64::NAN)).as_deref(), Some("memory risk NaN > 0.300 (mu 0.50, sigma 0.18)"));
}

/// The cached node keeps only the annotations listed in `PUBLISHED`.
#[test]
fn every_annotation_is_kept() {
    for keys in [CPU, MEMORY] {
        let StatisticKeys { mean_used, deviation_used, forecast_used, mean_free, deviation_free, forecast_free } = keys;
        let [first, second] = forecast_free;
        for key in [mean_used, deviation_used, forecast_used, mean_free, deviation_free, first, second] {
            assert!(PUBLISHED.contains(&key), "{key}");
        }
    }
}

fn rules() -> impl Strategy<Value = SafeRules> {
    let part = || prop_oneof![0.0..=1.0_f64, Just(0.0), Just(1.0)];
    (part(), part(), part(), 0.0..10.0_f64, 0.01..10.0_f64).prop_map(
        |(threshold, accepted, forecast_weight, margin, sensitivity)| SafeRules {
            threshold,
            accepted,
            forecast_weight,
            margin,
            sensitivity,
        },
    )
}

proptest! {
    #[test]
    fn scores_are_in_bounds_for_any_text(
        rules in rules(),
        values in proptest::collection::vec(text(), 12),
        sizes in (any::<i64>(), any::<i64>()),
        request in (0..i64::MAX, 0..i64::MAX),
    ) {
        let keys = ["mean-used", "std-used", "forecasted-used", "mean-free", "std-free", "forcasted-free"];
        let keys = keys.iter().flat_map(|key| [format!("{key}-cpu"), format!("{key}-memory")]);
        let annotations: BTreeMap<String, String> = keys.zip(values).collect();
        let node = node(&annotations, sizes.0 as f64, sizes.1 as f64);
        let request = PerResource { cpu: request.0 as f64, memory: request.1 as f64 };
        let moments = node.with(&request, &rules);
        let judged = moments.judge(&rules);
        for moments in [moments.cpu, moments.memory].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&moments.mean) && (0.0..=1.0).contains(&moments.deviation));
        }
        for score in [judged.overload(&rules), moments.balance(&rules)] {
            prop_assert!((0.0..=10.0).contains(&score), "{score}");
        }
        for judged in [judged.cpu, judged.memory].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&judged.risk), "{}", judged.risk);
        }
    }

    #[test]
    fn the_worse_resource_scores_without_the_other(
        rules in rules(), means in [0.0..=1.0_f64, 0.0..=1.0_f64], deviations in [0.0..0.4_f64, 0.0..0.4_f64],
            known in any::<[bool; 2]>(),
    ) {
        let of = |at: usize| known[at].then_some(Moments { mean: means[at], deviation: deviations[at] });
        let moments = PerResource { cpu: of(0), memory: of(1) };
        let (found, expected) = (moments.overload(&rules), moments.judge(&rules).overload(&rules));
        prop_assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }

    #[test]
    fn a_higher_risk_scores_no_better(rules in rules(), one in 0.0..=1.0_f64, other in 0.0..=1.0_f64) {
        let (low, high) = (one.min(other), one.max(other));
        let moments = Moments { mean: 0.5, deviation: 0.1 };
        let judged = |risk| Judged { moments, risk };
        prop_assert!(judged(low).overload(&rules) >= judged(high).overload(&rules));
        prop_assert!(judged(low).is_accepted(&rules) || !judged(high).is_accepted(&rules));
        let both = PerResource { cpu: Some(judged(low)), memory: Some(judged(high)) };
        prop_assert_eq!(both.overload(&rules), judged(high).overload(&rules));
    }

    #[test]
    fn a_rejected_node_has_a_reason_that_shows_it(rules in rules(), risk in 0.0..=1.0_f64) {
        let judged = Judged { moments: Moments { mean: 0.5, deviation: 0.1 }, risk };
        let reason = PerResource { cpu: Some(judged), memory: None }.rejection(&rules);
        prop_assert_eq!(reason.is_some(), risk > rules.accepted);
        if let Some(reason) = reason {
            let numbers: Vec<f64> = reason.split(' ').filter_map(|word| word.parse().ok()).collect();
            prop_assert!(numbers[0] > numbers[1], "{}", reason);
        }
    }
}
