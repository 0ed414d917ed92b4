//! Answers of external.metrics.k8s.io.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answered::{self, AnsweredQuantity, time};
use super::reduced::text;
use crate::monitoring::{SourceResult, SourceValue};
use crate::track::Nanos;
use ganglion_api::closed_loop::adapter_metric::{ExternalMetric, SeveralValues};
use ganglion_core::facts::Selector;
use ganglion_core::items::Items;
use ganglion_core::words::counted;

/// Maximum number of values of a metric.
const VALUES: usize = 1000;

/// The fields of an `ExternalMetricValueList` that are used here.
#[derive(Default, Deserialize)]
pub struct ExternalMetricList {
    #[serde(default)]
    items: Items<ExternalValue, VALUES>,
}

/// One value. Its name is not read: adapters leave it empty, and the path of the request has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExternalValue {
    #[serde(default)]
    metric_labels: Option<Box<RawValue>>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    value: Option<AnsweredQuantity>,
}

/// Returns the value of the metric, with the time of the oldest measurement. An empty list is no zero: the adapter has
/// no value.
pub fn external_value(source: &ExternalMetric, answer: &ExternalMetricList) -> SourceResult {
    let count = answer.items.count;
    if count > VALUES {
        return Err(format!("the adapter answers {count} values, more than {VALUES}: narrow the selector"));
    }
    let selector = source.selector.as_ref().map(Selector::from).unwrap_or_default();
    let fitting: Vec<&ExternalValue> =
        answer.items.kept.iter().filter(|value| may_match(&selector, value.metric_labels.as_deref())).collect();
    let what = || format!("metric {}", source.metric);
    let of_one = |value: &ExternalValue| -> Result<(String, Option<Timestamp>), String> {
        Ok((AnsweredQuantity::text(value.value.as_ref(), what)?, time(value.timestamp.as_deref(), what)?))
    };
    match (fitting.as_slice(), source.several) {
        ([], _) if count == 0 => {
            Err("the adapter answers an empty list, which is no zero: check the selector and what feeds the metric"
                .to_owned())
        }
        ([], _) => {
            Err(format!("the adapter answers {}, none of which matches the selector", counted(count as u64, "value")))
        }
        ([value], _) => {
            let (value, at) = of_one(value)?;
            Ok(SourceValue { at, ..SourceValue::from(value) })
        }
        (several, None) => Err(format!(
            "the adapter answers {} values that match the selector: narrow it, or set several: Sum",
            several.len()
        )),
        (several, Some(SeveralValues::Sum)) => {
            let mut times = Vec::new();
            let mut sum = Vec::new();
            for value in several {
                sum.push(AnsweredQuantity::nanos(value.value.as_ref(), what)?);
                times.extend(time(value.timestamp.as_deref(), what)?);
            }
            let sum: Nanos = sum.into_iter().sum();
            Ok(SourceValue { at: times.into_iter().min(), ..SourceValue::from(text(sum)) })
        }
    }
}

/// Whether a value with these labels can be one that was asked for. Adapters need not return the labels: only one that
/// is there can contradict the selector.
fn may_match(selector: &Selector, labels: Option<&RawValue>) -> bool {
    let labels = answered::labels(labels, |key| selector.mentions(key));
    let terms = selector.labels.iter().filter(|(key, _)| labels.contains_key(*key));
    let expressions = selector.expressions.iter().filter(|(key, _, _)| labels.contains_key(key));
    let known = Selector {
        labels: terms.map(|(key, value)| (key.clone(), value.clone())).collect(),
        expressions: expressions.cloned().collect(),
    };
    known.matches(&labels)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn read(source: Value, items: Value) -> SourceResult {
        let mut source = source;
        source["metric"] = json!("queue");
        external_value(
            &serde_json::from_value(source).unwrap(),
            &serde_json::from_value(json!({"items": items})).unwrap(),
        )
    }

    fn item(labels: Value, value: Value, second: u32) -> Value {
        let at = format!("2026-11-21T10:00:{second:02}Z");
        json!({"metricName": "queue", "metricLabels": labels, "timestamp": at, "value": value})
    }

    fn of_q(q: &str) -> Value {
        json!({"selector": {"matchLabels": {"q": q}}})
    }

    /// The answer of an adapter that ignores the selector.
    fn both() -> Value {
        json!([item(json!({"q": "a"}), json!("5"), 5), item(json!({"q": "b"}), json!("50"), 2)])
    }

    #[rstest]
    #[case::filtered(of_q("a"), both(), Ok(("5", 5)))]
    #[case::by_expression(json!({"selector": {"matchExpressions": [{"key": "q", "operator": "NotIn", "values": ["a"]}]}}), both(), Ok(("50", 2)))]
    #[case::none_fits(of_q("c"), both(), Err("the adapter answers 2 values, none of which matches the selector"))]
    #[case::several(json!({}), both(), Err("the adapter answers 2 values that match the selector: narrow it, or set several: Sum"))]
    #[case::sum(json!({"several": "Sum"}), both(), Ok(("55", 2)))]
    #[case::sum_of_fitting(json!({"several": "Sum", "selector": {"matchLabels": {"q": "b"}}}), both(), Ok(("50", 2)))]
    #[case::no_labels(of_q("a"), json!([item(json!(null), json!("7"), 1)]), Ok(("7", 1)))]
    #[case::exact_sum(json!({"several": "Sum"}), json!([item(json!({}), json!("100m"), 1), item(json!({}), json!("200m"), 3)]), Ok(("0.3", 1)))]
    fn the_labels_of_values_decide(
        #[case] source: Value,
        #[case] items: Value,
        #[case] expected: Result<(&str, i8), &str>,
    ) {
        let found = read(source, items);
        let second = |value: &SourceValue| (value.at.unwrap().as_second() % 60) as i8;
        let found = found.as_ref().map(|value| (value.value.as_str(), second(value))).map_err(String::as_str);
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::milli(json!("400u"), Ok("400u"))]
    #[case::small(json!("0.0004"), Ok("0.0004"))]
    #[case::negative(json!("-3"), Ok("-3"))]
    #[case::number(json!(5), Ok("5"))]
    #[case::fraction(json!(0.5), Ok("0.5"))]
    #[case::null(json!(null), Err("metric queue has no value"))]
    #[case::empty(json!(""), Err("metric queue is a text of 0 characters, not a quantity"))]
    #[case::nan(json!("NaN"), Err("metric queue is a text of 3 characters, not a quantity"))]
    #[case::overflow(json!("-9223372036854775808m"), Err("metric queue is the result of an overflow, probably of NaN or infinity"))]
    #[case::infinite(json!("+Inf"), Err("metric queue is a text of 4 characters, not a quantity"))]
    fn a_value_is_a_number_as_it_was_written(#[case] value: Value, #[case] expected: Result<&str, &str>) {
        let found = read(json!({}), json!([item(json!({}), value, 0)]));
        assert_eq!(found.as_ref().map(|value| value.value.as_str()).map_err(String::as_str), expected);
    }

    #[test]
    fn an_empty_list_is_no_zero() {
        for items in [json!([]), json!(null)] {
            for source in [json!({}), json!({"several": "Sum"})] {
                let error = read(source, items.clone()).unwrap_err();
                assert!(error.contains("an empty list, which is no zero"), "{error}");
            }
        }
    }

    #[test]
    fn a_value_without_a_name_or_a_time_is_taken() {
        let found = read(json!({}), json!([{"metricName": "", "value": "5"}])).unwrap();
        assert_eq!((found.value.as_str(), found.at), ("5", None));
        let error = read(json!({}), json!([{"value": "5", "timestamp": "yesterday"}])).unwrap_err();
        assert_eq!(error, "the time of metric queue is not in the format of RFC 3339");
    }

    #[test]
    fn more_values_than_are_read_are_refused() {
        let items: Vec<Value> = (0..=VALUES).map(|_| item(json!({}), json!("1"), 0)).collect();
        let error = read(json!({"several": "Sum"}), json!(items)).unwrap_err();
        assert_eq!(error, "the adapter answers 1001 values, more than 1000: narrow the selector");
    }
}
