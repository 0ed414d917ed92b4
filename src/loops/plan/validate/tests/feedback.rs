//! Tests of the warning about a metric in percent of requests that the loop changes.

use rstest::rstest;
use serde_json::{Value, json};

use crate::validate::feedback::feedback;

/// The warning about a loop with utilization of this source, an action on this metric, and this rung.
fn warning(source: Value, when: &str, rung: Value) -> Option<String> {
    let mut resource = json!({"resource": "cpu", "unit": "Utilization"});
    resource.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    let mut resize = json!({"container": "app", "resource": "cpu", "factor": "2", "max": "4"});
    resize.as_object_mut().unwrap().extend(rung.as_object().unwrap().clone());
    let spec = json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "busy", "source": {"resource": resource}, "high": {"raise": "80"}},
            {"name": "share", "source": {"formula": {"expression": "busy / 2"}}},
            {"name": "twice", "source": {"formula": {"expression": "2 * share"}}, "high": {"raise": "80"}},
            {"name": "queue", "source": {"push": {}}, "high": {"raise": "80"}},
        ],
        "actions": [
            {"when": {"metric": when, "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]},
            {"when": {"metric": "queue", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}, {"resize": resize}]},
        ],
    });
    feedback(&serde_json::from_value(spec).unwrap())
}

/// Case R7.
#[test]
fn utilization_of_requests_that_the_loop_changes_is_warned_about() {
    let found = warning(json!({}), "busy", json!({})).unwrap();
    let expected = "metric busy is in percent of the cpu requests, and rung 2 on High queue (resize cpu of app times 2, at \
                    most 4) changes these requests: each resize changes the value although the usage stays the same; set \
                    unit: Usage and levels in cores instead";
    assert_eq!(found, expected);
    let formula = warning(json!({}), "twice", json!({})).unwrap();
    assert!(formula.starts_with("metric busy, which twice is computed from, is in percent"), "{formula}");
}

#[rstest]
#[case::usage(json!({"unit": "Usage"}), "busy", json!({}), false)]
#[case::default_unit(json!({"unit": null}), "busy", json!({}), false)]
#[case::other_resource(json!({"resource": "memory"}), "busy", json!({}), false)]
#[case::limits(json!({}), "busy", json!({"what": "Limits"}), false)]
#[case::requests(json!({}), "busy", json!({"what": "Requests"}), true)]
#[case::other_container(json!({"container": "side"}), "busy", json!({}), false)]
#[case::same_container(json!({"container": "app"}), "busy", json!({}), true)]
#[case::pod_level(json!({"container": "app"}), "busy", json!({"container": null, "pod": true}), true)]
#[case::no_action(json!({}), "queue", json!({}), false)]
fn only_changed_requests_of_a_metric_with_an_action_matter(
    #[case] source: Value,
    #[case] when: &str,
    #[case] rung: Value,
    #[case] expected: bool,
) {
    assert_eq!(warning(source, when, rung).is_some(), expected);
}

/// Case R7, for an action that keeps the utilization at a target.
#[rstest]
#[case("Utilization", true)]
#[case("AverageValue", false)]
fn tracked_utilization_is_warned_about(#[case] kind: &str, #[case] expected: bool) {
    let track = json!({"type": kind, "target": "60"});
    let resize = json!({"container": "app", "resource": "cpu", "factor": "2", "max": "4"});
    let spec = json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "busy", "source": {"resource": {"resource": "cpu"}}},
            {"name": "queue", "source": {"push": {}}, "high": {"raise": "80"}},
        ],
        "actions": [
            {"when": {"metric": "busy", "side": "Target"}, "ladder": [{"scale": {"track": track, "max": 9}}]},
            {"when": {"metric": "queue", "side": "High"}, "ladder": [{"resize": resize}]},
        ],
    });
    let found = feedback(&serde_json::from_value(spec).unwrap());
    assert_eq!(found.is_some(), expected, "{found:?}");
    assert!(found.is_none_or(|words| words.ends_with("track AverageValue in cores instead")));
}
