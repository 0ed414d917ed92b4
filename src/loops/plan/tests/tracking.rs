//! Loops that track a target, through all stages. Ids such as T15 are those of cases that users of autoscalers ran
//! into.

use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::common::FieldError;
use crate::forecast::{ForecastMemory, ForecastRules};
use crate::monitoring::{MonitoringRules, PodSamples, SourceResult, SourceValue};
use crate::tests::bench::{Loop, at, seconds, spec};
use crate::track::{Nanos, PodMeasure, PodPhase, PodReady, PodSample, TrackedPod};
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::decision::Outcome;
use ganglion_api::monitoring::{MonitoringSpec, TrackingState};

/// A loop that keeps a queue at this target for each replica, with these changes of its scale.
fn queue(target: &str, changes: &Value) -> Loop {
    let mut scale = json!({"track": {"type": "AverageValue", "target": target}, "max": 100});
    for (key, value) in changes.as_object().unwrap() {
        match key.as_str() {
            "activation" | "atZero" | "tolerance" | "type" => scale["track"][key] = value.clone(),
            _ => scale[key] = value.clone(),
        }
    }
    Loop::new(
        "web",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "queue", "source": {"http": {"url": "https://queue", "path": "length"}}}],
            "actions": [{"when": {"metric": "queue", "side": "Target"}, "ladder": [{"scale": scale}]}],
        })),
    )
}

fn value(value: &str) -> SourceResult {
    Ok(value.to_owned().into())
}

fn down() -> SourceResult {
    Err("the server answers 503".to_owned())
}

impl Loop {
    /// Passes at these seconds with the same value of the queue. Returns the number of replicas after the last one.
    fn passes(&mut self, seconds: impl IntoIterator<Item = i64>, result: &SourceResult) -> i32 {
        for second in seconds {
            self.pass(at(second), &[("queue", result.clone())]);
        }
        self.replicas
    }

    fn tracking(&self) -> &TrackingState {
        self.monitoring.tracking.as_ref().expect("a number")
    }
}

#[test]
fn ten_times_the_load_is_one_decision_for_each_step_of_the_autoscaler() {
    let mut web = queue("10", &json!({"up": {}}));
    assert_eq!(web.passes([0, 15], &value("30")), 3);
    assert_eq!(web.effects.len(), 0, "the number is right");
    // 30 are wanted, and 28 are within the tolerance. 4 pods or 100 % in 15 s: 7, 14, 28.
    let mut numbers = Vec::new();
    for second in [30, 45, 60, 75, 90] {
        numbers.push(web.passes([second], &value("300")));
    }
    assert_eq!(numbers, [7, 14, 28, 28, 28]);
    assert_eq!(web.effects.len(), 3);
    let mut web = queue("10", &json!({"up": {"policies": [{"pods": 100, "per": "1s"}]}}));
    assert_eq!(web.passes([0], &value("300")), 30, "in one decision");
    assert_eq!((web.effects.len(), web.decision.seq), (1, 1));
}

/// Twice the status of Monitoring and of Execution, and once that of Decision: it shows the end of the alarm later.
#[test]
fn a_change_costs_five_status_writes() {
    let mut web = queue("10", &json!({}));
    web.passes([0, 15, 30], &value("60"));
    let (effects, writes) = (web.effects.len(), web.writes);
    web.passes([45, 60, 75, 90], &value("120"));
    assert_eq!((web.effects.len() - effects, web.replicas), (1, 12));
    assert_eq!(web.writes - writes, 5, "{:?}", web.messages());
}

#[test]
fn a_pass_during_an_own_change_is_left_out() {
    let mut web = queue("10", &json!({}));
    web.passes([0, 15], &value("60"));
    let pass = |web: &mut Loop, second| {
        web.reading = Some(Err("the loop is changing the number of replicas".to_owned()));
        web.is_changing = true;
        web.wait(at(second));
        web.tracking().problem.clone()
    };
    let before = web.monitoring.clone();
    assert_eq!(pass(&mut web, 30), None);
    assert_eq!((&web.monitoring.conditions, &web.monitoring.alarms), (&before.conditions, &before.alarms));
    assert_eq!(pass(&mut web, 60), None);
    assert!(
        pass(&mut web, 75).is_some_and(|why| why.contains("is changing")),
        "a change that does not end is a problem"
    );
}

#[test]
fn b1_a_window_holds_and_never_raises() {
    let mut web = queue("1", &json!({}));
    web.replicas = 1;
    assert_eq!(web.passes([0], &value("10")), 4);
    assert_eq!(web.passes([15], &value("1")), 4);
}

#[test]
fn b2_the_highest_proposal_of_the_window_counts() {
    let mut web = queue("1", &json!({"down": {}}));
    web.replicas = 10;
    let seen: Vec<i32> = [(0, "10"), (60, "4"), (250, "6"), (290, "3"), (301, "3")]
        .into_iter()
        .map(|(second, raw)| web.passes([second], &value(raw)))
        .collect();
    assert_eq!(seen, [10, 10, 10, 10, 6]);
}

/// The autoscaler forgets both.
#[test]
fn b11_window_and_rate_survive_a_restart() {
    let mut web = queue("1", &json!({"up": {"policies": [{"pods": 4, "per": "60s"}]}, "down": {}}));
    web.replicas = 10;
    assert_eq!(web.passes([0], &value("30")), 14);
    web.pass(at(15), &[("queue", value("30"))]);
    web.restart(at(20));
    assert_eq!(web.passes([30, 45, 59], &value("30")), 14, "an own change counts for 60 s");
    assert_eq!(web.passes([60], &value("30")), 18);
    web.pass(at(75), &[("queue", value("18"))]);
    web.restart(at(80));
    assert_eq!(web.passes((90..370).step_by(15), &value("5")), 18, "the window goes on");
    assert_eq!(web.passes([390], &value("5")), 5);
}

#[rstest]
#[case::z3_below_the_activation("40", 0)]
#[case::z3_at_the_activation("50", 0)]
#[case::z3_above_it_to_the_number("51", 6)]
fn z3_the_activation_wakes_to_the_number(#[case] length: &str, #[case] expected: i32) {
    let mut web = queue("10", &json!({"min": 0, "activation": "50", "cooldown": "60s", "down": {"window": "0s"}}));
    web.passes((0..=90).step_by(15), &value("0"));
    assert_eq!(web.replicas, 0, "{:?}", web.tracking());
    assert_eq!(web.passes([105], &value(length)), expected);
}

#[test]
fn z2_a_zero_of_a_person_stays_and_says_so() {
    let mut web = queue("10", &json!({"min": 0}));
    web.replicas = 0;
    assert_eq!(web.passes((0..600).step_by(15), &value("500")), 0);
    assert_eq!(web.tracking().reason, "StoppedAtZero");
    let condition = web.monitoring.conditions.iter().find(|one| one.type_ == "Tracking").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "StoppedAtZero"));
    assert!(condition.message.contains("scale it to 1 or more"), "{}", condition.message);
    web.replicas = 1;
    assert!(web.passes([600], &value("500")) > 1);
}

#[test]
fn z5_the_last_replicas_follow_the_rate() {
    let down = json!({"window": "0s", "policies": [{"pods": 1, "per": "60s"}]});
    let mut web = queue("10", &json!({"min": 0, "cooldown": "30s", "down": down}));
    web.replicas = 5;
    let mut numbers = Vec::new();
    for second in (0..360).step_by(15) {
        web.passes([second], &value("0"));
        if numbers.last() != Some(&web.replicas) {
            numbers.push(web.replicas);
        }
    }
    assert_eq!(numbers, [4, 3, 2, 1, 0]);
}

#[test]
fn z9_an_outage_is_not_zero() {
    let mut web = queue("10", &json!({"min": 0, "cooldown": "0s", "down": {"window": "0s"}}));
    web.replicas = 4;
    assert_eq!(web.passes([0], &value("40")), 4);
    assert_eq!(web.passes((15..3600).step_by(15), &down()), 4);
}

#[test]
fn z10_an_assumed_value_wakes_and_does_not_lower() {
    let mut web = queue("10", &json!({"min": 0, "cooldown": "0s", "down": {"window": "0s"}}));
    web.spec.metrics[0].missing = serde_json::from_value(json!({"then": "Assume", "value": "30"})).unwrap();
    assert_eq!(web.passes([0, 15], &value("0")), 0);
    assert_eq!(web.passes((30..120).step_by(15), &down()), 3);
    web.replicas = 8;
    assert_eq!(web.passes((120..900).step_by(15), &down()), 8);
}

#[test]
fn z11_a_metric_of_the_pods_has_a_declared_value_without_pods() {
    let mut web = queue("10", &json!({"min": 0, "atZero": "20", "cooldown": "0s", "down": {"window": "0s"}}));
    assert_eq!(web.passes([0], &value("0")), 0);
    assert_eq!(web.passes([15], &down()), 2, "the source cannot answer");
    assert_eq!(web.passes([30, 45], &down()), 2, "and now it should");
}

#[test]
fn t23_bounds_need_no_metric_and_a_pause_beats_them() {
    let mut web = queue("10", &json!({"max": 10}));
    web.replicas = 12;
    web.spec.mode = LoopMode::Paused;
    assert_eq!(web.passes([0, 15], &down()), 12);
    web.spec.mode = LoopMode::Auto;
    assert_eq!(web.passes([30], &down()), 10);
}

#[test]
fn t24_an_unknown_metric_could_ask_for_more() {
    let mut web = queue("10", &json!({"down": {"window": "0s"}}));
    let mut more = web.spec.metrics[0].clone();
    more.name = "more".into();
    web.spec.metrics.push(more);
    let mut action = web.spec.actions.as_ref().unwrap()[0].clone();
    action.when = serde_json::from_value(json!({"metric": "more", "side": "Target"})).unwrap();
    web.spec.actions.as_mut().unwrap().push(action);
    web.pass(at(0), &[("queue", value("10")), ("more", down())]);
    assert_eq!(web.replicas, 3);
    web.pass(at(15), &[("queue", value("10")), ("more", value("25"))]);
    assert_eq!(web.replicas, 3, "the largest counts");
    web.pass(at(30), &[("queue", value("50")), ("more", down())]);
    assert_eq!(web.replicas, 5, "a known one may raise");
}

#[test]
fn t15_two_tolerances() {
    let mut web = queue("4", &json!({"tolerance": {"up": "0", "down": "0.1"}}));
    web.replicas = 10;
    assert_eq!(web.passes([0], &value("41")), 11);
    let mut web = queue("4", &json!({"tolerance": {"down": "1"}, "down": {"window": "0s"}}));
    web.replicas = 10;
    assert_eq!(web.passes([0], &value("1")), 10, "a tolerance of 1 never lowers");
}

/// 22 to 6: at least 2, at most 5. Otherwise 10 to 50.
#[test]
fn c9_bounds_by_time() {
    let night = json!({"during": {"start": "0 22 * * *", "until": "0 6 * * *"}, "min": 2, "max": 5});
    let changes = json!({"min": 10, "max": 50, "schedule": [night]});
    let mut web = queue("1", &changes);
    web.replicas = 30;
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    web.pass(time("2026-11-21T23:00:00Z"), &[("queue", value("30"))]);
    assert_eq!(web.replicas, 5);
    let mut web = queue("1", &changes);
    web.replicas = 5;
    web.pass(time("2026-11-21T06:00:00Z"), &[("queue", value("3"))]);
    assert_eq!(web.replicas, 10);
}

#[rstest]
#[case::c1_no_tolerance_on_a_set_number(22, 24)]
#[case::c2_no_rate(1, 24)]
#[case::c4_zero(22, 0)]
fn a_window_sets_a_number_and_its_end_undoes_only_that(#[case] before: i32, #[case] to: i32) {
    let window = json!({"during": {"start": "0 8 * * *", "until": "0 18 * * *"}, "to": to});
    let slow = json!({"policies": [{"pods": 1, "per": "60s"}]});
    let mut web = queue("1", &json!({"min": 1, "schedule": [window], "up": slow, "down": slow}));
    web.replicas = before;
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    web.pass(time("2026-11-21T07:59:50Z"), &[("queue", value(&before.to_string()))]);
    assert_eq!(web.replicas, before);
    web.pass(time("2026-11-21T08:00:05Z"), &[("queue", value("3"))]);
    assert_eq!((web.replicas, web.effects.len()), (to, 1), "in one write");
    // C7: the end of a window is no load, so nothing waits for the window of lowering.
    for second in 0..40 {
        let now = time("2026-11-21T17:50:00Z") + jiff::SignedDuration::from_secs(15 * second);
        web.pass(now, &[("queue", value("3"))]);
    }
    assert_eq!(web.replicas, to);
    web.pass(time("2026-11-21T18:00:05Z"), &[("queue", value("3"))]);
    assert_eq!(web.replicas, if to == 0 { 1 } else { 23 }, "lowered at once, at its rate: {:?}", web.tracking());
}

/// A queue that may raise only inside a window: outside, it asks for nothing.
#[test]
fn c12_a_metric_counts_inside_its_window_only() {
    let mut web = queue("1", &json!({"min": 0, "cooldown": "0s", "down": {"window": "0s"}, "up": {}}));
    let window = json!([{"start": "0 8 * * *", "until": "0 18 * * *"}]);
    web.spec.actions.as_mut().unwrap()[0].during = serde_json::from_value(window).unwrap();
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    for (now, expected) in [("2026-11-21T17:59:45Z", 3), ("2026-11-21T18:00:00Z", 0), ("2026-11-21T23:00:00Z", 0)] {
        web.pass(time(now), &[("queue", value("3"))]);
        assert_eq!(web.replicas, expected, "{now}: {:?}", web.tracking());
    }
    web.pass(time("2026-11-22T08:00:00Z"), &[("queue", value("3"))]);
    assert_eq!(web.replicas, 3, "it wakes when the window opens");
}

/// A sample of a period in which the loop has lowered says nothing about the load of the pods that are left.
#[test]
fn samples_of_before_a_lowering_lower_no_further() {
    let used = |percent: i64, at_second: i64, number: i32| {
        let sample = PodSample { value: Nanos::from_millis(percent * 10), at: at(at_second), window: seconds(30) };
        let pods = (0..number).map(|index| TrackedPod {
            name: format!("p{index}"),
            phase: PodPhase::Running,
            is_deleting: false,
            started: Some(at(-7200)),
            ready: Some(PodReady { is_ready: Some(true), since: at(-7100) }),
            sample: Some(sample),
            requests: Ok(Nanos::from_whole(1)),
            allocated: None,
        });
        let samples = PodSamples { measure: PodMeasure::Cpu, pods: pods.collect() };
        let value = SourceValue {
            pods: Some(Arc::new(samples)),
            at: Some(at(at_second)),
            ..SourceValue::from(percent.to_string())
        };
        Ok(value)
    };
    let mut web = queue("50", &json!({"type": "Utilization", "down": {"window": "0s"}}));
    web.spec.metrics[0].source = serde_json::from_value(json!({"resource": {"resource": "cpu"}})).unwrap();
    web.replicas = 8;
    web.pass(at(0), &[("queue", used(20, -5, 8))]);
    assert_eq!(web.replicas, 4);
    web.pass(at(15), &[("queue", used(20, 10, 4))]);
    assert_eq!(web.replicas, 4, "the measurement began before: {:?}", web.tracking().lines);
    web.pass(at(45), &[("queue", used(20, 40, 4))]);
    assert_eq!(web.replicas, 2, "it began after: {:?}", web.tracking().lines);
}

/// Only the schedule sets the number.
#[test]
fn z4_a_window_wakes_to_its_number() {
    let window = json!({"during": {"start": "0 8 * * *", "until": "0 18 * * *"}, "to": 10});
    let mut web = queue("1", &json!({"min": 0, "cooldown": "0s", "schedule": [window]}));
    let actions = web.spec.actions.as_mut().unwrap();
    actions[0].ladder[0].scale.as_mut().unwrap().track = None;
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    for second in 0..30 {
        web.pass(time("2026-11-21T07:50:00Z") + jiff::SignedDuration::from_secs(15 * second), &[("queue", down())]);
    }
    assert_eq!(web.replicas, 0);
    web.pass(time("2026-11-21T08:00:00Z"), &[("queue", down())]);
    assert_eq!((web.replicas, web.effects.len()), (10, 2), "one write down, one up");
}

#[test]
fn a_change_of_others_between_read_and_write_is_not_overwritten() {
    let mut web = queue("1", &json!({"up": {}}));
    web.pass(at(0), &[("queue", value("3"))]);
    // The first two stages write, and the process ends before the third one acts.
    web.writes_left = Some(2);
    web.pass(at(15), &[("queue", value("7"))]);
    assert_eq!(web.replicas, 3);
    (web.replicas, web.generation) = (5, 2);
    web.restart(at(20));
    web.wait(at(21));
    assert_eq!((web.replicas, web.effects.len()), (5, 0));
    web.pass(at(30), &[("queue", value("7"))]);
    assert_eq!(web.replicas, 7);
}

/// After each number of writes and effects, the process ends and another one continues.
#[test]
fn killed_at_each_write_there_is_one_effect() {
    for writes in 0..12 {
        let mut web = queue("1", &json!({"up": {"policies": [{"pods": 4, "per": "60s"}]}}));
        web.writes_left = Some(writes);
        for second in [0, 15] {
            web.pass(at(second), &[("queue", value("30"))]);
        }
        web.restart(at(16));
        for second in [17, 32, 47] {
            web.pass(at(second), &[("queue", value("30"))]);
        }
        assert_eq!((web.replicas, web.effects.len()), (7, 1), "killed after {writes} writes: {:?}", web.tracking());
    }
}

#[test]
fn a_steady_loop_writes_nothing() {
    let mut web = queue("1", &json!({"down": {}}));
    web.replicas = 10;
    web.passes((0..60).step_by(15), &value("10"));
    let writes = web.writes;
    for second in (60..290).step_by(15) {
        web.passes([second], &value(if second % 2 == 0 { "9.8" } else { "10.4" }));
    }
    assert_eq!(web.writes, writes, "{:?}", web.tracking());
}

#[test]
fn the_explanation_has_a_line_for_each_stage() {
    let mut web = queue("10", &json!({"up": {"policies": [{"pods": 4, "per": "60s"}]}}));
    web.pass(at(0), &[("queue", value("300"))]);
    let lines = &web.tracking().lines;
    let stages: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(stages, ["metric", "proposal", "window", "rate", "bounds", "result"], "{lines:#?}");
    assert_eq!(web.decision.history[0].outcome.or(web.status_at(at(0)).history[0].outcome), Some(Outcome::Served));
}

#[test]
fn a_proposal_waits_while_it_is_still_right() {
    let mut web = queue("10", &json!({"up": {"policies": [{"pods": 100, "per": "1s"}]}, "down": {"window": "0s"}}));
    web.spec.mode = LoopMode::Approve;
    web.pass(at(0), &[("queue", value("100"))]);
    let seq = web.decision.seq;
    let digest = web.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone()).unwrap();
    web.pass(at(15), &[("queue", value("200"))]);
    assert_eq!(web.decision.seq, seq, "10 are wanted at least");
    web.approval = Some(digest.clone());
    web.pass(at(30), &[("queue", value("200"))]);
    assert_eq!(web.replicas, 10);
    let mut web = queue("10", &json!({"up": {"policies": [{"pods": 100, "per": "1s"}]}, "down": {"window": "0s"}}));
    web.spec.mode = LoopMode::Approve;
    web.pass(at(0), &[("queue", value("100"))]);
    web.pass(at(15), &[("queue", value("60"))]);
    assert!(web.decision.seq > seq, "10 are too many now");
    web.approval = Some(digest);
    web.pass(at(30), &[("queue", value("60"))]);
    assert_eq!(web.replicas, 3, "the approval is of another number");
}

/// F1: a trusted forecast raises early, and never lowers.
#[test]
fn f1_a_forecast_raises_before_the_load_comes() {
    let changes = json!({"forecast": {"ahead": "10m", "season": "2h"}, "up": {}, "down": {"window": "0s"}});
    let mut web = queue("1", &changes);
    let rules = ForecastRules { ahead: seconds(600), season: seconds(7200) };
    web.forecast = Some(ForecastMemory::new(&rules, at(0)).unwrap());
    // 5, and 20 in the second hour of each season.
    let length = |second: i64| if second % 7200 < 3600 { "5" } else { "20" };
    for second in (0..3 * 7200).step_by(15) {
        web.passes([second], &value(length(second)));
    }
    let before = 3 * 7200 + 3600 - 300;
    for second in (3 * 7200..=before).step_by(15) {
        web.passes([second], &value(length(second)));
    }
    assert_eq!(web.replicas, 20, "five minutes before the load: {:#?}", web.tracking().lines);
    assert!(web.tracking().lines.iter().any(|line| line.starts_with("forecast: ")), "{:#?}", web.tracking().lines);
    web.passes((before + 15..before + 1200).step_by(15), &value("30"));
    assert!(web.replicas >= 30, "more than the forecast is still reactive: {}", web.replicas);
    let text = web.forecast.as_ref().unwrap().text();
    assert_eq!(ForecastMemory::parse(&text, &rules).unwrap().text(), text);
}

fn parsed(changes: &Value, metric: &Value) -> Result<(), FieldError> {
    let mut web = queue("10", changes);
    web.spec.metrics[0].source = serde_json::from_value(metric.clone()).unwrap();
    let monitoring: MonitoringSpec = web.children(at(0)).monitoring;
    MonitoringRules::parse(&monitoring).map(|_| ())
}

#[rstest]
#[case(json!({"min": 5, "max": 3}), json!({"push": {}}), "ladder[0].scale: min is 5 and max is 3")]
#[case(json!({"type": "Utilization"}), json!({"push": {}}), "track.type: Utilization is for the source resource")]
#[case(json!({"type": "Value"}), json!({"resource": {"resource": "cpu"}}), "track.type: the source has a value for each pod, and no Value")]
#[case(json!({"min": 0}), json!({"resource": {"resource": "cpu"}}), "scale.min: with min 0, one metric must have a value without")]
#[case(json!({}), json!({"resource": {"resource": "cpu", "podLabels": {"a": "b"}}}), "podLabels")]
#[case(json!({"tolerance": {"up": "-1"}}), json!({"push": {}}), "track.tolerance: the tolerance is -1: use 0 or more")]
#[case(json!({"forecast": {"ahead": "10s", "season": "24h"}}), json!({"push": {}}), "scale.forecast: ahead is 10s: use whole")]
#[case(json!({"cooldown": "25h"}), json!({"push": {}}), "scale.cooldown: use at most 24h")]
#[case(json!({"up": {"window": "2h"}}), json!({"push": {}}), "the window is 7200 s: use 0 to 3600 s")]
#[case(
    json!({"schedule": [{"during": {"start": "0 8 * * *", "until": "0 8 * * *"}, "to": 1}]}), json!({"push": {}}),
    "schedule[0].during.until"
)]
fn bad_rules_are_named(#[case] changes: Value, #[case] metric: Value, #[case] problem: &str) {
    let error = parsed(&changes, &metric).unwrap_err().to_string();
    assert!(error.contains(problem), "{error}");
}
