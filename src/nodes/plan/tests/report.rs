//! Content of the status.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::readings::Age;
use crate::report::show;
use ganglion_api::node_config::status::{FittedLine, NodeValue, PowerAccuracy};
use ganglion_core::facts::Key;
use ganglion_core::status::StatusTiming;

#[test]
fn fresh_values_are_available_and_after_three_intervals_stale() {
    let readings = all(0);
    let fresh = status(&readings, 29);
    assert_eq!(data(&fresh), ("True".into(), "Sampled".into()));
    assert_eq!(condition(&fresh, "Stale"), None);
    assert_eq!(fresh.sampled_at.as_ref().unwrap().0, at(0));
    assert_eq!(readings.next_stale(&parsed(), at(29)), Some(at(30)));
    let stale = status(&readings, 30);
    assert_eq!(data(&stale), ("False".into(), "Stale".into()));
    for status in [&fresh, &stale] {
        assert_eq!(ready(status), ("True".into(), "Polling".into()), "a machine that is off does not matter");
        assert_eq!(condition(status, "Reconciling"), None);
    }
    let (is, reason, message) = condition(&stale, "Stale").unwrap();
    assert_eq!((is.as_str(), reason.as_str()), ("True", "Stale"));
    assert!(
        message.ends_with("inletTemperature, differentialPressure, cpu, memory, power, measuredPower"),
        "{message}"
    );
    assert!(stale.cpu.as_ref().is_some_and(|cpu| cpu.stale == Some(true) && cpu.value.as_deref() == Some("20")));
    assert_eq!(readings.next_stale(&parsed(), at(30)), None);
}

#[test]
fn a_failed_poll_changes_nothing_while_the_value_is_fresh_and_is_the_reason_afterwards() {
    let mut readings = all(0);
    readings.record(NodeValue::InletTemperature, problem(NodeReason::LoginRefused, "10.0.0.100 refuses the login"));
    assert_eq!(status(&readings, 20), status(&all(0), 20));
    for value in NodeValue::ALL.into_iter().filter(|value| *value != NodeValue::InletTemperature) {
        readings.record(value, sample(20.0, 25));
    }
    let late = status(&readings, 40);
    assert_eq!(data(&late), ("False".into(), "LoginRefused".into()));
    let words = "10.0.0.100 refuses the login; correct the user and password in the Secret, or the rights of that user";
    assert_eq!(condition(&late, "DataAvailable").unwrap().2, format!("inletTemperature: {words}"));
    let inlet = late.inlet_temperature.unwrap();
    assert_eq!((inlet.stale, inlet.problem.as_deref()), (Some(true), Some(words)));
    readings.record(NodeValue::InletTemperature, sample(21.0, 40));
    assert_eq!(data(&status(&readings, 40)), ("True".into(), "Sampled".into()));
}

/// Values that were measured at second 0, as another process restores them. The heartbeat of the status is a minute.
fn restored(second: i64) -> Readings {
    Readings::restored(&status(&all(0), 1), SignedDuration::from_secs(60), at(second))
}

#[test]
fn a_restart_and_a_failed_poll_after_it_make_no_value_stale() {
    let written = status(&all(0), 1);
    let mut readings = restored(25);
    assert!(!readings.is_complete(&parsed()), "no source has answered this process");
    readings.record(NodeValue::Cpu, problem(NodeReason::Unreachable, "10.0.0.1 does not answer"));
    // Three intervals are 30 s.
    let after = status(&readings, 54);
    assert_eq!((data(&after), &after.cpu), (data(&written), &written.cpu));
    assert_eq!(readings.next_stale(&parsed(), at(54)), Some(at(55)));
    let late = status(&readings, 55);
    assert_eq!(data(&late), ("False".into(), "Unreachable".into()));
    assert_eq!(late.cpu.as_ref().unwrap().value, written.cpu.unwrap().value);
    assert_eq!((late.cpu.unwrap().stale, late.power.unwrap().stale), (Some(true), Some(true)));
}

#[test]
fn a_value_of_an_earlier_process_is_not_older_than_its_heartbeat() {
    let age = |readings: &Readings, second| readings.age(NodeValue::Cpu, SignedDuration::from_secs(10), at(second));
    // Samples after second 60 would be in the status.
    let mut readings = restored(80);
    assert_eq!((age(&readings, 89), age(&readings, 90)), (Age::Fresh, Age::Stale));
    readings.record(NodeValue::Cpu, sample(20.0, 81));
    assert_eq!((age(&readings, 110), age(&readings, 111)), (Age::Fresh, Age::Stale), "a sample of this process");
}

#[test]
fn values_that_an_earlier_process_marked_as_stale_stay_so() {
    let written = status(&all(0), 30);
    let readings = Readings::restored(&written, SignedDuration::from_secs(60), at(31));
    assert_eq!(readings.next_stale(&parsed(), at(31)), None);
    let after = status(&readings, 31);
    assert_eq!(data(&after), ("Unknown".into(), "Waiting".into()));
    assert_eq!(after.cpu.as_ref().unwrap().value, written.cpu.unwrap().value);
    assert_eq!(after.cpu.unwrap().stale, Some(true));
}

#[test]
fn what_another_value_lacks_is_not_the_first_reason() {
    let mut readings = all(0);
    readings.record(NodeValue::Power, problem(NodeReason::InputMissing, "inletTemperature is not known"));
    readings.record(NodeValue::InletTemperature, problem(NodeReason::SensorNotFound, "there is no sensor X"));
    let status = status(&readings, 60);
    assert_eq!(data(&status), ("False".into(), "SensorNotFound".into()));
    let message = condition(&status, "DataAvailable").unwrap().2;
    assert!(message.contains("power: inletTemperature is not known"), "{message}");
    assert!(message.contains("set metricsCollector.inletTemp.sensor"), "{message}");
}

#[test]
fn a_predictor_that_is_worse_than_a_line_is_named_in_a_condition_and_nothing_else_changes() {
    let line = FittedLine { idle_watts: "95".into(), full_watts: "310".into(), mean_absolute_error: Some("6".into()) };
    let accuracy = |worse_than_line| PowerAccuracy {
        mean_absolute_error: Some("42".into()),
        line: Some(line.clone()),
        worse_than_line,
        ..PowerAccuracy::default()
    };
    let (parsed, readings, curve) = (parsed(), all(0), KnownCurve::default());
    let status = |accuracy: &PowerAccuracy| {
        let (standing, stamp) = (&Standing::Clear, Stamp { generation: 1, now: at(1) });
        let (parsed, readings, curve) = (Ok(&parsed), &readings, &curve);
        let accuracy = Some(accuracy);
        Situation { parsed, standing, readings, curve, accuracy, choice: None, old: &[], stamp }.status()
    };
    let (good, bad) = (status(&accuracy(None)), status(&accuracy(Some(true))));
    assert_eq!(condition(&good, "Inaccurate"), None);
    let (is, reason, message) = condition(&bad, "Inaccurate").unwrap();
    assert_eq!((is.as_str(), reason.as_str()), ("True", "WorseThanLine"));
    assert!(message.contains("from 95 W (idle) to 310 W (fully used)"), "{message}");
    assert!(message.ends_with("correct predictor.powerConsumption"), "{message}");
    assert_eq!((data(&bad), ready(&bad)), (data(&good), ready(&good)), "the values are fresh");
    assert_eq!(bad.power_accuracy, Some(accuracy(Some(true))));
    let timing = |written: &NodeConfigStatus, new: &NodeConfigStatus| {
        let times = crate::news::StatusTimes { written: Some(at(0)), polled_since: at(-100) };
        rule().timing(written, new, times, at(1))
    };
    assert_eq!(timing(&good, &bad), StatusTiming::Now);
    let mut other = good.clone();
    other.power_accuracy.as_mut().unwrap().mean_absolute_error = Some("41".into());
    assert_eq!(timing(&good, &other), StatusTiming::Never, "it is written with another change");
}

#[test]
fn values_of_one_source_have_one_text() {
    let mut readings = Readings::default();
    for value in parsed().values() {
        readings.record(value, problem(NodeReason::NoMetricsServer, "the API metrics.k8s.io is not available"));
    }
    let message = condition(&status(&readings, 0), "DataAvailable").unwrap().2;
    assert!(message.contains("cpu, memory: the API metrics.k8s.io is not available; install "), "{message}");
}

#[rstest]
#[case(Standing::NamespaceRefused("not here".into()), false, ("False", "NamespaceRefused"), true)]
#[case(Standing::NodeNotFound, false, ("False", "NodeNotFound"), false)]
#[case(Standing::Conflict(Key::new("a", "older")), false, ("False", "NodeConflict"), true)]
#[case(Standing::Clear, true, ("Unknown", "Suspended"), false)]
fn where_nothing_is_measured_the_status_says_why(
    #[case] standing: Standing,
    #[case] suspended: bool,
    #[case] expected: (&str, &str),
    #[case] stalled: bool,
) {
    let parsed = ParsedNodeSpec { suspended, ..parsed() };
    let status = status_of(&parsed, &standing, &all(0), &NodeConfigStatus::default(), 5);
    assert_eq!(ready(&status), (expected.0.to_owned(), expected.1.to_owned()));
    assert_eq!(data(&status), ready(&status), "nothing else is known of its values");
    assert_eq!(condition(&status, "Stalled").is_some(), stalled);
    assert_eq!(status.cpu.unwrap().stale, None, "known values stay until they are old");
}

#[test]
fn nothing_to_measure_and_a_wrong_spec() {
    let nothing = ParsedNodeSpec { node: "n".into(), ..ParsedNodeSpec::default() };
    let status = status_of(&nothing, &Standing::Clear, &Readings::default(), &NodeConfigStatus::default(), 0);
    assert_eq!(ready(&status), ("True".into(), "NothingToMeasure".into()));
    let wrong = ParsedNodeSpec::parse(&spec(json!({"nodeName": "n", "metricsCollector": {"usage": {"type": "X"}}})))
        .unwrap_err();
    let stamp = Stamp { generation: 1, now: at(0) };
    let (standing, readings) = (Standing::Clear, Readings::default());
    let curve = &KnownCurve::default();
    let situation = Situation {
        parsed: Err(&wrong),
        standing: &standing,
        readings: &readings,
        curve,
        accuracy: None,
        choice: None,
        old: &[],
        stamp,
    };
    assert_eq!(ready(&situation.status()), ("False".into(), "SpecInvalid".into()));
    assert!(condition(&situation.status(), "Stalled").unwrap().2.contains("Prometheus, MetricsServer, Fake"));
}

#[rstest]
#[case(NodeValue::InletTemperature, 21.26, "21.3")]
#[case(NodeValue::InletTemperature, -0.04, "0")]
#[case(NodeValue::DifferentialPressure, 7.5, "7.5")]
#[case(NodeValue::DifferentialPressure, 0.1 + 0.2, "0.3")]
#[case(NodeValue::Cpu, 49.96, "50")]
#[case(NodeValue::Power, 2.71449, "2.71")]
#[case(NodeValue::Power, 1e15, "1000000000000000")]
fn numbers_are_rounded_to_what_they_are_good_for(#[case] value: NodeValue, #[case] number: f64, #[case] text: &str) {
    assert_eq!(show(value, number), text);
}

proptest! {
    #[test]
    fn available_data_means_that_every_value_is_fresh(
        known in proptest::collection::vec((0_usize..6, prop_oneof![(0_i64..100).prop_map(Ok), Just(Err(()))]), 0..20),
        now in 0_i64..150,
    ) {
        let mut readings = Readings::default();
        for (value, result) in known {
            let value = NodeValue::ALL[value];
            readings.record(value, result.map_or_else(|()| problem(NodeReason::Unreachable, "no"), |second| sample(1.0,
                second)));
        }
        let parsed = parsed();
        let status = status(&readings, now);
        let fresh = parsed.values().all(|value| readings.fresh(value, parsed.interval(value), at(now)).is_some());
        prop_assert_eq!(data(&status).0 == "True", fresh);
        let old = parsed.values().any(|value| readings.age(value, parsed.interval(value), at(now)) == Age::Stale);
        prop_assert_eq!(condition(&status, "Stale").is_some(), old);
    }
}
