//! The number of replicas that the metrics need, whatever the current number is.

use rstest::rstest;

use super::bench::{Tracked, average, cpu, direct, pods, queue, starting, total, unknown, valued};
use crate::track::TrackedMetric;

#[rstest]
#[case::of_a_total(queue("8.3", "1"), 8, 8.3)]
#[case::within_the_tolerance(queue("8.3", "1"), 9, 8.3)]
#[case::of_any_number_of_replicas(queue("8.3", "1"), 40, 8.3)]
#[case::of_a_value(total("150", "100", 6), 6, 9.0)]
#[case::of_usage(cpu(50, pods(&[Some(20), Some(70)])), 2, 1.8)]
#[case::of_values_of_pods(average("2", valued(&["3", "4"])), 2, 3.5)]
fn the_demand_is_not_rounded(#[case] metric: TrackedMetric, #[case] replicas: i32, #[case] expected: f64) {
    let outcome = Tracked::new(direct(0, 100), replicas).result(0, &[metric]);
    assert!((outcome.demand().unwrap() - expected).abs() < 1e-6, "{:?}", outcome.demand());
}

#[test]
fn the_demand_is_the_largest_one_or_unknown() {
    let mut this = Tracked::new(direct(0, 100), 5);
    assert_eq!(this.result(0, &[queue("3", "1"), queue("7", "1")]).demand(), Some(7.0));
    assert_eq!(this.result(0, &[queue("3", "1"), unknown("cpu")]).demand(), None);
    assert_eq!(this.result(0, &[total("300", "100", 0)]).demand(), None, "no pod is ready");
    let mut all = pods(&[Some(90), Some(90)]);
    all.extend(["a", "b", "c"].map(|name| starting(name, 0)));
    assert_eq!(this.result(0, &[cpu(50, all)]).demand(), None, "the direction would turn");
    assert_eq!(this.result(0, &[]).demand(), None);
}
