//! Tests that capacity is not lowered while another metric that could ask for more is unknown.

use rstest::rstest;
use serde_json::{Value, json};

use crate::tests::bench::{Loop, at, spec};
use ganglion_api::closed_loop::reasons::LoopReason;

/// A loop that lowers for little cpu, and does this for much memory.
fn cpu_and_memory(memory_ladder: Value, missing: Value, policy: Value) -> Loop {
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"name": "cpu", "source": {"push": {}}, "low": {"raise": "10"}},
                {"name": "memory", "source": {"push": {}}, "high": {"raise": "80"}, "missing": missing},
            ],
            "policy": policy,
            "actions": [
                {"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
                {"when": {"metric": "memory", "side": "High"}, "ladder": memory_ladder},
            ],
        })),
    )
}

fn raise() -> Value {
    json!([{"scale": {"by": 1, "max": 9}}])
}

fn hold() -> Value {
    json!({"after": "15s"})
}

#[rstest]
#[case::raises(raise(), json!({}), 3)]
#[case::raises_otherwise(json!([{"resize": {"container": "app", "resource": "memory", "factor": "2", "max": "1Gi"}}]), json!({}), 3)]
#[case::raises_second(json!([{"scale": {"by": -1, "min": 1}}, {"scale": {"by": 1, "max": 9}}]), json!({}), 3)]
#[case::sets_a_number(json!([{"patch": {"path": "spec.replicas", "to": "9"}}]), json!({}), 3)]
#[case::sets_a_text(json!([{"patch": {"path": "spec.color", "to": "\"red\""}}]), json!({}), 2)]
#[case::lowers(json!([{"scale": {"by": -1, "min": 1}}]), json!({}), 2)]
#[case::switched_off(raise(), json!({"lowering": "Always"}), 2)]
fn an_unknown_metric_that_could_ask_for_more_blocks_lowering(
    #[case] ladder: Value,
    #[case] policy: Value,
    #[case] replicas: i32,
) {
    let mut this = cpu_and_memory(ladder, hold(), policy);
    this.push(at(0), &[("cpu", "5")]);
    assert_eq!(this.replicas, replicas);
    if replicas == 3 {
        let rejected = &this.decision.rejected[0];
        assert_eq!(rejected.reason, LoopReason::UnknownValue);
        assert!(rejected.message.contains("memory is unknown"), "{}", rejected.message);
    }
    this.push(at(1), &[("cpu", "5"), ("memory", "50")]);
    assert_eq!(this.replicas, replicas - 1, "all metrics are known");
}

/// The last value of memory still stands, but its source has failed since.
#[test]
fn a_metric_whose_source_has_just_failed_blocks_lowering() {
    let mut this = cpu_and_memory(raise(), hold(), json!({}));
    this.push(at(0), &[("cpu", "50"), ("memory", "50")]);
    this.push(at(1), &[("cpu", "5")]);
    assert_eq!(this.replicas, 3);
    this.push(at(2), &[("cpu", "5"), ("memory", "50")]);
    assert_eq!(this.replicas, 2);
}

#[test]
fn an_assumed_value_counts_as_known() {
    let mut this = cpu_and_memory(raise(), json!({"after": "15s", "then": "Assume", "value": "50"}), json!({}));
    this.push(at(0), &[("cpu", "5")]);
    assert_eq!(this.replicas, 3, "nothing is assumed yet");
    this.push(at(20), &[("cpu", "5")]);
    assert_eq!(this.monitoring.unknown[0].assumed.as_ref().map(|value| value.as_str()), Some("50"));
    assert_eq!(this.replicas, 2);
}

#[test]
fn an_unknown_metric_does_not_block_raising() {
    let mut this = cpu_and_memory(raise(), hold(), json!({}));
    this.push(at(0), &[("memory", "90")]);
    assert_eq!(this.replicas, 4);
}

/// A loop that sets this number of replicas if cpu is low, and raises if memory is high.
fn setting(to: &str, side: &str, policy: Value) -> Loop {
    let mut this = cpu_and_memory(raise(), json!({"after": "15s", "then": "Alarm"}), policy);
    let set = json!([{"patch": {"path": "spec.replicas", "to": to}}]);
    let metric = if side == "Missing" { "memory" } else { "cpu" };
    let actions = this.spec.actions.as_mut().unwrap();
    actions.retain(|action| action.when.is_about("memory"));
    let action = json!({"when": {"metric": metric, "side": side}, "ladder": set});
    actions.push(serde_json::from_value(action).unwrap());
    this
}

/// Only the current number shows whether a number that is set is less.
#[rstest]
#[case::less("1", 3)]
#[case::more("9", 9)]
fn a_number_that_is_set_does_not_lower_beside_an_unknown_metric(#[case] to: &str, #[case] replicas: i32) {
    let mut this = setting(to, "Low", json!({}));
    this.push(at(0), &[("cpu", "5")]);
    assert_eq!(this.replicas, replicas);
    this.push(at(400), &[("cpu", "5"), ("memory", "50")]);
    assert_eq!(this.replicas.to_string(), to, "all metrics are known");
}

#[rstest]
#[case::less("1", 3)]
#[case::more("9", 9)]
fn a_number_that_is_set_for_a_missing_value_does_not_lower(#[case] to: &str, #[case] replicas: i32) {
    let mut this = setting(to, "Missing", json!({"lowering": "Always"}));
    this.push(at(0), &[("cpu", "50")]);
    this.wait(at(16));
    assert_eq!(this.messages(), ("Missing memory", "React to memory"));
    assert_eq!(this.replicas, replicas);
}

#[test]
fn a_number_that_is_set_counts_as_a_change_of_direction() {
    let mut this = setting("1", "Low", json!({"oscillation": {"reversals": 2, "per": "1h", "then": "Damp"}}));
    let (low, high) = ([("cpu", "5"), ("memory", "50")], [("cpu", "50"), ("memory", "90")]);
    for (second, values, replicas) in [(0, high, 4), (1, low, 1), (2, high, 2), (3, low, 2), (4, high, 3)] {
        this.push(at(second), &values);
        assert_eq!(this.replicas, replicas, "at {second} s");
    }
}

/// The operator was restarted. The source of memory has not answered since.
#[test]
fn a_source_that_has_not_answered_since_a_restart_blocks_lowering() {
    let mut this = cpu_and_memory(raise(), hold(), json!({}));
    this.spec.metrics[1].source = serde_json::from_value(json!({"http": {"url": "http://a", "path": "a"}})).unwrap();
    this.poll(at(0), &[("memory", "50", at(0))]);
    this.crash();
    this.unanswered = vec!["memory".to_owned()];
    this.push(at(1), &[("cpu", "5")]);
    assert_eq!(this.replicas, 3);
    assert_eq!(this.decision.rejected[0].reason, LoopReason::UnknownValue);
    this.poll(at(2), &[("memory", "50", at(2))]);
    assert_eq!(this.replicas, 2, "it has answered");
}
