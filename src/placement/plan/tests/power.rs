//! Tests of the agent `power`: its vectors and special cases.

use proptest::prelude::*;
use serde::Deserialize;

use super::{assert_real, vectors};
use crate::power::{Increment, PERCENT, PowerNode, PowerScale, PowerUsage, pod_cores, scores};
use crate::wire;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Vector {
    Normalize {
        id: String,
        delta_watts_or_special: Vec<Delta>,
        base_score: f64,
        expected: Normalized,
    },
    Raw {
        id: String,
        cpu_capacity_cores: f64,
        measured_usage_cores: f64,
        pending_pod_cpu_cores: Vec<f64>,
        pod_cpu_cores: f64,
        pod_usage_assumption: f64,
        cpu_usage_format: String,
        power_model_a_b_c: [f64; 3],
        expected: Raw,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Delta {
    Watts(f64),
    Special(String),
}

#[derive(Deserialize)]
struct Normalized {
    score_0_100: Vec<u8>,
    score_0_10: Vec<u8>,
}

#[derive(Deserialize)]
struct Raw {
    before_cores: f64,
    after_cores: f64,
    x_before: Option<f64>,
    x_after: Option<f64>,
    watt_before: Option<f64>,
    watt_after: Option<f64>,
    result: String,
    delta_watts: Option<f64>,
}

impl Delta {
    fn increment(&self) -> Increment {
        match self {
            Self::Watts(watts) => Increment::between(0.0, *watts),
            Self::Special(special) if special == "overcommit" => Increment::Overcommit,
            Self::Special(special) => {
                assert_eq!(special, "error");
                Increment::Unknown
            }
        }
    }
}

#[test]
fn vectors_are_met() {
    for vector in vectors("minimize_power") {
        match vector {
            Vector::Normalize { id, delta_watts_or_special, base_score, expected } => {
                let increments: Vec<_> = delta_watts_or_special.iter().map(Delta::increment).collect();
                let percent = scores(&increments, PowerScale { base: base_score, ..PERCENT });
                let percent: Vec<_> = percent.into_iter().map(|score| wire::whole(score, 100)).collect();
                assert_eq!(percent, expected.score_0_100, "{id}");
                let sent = scores(&increments, PowerScale::of_extender(base_score));
                assert_eq!(sent.into_iter().map(wire::score).collect::<Vec<_>>(), expected.score_0_10, "{id}");
            }
            Vector::Raw {
                id,
                cpu_capacity_cores: capacity,
                measured_usage_cores,
                pending_pod_cpu_cores,
                pod_cpu_cores,
                pod_usage_assumption,
                cpu_usage_format,
                power_model_a_b_c: [a, b, c],
                expected,
            } => {
                let pending = pending_pod_cpu_cores.iter().sum();
                let node = PowerNode { capacity, usage: Some(measured_usage_cores), pending };
                let usage = node.usage(pod_cpu_cores, pod_usage_assumption).expect("a measurement");
                assert_real(&id, usage.before, expected.before_cores);
                assert_real(&id, usage.after, expected.after_cores);
                assert_eq!(cpu_usage_format, "Raw", "{id}");
                let watts = |x: f64| a + b * x + c * x * x;
                let increment = match node.predicted(pod_cpu_cores, pod_usage_assumption) {
                    Err(increment) => increment,
                    Ok(PowerUsage { before, after }) => {
                        let real = |value, expected: Option<f64>| assert_real(&id, value, expected.expect("a value"));
                        real(before, expected.x_before);
                        real(after, expected.x_after);
                        real(watts(before), expected.watt_before);
                        real(watts(after), expected.watt_after);
                        Increment::between(watts(before), watts(after))
                    }
                };
                match (increment, expected.result.as_str()) {
                    (Increment::Watts(watts), "watts") => {
                        assert_real(&id, watts, expected.delta_watts.expect("watts"));
                    }
                    (Increment::Overcommit, "overcommit") | (Increment::Unknown, "error") => {}
                    (increment, expected) => panic!("{id}: {increment:?} is not {expected}"),
                }
            }
        }
    }
}

const NODE: PowerNode = PowerNode { capacity: 8.0, usage: Some(2.0), pending: 1.0 };

#[test]
fn a_limit_counts_where_nothing_is_requested() {
    assert_eq!(pod_cores([(0.5, 2.0), (0.0, 1.0), (0.0, 0.0)]), 1.5);
}

#[test]
fn a_node_takes_as_much_as_it_has() {
    assert!(NODE.predicted(5.5, 0.5).is_ok());
    assert_eq!(NODE.predicted(5.6, 0.5), Err(Increment::Overcommit));
}

#[test]
fn what_is_missing_is_unknown() {
    for node in [PowerNode { usage: None, ..NODE }, PowerNode { capacity: 0.0, ..NODE }] {
        assert_eq!(node.predicted(1.0, 0.5), Err(Increment::Unknown));
    }
    assert_eq!(Increment::between(100.0, f64::NAN), Increment::Unknown);
    assert_eq!(Increment::between(100.0, 99.0), Increment::Watts(0.0));
}

#[test]
fn the_base_of_the_extender_is_a_whole_score() {
    let base = |percent| PowerScale::of_extender(percent).base;
    assert_eq!([20.0, 24.0, 25.0, 50.0].map(base), [2.0, 2.0, 3.0, 5.0]);
}

#[test]
fn rounding_noise_is_no_difference() {
    let increments = [Increment::Watts(0.3), Increment::Watts(0.1 + 0.2), Increment::Unknown];
    assert_eq!(scores(&increments, PowerScale::of_extender(20.0)), [2.0, 2.0, 0.0]);
}

fn increment() -> impl Strategy<Value = Increment> {
    prop_oneof![
        1 => Just(Increment::Unknown),
        1 => Just(Increment::Overcommit),
        4 => (any::<f64>(), any::<f64>()).prop_map(|(before, after)| Increment::between(before, after)),
        4 => (0.0..50.0_f64).prop_map(Increment::Watts),
    ]
}

proptest! {
    #[test]
    fn scores_are_in_bounds_and_the_least_increment_is_best(
        increments in proptest::collection::vec(increment(), 0..20),
    ) {
        let all = scores(&increments, PowerScale::of_extender(20.0));
        prop_assert_eq!(all.len(), increments.len());
        for (one, score) in increments.iter().zip(&all) {
            match one {
                Increment::Unknown => prop_assert_eq!(*score, 0.0),
                Increment::Overcommit => prop_assert_eq!(*score, 1.0),
                Increment::Watts(watts) => {
                    prop_assert!((2.0..=10.0).contains(score), "{score}");
                    for (other, better) in increments.iter().zip(&all) {
                        if let Increment::Watts(less) = other && less <= watts {
                            prop_assert!(better >= score);
                        }
                    }
                }
            }
        }
    }
}
