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
