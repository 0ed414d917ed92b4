//! Models of the effect of actions.

use rstest::rstest;
use serde_json::json;

use super::*;

fn with_effects(effects: &[&str], delay: i64) -> ReplayOptions {
    let effects = effects.iter().map(|text| (*text).to_owned()).collect();
    ReplayOptions { effects, delay: SignedDuration::from_secs(delay), ..options(2) }
}

const BUSY: [&str; 6] = ["90", "90", "90", "90", "90", "90"];

#[test]
fn without_an_effect_the_values_are_as_recorded() {
    let report = run(&spec(json!({})), &with_effects(&["none"], 0), &recording(&[("cpu", &BUSY)]));
    assert!(report.values[0].points.iter().all(|(_, value)| *value == Some(90.0)));
    assert_eq!(report.totals.served, 4, "up to the bound");
}

/// A total of 180 shared by 2 pods; 3 of them have 60 each.
#[rstest]
#[case(0, &["0 High cpu 2->3 Served"])]
#[case(40, &["0 High cpu 2->3 Served", "15 High cpu 3->4 Served", "30 High cpu 4->5 Served"])]
fn a_shared_total_falls_once_the_new_pods_serve(#[case] delay: i64, #[case] expected: &[&str]) {
    let options = with_effects(&["proportional=cpu"], delay);
    let report = run(&spec(json!({})), &options, &recording(&[("cpu", &BUSY)]));
    assert_eq!(lines(&report), expected);
    assert!(report.effect.starts_with("proportional: cpu is a total"), "{}", report.effect);
}

#[test]
fn the_recorded_replicas_are_the_share_of_the_recorded_value() {
    let recorded = recording(&[("cpu", &["90", "60", "60"]), ("replicas", &["2", "3", "3"])]);
    let report = run(&spec(json!({})), &with_effects(&["proportional=cpu"], 0), &recorded);
    assert_eq!(lines(&report), ["0 High cpu 2->3 Served"]);
    assert_eq!(report.values[0].points.last().unwrap().1, Some(60.0), "both have 3 pods");
}

#[test]
fn a_given_effect_begins_after_its_action() {
    let options = with_effects(&["High cpu/1: cpu*0.5", "Low cpu/1: cpu+40"], 15);
    let report = run(&spec(json!({})), &options, &recording(&[("cpu", &BUSY)]));
    let values: Vec<Option<f64>> = report.values[0].points.iter().map(|(_, value)| *value).collect();
    assert_eq!(values[..3], [Some(90.0), Some(45.0), Some(45.0)]);
    assert_eq!(lines(&report), ["0 High cpu 2->3 Served"]);
    assert_eq!(report.effect, "given: High cpu/1: cpu*0.5; Low cpu/1: cpu+40; each after 15s");
}

#[rstest]
#[case("more", "\"more\" is no effect: write none, proportional=METRIC,...")]
#[case("proportional=mem", "effect \"proportional=mem\": the loop has no metric mem with values of its own: cpu")]
#[case("High cpu/2: cpu*2", "effect \"High cpu/2: cpu*2\": the loop has no such action: High cpu/1, Low cpu/1")]
#[case("High cpu/1: cpu*x", "\"High cpu/1: cpu*x\" is no effect")]
fn a_wrong_effect_is_explained(#[case] text: &str, #[case] words: &str) {
    let error = ReplayRules::new("web", &spec(json!({})), &with_effects(&[text], 0)).map(drop).unwrap_err();
    assert!(error.to_string().starts_with(words), "{error}");
}

#[test]
fn two_models_are_refused() {
    let options = with_effects(&["none", "proportional=cpu"], 0);
    let error = ReplayRules::new("web", &spec(json!({})), &options).map(drop).unwrap_err();
    assert_eq!(error, EffectError::Mixed.into());
}
