//! Tests of the age of values: whose clock counts, how old a value may be, and what a source that fails changes.

use rstest::rstest;
use serde_json::{Value, json};

use crate::monitoring::source_rule::{OWN_PACE_AGE, SOURCE_RULES, SourceRule, arrival};
use crate::monitoring::{Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceValue};
use crate::tests::bench::{at, sample};
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus};
use ganglion_core::conditions::{self, DATA_AVAILABLE};

/// A Monitoring with one metric, load.
struct Gauge {
    rules: MonitoringRules,
    status: MonitoringStatus,
}

impl Gauge {
    fn new(interval: &str, source: &Value, metric: &Value) -> Self {
        let mut metric = metric.clone();
        metric["name"] = json!("load");
        metric["source"] = source.clone();
        let spec: MonitoringSpec = serde_json::from_value(json!({"interval": interval, "metrics": [metric]})).unwrap();
        Self { rules: MonitoringRules::parse(&spec).unwrap(), status: MonitoringStatus::default() }
    }

    fn apply(&mut self, now: i64, trigger: ObserveTrigger) -> Observation {
        let observation = self.rules.observe(&self.status, trigger, ObserveContext::of(None, at(now)));
        self.status = observation.status.clone();
        observation
    }

    fn poll(&mut self, now: i64, result: Result<&str, &str>, measured: i64) -> Observation {
        let value = |value: &str| SourceValue { at: Some(at(measured)), ..SourceValue::from(value.to_owned()) };
        let values = [("load".to_owned(), result.map(value).map_err(str::to_owned))].into();
        self.apply(now, ObserveTrigger::Measured(&Measurement { values, ..Measurement::default() }))
    }

    /// Pushes a sample by a sender whose clock differs.
    fn push(&mut self, now: i64, difference: i64, value: &str) -> Observation {
        let measurement = self.rules.pushed(&sample(at(now + difference), &[("load", value)]), at(now));
        self.apply(now, ObserveTrigger::Measured(&measurement))
    }

    fn wait(&mut self, now: i64) -> Observation {
        self.apply(now, ObserveTrigger::Time)
    }

    /// Status of DataAvailable.
    fn data(&self) -> &str {
        conditions::find(&self.status.conditions, DATA_AVAILABLE).map_or("", |data| data.status.as_str())
    }

    fn message(&self) -> &str {
        self.status.message.as_deref().unwrap_or_default()
    }
}

fn http() -> Value {
    json!({"http": {"url": "http://a", "path": "a"}})
}

#[test]
fn a_failed_poll_neither_delays_an_alarm_nor_changes_a_condition() {
    let mut gauge = Gauge::new("1s", &http(), &json!({"high": {"raise": "80", "for": "8s"}}));
    gauge.poll(0, Ok("90"), 0);
    for second in 1..8 {
        let result = if second % 5 == 4 { Err("the server answers 503") } else { Ok("90") };
        let seen = gauge.poll(second, result, second);
        assert_eq!((gauge.data(), gauge.message()), ("True", "No Event"), "at {second} s");
        assert!(seen.status.unknown.is_empty());
    }
    gauge.poll(8, Err("the server answers 503"), 8);
    assert_eq!((gauge.data(), gauge.message()), ("True", "High load"));
    assert!(gauge.status.alarms[0].held, "no action before the next value");
    gauge.poll(9, Ok("90"), 9);
    assert!(!gauge.status.alarms[0].held);
    assert_eq!(gauge.status.alarms[0].since.0, at(0));
}

#[test]
fn a_source_that_fails_for_long_is_unknown_with_its_reason() {
    let mut gauge = Gauge::new("5s", &http(), &json!({"high": {"raise": "80"}}));
    gauge.poll(0, Ok("50"), 0);
    gauge.poll(5, Err("first"), 5);
    gauge.poll(10, Err("second"), 10);
    gauge.wait(15);
    assert_eq!(gauge.data(), "True");
    gauge.wait(16);
    assert_eq!(gauge.data(), "False");
    assert_eq!(gauge.status.unknown[0].message, "second");
    gauge.poll(31, Err("third"), 31);
    assert_eq!(gauge.status.unknown[0].message, "third");
    gauge.poll(32, Ok("50"), 32);
    assert_eq!((gauge.data(), gauge.status.values[0].problem.as_deref()), ("True", None));
}

/// Samples come every 25 s, the interval is 5 s.
#[test]
fn a_sender_may_be_slower_than_the_interval() {
    let mut gauge = Gauge::new("5s", &json!({"push": {}}), &json!({"high": {"raise": "80", "for": "50s"}}));
    for second in (0..50).step_by(5) {
        if second % 25 == 0 {
            gauge.push(second, 0, "90");
        } else {
            gauge.wait(second);
        }
        assert_eq!((gauge.data(), gauge.message()), ("True", "No Event"), "at {second} s");
    }
    gauge.push(50, 0, "90");
    assert_eq!(gauge.message(), "High load");
}

/// metrics-server measures once a minute, and serves a value up to 15 s later.
#[test]
fn a_usage_that_is_measured_once_a_minute_does_not_expire() {
    let resource = json!({"resource": {"resource": "cpu"}});
    let mut gauge = Gauge::new("15s", &resource, &json!({"high": {"raise": "80", "for": "2m"}}));
    for second in (0..120).step_by(15) {
        gauge.poll(second, Ok("90"), (second - 15).div_euclid(60) * 60);
        assert_eq!((gauge.data(), gauge.message()), ("True", "No Event"), "at {second} s");
    }
    gauge.poll(120, Ok("90"), 60);
    assert_eq!(gauge.message(), "High load");
}

#[rstest]
#[case::slow(-40)]
#[case::very_slow(-86_400)]
#[case::fast(9)]
fn the_clock_of_a_sender_does_not_age_its_values(#[case] difference: i64) {
    let mut gauge = Gauge::new("5s", &json!({"push": {}}), &json!({"high": {"raise": "80"}}));
    gauge.push(0, difference, "50");
    assert_eq!(gauge.data(), "True");
    gauge.push(5, difference, "90");
    assert_eq!((gauge.data(), gauge.message()), ("True", "High load"));
    assert!(!gauge.status.alarms[0].held && gauge.status.values[0].at.0 == at(5));
}

#[rstest]
#[case::fast(40, "more than 10 s in the future: check the sender's clock")]
#[case::set_back(-100, "before that of an earlier one: check the sender's clock")]
fn a_clock_that_has_samples_refused_is_named(#[case] difference: i64, #[case] words: &str) {
    let metric = json!({"high": {"raise": "80"}, "missing": {"after": "15s"}});
    let mut gauge = Gauge::new("5s", &json!({"push": {}}), &metric);
    gauge.push(0, 0, "50");
    for second in [5, 10, 15] {
        gauge.push(second, difference, "90");
        assert_eq!(gauge.data(), "True", "the first value stands");
    }
    let seen = gauge.push(20, difference, "90");
    assert!(seen.status.unknown[0].message.contains(words), "{:?}", seen.status.unknown);
    assert_eq!(seen.status.values[0].value.as_str(), "50");
}

#[test]
fn a_clock_that_has_the_first_sample_refused_is_named() {
    let mut gauge = Gauge::new("5s", &json!({"push": {}}), &json!({"high": {"raise": "80"}}));
    gauge.push(0, 40, "90");
    gauge.wait(5);
    let data = conditions::find(&gauge.status.conditions, DATA_AVAILABLE).unwrap();
    assert!(data.status == "Unknown" && data.message.contains("check the sender's clock"), "{data:?}");
}

#[test]
fn a_sample_that_is_found_at_the_start_counts_from_its_own_time() {
    let time = at(-40).to_string();
    assert_eq!(arrival(&time, true, at(0)), at(0));
    assert_eq!(arrival(&time, false, at(0)), at(-40));
    assert_eq!(arrival(&at(5).to_string(), false, at(0)), at(0));
    assert_eq!(arrival("yesterday", false, at(0)), at(0));
}

/// A process has just started. The stored alarm is of a source that it has not queried yet.
#[test]
fn a_source_that_has_not_answered_yet_holds_its_alarms() {
    let mut gauge = Gauge::new("15s", &http(), &json!({"high": {"raise": "80", "for": "30s"}}));
    let unanswered = ["load".to_owned()];
    let wait = |gauge: &mut Gauge, now: i64| {
        let context = ObserveContext { unanswered: &unanswered, ..ObserveContext::of(None, at(now)) };
        gauge.status = gauge.rules.observe(&gauge.status, ObserveTrigger::Time, context).status;
    };
    gauge.poll(0, Ok("90"), 0);
    wait(&mut gauge, 20);
    assert_eq!((gauge.status.pending[0].since.0, gauge.data()), (at(0), "True"), "it keeps its time");
    wait(&mut gauge, 30);
    assert_eq!(gauge.message(), "High load");
    assert!(gauge.status.alarms[0].held, "the value may be of another source");
    gauge.poll(31, Ok("90"), 31);
    assert!(!gauge.status.alarms[0].held);
}

/// The status was written last long ago, since nothing has changed, and then the process was restarted.
#[test]
fn a_restart_makes_no_value_too_old() {
    let mut gauge = Gauge::new("15s", &http(), &json!({"high": {"raise": "80"}}));
    gauge.poll(0, Ok("90"), 0);
    let unanswered = ["load".to_owned()];
    let wait = |gauge: &mut Gauge, now: i64| {
        let started = ObserveContext { watched_since: at(200), ..ObserveContext::of(None, at(now)) };
        let context = ObserveContext { unanswered: &unanswered, ..started };
        gauge.status = gauge.rules.observe(&gauge.status, ObserveTrigger::Time, context).status;
    };
    wait(&mut gauge, 200);
    assert_eq!((gauge.data(), gauge.message(), gauge.status.alarms[0].held), ("True", "High load", true));
    let mut other = Gauge { rules: gauge.rules.clone(), status: gauge.status.clone() };
    other.poll(245, Err("the server answers 503"), 245);
    assert_eq!((other.data(), other.status.alarms[0].held), ("True", true));
    other.wait(246);
    assert_eq!(other.data(), "False");
    wait(&mut gauge, 246);
    assert_eq!(gauge.data(), "False", "the source has not answered for three intervals");
}

#[test]
fn each_kind_of_source_has_its_rule() {
    let member = |name: &str| match name {
        "push" => json!({}),
        "prometheus" => json!({"url": "http://a", "query": "a"}),
        "http" => json!({"url": "http://a", "path": "a"}),
        "scaler" => json!({"address": "a:1"}),
        "cron" => json!({"during": [{"cron": "0 8 * * *", "duration": "1h"}], "value": "1"}),
        "object" => json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "path": "a"}),
        "resource" => json!({"resource": "cpu"}),
        "external" => json!({"metric": "a"}),
        "custom" => json!({"metric": "a", "pods": {}}),
        "nodeConfig" => json!({"nodeName": "a", "field": "cpu"}),
        _ => json!({"rule": "LastServed"}),
    };
    for rule in SOURCE_RULES {
        let source: Source = serde_json::from_value(json!({rule.name: member(rule.name)})).unwrap();
        assert_eq!(SourceRule::of(&source).name, rule.name);
        let (second, minute) = (jiff::SignedDuration::from_secs(1), jiff::SignedDuration::from_mins(1));
        assert_eq!(rule.default_age(minute), minute * 3);
        assert_eq!(rule.default_age(second), if rule.own_pace { OWN_PACE_AGE } else { second * 3 });
    }
}
