//! Single situations with the decisions that the controllers would make.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::decision::Outcome;

#[test]
fn each_sample_beyond_a_level_leads_to_one_action_within_the_bounds() {
    let report = run(&spec(json!({})), &options(4), &recording(&[("cpu", &["50", "90", "90", "90", "5", "50"])]));
    let expected =
        ["15 High cpu 4->5 Served", "30 High cpu 5->6 Served", "45 High cpu -->- Limited", "60 Low cpu 6->5 Served"];
    assert_eq!(lines(&report), expected);
    let totals = ReplayTotals { decisions: 4, served: 3, limited: 1, reversals: 1, ..ReplayTotals::default() };
    assert_eq!(report.totals, totals);
    assert_eq!(report.decisions[2].message.as_deref(), Some("it is at 6, and max is 6"));
    let high = report.alarms.iter().find(|alarm| alarm.side == Side::High).unwrap();
    assert_eq!((high.beyond_seconds, high.raised_seconds, high.raised), (45.0, 45.0, 1));
    assert_eq!(high.level.as_deref(), Some("80"));
    let replicas: Vec<&str> = report.target.iter().map(|change| change.value.as_str()).collect();
    assert_eq!(replicas, ["4", "5", "6", "5"]);
}

#[rstest]
#[case::dwell(json!({"policy": {"dwell": "40s"}}), &["0 High cpu 1->2 Served", "40 High cpu 2->3 Served"], "Dwell", 1)]
#[case::budget(json!({"policy": {"budget": {"max": 2, "per": "1h"}}}), &["0 High cpu 1->2 Served", "15 High cpu 2->3 Served"], "Budget", 1)]
fn limits_hold_alarms_back(
    #[case] changes: Value,
    #[case] expected: &[&str],
    #[case] reason: &str,
    #[case] times: u64,
) {
    let report = run(&spec(changes), &options(1), &recording(&[("cpu", &["90", "90", "90", "90", "50"])]));
    assert_eq!(lines(&report), expected);
    let held = report.held.iter().find(|held| held.reason == reason).unwrap();
    assert!(held.times >= times && held.seconds > 0.0, "{held:?}");
}

/// A dwell that ends between two samples lets the alarm be served at that time, as in the cluster, if its value is new.
#[test]
fn the_end_of_a_dwell_is_an_event_of_its_own() {
    let report =
        run(&spec(json!({"policy": {"dwell": "20s"}})), &options(1), &recording(&[("cpu", &["90", "90", "50"])]));
    assert_eq!(lines(&report), ["0 High cpu 1->2 Served", "20 High cpu 2->3 Served"]);
}

#[test]
fn a_level_with_for_is_raised_between_two_samples() {
    let metrics = json!([{"name": "cpu", "source": {"push": {}}, "high": {"raise": "80", "for": "20s"}}]);
    let actions = json!([{"when": {"metric": "cpu", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]}]);
    let report = run(
        &spec(json!({"metrics": metrics, "actions": actions})),
        &options(1),
        &recording(&[("cpu", &["90", "90", "50", "90", "50"])]),
    );
    assert_eq!(lines(&report), ["20 High cpu 1->2 Served"]);
}

#[test]
fn gaps_are_unknown_after_the_age_of_a_value_and_said() {
    let metrics = json!([{"name": "cpu", "source": {"prometheus": {"url": "http://p", "query": "cpu"}}, "high": {"raise": "80"}}]);
    let actions = json!([{"when": {"metric": "cpu", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]}]);
    let spec = spec(json!({"metrics": metrics, "actions": actions}));
    let values = ["90", "", "", "", "", "", "90"];
    let report = run(&spec, &options(1), &recording(&[("cpu", &values)]));
    assert_eq!(lines(&report), ["0 High cpu 1->2 Served", "90 High cpu 2->3 Served"]);
    let unknown: Vec<(&str, f64)> = report.unknown.iter().map(|one| (one.reason.as_str(), one.seconds)).collect();
    // Unknown from the maximum age of 45 s on.
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert_eq!(unknown[0].0, "a gap");
    assert!((unknown[0].1 - 45.0).abs() < 0.001, "{unknown:?}");
}

#[test]
fn a_metric_without_a_recording_is_unknown_and_listed() {
    let metric = |name: &str| json!({"name": name, "source": {"http": {"url": "http://h", "path": "a"}}, "high": {"raise": "80"}});
    let action =
        |name: &str| json!({"when": {"metric": name, "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]});
    let spec = spec(json!({"metrics": [metric("a"), metric("b")], "actions": [action("a"), action("b")]}));
    let report = run(&spec, &options(1), &recording(&[("a", &["90", "50"])]));
    assert_eq!(lines(&report), ["0 High a 1->2 Served"]);
    let limit = "metric b: the recording has no values of its source http: it is unknown";
    assert!(report.limits.iter().any(|one| one == limit), "{:?}", report.limits);
    assert_eq!(report.unknown[0].metric, "b");
}

#[test]
fn a_metric_that_is_always_outranked_is_starved() {
    let metric = |name: &str| json!({"name": name, "source": {"push": {}}, "high": {"raise": "80"}});
    let action =
        |name: &str| json!({"when": {"metric": name, "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]});
    let spec = spec(json!({"metrics": [metric("a"), metric("b")], "actions": [action("a"), action("b")]}));
    let report = run(&spec, &options(1), &recording(&[("a", &["90", "90"]), ("b", &["90", "90"])]));
    assert_eq!(lines(&report), ["0 High a 1->2 Served", "15 High a 2->3 Served"]);
    assert_eq!(report.starved, ["b"]);
}

#[rstest]
#[case("Auto", false, Some(Outcome::Served))]
#[case("DryRun", false, Some(Outcome::DryRun))]
#[case("Approve", false, None)]
#[case("Approve", true, Some(Outcome::Served))]
fn modes_are_those_of_the_controllers(#[case] mode: &str, #[case] approves: bool, #[case] outcome: Option<Outcome>) {
    let options = ReplayOptions { approves, ..options(1) };
    let report = run(&spec(json!({"mode": mode})), &options, &recording(&[("cpu", &["90", "90"])]));
    assert_eq!(report.decisions.first().map(|decision| decision.outcome), Some(outcome), "{report:#?}");
}

#[test]
fn a_paused_loop_decides_nothing() {
    let report = run(&spec(json!({"mode": "Paused"})), &options(1), &recording(&[("cpu", &["90", "90"])]));
    assert!(report.decisions.is_empty());
    assert_eq!(report.limits[0], "the loop is paused, so it decides nothing");
}

#[test]
fn formulas_read_the_simulated_replicas() {
    let metrics = json!([
        {"name": "requests", "source": {"push": {}}},
        {"name": "load", "source": {"formula": {"expression": "requests / replicas"}}, "high": {"raise": "30"}},
    ]);
    let actions = json!([{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]}]);
    let spec = spec(json!({"metrics": metrics, "actions": actions}));
    let report = run(&spec, &options(1), &recording(&[("requests", &["80", "80", "80", "80"])]));
    assert_eq!(lines(&report), ["0 High load 1->2 Served", "15 High load 2->3 Served"]);
}

#[test]
fn a_tracked_total_sets_the_number_of_replicas() {
    let metrics = json!([{"name": "queue", "source": {"prometheus": {"url": "http://p", "query": "q"}}}]);
    let scale = json!({"track": {"type": "AverageValue", "target": "10"}, "max": 8});
    let actions = json!([{"when": {"metric": "queue", "side": "Target"}, "ladder": [{"scale": scale}]}]);
    let spec = spec(json!({"metrics": metrics, "actions": actions}));
    let report = run(&spec, &options(2), &recording(&[("queue", &["20", "50", "50", "200", "200", "200"])]));
    // At most twice as many in each interval, as in a HorizontalPodAutoscaler.
    let expected = ["15 Target queue 2->4 Served", "30 Target queue 4->5 Served", "45 Target queue 5->8 Served"];
    assert_eq!(lines(&report), expected);
    let bound = report.held.iter().find(|held| held.reason == "AtMax").unwrap();
    assert_eq!((bound.when.as_str(), bound.seconds > 0.0), ("replicas", true));
}

/// Each kind of action goes through the stage that carries it out.
#[rstest]
#[case::scale(json!({"scale": {"factor": "2", "min": 1, "max": 9}}), "replicas", "2", "2->4 Served")]
#[case::resize(
    json!({"resize": {"container": "app", "resource": "cpu", "factor": "1.5", "max": "2"}}),
    "app/cpu", "400m", "request 400m, limit 400m->request 600m, limit 600m Served"
)]
#[case::patch(json!({"patch": {"path": "spec.size", "by": "2", "max": "9"}}), "spec.size", "3", "3->5 Served")]
#[case::create(json!({"workloadAction": {"create": {"to": {"nodes": ["n1"]}, "count": 2}}}), "replicas", "3", "")]
fn every_kind_of_action_is_simulated(
    #[case] rung: Value,
    #[case] dimension: &str,
    #[case] value: &str,
    #[case] expected: &str,
) {
    let actions = json!([{"when": {"metric": "cpu", "side": "High"}, "ladder": [rung]}]);
    let start = BTreeMap::from([(dimension.to_owned(), value.to_owned())]);
    let options = ReplayOptions { start, ..ReplayOptions::default() };
    let report = run(&spec(json!({"actions": actions})), &options, &recording(&[("cpu", &["90", "50"])]));
    let last = lines(&report).pop().unwrap();
    if expected.is_empty() {
        assert_eq!(report.target.last().unwrap().value, "5", "{report:#?}");
    } else {
        assert!(last.contains(expected), "{last}: {report:#?}");
    }
}

#[test]
fn the_values_at_the_start_are_required_and_checked() {
    let rules = |start: &[(&str, &str)]| {
        let start = start.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ReplayRules::new("web", &spec(json!({})), &ReplayOptions { start, ..ReplayOptions::default() })
    };
    let words = |error: ReplayError| error.to_string();
    let missing = replay(&rules(&[]).unwrap(), &recording(&[("cpu", &["5", "5"])])).map_err(words);
    assert_eq!(
        missing.unwrap_err(),
        "the loop reads or changes replicas: give its value at the start with --start replicas=VALUE"
    );
    let wrong = rules(&[("replicas", "two")]).map(drop).map_err(words);
    assert_eq!(wrong.unwrap_err(), "--start replicas=two: use a whole number of 0 or more");
    let recorded = recording(&[("cpu", &["90", "50"]), ("replicas", &["3", "3"])]);
    let report = replay(&rules(&[]).unwrap(), &recorded).unwrap();
    assert_eq!(lines(&report), ["0 High cpu 3->4 Served"], "the recorded number is the one at the start");
}
