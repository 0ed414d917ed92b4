//! Meaning of the answers of an external scaler: which metric counts, and which of its two numbers.
//!
//! Texts of the scaler are not passed on, except plain names of metrics.

use super::wire::{GetMetricSpecResponse, GetMetricsResponse, MetricSpec, MetricValue};
use crate::value::is_plain_name;

/// Maximum number of metrics that a message lists.
const LISTED: usize = 5;

/// The value of the metric with this name. A value without a name is that of the metric that was asked for.
pub fn value(answer: &GetMetricsResponse, name: &str) -> Result<String, String> {
    let named = answer.metric_values.iter().filter(|one| one.metric_name.is_empty() || one.metric_name == name);
    let named: Vec<&MetricValue> = named.collect();
    match named.as_slice() {
        [one] => number(one.metric_value_float, one.metric_value).map_err(|what| format!("{name} is {what}")),
        [] if answer.metric_values.is_empty() => Err(format!("the answer has no value of {name}")),
        [] => {
            let names = answer.metric_values.iter().map(|one| one.metric_name.as_str());
            Err(format!("the answer has no value of {name}, but of {}{}", listed(names), prefix_advice(name)))
        }
        several => Err(format!("the answer has {} values of {name}, not one", several.len())),
    }
}

/// The metric with this name, or the only one.
pub fn metric<'a>(answer: &'a GetMetricSpecResponse, name: Option<&str>) -> Result<&'a MetricSpec, String> {
    let offered = || listed(answer.metric_specs.iter().map(|one| one.metric_name.as_str()));
    let named = answer.metric_specs.iter().filter(|one| name.is_none_or(|name| one.metric_name == name));
    let named: Vec<&MetricSpec> = named.collect();
    match (named.as_slice(), name) {
        ([one], _) => Ok(one),
        ([], _) if answer.metric_specs.is_empty() => Err("it offers no metric".to_owned()),
        ([], Some(name)) => Err(format!("it offers {}, not {name}{}", offered(), prefix_advice(name))),
        ([..], None) => {
            let count = answer.metric_specs.len();
            Err(format!("it offers {count} metrics, {}: name one of them in metric", offered()))
        }
        (several, Some(name)) => Err(format!("it offers {} metrics {name}, not one", several.len())),
    }
}

/// The target of a metric.
pub fn target(metric: &MetricSpec) -> Result<String, String> {
    let what = |what| format!("its target is {what}");
    if metric.target_size_float.is_finite() && metric.target_size_float <= 0.0 && metric.target_size <= 0 {
        return Err(what(format!("{}, not above 0", metric.target_size)));
    }
    number(metric.target_size_float, metric.target_size).map_err(what)
}

/// As in KEDA, the float counts if it is above 0, and otherwise the whole number, which older scalers have alone.
fn number(float: f64, whole: i64) -> Result<String, String> {
    if !float.is_finite() {
        return Err(format!("{float}, which is not a number"));
    }
    if float <= 0.0 {
        return Ok(whole.to_string());
    }
    // Without an exponent, such a number would have hundreds of digits.
    let is_short = (1e-9..1e18).contains(&float);
    Ok(if is_short { float.to_string() } else { format!("{float:e}") })
}

/// Lists the first plain names for a message.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let (mut shown, mut others) = (Vec::new(), 0);
    for name in names {
        if shown.len() < LISTED && is_plain_name(name) {
            shown.push(name);
        } else {
            others += 1;
        }
    }
    match (shown.is_empty(), others) {
        (_, 0) => shown.join(", "),
        (true, others) => format!("{others} that cannot be shown"),
        (false, others) => format!("{} and {others} more", shown.join(", ")),
    }
}

/// Advice if the name looks like one of KEDA's HorizontalPodAutoscalers, in which a prefix numbers the triggers. A
/// scaler may offer a name such as `s3-uploads`, so the prefix is not removed.
fn prefix_advice(name: &str) -> String {
    let plain = name.strip_prefix('s').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    match plain.and_then(|rest| rest.strip_prefix('-')) {
        Some(plain) if !plain.is_empty() && name.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
            format!("; KEDA adds the prefix for its HorizontalPodAutoscaler: write {plain}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use ganglion_core::quantity;

    fn value_of(name: &str, metric_value: i64, metric_value_float: f64) -> MetricValue {
        MetricValue { metric_name: name.to_owned(), metric_value, metric_value_float }
    }

    fn spec_of(name: &str, target_size: i64, target_size_float: f64) -> MetricSpec {
        MetricSpec { metric_name: name.to_owned(), target_size, target_size_float }
    }

    #[rstest]
    #[case::whole(5, 0.0, Ok("5"))]
    #[case::float(0, 0.5, Ok("0.5"))]
    #[case::both(7, 2.0, Ok("2"))]
    #[case::negative_float(3, -2.5, Ok("3"))]
    #[case::negative(-3, 0.0, Ok("-3"))]
    #[case::none(0, 0.0, Ok("0"))]
    #[case::large(0, 1e300, Ok("1e300"))]
    #[case::small(0, 4e-10, Ok("4e-10"))]
    #[case::nan(5, f64::NAN, Err("queue is NaN, which is not a number"))]
    #[case::infinite(5, f64::INFINITY, Err("queue is inf, which is not a number"))]
    #[case::below_all(5, f64::NEG_INFINITY, Err("queue is -inf, which is not a number"))]
    fn m11_the_float_counts_only_above_zero(
        #[case] whole: i64,
        #[case] float: f64,
        #[case] expected: Result<&str, &str>,
    ) {
        let answer = GetMetricsResponse { metric_values: vec![value_of("queue", whole, float)] };
        assert_eq!(value(&answer, "queue"), expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[rstest]
    #[case::other_first(&["lag", "queue"], "queue", Ok("1"))]
    #[case::unnamed(&[""], "queue", Ok("0"))]
    #[case::empty(&[], "queue", Err("the answer has no value of queue"))]
    #[case::wrong(&["lag"], "queue", Err("the answer has no value of queue, but of lag"))]
    #[case::twice(&["queue", "queue"], "queue", Err("the answer has 2 values of queue, not one"))]
    #[case::both(&["", "queue"], "queue", Err("the answer has 2 values of queue, not one"))]
    #[case::prefix(&["queue"], "s0-queue", Err(
        "the answer has no value of s0-queue, but of queue; KEDA adds the prefix for its HorizontalPodAutoscaler: write queue"
    ))]
    #[case::uploads(&["s3-uploads"], "s3-uploads", Ok("0"))]
    #[case::hidden(&["<b>\n"], "queue", Err("the answer has no value of queue, but of 1 that cannot be shown"))]
    #[case::many(&["a", "b", "c", "d", "e", "f"], "queue", Err(
        "the answer has no value of queue, but of a, b, c, d, e and 1 more"
    ))]
    fn exactly_one_value_has_the_name(
        #[case] names: &[&str],
        #[case] asked: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let numbered = names.iter().enumerate().map(|(index, name)| value_of(name, index as i64, 0.0));
        let answer = GetMetricsResponse { metric_values: numbered.collect() };
        assert_eq!(value(&answer, asked), expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[rstest]
    #[case::only(&["queue"], None, Ok("queue"))]
    #[case::named(&["lag", "queue"], Some("queue"), Ok("queue"))]
    #[case::none(&[], None, Err("it offers no metric"))]
    #[case::several(&["lag", "queue"], None, Err("it offers 2 metrics, lag, queue: name one of them in metric"))]
    #[case::wrong(&["lag"], Some("queue"), Err("it offers lag, not queue"))]
    #[case::twice(&["queue", "queue"], Some("queue"), Err("it offers 2 metrics queue, not one"))]
    #[case::prefix(&["queue"], Some("s12-queue"), Err(
        "it offers queue, not s12-queue; KEDA adds the prefix for its HorizontalPodAutoscaler: write queue"
    ))]
    fn a_metric_is_named_unless_there_is_only_one(
        #[case] names: &[&str],
        #[case] asked: Option<&str>,
        #[case] expected: Result<&str, &str>,
    ) {
        let answer = GetMetricSpecResponse { metric_specs: names.iter().map(|name| spec_of(name, 1, 0.0)).collect() };
        let found = metric(&answer, asked).map(|metric| metric.metric_name.clone());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[rstest]
    #[case(10, 0.0, Ok("10"))]
    #[case(10, 0.5, Ok("0.5"))]
    #[case(0, 0.0, Err("its target is 0, not above 0"))]
    #[case(-1, -2.0, Err("its target is -1, not above 0"))]
    #[case(10, f64::NAN, Err("its target is NaN, which is not a number"))]
    fn a_target_is_above_zero(#[case] whole: i64, #[case] float: f64, #[case] expected: Result<&str, &str>) {
        let found = target(&spec_of("queue", whole, float));
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[rstest]
    fn only_a_prefix_of_keda_is_advised_against(#[values("queue", "s-queue", "s0", "s0-", "x0-queue")] name: &str) {
        assert_eq!(prefix_advice(name), "");
    }

    proptest! {
        #[test]
        fn every_number_is_read_back(whole: i64, float: f64) {
            match number(float, whole) {
                Ok(text) => {
                    let expected = if float > 0.0 { float } else { whole as f64 };
                    let found = quantity::number(&text).unwrap();
                    // Exponents below -128 are read as the nearest number that is not 0.
                    prop_assert!(found == expected || !(1e-120..=1e120).contains(&expected), "{text}: {found}");
                }
                Err(_) => prop_assert!(!float.is_finite()),
            }
        }
    }
}
