//! Tests of the rule LastServed.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use crate::common::micro_time;
use crate::tests::bench::at;
use crate::tuning::last_served::{find_least_served, imbalance, raise_rank};
use ganglion_api::decision::{Counter, DecisionStatus};
use ganglion_api::monitoring::LastServed;

fn rank(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Counters by metric: wanted, served, and time of the last service.
fn decided(counters: &[(&str, i64, i64, Option<i64>)]) -> DecisionStatus {
    let counter = |(metric, wanted, served, last): &(&str, i64, i64, Option<i64>)| Counter {
        metric: (*metric).into(),
        wanted: *wanted,
        served: *served,
        limited: 0,
        last_served: last.map(|second| micro_time(at(second))),
    };
    DecisionStatus { counters: counters.iter().map(counter).collect(), ..DecisionStatus::default() }
}

#[rstest]
#[case(&[("a", 9, 9, Some(9)), ("b", 9, 0, None)], None)] // not ten times yet
#[case(&[("a", 10, 10, Some(9)), ("b", 10, 0, None)], Some("b"))]
#[case(&[("a", 10, 10, Some(9)), ("b", 0, 0, None)], None)] // nobody wanted it
#[case(&[("a", 10, 10, Some(9))], None)]
#[case(&[("a", 9, 1, Some(1)), ("b", 10, 10, Some(9))], None)] // a metric that ranks above needs no help
#[case(&[("a", 20, 10, Some(9)), ("b", 20, 3, Some(8)), ("c", 20, 2, Some(1))], Some("c"))]
#[case(&[("a", 20, 10, Some(9)), ("b", 20, 2, Some(3)), ("c", 20, 2, Some(1))], Some("c"))] // served longest ago
#[case(&[("a", 20, 10, Some(9)), ("b", 20, 0, None), ("c", 20, 0, None)], Some("b"))]
#[case(&[("a", 20, 12, Some(9)), ("b", 20, 12, Some(8))], None)]
fn finds_who_fell_behind(#[case] counters: &[(&str, i64, i64, Option<i64>)], #[case] expected: Option<&str>) {
    let found = find_least_served("imbalance", None, &rank(&["a", "b", "c"]), &decided(counters), 10);
    assert_eq!(found.least_served.as_deref(), expected);
    assert_eq!(imbalance(&found) > 0, expected.is_some());
}

#[test]
fn what_came_between_finding_and_change_counts_for_the_time_after() {
    let (before, after) = (rank(&["a", "b"]), rank(&["b", "a"]));
    let found = find_least_served("i", None, &before, &decided(&[("a", 10, 10, Some(9)), ("b", 10, 0, None)]), 10);
    let late =
        find_least_served("i", Some(&found), &before, &decided(&[("a", 13, 13, Some(12)), ("b", 13, 0, None)]), 10);
    assert_eq!(late.found, found.found);
    let changed =
        find_least_served("i", Some(&late), &after, &decided(&[("a", 14, 13, Some(12)), ("b", 14, 1, Some(13))]), 10);
    let served: Vec<i64> = changed.shares.iter().map(|share| share.served).collect();
    assert_eq!(served, [1, 3]);
}

#[test]
fn a_loop_made_anew_counts_from_nothing() {
    let names = rank(&["a", "b"]);
    let before = LastServed {
        rank: names.clone(),
        base: serde_json::from_value(json!([{"metric": "a", "wanted": 50, "served": 50}])).unwrap(),
        ..LastServed::default()
    };
    let found =
        find_least_served("i", Some(&before), &names, &decided(&[("a", 10, 10, Some(9)), ("b", 10, 0, None)]), 10);
    assert_eq!(found.least_served.as_deref(), Some("b"));
}

#[test]
fn a_rank_is_raised_by_one() {
    let names = rank(&["a", "b", "c"]);
    assert_eq!(raise_rank(&names, "c"), Some(rank(&["a", "c", "b"])));
    assert_eq!(raise_rank(&names, "a"), None);
    assert_eq!(raise_rank(&names, "d"), None);
}

proptest! {
    /// All metrics are always wanted, and the first in rank is served: each metric reaches the top at some time.
    #[test]
    fn nobody_starves(metrics in 2..6_usize, window in 1..8_i64, pace in 1..12_i64) {
        let mut names: Vec<String> = (0..metrics).map(|index| format!("m{index}")).collect();
        let mut counters: Vec<Counter> =
            names.iter().map(|metric| Counter { metric: metric.clone(), ..Counter::default() }).collect();
        let mut state = None;
        let count = i64::try_from(metrics).unwrap();
        for second in 0..(window + pace) * count * count * 2 {
            for counter in &mut counters {
                counter.wanted += 1;
                if counter.metric == names[0] {
                    counter.served += 1;
                    counter.last_served = Some(micro_time(at(second)));
                }
            }
            if second % pace == 0 {
                let status = DecisionStatus { counters: counters.clone(), ..DecisionStatus::default() };
                let found = find_least_served("i", state.as_ref(), &names, &status, window);
                if let Some(rank) = found.least_served.as_ref().and_then(|least| raise_rank(&names, least)) {
                    names = rank;
                }
                state = Some(found);
            }
        }
        prop_assert!(counters.iter().all(|counter| counter.served > 0), "{counters:?}");
    }
}
