//! The first hop: samples, levels, what is unknown.

use rstest::rstest;
use serde_json::{Value, json};

use super::bench::{at, sample};
use crate::api::monitoring::{MonitoringSpec, MonitoringStatus};
use crate::api::sample::Tag;
use crate::logic::closed_loop::micros;
use crate::logic::closed_loop::monitoring::{Around, News, Seen, Watch};

struct Bench {
    watch: Watch,
    status: MonitoringStatus,
}

impl Bench {
    fn new(metric: Value) -> Self {
        let mut metric = metric;
        metric["name"] = json!("cpu");
        metric["source"] = json!({"push": {}});
        let spec: MonitoringSpec = serde_json::from_value(json!({"interval": "15s", "metrics": [metric]})).unwrap();
        Self { watch: Watch::parse(&spec).unwrap(), status: MonitoringStatus::default() }
    }

    fn step(&mut self, seconds: i64, value: Option<&str>) -> Seen {
        let around = Around { last: None, generation: 1, now: at(seconds) };
        let seen = match value {
            Some(value) => {
                let measured = self.watch.pushed(&sample(at(seconds), &[("cpu", value)]));
                self.watch.observe(&self.status, News::Measured(&measured), around)
            }
            None => self.watch.observe(&self.status, News::Time, around),
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
    assert_eq!(bench.message(25, Some("70")), "No Event", "it begins anew");
    assert_eq!(bench.message(26, Some("90")), "No Event");
    assert_eq!(bench.message(55, Some("90")), "No Event");
    let seen = bench.step(56, None);
    assert_eq!(seen.status.message.as_deref(), Some("High cpu"), "time alone is enough");
    assert!(seen.fresh && seen.write);
    assert_eq!(seen.status.alarms[0].since, micros(at(26)));
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
    assert!(seen.status.alarms[0].held, "nothing is done because of it");
    assert_eq!(seen.status.unknown[0].metric, "cpu");
    assert_eq!(seen.status.values[0].value.as_str(), "2", "the last that was known");
    assert_eq!(bench.message(2, Some("20")), "No Event");
    assert!(bench.status.unknown.is_empty());
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
        assert!(missing.unknown && !missing.held, "something may be done about it");
    }
    assert_eq!(bench.message(47, Some("20")), "No Event");
}

#[test]
fn samples_that_do_not_count_are_counted() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let push = |bench: &mut Bench, time: &str, now: i64| {
        let mut sample = sample(at(now), &[("cpu", "2")]);
        sample.time = time.into();
        let measured = bench.watch.pushed(&sample);
        let around = Around { last: None, generation: 1, now: at(now) };
        let seen = bench.watch.observe(&bench.status, News::Measured(&measured), around);
        bench.status = seen.status;
        seen.fresh
    };
    assert!(push(&mut bench, &at(0).to_string(), 0));
    assert!(!push(&mut bench, &at(0).to_string(), 1), "repeated");
    assert!(!push(&mut bench, &at(-1).to_string(), 1), "out of order");
    assert!(!push(&mut bench, &at(100).to_string(), 1), "from the future");
    assert!(!push(&mut bench, "yesterday", 1), "unreadable");
    assert!(push(&mut bench, &at(10).to_string(), 1), "within what clocks differ by");
    let refused = bench.status.refused.clone().unwrap();
    assert_eq!((refused.repeated, refused.out_of_order, refused.from_future, refused.unreadable), (1, 1, 1, 1));
    assert_eq!(bench.status.tag.as_ref().unwrap().sequence, 2);
}

#[test]
fn what_stays_away_does_not_outdate_a_sender_whose_clock_is_late() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}, "missing": {"then": "Alarm"}}));
    bench.step(0, None);
    assert_eq!(bench.status.tag, None, "nothing has happened yet");
    assert_eq!(bench.message(46, None), "Missing cpu");
    let measured = bench.watch.pushed(&sample(at(38), &[("cpu", "20")]));
    let around = Around { last: None, generation: 1, now: at(47) };
    let seen = bench.watch.observe(&bench.status, News::Measured(&measured), around);
    assert_eq!(seen.status.message.as_deref(), Some("No Event"));
    bench.status = seen.status;
    assert_eq!(bench.message(120, None), "Missing cpu");
    assert!(bench.status.tag.as_ref().unwrap().time < micros(at(39)));
}

#[test]
fn a_flood_of_bad_samples_is_not_written_at_its_own_pace() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    bench.step(0, Some("20"));
    let mut writes = 0;
    for millisecond in 0..1000_i64 {
        let now = at(1) + jiff::SignedDuration::from_millis(millisecond * 10);
        let measured = bench.watch.pushed(&sample(at(0), &[("cpu", "20")]));
        let seen =
            bench.watch.observe(&bench.status, News::Measured(&measured), Around { last: None, generation: 1, now });
        writes += usize::from(seen.write);
        bench.status = seen.status;
    }
    assert_eq!(writes, 0, "ten seconds are within one interval");
}

#[test]
fn a_calm_loop_writes_a_heartbeat_and_no_more() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let writes: usize = (0..=600).map(|second| usize::from(bench.step(second, Some("20")).write)).sum();
    assert_eq!(writes, 3, "the first, and one each five minutes");
}

#[test]
fn a_hop_that_forgot_goes_on_where_the_others_are() {
    let mut bench = Bench::new(json!({"low": {"raise": "5"}}));
    let last = Tag { time: micros(at(10)), sequence: 41 };
    let measured = bench.watch.pushed(&sample(at(11), &[("cpu", "2")]));
    let around = Around { last: Some(&last), generation: 1, now: at(11) };
    let seen = bench.watch.observe(&bench.status, News::Measured(&measured), around);
    assert_eq!(seen.status.tag.unwrap().sequence, 42);
    let measured = bench.watch.pushed(&sample(at(9), &[("cpu", "2")]));
    bench.status = MonitoringStatus::default();
    assert_eq!(
        bench.watch.observe(&bench.status, News::Measured(&measured), around).status.refused.unwrap().out_of_order,
        1
    );
}
