//! Tests of the agent `congestion`: its vectors, and arbitrary texts.

use proptest::prelude::*;
use serde::Deserialize;

use super::{assert_real, vectors};
use crate::congestion::{Congestion, CongestionRules};
use crate::{sample, wire};

#[derive(Deserialize)]
struct Vector {
    id: String,
    annotation: Option<String>,
    config_max: Option<String>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    malformed: bool,
    factor: Option<f64>,
    score_real: f64,
    score: u8,
}

#[test]
fn vectors_are_met() {
    for Vector { id, annotation, config_max, expected } in vectors("congestion") {
        let max = config_max.as_deref().and_then(sample::number);
        let rules = max.map_or_else(CongestionRules::default, CongestionRules::new);
        let congestion = rules.read(annotation.as_deref());
        assert_eq!(congestion == Congestion::Malformed, expected.malformed, "{id}");
        match (congestion, expected.factor) {
            (Congestion::Factor(factor), Some(expected)) => assert_real(&id, factor, expected),
            (Congestion::Malformed, None) => {}
            (congestion, expected) => panic!("{id}: {congestion:?} is not {expected:?}"),
        }
        assert_real(&id, rules.score(congestion), expected.score_real);
        assert_eq!(wire::score(rules.score(congestion)), expected.score, "{id}");
    }
}

#[test]
fn an_impossible_maximum_is_the_default() {
    for max in [0.0, -7.0, f64::NAN, f64::INFINITY] {
        assert_eq!(CongestionRules::new(max), CongestionRules::default());
    }
}

#[test]
fn a_factor_ends_at_the_maximum() {
    assert_eq!(CongestionRules::new(7.0).read(Some("150")), Congestion::Factor(7.0));
}

#[test]
fn a_blank_annotation_is_no_congestion() {
    assert_eq!(CongestionRules::default().read(Some(" \n")), Congestion::Factor(0.0));
}

proptest! {
    #[test]
    fn scores_are_in_bounds_for_any_text(text in text(), max in any::<f64>()) {
        let rules = CongestionRules::new(max);
        let score = rules.score(rules.read(Some(&text)));
        prop_assert!((0.0..=10.0).contains(&score), "{score}");
    }

    #[test]
    fn more_congestion_is_no_better(one in any::<f64>(), other in any::<f64>()) {
        let rules = CongestionRules::default();
        let score = |factor: f64| rules.score(rules.read(Some(&factor.to_string())));
        prop_assume!(one.is_finite() && other.is_finite());
        prop_assert!(score(one.min(other)) >= score(one.max(other)));
    }
}

/// Arbitrary texts and numbers.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        any::<f64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!(" {number:e} ")),
        (-10_i64..1_000_000_000_000).prop_map(|number| number.to_string()),
        "-?(NaN|inf|Infinity|0x1p-2|1_000|1e999|-0|[0-9]{1,4}(Gi|m|%))",
    ]
}
