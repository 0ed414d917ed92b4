//! Tests that one measurement leads to one action, however often a loop evaluates it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::tests::bench::{Loop, at, seconds, spec};
use ganglion_api::closed_loop::reasons::LoopReason;

/// A loop that raises for a pushed metric and for a polled one.
fn pushed_and_polled() -> Loop {
    let http = json!({"http": {"url": "http://a", "path": "a"}});
    let action =
        |metric: &str| json!({"when": {"metric": metric, "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 99}}]});
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "interval": "5s",
            "metrics": [
                {"name": "load", "source": {"push": {}}, "high": {"raise": "80"}},
                {"name": "queue", "source": http, "high": {"raise": "10"}},
            ],
            "actions": [action("load"), action("queue")],
        })),
    )
}

#[test]
fn a_pushed_sample_beside_polls_leads_to_one_action() {
    let mut this = pushed_and_polled();
    this.poll(at(0), &[("queue", "1", at(0))]);
    this.push(at(1), &[("load", "90")]);
    assert_eq!(this.replicas, 4);
    for second in (5..100).step_by(5) {
        this.poll(at(second), &[("queue", "1", at(second))]);
        assert_eq!(this.replicas, 4, "at {second} s");
        assert_eq!(this.decision.rejected[0].reason, LoopReason::InFlight);
    }
    this.push(at(100), &[("load", "90")]);
    assert_eq!(this.replicas, 5, "a new measurement");
}

#[test]
fn a_measurement_that_is_served_again_leads_to_one_action() {
    let mut this = pushed_and_polled();
    for (second, measured) in [(0, 0), (5, 0), (10, 0), (15, 0)] {
        this.poll(at(second), &[("queue", "20", at(measured))]);
    }
    assert_eq!(this.replicas, 4);
    // The next measurement is published late: it was made before the action took effect.
    this.poll(at(20), &[("queue", "20", at(0) - seconds(1))]);
    assert_eq!(this.replicas, 4);
    this.poll(at(25), &[("queue", "20", at(16))]);
    assert_eq!(this.replicas, 5);
}

/// The value of the second metric was measured before the action for the first one.
#[test]
fn an_action_for_one_metric_makes_the_value_of_another_old() {
    let mut this = pushed_and_polled();
    this.poll(at(0), &[("queue", "20", at(0))]);
    this.push(at(1), &[("load", "90")]);
    assert_eq!(this.replicas, 5);
    this.wait(at(4));
    this.push(at(5), &[("load", "20")]);
    assert_eq!(this.replicas, 5, "the queue was not measured again");
    this.poll(at(6), &[("queue", "20", at(6))]);
    assert_eq!(this.replicas, 6);
}

/// A loop that raises if load is high or missing, with what `missing` says.
fn missing(missing: Value, side: &str) -> Loop {
    let ladder = json!([{"scale": {"by": 1, "max": 99}}, {"scale": {"by": 5, "max": 99}}]);
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "interval": "5s",
            "metrics": [{
                "name": "load", "source": {"http": {"url": "http://a", "path": "a"}}, "high": {"raise": "80"},
                "missing": missing,
            }],
            "actions": [{"when": {"metric": "load", "side": side}, "settle": "20s", "ladder": ladder}],
        })),
    )
}

/// A value that is missing is no measurement: it leads to one action, and to the next one after a value has come.
#[rstest]
#[case::assumed(json!({"then": "Assume", "value": "90"}), "High")]
#[case::missing(json!({"then": "Alarm"}), "Missing")]
fn a_value_that_is_missing_leads_to_one_action(#[case] behavior: Value, #[case] side: &str) {
    let mut this = missing(behavior, side);
    this.poll(at(0), &[("load", "50", at(0))]);
    for second in (5..300).step_by(5) {
        this.wait(at(second));
        assert_eq!(this.replicas, if second <= 15 { 3 } else { 4 }, "at {second} s");
    }
    assert_eq!(this.decision.rejected[0].reason, LoopReason::UnknownValue);
    this.poll(at(300), &[("load", "50", at(300))]);
    for second in (305..600).step_by(5) {
        this.wait(at(second));
        assert_eq!(this.replicas, if second <= 315 { 4 } else { 5 }, "at {second} s");
    }
}

/// No value has come at all.
#[test]
fn a_value_that_never_came_leads_to_one_action() {
    let mut this = missing(json!({"then": "Alarm"}), "Missing");
    for second in (0..300).step_by(5) {
        this.wait(at(second));
    }
    assert_eq!(this.replicas, 4);
}
