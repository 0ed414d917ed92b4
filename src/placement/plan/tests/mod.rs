//! Tests of the agents: the vectors of their specification, and properties of each agent.

mod answered;
mod congestion;
pub mod inventory;
mod learned;
mod pigeon;
mod pod_spread;
mod policy;
mod power;
mod reward;
mod safe;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The vectors of one agent.
fn vectors<T: DeserializeOwned>(agent: &str) -> Vec<T> {
    let all: Value = serde_json::from_str(include_str!("agents_vectors.json")).expect("the vectors");
    let found = all.pointer(&format!("/public/{agent}")).expect("vectors of this agent").clone();
    let found: Vec<T> = serde_json::from_value(found).expect("vectors of this form");
    assert!(!found.is_empty());
    found
}

/// Checks a real number with the tolerance of the vectors.
#[track_caller]
fn assert_real(what: &str, value: f64, expected: f64) {
    let difference = (value - expected).abs();
    let close = difference <= 1e-9 || difference <= 1e-8 * expected.abs();
    assert!(close, "{what}: {value} is not {expected}");
}
