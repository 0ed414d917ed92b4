//! Tests of loops with pushed and polled metrics: the order and the age of each value, and why a value is unknown.

use serde_json::json;

use crate::common::micro_time;
use crate::monitoring::{
    Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult, SourceValue,
};
use crate::tests::bench::{at, sample};
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus};
use ganglion_core::conditions::{self, DATA_AVAILABLE};

/// A loop with a pushed metric, cpu, and a polled one, memory.
struct Both {
    watch: MonitoringRules,
    status: MonitoringStatus,
}

impl Both {
    fn new() -> Self {
        let spec = serde_json::from_value::<MonitoringSpec>(json!({"interval": "15s", "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"http": {"url": "http://a", "path": "a"}}, "low": {"raise": "50"}},
        ]}));
        Self { watch: MonitoringRules::parse(&spec.unwrap()).unwrap(), status: MonitoringStatus::default() }
    }

    fn take(&mut self, measured: &Measurement, now: i64) -> Observation {
        let seen =
            self.watch.observe(&self.status, ObserveTrigger::Measured(measured), ObserveContext::of(None, at(now)));
        self.status = seen.status.clone();
        seen
    }

    /// Pushes a sample of an earlier time now.
    fn push(&mut self, then: i64, now: i64, cpu: &str) -> Observation {
        let measured = self.watch.pushed(&sample(at(then), &[("cpu", cpu)]), at(now));
        self.take(&measured, now)
    }

    fn ask(&mut self, now: i64, got: SourceResult) -> Observation {
        let measured = Measurement { values: [("memory".to_owned(), got)].into(), ..Measurement::default() };
        self.take(&measured, now)
    }
}

fn point(value: &str) -> SourceResult {
    Ok(SourceValue::from(value.to_owned()))
}

#[test]
fn what_is_pushed_and_what_is_asked_for_have_an_order_each() {
    let mut both = Both::new();
    // The sender's clock is slow.
    assert!(both.push(-20, 0, "2").fresh);
    assert_eq!(both.ask(1, point("40")).status.message.as_deref(), Some("Low cpu,Low memory"));
    assert_eq!(both.status.tag.as_ref().unwrap().time, micro_time(at(1)));
    assert!(both.push(-18, 2, "20").fresh, "it is newer than the last pushed sample");
    assert_eq!(both.status.message.as_deref(), Some("Low memory"));
    assert_eq!(both.status.tag.as_ref().map(|tag| (&tag.time, tag.sequence)), Some((&micro_time(at(-18)), 3)));
}

#[test]
fn each_keeps_its_own_age() {
    let mut both = Both::new();
    both.push(0, 0, "2");
    for second in [45, 90, 135, 180] {
        both.ask(second, point("40"));
    }
    assert_eq!(both.status.message.as_deref(), Some("Low cpu,Low memory"));
    let unknown: Vec<&str> = both.status.unknown.iter().map(|one| one.metric.as_str()).collect();
    assert_eq!(unknown, ["cpu"], "no sample is pushed any more");
    assert!(both.status.alarms[0].held && !both.status.alarms[1].held);
}

#[test]
fn after_a_restart_a_pushed_sample_is_not_taken_twice() {
    let mut both = Both::new();
    both.push(-60, 0, "2");
    both.ask(1, point("40"));
    let around = ObserveContext::of(None, at(2));
    let fresh = |seconds| both.watch.may_be_news(&both.status, &sample(at(seconds), &[]), around);
    assert!(!fresh(-60) && !fresh(-61) && fresh(-59), "{:?}", both.status.tag);
    assert_eq!(both.push(-60, 2, "2").status.refused.unwrap().repeated, 1);
    // A polled value counts even if the clock was set back.
    let seen = both.ask(-100, point("60"));
    assert!(seen.fresh && seen.status.tag.unwrap().sequence == 3);
    assert_eq!(both.push(-61, 2, "2").status.refused.unwrap().out_of_order, 1);
}

#[test]
fn a_source_says_how_old_its_value_is() {
    let mut both = Both::new();
    let old = |seconds| Ok(SourceValue { at: Some(at(seconds)), ..SourceValue::from("40".to_owned()) });
    both.ask(0, old(0));
    assert!(both.status.unknown.iter().all(|one| one.metric == "cpu"), "{:?}", both.status.unknown);
    both.ask(46, old(0));
    assert!(both.status.unknown.iter().any(|one| one.metric == "memory"), "a stale value does not count");
    both.ask(61, old(100));
    assert_eq!(both.status.values[0].at, micro_time(at(61)), "no value comes from the future");
}

/// Case T26: an adapter repeats measurements that are too old, with times that go on.
#[test]
fn a_metric_stays_unknown_since_the_same_time_while_its_measurements_are_too_old() {
    let mut both = Both::new();
    let old = |seconds| Ok(SourceValue { at: Some(at(seconds)), ..SourceValue::from("40".to_owned()) });
    let mut ask = |now, got| {
        both.ask(now, got);
        let unknown = both.status.unknown.iter().find(|one| one.metric == "memory");
        unknown.map(|one| (one.since.clone(), one.message.clone()))
    };
    assert_eq!(ask(0, Err("no answer".into())), Some((micro_time(at(0)), "no answer".to_owned())));
    for second in [10, 20, 30] {
        let expected = (micro_time(at(0)), "the last value is too old".to_owned());
        assert_eq!(ask(second, old(second - 3600)), Some(expected));
    }
    assert_eq!(ask(40, old(30)), None);
    assert_eq!(ask(100, old(31)).map(|(since, _)| since), Some(micro_time(at(100))));
}

#[test]
fn why_a_value_is_unknown_is_told_at_once_and_then_at_its_own_pace() {
    let mut both = Both::new();
    assert!(both.push(0, 0, "20").write);
    assert!(both.ask(1, Err("first words".into())).write, "it is the first reason");
    assert!(!both.ask(30, Err("first words".into())).write);
    assert!(both.ask(31, Err("other words".into())).write);
    assert!(!both.ask(32, Err("third words".into())).write, "a server may return a different text each time");
    assert!(both.ask(46, Err("third words".into())).write);
    assert_eq!(both.status.unknown[0].message, "third words");
}

#[test]
fn what_a_source_answered_is_not_shown() {
    let mut both = Both::new();
    for answer in ["hunter2", "1e400 hunter2"] {
        let seen = both.ask(1, point(answer));
        let unknown = seen.status.unknown.iter().find(|one| one.metric == "memory").unwrap();
        assert!(!format!("{:?}", seen.status).contains("hunter2"), "{:?}", seen.status);
        assert!(unknown.message.contains("a text of"), "{}", unknown.message);
    }
    // A sender may see its own text.
    let seen = both.push(2, 2, "two");
    assert!(seen.status.unknown[0].message.contains("\"two\" is not a quantity"), "{:?}", seen.status.unknown);
}

#[test]
fn an_assumed_value_is_no_trouble() {
    let spec = serde_json::from_value::<MonitoringSpec>(json!({"interval": "15s", "metrics": [
        {"name": "memory", "source": {"http": {"url": "http://a", "path": "a"}}, "low": {"raise": "50"},
         "missing": {"after": "30s", "then": "Assume", "value": "60"}},
    ]}));
    let watch = MonitoringRules::parse(&spec.unwrap()).unwrap();
    let mut both = Both { watch, status: MonitoringStatus::default() };
    let mut data = |now: i64, got: SourceResult| {
        let seen = both.ask(now, got);
        let data = conditions::find(&seen.status.conditions, DATA_AVAILABLE).unwrap();
        (data.status.clone(), data.message.clone(), seen.write)
    };
    assert_eq!(data(0, Err("gives nothing".into())).0, "Unknown", "nothing is assumed yet");
    let (status, message, write) = data(31, Err("gives nothing".into()));
    assert_eq!((status.as_str(), write), ("True", true), "{message}");
    assert_eq!(message, "0 of 1 metrics have a value; assumed: memory is 60 (gives nothing)");
    assert_eq!(data(46, point("70")).0, "True");
    assert_eq!(data(61, Err("gives nothing".into())).0, "True", "a value will soon be assumed");
    assert!(!data(76, Err("gives nothing".into())).2, "nothing has changed");
}
