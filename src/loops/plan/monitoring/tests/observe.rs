//! Tests of samples, levels and unknown values.

use rstest::rstest;
use serde_json::{Value, json};

use crate::common::micro_time;
use crate::monitoring::{MonitoringRules, Observation, ObserveContext, ObserveTrigger};
use crate::tests::bench::{Loop, at, demo, sample};
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus, Tag};

struct Bench {
    watch: MonitoringRules,
    status: MonitoringStatus,
}

impl Bench {
    fn new(metric: Value) -> Self {
        let mut metric = metric;
        metric["name"] = json!("cpu");
        metric["source"] = json!({"push": {}});
        let spec: MonitoringSpec = serde_json::from_value(json!({"interval": "15s", "metrics": [metric]})).unwrap();
        Self { watch: MonitoringRules::parse(&spec).unwrap(), status: MonitoringStatus::default() }
    }

    fn step(&mut self, seconds: i64, value: Option<&str>) -> Observation {
        let around = ObserveContext::of(None, at(seconds));
        let seen = match value {
            Some(value) => {
                let measured = self.watch.pushed(&sample(at(seconds), &[("cpu", value)]), at(seconds));
                self.watch.observe(&self.status, ObserveTrigger::Measured(&measured), around)
            }
            None => self.watch.observe(&self.status, ObserveTrigger::Time, around),
        };
        self.status = seen.status.clone();
        seen
    }

    fn message(&mut self, seconds: i64, value: Option<&str>) -> String {
        self.step(seconds, value).status.message.unwrap_or_default()
    }
}

#[test]
fn an_alarm_stands_until_it_is_cleared() {
    let mut bench = Bench::new(json!({"low": {"raise": "5", "clear": "8"}, "high": {"raise": "80", "clear": "60"}}));
    let steps = [
        ("5", "No Event"),
        ("4.99", "Low cpu"),
        ("7.9", "Low cpu"),
        ("8", "No Event"),
        ("7.9", "No Event"),
        ("80", "No Event"),
        ("80.1", "High cpu"),
        ("60.1", "High cpu"),
        ("60", "No Event"),
        ("3", "Low cpu"),
        ("90", "High cpu"),
    ];
    for (second, (value, expected)) in (0..).zip(steps) {
        assert_eq!(bench.message(second, Some(value)), expected, "{value}");
    }
}

#[test]
fn an_alarm_has_to_stand_for_a_while() {
    let mut bench = Bench::new(json!({"high": {"raise": "80", "for": "30s"}}));
    assert_eq!(bench.message(0, Some("90")), "No Event");
    assert_eq!(bench.status.pending.len(), 1);
    assert_eq!(bench.message(20, Some("90")), "No Event");
    assert_eq!(bench.message(25, Some("70")), "No Event", "the time `for` starts again");
    assert_eq!(bench.message(26, Some("90")), "No Event");
    assert_eq!(bench.message(55, Some("90")), "No Event");
    let seen = bench.step(56, None);
    assert_eq!(seen.status.message.as_deref(), Some("High cpu"), "time alone is enough");
    assert!(seen.fresh && seen.write);
    assert_eq!(seen.status.alarms[0].since, micro_time(at(26)));
}

#[test]
fn a_value_that_is_met_is_an_alarm() {
    let mut bench = Bench::new(json!({"equal": {"to": "3", "within": "0.5"}}));
    assert_eq!(bench.message(0, Some("3.5")), "Equal cpu");
    assert_eq!(bench.message(1, Some("3.6")), "No Event");
}

#[rstest]
#[case("NaN")]
#[case("Inf")]
#[case("n/a")]
#[case("")]
fn what_is_no_number_is_unknown_and_changes_nothing(#[case] value: &str) {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}, "high": {"raise": "80"}}));
    assert_eq!(bench.message(0, Some("2")), "Low cpu");
    let seen = bench.step(1, Some(value));
    assert_eq!(seen.status.message.as_deref(), Some("Low cpu"));
    assert!(seen.status.alarms[0].held, "no action is taken on it");
    assert!(seen.status.unknown.is_empty(), "the last value stands until it is too old");
    assert_eq!(seen.status.values[0].value.as_str(), "2", "the last known value");
    assert!(seen.status.values[0].problem.is_some());
    let seen = bench.step(151, None);
    assert_eq!(Some(&seen.status.unknown[0].message), seen.status.values[0].problem.as_ref());
    assert_eq!(bench.message(152, Some("20")), "No Event");
    assert!(bench.status.unknown.is_empty() && bench.status.values[0].problem.is_none());
}

#[rstest]
#[case(json!({"after": "45s", "then": "Hold"}), "Low cpu", true, true)]
#[case(json!({"after": "45s", "then": "Assume", "value": "90"}), "High cpu", true, false)]
#[case(json!({"after": "45s", "then": "Assume", "value": "20"}), "No Event", false, false)]
#[case(json!({"after": "45s", "then": "Alarm"}), "Low cpu,Missing cpu", true, true)]
fn what_stays_away_is_dealt_with(
    #[case] missing: Value,
    #[case] expected: &str,
    #[case] unknown: bool,
    #[case] held: bool,
) {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}, "high": {"raise": "80"}, "missing": missing}));
    bench.step(0, Some("2"));
    let seen = bench.step(45, None);
    assert!(seen.status.unknown.is_empty() && !seen.fresh, "not yet too old");
    let seen = bench.step(46, None);
    assert_eq!(seen.status.message.as_deref(), Some(expected));
    assert_eq!(seen.status.unknown.len(), 1);
    let first = seen.status.alarms.first();
    assert_eq!(first.is_some_and(|alarm| alarm.unknown), unknown);
    assert_eq!(first.is_some_and(|alarm| alarm.held), held);
    if let Some(missing) = seen.status.alarms.get(1) {
        assert!(missing.unknown && !missing.held, "an action may be taken on it");
    }
    assert_eq!(bench.message(47, Some("20")), "No Event");
}

#[test]
fn samples_that_do_not_count_are_counted() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let push = |bench: &mut Bench, time: &str, now: i64| {
        let mut sample = sample(at(now), &[("cpu", "2")]);
        sample.time = time.into();
        let measured = bench.watch.pushed(&sample, at(now));
        let around = ObserveContext::of(None, at(now));
        let seen = bench.watch.observe(&bench.status, ObserveTrigger::Measured(&measured), around);
        bench.status = seen.status;
        seen.fresh
    };
    assert!(push(&mut bench, &at(0).to_string(), 0));
    assert!(!push(&mut bench, &at(0).to_string(), 1), "repeated");
    assert!(!push(&mut bench, &at(-1).to_string(), 1), "out of order");
    assert!(!push(&mut bench, &at(100).to_string(), 1), "from the future");
    assert!(!push(&mut bench, "yesterday", 1), "unreadable");
    assert!(push(&mut bench, &at(10).to_string(), 1), "within the allowed clock skew");
    let refused = bench.status.refused.clone().unwrap();
    assert_eq!((refused.repeated, refused.out_of_order, refused.from_future, refused.unreadable), (1, 1, 1, 1));
    assert_eq!(bench.status.tag.as_ref().unwrap().sequence, 2);
}

#[test]
fn what_stays_away_does_not_outdate_a_sender_whose_clock_is_late() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}, "missing": {"after": "45s", "then": "Alarm"}}));
    bench.step(0, None);
    assert_eq!(bench.status.tag, None, "nothing has happened yet");
    assert_eq!(bench.message(46, None), "Missing cpu");
    let measured = bench.watch.pushed(&sample(at(38), &[("cpu", "20")]), at(47));
    let around = ObserveContext::of(None, at(47));
    let seen = bench.watch.observe(&bench.status, ObserveTrigger::Measured(&measured), around);
    assert_eq!(seen.status.message.as_deref(), Some("No Event"));
    bench.status = seen.status;
    assert_eq!(bench.message(120, None), "Missing cpu");
    assert!(bench.status.tag.as_ref().unwrap().time < micro_time(at(39)));
}

#[test]
fn a_flood_of_bad_samples_is_not_written_at_its_own_pace() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    bench.step(0, Some("20"));
    let mut writes = 0;
    for millisecond in 0..1000_i64 {
        let now = at(1) + jiff::SignedDuration::from_millis(millisecond * 10);
        let measured = bench.watch.pushed(&sample(at(0), &[("cpu", "20")]), now);
        let seen =
            bench.watch.observe(&bench.status, ObserveTrigger::Measured(&measured), ObserveContext::of(None, now));
        writes += usize::from(seen.write);
        bench.status = seen.status;
    }
    assert_eq!(writes, 0, "ten seconds are within one interval");
}

#[test]
fn a_calm_loop_writes_a_heartbeat_and_no_more() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let writes: usize = (0..=600).map(|second| usize::from(bench.step(second, Some("20")).write)).sum();
    assert_eq!(writes, 3, "the first, and one every five minutes");
}

#[test]
fn a_hop_that_forgot_goes_on_where_the_others_are() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let last = Tag { time: micro_time(at(10)), sequence: 41, pushed: None };
    let measured = bench.watch.pushed(&sample(at(11), &[("cpu", "2")]), at(11));
    let around = ObserveContext::of(Some(&last), at(11));
    let seen = bench.watch.observe(&bench.status, ObserveTrigger::Measured(&measured), around);
    assert_eq!(seen.status.tag.unwrap().sequence, 42);
    let measured = bench.watch.pushed(&sample(at(9), &[("cpu", "2")]), at(11));
    bench.status = MonitoringStatus::default();
    assert_eq!(
        bench
            .watch
            .observe(&bench.status, ObserveTrigger::Measured(&measured), around)
            .status
            .refused
            .unwrap()
            .out_of_order,
        1
    );
}

/// A Monitoring is deleted and recreated, while the Decision has recorded its last sample.
#[test]
fn a_sample_that_was_decided_about_is_known_again_where_the_monitoring_is_made_anew() {
    let mut this = Loop::new("fast", demo(json!({})));
    this.push(at(0), &[("cpu", "2"), ("memory", "60")]);
    this.push(at(40), &[("cpu", "3"), ("memory", "60")]);
    assert_eq!(this.decision.tag.as_ref().unwrap().sequence, 2);
    this.stored.0 = MonitoringStatus::default();
    this.crash();
    let effects = this.effects.len();
    this.push(at(40), &[("cpu", "3"), ("memory", "60")]);
    this.wait(at(50));
    assert_eq!(this.monitoring.tag, this.decision.tag);
    assert_eq!(this.monitoring.values[0].value.as_str(), "3");
    assert!(!this.monitoring.alarms[0].unknown, "it is ten seconds old");
    assert_eq!(this.effects.len(), effects, "no second decision about it");
}

/// While an alarm is raised, the newest sample is written at a bounded rate. Without an alarm, it is not.
#[test]
fn samples_are_shown_at_a_bounded_rate_while_an_alarm_stands() {
    let mut this = Loop::new("fast", demo(json!({"dwell": "1h"})));
    let millis = |millis: i64| at(0) + jiff::SignedDuration::from_millis(millis);
    this.push(millis(0), &[("cpu", "2"), ("memory", "60")]);
    this.push(millis(100), &[("cpu", "2"), ("memory", "60")]);
    let writes = this.writes;
    for tenth in 2..9 {
        this.push(millis(100 * tenth), &[("cpu", "2"), ("memory", "60")]);
    }
    assert_eq!(this.writes, writes, "not every sample");
    let due = watch_of(&mut this).next_evaluation(&this.monitoring, &this.stored.0, millis(800));
    assert_eq!(due, Some(millis(900)));
    this.wait(millis(900));
    assert_eq!(this.stored.0.tag.as_ref().map(|tag| tag.sequence), Some(9), "the newest one");
    this.push(millis(1100), &[("cpu", "50"), ("memory", "60")]);
    let writes = this.writes;
    this.push(millis(9000), &[("cpu", "51"), ("memory", "60")]);
    assert_eq!(this.writes, writes, "without an alarm, a sample causes no write");
}

/// A sample per second that comes a little early is written at once, also after a late one.
#[test]
fn a_sample_each_second_is_never_postponed() {
    let mut this = Loop::new("fast", demo(json!({"dwell": "1h"})));
    for (index, early) in [0, -60, 30, 5, 60, 0].into_iter().enumerate() {
        let index = i64::try_from(index).unwrap();
        let time = at(index) - jiff::SignedDuration::from_millis(early);
        this.push(time, &[("cpu", "2"), ("memory", "60")]);
        let written = this.stored.0.tag.as_ref().map(|tag| tag.sequence);
        assert_eq!(written, Some(index + 1), "at once");
    }
}

fn watch_of(this: &mut Loop) -> MonitoringRules {
    MonitoringRules::parse(&this.children(at(0)).monitoring).unwrap()
}

/// A value expires at its time, even if no sample comes and no interval ends.
#[test]
fn the_next_change_is_told() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}, "missing": {"after": "45s"}}));
    bench.step(0, Some("50"));
    let expires = at(45) + jiff::SignedDuration::from_micros(1);
    assert_eq!(bench.watch.next_change(&bench.status, at(1)), Some(expires));
    assert_eq!(bench.watch.next_change(&bench.status, expires), None);
}

#[rstest]
#[case("5", Some("5"))]
#[case("-0.25", Some("-0.25"))]
#[case("512Mi", Some("512Mi"))]
#[case("1e-7", Some("1e-7"))]
#[case("0.30000000000000004", Some("0.30000000000000004"))]
#[case("1234567890123456789012", Some("1.234567890123457e21"))]
#[case("0.1234567890123456789012", Some("1.234567890123457e-1"))]
#[case(".5", Some("5.000000000000000e-1"))]
#[case("1e120", None)]
#[case("1e-120", Some("0"))]
fn a_number_is_kept_as_a_status_can_hold_it(#[case] value: &str, #[case] kept: Option<&str>) {
    let mut bench = Bench::new(json!({"low": {"raise": "1e-30"}, "high": {"raise": "1e-20"}}));
    bench.step(0, Some(value));
    assert_eq!(bench.status.values.first().map(|reading| reading.value.as_str()), kept);
    let size =
        |alarm: &ganglion_api::monitoring::AlarmState| alarm.excess.as_ref().map_or(0, |excess| excess.as_str().len());
    assert!(bench.status.alarms.iter().all(|alarm| size(alarm) <= 22), "{:?}", bench.status.alarms);
}
