//! Tests of the usage of pods.

use std::collections::HashMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::pods::PODS;
use super::{PodList, PodMetricsList, pod_usage, tracked_pods};
use crate::monitoring::SourceResult;
use crate::track::Nanos;

const NOW: &str = "2026-11-21T10:00:10Z";

fn measured() -> PodMetricsList {
    let items = [pod_metrics("a", "10:00:05", "250m"), pod_metrics("b", "10:00:00", "750000000n")];
    serde_json::from_value(json!({"items": items})).unwrap()
}

/// Usage of a pod: cpu of the container app, 50m of the container side.
fn pod_metrics(name: &str, at: &str, cpu: &str) -> Value {
    let at = format!("2026-11-21T{at}Z");
    json!({"metadata": {"name": name}, "timestamp": at, "window": "15s", "containers": [
        {"name": "app", "usage": {"cpu": cpu, "memory": "64Mi"}},
        {"name": "side", "usage": {"cpu": "50m", "memory": "1Mi"}},
    ]})
}

/// A pod that has been ready for an hour.
fn pod(name: &str) -> Value {
    let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container("app", "1"), container("side", "500m")]},
        "status": {"phase": "Running", "startTime": "2026-11-21T09:00:00Z", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T09:00:05Z"}]}})
}

fn list<T: serde::de::DeserializeOwned>(items: &[Value]) -> T {
    serde_json::from_value(json!({"items": items})).unwrap()
}

fn pods(names: &[&str]) -> PodList {
    list(&names.iter().map(|name| pod(name)).collect::<Vec<_>>())
}

fn usage(source: Value, used: &PodMetricsList, pods: &PodList) -> SourceResult {
    pod_usage(&serde_json::from_value(source).unwrap(), used, pods, NOW.parse().unwrap())
}

#[rstest]
#[case(json!({"resource": "cpu"}), Ok("0.55"))]
#[case(json!({"resource": "cpu", "container": "app"}), Ok("0.5"))]
#[case(json!({"resource": "memory", "container": "app", "of": "Max"}), Ok("67108864"))]
#[case(json!({"resource": "cpu", "container": "app", "of": "Min"}), Ok("0.25"))]
#[case(json!({"resource": "cpu", "container": "app", "of": "Sum"}), Ok("1"))]
#[case(json!({"resource": "cpu", "container": "app", "unit": "Utilization"}), Ok("50"))]
#[case(json!({"resource": "cpu", "unit": "Utilization", "of": "Min"}), Ok("20"))]
#[case(json!({"resource": "memory", "unit": "Utilization"}), Err("pod a requests no memory"))]
#[case(json!({"resource": "cpu", "container": "none"}), Err("pod a has no container none"))]
fn pods_become_one_number(#[case] source: Value, #[case] expected: Result<&str, &str>) {
    let found = usage(source, &measured(), &pods(&["a", "b"]));
    assert_eq!(found.as_ref().map(|point| point.value.as_str()).map_err(String::as_str), expected);
    if let Ok(point) = found {
        assert_eq!(point.at, Some("2026-11-21T10:00:00Z".parse().unwrap()), "as old as the oldest");
        assert_eq!(point.range, None, "all pods are measured");
    }
}

/// Value, value if the others use nothing, value if they use what they request.
type Expected<'a> = (&'a str, &'a str, Option<&'a str>);

/// Two pods use 0.25 and 0.75 cores, three others are not measured; each requests 1 core.
#[rstest]
#[case("Usage", "Mean", ("0.5", "0.2", Some("1")))]
#[case("Usage", "Sum", ("1", "1", Some("4")))]
#[case("Usage", "Max", ("0.75", "0.75", Some("1")))]
#[case("Usage", "Min", ("0.25", "0", Some("0.25")))]
#[case("Utilization", "Mean", ("50", "20", Some("100")))]
fn missing_pods_use_nothing_or_what_they_request(#[case] unit: &str, #[case] of: &str, #[case] expected: Expected) {
    let source = json!({"resource": "cpu", "container": "app", "unit": unit, "of": of});
    let found = usage(source, &measured(), &pods(&["a", "b", "c", "d", "e"])).unwrap();
    let range = found.range.unwrap();
    assert_eq!((found.value.as_str(), range.least.as_str(), range.most.as_deref()), expected);
}

#[test]
fn a_missing_pod_without_a_request_may_use_any_amount() {
    let found = usage(json!({"resource": "memory"}), &measured(), &pods(&["a", "b", "c"])).unwrap();
    assert_eq!(found.range.unwrap().most, None);
}

/// A measured pod may use more than it requests; a missing one then does not make the value smaller.
#[test]
fn a_missing_pod_does_not_lower_the_largest_value() {
    let used = list(&[pod_metrics("a", "10:00:00", "3")]);
    let source = json!({"resource": "cpu", "container": "app"});
    assert_eq!(usage(source, &used, &pods(&["a", "b", "c"])).unwrap().range.unwrap().most.as_deref(), Some("3"));
    let source = json!({"resource": "cpu", "container": "app", "of": "Max"});
    assert_eq!(usage(source, &used, &pods(&["a", "b"])).unwrap().range.unwrap().most.as_deref(), Some("3"));
}

#[rstest]
#[case::pending(json!({"phase": "Pending"}), true)]
#[case::no_condition(json!({"phase": "Running", "startTime": "2026-11-21T09:59:00Z"}), true)]
#[case::never_ready(ready("09:59:00", "False", "09:59:00"), true)]
#[case::ready_within_the_window(ready("09:59:00", "True", "09:59:50"), true)]
#[case::ready_for_a_window(ready("09:59:00", "True", "09:59:30"), false)]
#[case::never_ready_for_long(ready("09:00:00", "False", "09:00:01"), true)]
#[case::not_ready_any_more(ready("09:00:00", "False", "09:30:00"), false)]
#[case::ready(ready("09:00:00", "True", "09:00:10"), false)]
fn a_pod_that_starts_does_not_raise(#[case] status: Value, #[case] starts: bool) {
    let used = list(&[pod_metrics("a", "10:00:00", "250m"), pod_metrics("new", "10:00:00", "4")]);
    let new = |source: &str| {
        let mut new = pod("new");
        new["status"] = status.clone();
        let pods = list(&[pod("a"), new]);
        usage(json!({"resource": source, "container": "app"}), &used, &pods).unwrap()
    };
    let expected = if starts { ("0.25", Some(("0.125", Some("0.25")))) } else { ("2.125", None) };
    let found = new("cpu");
    let range = found.range.as_ref().map(|range| (range.least.as_str(), range.most.as_deref()));
    assert_eq!((found.value.as_str(), range), expected);
    let is_pending = status["phase"] == "Pending";
    assert_eq!(new("memory").range.is_some(), is_pending, "a pod that starts needs its memory");
}

fn ready(started: &str, status: &str, changed: &str) -> Value {
    let time = |time: &str| format!("2026-11-21T{time}Z");
    json!({"phase": "Running", "startTime": time(started), "conditions": [
        {"type": "Ready", "status": status, "lastTransitionTime": time(changed)}]})
}

#[rstest]
#[case("Failed", false)]
#[case("Succeeded", false)]
#[case("Running", true)]
fn pods_that_have_ended_do_not_count(#[case] phase: &str, #[case] count: bool) {
    let mut ended = pod("c");
    ended["status"]["phase"] = json!(phase);
    let found = usage(json!({"resource": "cpu"}), &measured(), &list(&[pod("a"), pod("b"), ended.clone()])).unwrap();
    assert_eq!(found.range.is_some(), count);
    ended["status"]["phase"] = json!("Running");
    ended["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    let found = usage(json!({"resource": "cpu"}), &measured(), &list(&[pod("a"), pod("b"), ended])).unwrap();
    assert_eq!(found.range, None, "it is being deleted");
}

#[test]
fn a_pod_is_measured_only_with_all_its_containers() {
    let mut half = pod_metrics("b", "10:00:00", "9");
    half["containers"].as_array_mut().unwrap().pop();
    let found =
        usage(json!({"resource": "cpu"}), &list(&[pod_metrics("a", "10:00:00", "250m"), half]), &pods(&["a", "b"]));
    assert_eq!(found.map(|found| (found.value, found.range.is_some())), Ok(("0.3".to_owned(), true)));
}

#[test]
fn nothing_is_no_zero() {
    for of in ["Sum", "Mean", "Min", "Max"] {
        let source = json!({"resource": "cpu", "of": of});
        for nobody in [PodList::default(), pods(&["c"])] {
            assert_eq!(usage(source.clone(), &measured(), &nobody), Err("no pod is measured".into()));
        }
    }
    let refused = usage(json!({"resource": "cpu"}), &measured(), &pods(&["a"; PODS + 1]));
    assert_eq!(refused, Err("the source has 10001 pods, more than 10000".into()));
}

/// A pod with 2 cores at pod level, of which the node has allocated one, and a container without a request.
fn whole() -> Value {
    let mut whole = pod("a");
    whole["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
    whole["spec"]["containers"][1]["resources"] = json!({});
    whole["status"]["allocatedResources"] = json!({"cpu": "1"});
    whole["status"]["containerStatuses"] = json!([{"name": "app", "allocatedResources": {"cpu": "500m"}}]);
    whole
}

#[rstest]
#[case::pod(json!({"resource": "cpu"}), Ok("2"), Some("1"))]
#[case::container(json!({"resource": "cpu", "container": "app"}), Ok("1"), Some("0.5"))]
#[case::other_resource(json!({"resource": "memory"}), Err("container app of pod a requests no memory"), None)]
fn requests_at_pod_level_are_those_of_the_pod(
    #[case] source: Value,
    #[case] requests: Result<&str, &str>,
    #[case] allocated: Option<&str>,
) {
    let source = serde_json::from_value(source).unwrap();
    let tracked = tracked_pods(&list(&[whole()]), &HashMap::new(), Some(&source), |_| true).remove(0);
    let number = |text: &str| Nanos::parse(text).unwrap();
    match requests {
        Ok(expected) => assert_eq!(tracked.requests, Ok(number(expected))),
        Err(words) => assert!(tracked.requests.as_ref().unwrap_err().starts_with(words), "{:?}", tracked.requests),
    }
    assert_eq!(tracked.allocated, allocated.map(number));
}

#[test]
fn utilization_is_relative_to_the_pod_level() {
    let found = usage(json!({"resource": "cpu", "unit": "Utilization"}), &measured(), &list(&[whole()])).unwrap();
    assert_eq!(found.value, "15");
}
