//! Recordings from the Decision of a running loop.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;

use super::*;
use ganglion_api::decision::{DecisionStatus, Entry, Outcome};
use ganglion_api::scalars::Number;

/// A decision on this value, with this effect.
fn entry(seconds: i64, value: Option<&str>, effect: &str) -> Entry {
    Entry {
        seq: seconds,
        at: MicroTime(at(seconds)),
        when: serde_json::from_value(json!({"metric": "cpu", "side": "High"})).unwrap(),
        value: value.map(|value| Number(value.to_owned())),
        rung: 0,
        action: "scale by 1".to_owned(),
        outcome: Some(Outcome::Served),
        ended: None,
        effect: Some(effect.to_owned()),
        repeated: None,
    }
}

#[test]
fn the_values_of_the_decisions_are_a_recording() {
    let history = vec![entry(0, Some("90"), "3 -> 4"), entry(60, None, "4 -> 5"), entry(90, Some("95"), "5 -> 6")];
    let status = DecisionStatus { history, ..DecisionStatus::default() };
    let (recording, count) = recorded_decisions(&status).unwrap();
    let recording = recording.unwrap();
    assert_eq!((recording.start(), recording.end(), count), (at(0), at(90), 2));
    let options = ReplayOptions::default();
    let report = run(&spec(json!({})), &options, &recording);
    assert_eq!(lines(&report), ["0 High cpu 3->4 Served", "90 High cpu 4->5 Served"], "the first number is recorded");
}

#[test]
fn a_decision_alone_or_without_values_is_no_recording() {
    assert!(recorded_decisions(&DecisionStatus::default()).is_none());
    let status = |history| DecisionStatus { history, ..DecisionStatus::default() };
    assert!(recorded_decisions(&status(vec![entry(0, None, "3 -> 4")])).is_none());
    let (recording, _) = recorded_decisions(&status(vec![entry(0, Some("90"), "3 -> 4")])).unwrap();
    assert_eq!(recording.unwrap_err(), RecordingError::NoLength { start: at(0), end: at(0) });
}
