//! Properties of all replays.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use ganglion_api::decision::Outcome;

/// Values of two metrics, with gaps.
fn values() -> impl Strategy<Value = Vec<Vec<&'static str>>> {
    let value = prop::sample::select(vec!["", "2", "5", "40", "60", "85", "99"]);
    prop::collection::vec(prop::collection::vec(value, 30), 2)
}

fn random_spec(dwell: i64, settle: i64, pushed: bool) -> ClosedLoopSpec {
    let source = if pushed { json!({"push": {}}) } else { json!({"prometheus": {"url": "http://p", "query": "q"}}) };
    let metric = |name: &str| json!({"name": name, "source": source, "low": {"raise": "10", "clear": "20"}, "high": {"raise": "80", "clear": "70", "for": "10s"}});
    let action = |name: &str, side: &str, by: i32| {
        json!({"when": {"metric": name, "side": side}, "settle": format!("{settle}s"), "ladder": [
            {"scale": {"by": by, "min": 1, "max": 6}}, {"scale": {"by": 2 * by, "min": 1, "max": 8}}]})
    };
    let budget = json!({"max": 3, "per": "3m"});
    spec(json!({
        "metrics": [metric("a"), metric("b")],
        "policy": {"dwell": format!("{dwell}s"), "budget": budget, "oscillation": {"reversals": 2, "per": "2m"}},
        "actions": [action("a", "High", 1), action("b", "High", 1), action("a", "Low", -1), action("b", "Low", -1)],
    }))
}

fn series(values: &[Vec<&'static str>]) -> Recording {
    recording(&[("a", &values[0]), ("b", &values[1])])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_input_has_the_same_result(values in values(), dwell in 0..60_i64, settle in 0..40_i64, pushed: bool) {
        let spec = random_spec(dwell, settle, pushed);
        let recording = series(&values);
        prop_assert_eq!(run(&spec, &options(3), &recording), run(&spec, &options(3), &recording));
    }

    /// The future does not change the past.
    #[test]
    fn decisions_follow_from_earlier_values_only(
        values in values(), others in values(), until in 1..29_usize, dwell in 0..60_i64, pushed: bool,
    ) {
        let spec = random_spec(dwell, 20, pushed);
        let mixed: Vec<Vec<&str>> =
            values.iter().zip(&others).map(|(one, other)| [&one[..until], &other[until..]].concat()).collect();
        let before = |values: &[Vec<&'static str>]| {
            let report = run(&spec, &options(3), &series(values));
            let before = report.decisions.into_iter().filter(|decision| decision.at < at(15 * until as i64));
            before.collect::<Vec<_>>()
        };
        prop_assert_eq!(before(&values), before(&mixed));
    }

    #[test]
    fn limits_and_bounds_hold(values in values(), dwell in 0..60_i64, settle in 0..40_i64, pushed: bool) {
        let report = run(&random_spec(dwell, settle, pushed), &options(3), &series(&values));
        let served: Vec<&ReplayedDecision> =
            report.decisions.iter().filter(|decision| decision.outcome == Some(Outcome::Served)).collect();
        for pair in served.windows(2) {
            prop_assert!(pair[1].at.duration_since(pair[0].at).as_secs() >= dwell, "{:?}", lines(&report));
        }
        for triple in served.windows(4) {
            prop_assert!(triple[3].at.duration_since(triple[0].at).as_secs() >= 180, "{:?}", lines(&report));
        }
        for change in &report.target {
            prop_assert!((1..=8).contains(&change.value.parse::<i32>().unwrap()));
        }
    }

    #[test]
    fn without_an_effect_no_value_changes(values in values(), pushed: bool) {
        let report = run(&random_spec(0, 0, pushed), &options(3), &series(&values));
        for (shown, recorded) in report.values.iter().zip(&values) {
            for (time, value) in &shown.points {
                let index = usize::try_from(time.duration_since(start()).as_secs() / 15).unwrap();
                // A value stands for at most three intervals.
                let last = recorded[..=index].iter().rev().find(|text| !text.is_empty());
                prop_assert!(value.is_none() || last.and_then(|text| text.parse().ok()) == *value);
            }
        }
    }

    /// No time is counted twice or lost.
    #[test]
    fn times_are_within_the_period(values in values(), dwell in 0..60_i64, pushed: bool) {
        let report = run(&random_spec(dwell, 20, pushed), &options(3), &series(&values));
        let whole = report.end.duration_since(report.start).as_secs_f64();
        for alarm in &report.alarms {
            prop_assert!(alarm.beyond_seconds <= whole && alarm.raised_seconds <= whole);
        }
        for name in ["a", "b"] {
            let unknown = report.unknown.iter().filter(|one| one.metric == name).map(|one| one.seconds).sum::<f64>();
            let alarms = report.alarms.iter().filter(|alarm| alarm.metric == name);
            let beyond = alarms.map(|alarm| alarm.beyond_seconds).sum::<f64>();
            prop_assert!(unknown + beyond <= whole + 1e-6, "{name}: {unknown} + {beyond} of {whole}");
        }
    }
}
