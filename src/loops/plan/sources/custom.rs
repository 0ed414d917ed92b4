//! Answers of custom.metrics.k8s.io, in both of its versions.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::answered::{AnsweredQuantity, time};
use super::pods::{PODS, PodList};
use super::reduced::{PodUse, reduced};
use crate::monitoring::{SourceResult, SourceValue};
use crate::track::PodSample;
use ganglion_api::closed_loop::adapter_metric::CustomMetric;
use ganglion_core::amounts::or_default;
use ganglion_core::items::Items;

/// The fields of a `MetricValueList` that are used here.
#[derive(Default, Deserialize)]
pub struct CustomMetricList {
    #[serde(default)]
    items: Items<CustomValue, PODS>,
}

/// One value. Its name is not read: the path of the request has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomValue {
    #[serde(default, deserialize_with = "or_default")]
    described_object: DescribedObject,
    #[serde(default)]
    timestamp: Option<String>,
    /// Length of the measurement in seconds, as v1beta2 names it.
    #[serde(default)]
    window_seconds: Option<i64>,
    /// The same, as v1beta1 names it.
    #[serde(default)]
    window: Option<i64>,
    #[serde(default)]
    value: Option<AnsweredQuantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DescribedObject {
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    #[serde(deserialize_with = "or_default")]
    name: String,
}

impl CustomValue {
    fn is_in(&self, namespace: &str) -> bool {
        let own = &self.described_object.namespace;
        own.is_empty() || own == namespace
    }

    /// Whether it may describe the object of this name. The object of some adapters has no name.
    fn may_describe(&self, namespace: &str, name: &str) -> bool {
        let own = &self.described_object.name;
        self.is_in(namespace) && (own.is_empty() || own == name)
    }
}

/// Returns the value of an object of this name and namespace.
pub fn object_value(source: &CustomMetric, answer: &CustomMetricList, (namespace, name): (&str, &str)) -> SourceResult {
    let values: Vec<&CustomValue> =
        answer.items.kept.iter().filter(|value| value.may_describe(namespace, name)).collect();
    let what = || format!("metric {} of {name}", source.metric);
    match values.as_slice() {
        [value] if answer.items.count <= PODS => {
            let text = AnsweredQuantity::text(value.value.as_ref(), what)?;
            Ok(SourceValue { at: time(value.timestamp.as_deref(), what)?, ..SourceValue::from(text) })
        }
        [] if answer.items.count == 0 => {
            Err("the adapter answers an empty list, which is no zero: check what feeds the metric".to_owned())
        }
        [] => Err(format!("the adapter answers values of other objects, and none of {name} in namespace {namespace}")),
        _ => Err(format!("the adapter answers {} values of one object: narrow the selector", answer.items.count)),
    }
}

/// Returns the sample of each pod of this namespace that the answer describes. A sample without a time counts as one of
/// `asked`.
pub fn custom_samples<'a>(
    source: &CustomMetric,
    answer: &'a CustomMetricList,
    namespace: &str,
    asked: Timestamp,
) -> Result<HashMap<&'a str, PodSample>, String> {
    let mut samples = HashMap::new();
    for value in answer.items.kept.iter().filter(|value| value.is_in(namespace)) {
        let name = value.described_object.name.as_str();
        let what = || format!("metric {} of pod {name}", source.metric);
        let window = value.window_seconds.or(value.window).unwrap_or(0).clamp(0, i64::from(i32::MAX));
        let sample = PodSample {
            value: AnsweredQuantity::nanos(value.value.as_ref(), what)?,
            at: time(value.timestamp.as_deref(), what)?.unwrap_or(asked),
            window: SignedDuration::from_secs(window),
        };
        if samples.insert(name, sample).is_some() {
            return Err(format!("the adapter answers two values of pod {name}: narrow the selector"));
        }
    }
    Ok(samples)
}

/// Returns the values of the pods as one number, with the time of the oldest measurement. Pods without a sample count
/// as in a HorizontalPodAutoscaler: as 0 for the alarm High. For the alarm Low, they may have any value.
pub fn pods_value(
    source: &CustomMetric,
    answer: &CustomMetricList,
    pods: &PodList,
    (namespace, asked): (&str, Timestamp),
) -> SourceResult {
    pods.check_count(answer.items.count)?;
    let samples = custom_samples(source, answer, namespace, asked)?;
    let uses = pods.counted().map(|pod| match samples.get(pod.name()) {
        _ if pod.is_pending() => PodUse::Starting,
        Some(sample) => PodUse::Measured(sample.value, sample.at),
        None => PodUse::Missing(None),
    });
    reduced(source.of.unwrap_or_default(), uses)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const ASKED: &str = "2026-11-21T10:00:30Z";

    fn value(name: &str, value: &str, second: u32) -> Value {
        let at = format!("2026-11-21T10:00:{second:02}Z");
        json!({"describedObject": {"kind": "Pod", "namespace": "shop", "name": name, "apiVersion": "/v1"},
            "metricName": "hits", "timestamp": at, "window": 60, "value": value})
    }

    fn pods(phases: &[(&str, &str)]) -> PodList {
        let pod = |(name, phase): &(&str, &str)| json!({"metadata": {"name": name}, "status": {"phase": phase}});
        serde_json::from_value(json!({"items": phases.iter().map(pod).collect::<Vec<_>>()})).unwrap()
    }

    fn source(of: &str) -> CustomMetric {
        serde_json::from_value(json!({"metric": "hits", "pods": {}, "of": of})).unwrap()
    }

    fn list(items: Value) -> CustomMetricList {
        serde_json::from_value(json!({"items": items})).unwrap()
    }

    fn of_pods(of: &str, items: Value, phases: &[(&str, &str)]) -> SourceResult {
        pods_value(&source(of), &list(items), &pods(phases), ("shop", ASKED.parse().unwrap()))
    }

    const RUNNING: &[(&str, &str)] = &[("a", "Running"), ("b", "Running"), ("c", "Running")];

    #[rstest]
    #[case("Mean", "33.333333333")]
    #[case("Sum", "100")]
    #[case("Max", "50.5")]
    #[case("Min", "0.0004")]
    fn values_of_pods_become_one_number(#[case] of: &str, #[case] expected: &str) {
        let items = json!([value("a", "49499600u", 5), value("b", "50500m", 2), value("c", "400u", 9)]);
        let found = of_pods(of, items, RUNNING).unwrap();
        assert_eq!((found.value.as_str(), found.range), (expected, None));
        assert_eq!(found.at, Some("2026-11-21T10:00:02Z".parse().unwrap()), "as old as the oldest");
    }

    #[test]
    fn a_mean_is_rounded_to_the_nearest_billionth() {
        let mean = |last: &str| {
            let items = json!([value("a", "1", 1), value("b", "1", 1), value("c", last, 1)]);
            of_pods("Mean", items, RUNNING).unwrap().value
        };
        assert_eq!([mean("0"), mean("-1"), mean("-4")], ["0.666666667", "0.333333333", "-0.666666667"]);
    }

    /// Case T20: an old pod has 10, and new pods end before they serve the metric.
    #[test]
    fn missing_pods_raise_nothing_and_keep_everything() {
        let range = of_pods("Mean", json!([value("a", "10", 1)]), RUNNING).unwrap().range.unwrap();
        assert_eq!((range.least.as_str(), range.most), ("3.333333333", None));
        let pending = [("a", "Running"), ("b", "Pending")];
        let range = of_pods("Mean", json!([value("a", "10", 1)]), &pending).unwrap().range.unwrap();
        assert_eq!((range.least.as_str(), range.most.as_deref()), ("5", Some("10")));
        let ended = [("a", "Running"), ("b", "Succeeded"), ("c", "Failed")];
        assert_eq!(of_pods("Mean", json!([value("a", "10", 1)]), &ended).unwrap().range, None);
        let below = of_pods("Max", json!([value("a", "-10", 1)]), RUNNING).unwrap();
        assert_eq!((below.value.as_str(), below.range.unwrap().least.as_str()), ("-10", "-10"), "least is no more");
    }

    #[rstest]
    #[case::empty(json!([]), "no pod is measured")]
    #[case::none(json!(null), "no pod is measured")]
    #[case::other_pods(json!([value("z", "1", 1)]), "no pod is measured")]
    #[case::twice(json!([value("a", "1", 1), value("a", "2", 1)]), "the adapter answers two values of pod a: narrow the selector")]
    #[case::nan(json!([value("a", "NaN", 1)]), "metric hits of pod a is a text of 3 characters, not a quantity")]
    fn no_value_is_no_zero(#[case] items: Value, #[case] expected: &str) {
        assert_eq!(of_pods("Sum", items, RUNNING), Err(expected.to_owned()));
    }

    #[test]
    fn values_of_another_namespace_are_left_out() {
        let mut other = value("a", "5", 1);
        other["describedObject"]["namespace"] = json!("elsewhere");
        assert_eq!(of_pods("Sum", json!([other.clone()]), RUNNING), Err("no pod is measured".to_owned()));
        let found = object_value(&source("Sum"), &list(json!([other])), ("shop", "a")).unwrap_err();
        assert_eq!(found, "the adapter answers values of other objects, and none of a in namespace shop");
    }

    #[test]
    fn an_object_has_one_value() {
        let read =
            |items| object_value(&source("Sum"), &list(items), ("shop", "a")).map(|found| (found.value, found.at));
        let at = Some("2026-11-21T10:00:05Z".parse().unwrap());
        assert_eq!(read(json!([value("a", "400u", 5)])), Ok(("400u".to_owned(), at)));
        assert_eq!(read(json!([{"value": "5"}])), Ok(("5".to_owned(), None)), "the path names the object");
        assert_eq!(read(json!([value("b", "1", 5), value("a", "2", 5)])), Ok(("2".to_owned(), at)));
        assert!(read(json!([])).unwrap_err().contains("an empty list, which is no zero"));
        assert!(read(json!([value("a", "1", 5), value("a", "2", 5)])).unwrap_err().contains("2 values of one object"));
    }

    #[test]
    fn samples_have_the_times_of_both_versions() {
        let mut newer = value("b", "1500m", 5);
        newer["windowSeconds"] = json!(30);
        newer.as_object_mut().unwrap().remove("window");
        let answer = list(json!([value("a", "2", 4), newer, {"describedObject": {"name": "c"}, "value": "3"}]));
        let samples = custom_samples(&source("Sum"), &answer, "shop", ASKED.parse().unwrap()).unwrap();
        let shown = |name: &str| {
            let sample = samples[name];
            (sample.value.to_string(), sample.at.as_second() % 60, sample.window.as_secs())
        };
        assert_eq!(shown("a"), ("2".to_owned(), 4, 60));
        assert_eq!(shown("b"), ("1.5".to_owned(), 5, 30));
        assert_eq!(shown("c"), ("3".to_owned(), 30, 0));
    }
}
