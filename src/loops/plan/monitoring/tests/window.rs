//! Tests of values of a period of time: their functions, when they are known, and what they mean for decisions.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use crate::common::micro_time;
use crate::monitoring::level::RangedValue;
use crate::monitoring::window::{MAX_SAMPLES, SampleWindow, WindowRule, WindowState, WindowValue};
use crate::monitoring::windows::MetricWindows;
use crate::monitoring::{
    Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult, SourceValue, ValueRange,
};
use crate::tests::bench::{at, sample};
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::world::WINDOW_BYTES;

fn metric(window: &str, function: &str) -> Metric {
    let over = json!({"window": window, "as": function});
    serde_json::from_value(json!({"name": "load", "source": {"push": {}}, "over": over, "high": {"raise": "5"}}))
        .unwrap()
}

/// Window of a minute, whose samples may be 30 s apart.
fn rule(window: &str, function: &str) -> WindowRule {
    WindowRule::parse(&metric(window, function), SignedDuration::from_secs(30)).unwrap().unwrap()
}

/// Window after these samples: time in seconds, and value.
fn filled(rule: WindowRule, samples: &[(i64, f64)]) -> SampleWindow {
    let mut window = SampleWindow::new(rule);
    for (second, value) in samples {
        window.add((*value).into(), at(*second), at(*second), at(*second));
    }
    window
}

fn covered(window: &SampleWindow) -> WindowValue {
    match window.state() {
        WindowState::Covered(found) => found,
        other => panic!("{other:?}"),
    }
}

/// A sample stands for the time since the one before it: 20 s of 3, 10 s of 9, 30 s of 1.
const SAMPLES: [(i64, f64); 4] = [(0, 100.0), (20, 3.0), (30, 9.0), (60, 1.0)];

#[rstest]
#[case("mean", 3.0, 20)]
#[case("max", 9.0, 30)]
#[case("p95", 9.0, 20)]
// 100 → 3 and 9 → 1 are resets: 3 + 6 + 1 in 60 s.
#[case("rate", 0.166_666_666_666_667, 0)]
fn functions(#[case] function: &str, #[case] expected: f64, #[case] measured: i64) {
    let found = covered(&filled(rule("60s", function), &SAMPLES));
    assert_eq!(found, WindowValue { value: expected.into(), at: at(60), measured: at(measured) });
}

#[rstest]
#[case(1, 1.0)]
#[case(19, 19.0)]
#[case(20, 19.0)]
#[case(21, 20.0)]
#[case(40, 38.0)]
fn p95_is_the_nearest_rank(#[case] count: i64, #[case] expected: f64) {
    // The first sample is at the start of the window, and not in it.
    let samples: Vec<(i64, f64)> =
        (0..=count).map(|index| (index, if index == 0 { 1e6 } else { index as f64 })).collect();
    assert_eq!(covered(&filled(rule(&format!("{count}s"), "p95"), &samples)).value.value, expected);
}

#[test]
fn a_window_moves_with_its_newest_sample() {
    let mut window = filled(rule("60s", "max"), &SAMPLES);
    for (second, expected) in [(80, 9.0), (90, 2.0), (100, 2.0)] {
        window.add(2.0.into(), at(second), at(second), at(second));
        assert_eq!(covered(&window).value.value, expected, "at {second}");
    }
}

#[rstest]
#[case("mean")]
#[case("max")]
#[case("p95")]
#[case("rate")]
fn a_window_is_not_known_before_it_is_covered(#[case] function: &str) {
    let rule = rule("60s", function);
    assert_eq!(filled(rule, &[]).state(), WindowState::Empty);
    let until = |samples: &[(i64, f64)]| match filled(rule, samples).state() {
        WindowState::Uncovered { since, until, .. } => Some((since, until)),
        WindowState::Covered(_) => None,
        WindowState::Empty => panic!("it is not empty"),
    };
    assert_eq!(until(&[(0, 1.0)]), Some((at(0), at(60))));
    assert_eq!(until(&[(0, 1.0), (30, 1.0), (59, 1.0)]), Some((at(0), at(60))));
    assert_eq!(until(&[(0, 1.0), (30, 1.0), (60, 1.0)]), None);
    // A pause of 31 s: nobody knows the values of that time.
    let paused = [(0, 1.0), (30, 1.0), (60, 1.0), (91, 1.0)];
    assert_eq!(until(&paused), Some((at(91), at(151))));
    assert_eq!(until(&[paused.as_slice(), &[(120, 1.0), (150, 1.0), (151, 1.0)]].concat()), None);
}

/// The largest value of a window that is not covered is at least that of the known part, also across a pause.
#[test]
fn a_maximum_is_at_least_what_is_known() {
    let least = |samples: &[(i64, f64)]| match filled(rule("60s", "max"), samples).state() {
        WindowState::Uncovered { least: Some(found), .. } => (found.value.least, found.value.most, found.measured),
        other => panic!("{other:?}"),
    };
    assert_eq!(least(&[(0, 7.0), (10, 2.0)]), (7.0, f64::INFINITY, at(0)));
    assert_eq!(least(&[(0, 7.0), (40, 2.0)]), (7.0, f64::INFINITY, at(0)), "before a pause");
    assert_eq!(least(&[(0, 7.0), (40, 2.0), (61, 3.0)]), (3.0, f64::INFINITY, at(61)));
}

#[test]
fn samples_that_are_not_newer_are_not_added() {
    let mut window = filled(rule("60s", "p95"), &[(0, 1.0), (30, 2.0), (60, 3.0)]);
    for second in [60, 59, 0] {
        window.add(99.0.into(), at(second), at(second), at(60));
    }
    assert_eq!(covered(&window).value.value, 3.0);
    // The clock was set back by half a minute: the times of the samples are worth nothing.
    window.add(4.0.into(), at(30), at(30), at(30));
    assert_eq!(window.state(), WindowState::Uncovered { since: at(30), until: at(90), least: None });
}

#[rstest]
#[case("mean", 3.0, 1.0, f64::INFINITY)]
#[case("max", 4.0, 2.0, f64::INFINITY)]
#[case("p95", 4.0, 2.0, f64::INFINITY)]
fn missing_pods_widen_the_range(#[case] function: &str, #[case] value: f64, #[case] least: f64, #[case] most: f64) {
    let mut window = filled(rule("60s", function), &[(0, 1.0)]);
    let ranged = |value, least, most, missing_request| RangedValue { value, least, most, missing_request };
    window.add(ranged(4.0, 2.0, f64::INFINITY, 9.0), at(30), at(30), at(30));
    window.add(ranged(2.0, 0.0, 5.0, 7.0), at(60), at(60), at(60));
    assert_eq!(covered(&window).value, RangedValue { value, least, most, missing_request: 7.0 });
}

#[rstest]
#[case("mean", 56_800.0, true)]
#[case("mean", 56_800.0, false)]
#[case("max", 99_999.0, true)]
#[case("p95", 95_680.0, true)]
#[case("rate", 1.0, false)]
fn a_day_of_samples_takes_at_most_what_the_limits_count(
    #[case] function: &str,
    #[case] expected: f64,
    #[case] is_ranged: bool,
) {
    let mut window = SampleWindow::new(rule("24h", function));
    for second in 0..100_000 {
        let exact = RangedValue::from(second as f64);
        let value = if is_ranged { RangedValue { most: f64::INFINITY, ..exact } } else { exact };
        window.add(value, at(second), at(second), at(second));
    }
    let (samples, bytes) = window.size();
    println!("{function}: {samples} samples, {bytes} bytes");
    assert!((MAX_SAMPLES..=MAX_SAMPLES + 2).contains(&samples) && bytes <= WINDOW_BYTES, "{samples}, {bytes}");
    let value = covered(&window).value.value;
    assert!((value - expected).abs() <= 240.0, "{value}");
}

fn samples() -> impl Strategy<Value = Vec<(i64, f64)>> {
    prop::collection::vec((1..25_i64, 0..1000_u32), 2..120).prop_map(|steps| {
        let mut second = 0;
        let mut sample = |(step, value): (i64, u32)| {
            second += step;
            (second, f64::from(value) / 10.0)
        };
        steps.into_iter().map(&mut sample).collect()
    })
}

proptest! {
    /// The functions agree with their definitions, and a mean of one number is this number.
    #[test]
    fn values_are_those_of_the_definition(samples in samples(), number in 0..1000_u32) {
        let window = |function| filled(rule("60s", function), &samples);
        let (newest, _) = samples[samples.len() - 1];
        let is_covered = samples[0].0 <= newest - 60;
        prop_assert_eq!(matches!(window("mean").state(), WindowState::Covered(_)), is_covered);
        prop_assume!(is_covered);
        let first = samples.iter().position(|(second, _)| *second > newest - 60).unwrap();
        let used = &samples[first..];
        let mut sorted: Vec<f64> = used.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let value = |function| covered(&window(function)).value.value;
        prop_assert_eq!(value("max"), sorted[sorted.len() - 1]);
        let p95 = value("p95");
        let not_over = sorted.iter().filter(|number| **number <= p95).count() * 100;
        prop_assert!(sorted.contains(&p95) && not_over >= 95 * sorted.len());
        let under = sorted.iter().filter(|number| **number < p95).count() * 100;
        prop_assert!(under < 95 * sorted.len());
        let (mut sum, mut previous) = (0.0, newest - 60);
        for (second, value) in used {
            sum += value * (second - previous) as f64;
            previous = *second;
        }
        prop_assert!((value("mean") - sum / 60.0).abs() < 1e-9);
        let pairs = samples[first - 1..].windows(2);
        let increase: f64 = pairs.map(|two| if two[1].1 < two[0].1 { two[1].1 } else { two[1].1 - two[0].1 }).sum();
        prop_assert!((value("rate") - increase / (newest - samples[first - 1].0) as f64).abs() < 1e-9);
        let number = f64::from(number) / 10.0;
        let constant: Vec<(i64, f64)> = samples.iter().map(|(second, _)| (*second, number)).collect();
        prop_assert_eq!(covered(&filled(rule("60s", "mean"), &constant)).value.value, number);
        prop_assert_eq!(covered(&filled(rule("60s", "rate"), &constant)).value.value, 0.0);
    }
}

/// A loop with one metric over a minute, with its windows.
struct Windowed {
    rules: MonitoringRules,
    status: MonitoringStatus,
    windows: MetricWindows,
}

impl Windowed {
    fn new(function: &str, source: serde_json::Value) -> Self {
        let spec = json!({"interval": "15s", "metrics": [{"name": "load", "source": source,
            "over": {"window": "1m", "as": function}, "high": {"raise": "5"}}]});
        let rules = MonitoringRules::parse(&serde_json::from_value(spec).unwrap()).unwrap();
        Self { rules, status: MonitoringStatus::default(), windows: MetricWindows::default() }
    }

    fn polled(function: &str) -> Self {
        Self::new(function, json!({"http": {"url": "http://a", "path": "a"}}))
    }

    fn take(&mut self, measurement: Measurement, now: Timestamp) {
        let context = ObserveContext::of(None, now);
        let measured = self.rules.windowed(&mut self.windows, &self.status, measurement, context);
        self.status = self.rules.observe(&self.status, ObserveTrigger::Measured(&measured), context).status;
    }

    fn poll(&mut self, second: i64, got: SourceResult) {
        let got = got.map(|value| SourceValue { at: Some(at(second)), ..value });
        let measurement = Measurement { values: [("load".to_owned(), got)].into(), ..Measurement::default() };
        self.take(measurement, at(second));
    }

    fn value(&self) -> Option<&str> {
        self.status.unknown.is_empty().then(|| self.status.values[0].value.as_str())
    }

    fn message(&self) -> &str {
        &self.status.unknown[0].message
    }
}

fn value(text: &str) -> SourceResult {
    Ok(SourceValue::from(text.to_owned()))
}

#[test]
fn a_metric_is_unknown_until_its_window_is_covered() {
    let mut this = Windowed::polled("mean");
    for second in [0, 15, 30, 45] {
        this.poll(second, value("9"));
        let expected = format!("the mean over 1m will be known at {:.0}: values are known since {:.0}", at(60), at(0));
        assert_eq!(this.message(), expected);
        assert!(this.status.alarms.is_empty());
    }
    this.poll(60, value("3"));
    assert_eq!((this.value(), this.status.alarms.len()), (Some("7.5"), 1));
    assert_eq!(this.status.values[0].measured_at, Some(micro_time(at(15))), "the oldest measurement in the window");
    assert_eq!(this.status.values[0].at, micro_time(at(60)), "its age counts from the newest one");
}

/// Case M2: what is no number is a gap, and no zero.
#[test]
fn what_is_no_number_never_enters() {
    let mut this = Windowed::polled("mean");
    for second in [0, 15, 30, 45, 60] {
        this.poll(second, value("9"));
    }
    for (second, got) in [(75, value("NaN")), (90, Err("the adapter answers 503".to_owned()))] {
        this.poll(second, got);
        assert!(this.status.values[0].problem.is_some(), "the last value stands at {second}");
    }
    this.poll(100, value("9"));
    assert_eq!(this.value(), Some("9"), "a pause shorter than the maximum age");
    this.poll(146, value("9"));
    let problem = this.status.values[0].problem.as_deref().unwrap_or_default();
    assert!(problem.contains(&format!("will be known at {:.0}", at(206))), "{problem}");
}

#[test]
fn a_maximum_raises_before_it_is_covered_and_clears_only_afterwards() {
    let mut this = Windowed::polled("max");
    this.poll(0, value("4"));
    assert!(this.message().contains("the max over 1m will be known"), "it may have been more");
    this.poll(15, value("9"));
    assert_eq!((this.value(), this.status.alarms.len()), (Some("9"), 1));
    assert_eq!(this.status.values[0].at_least.as_ref().map(|number| number.as_str()), Some("9"));
    assert_eq!(this.status.values[0].at_most, None);
    for second in [30, 45, 60] {
        this.poll(second, value("1"));
        assert_eq!((this.value(), this.status.alarms.len()), (Some("9"), 1), "at {second}");
    }
    this.poll(75, value("1"));
    assert_eq!((this.value(), this.status.alarms.len()), (Some("1"), 0));
}

#[test]
fn a_repeated_or_refused_sample_is_not_added() {
    let mut this = Windowed::new("p95", json!({"push": {}}));
    let mut push = |then: i64, now: i64, load: &str| {
        let measured = this.rules.pushed(&sample(at(then), &[("load", load)]), at(now));
        this.take(measured, at(now));
        this.status.values.first().map(|reading| reading.value.as_str().to_owned())
    };
    for second in [0, 20, 40] {
        assert_eq!(push(second, second, "2"), None);
    }
    assert_eq!(push(60, 60, "2").as_deref(), Some("2"));
    assert_eq!(push(50, 61, "99").as_deref(), Some("2"), "out of order");
    assert_eq!(push(60, 62, "99").as_deref(), Some("2"), "repeated");
    assert_eq!(push(63, 63, "3").as_deref(), Some("3"));
}

#[test]
fn another_source_or_function_begins_again() {
    let mut this = Windowed::polled("mean");
    for second in [0, 15, 30, 45, 60] {
        this.poll(second, value("9"));
    }
    for (changed, second) in
        [(Windowed::polled("max"), 75), (Windowed::new("max", json!({"http": {"url": "http://b", "path": "a"}})), 90)]
    {
        this.rules = changed.rules;
        this.poll(second, value("1"));
        let problem = this.status.values[0].problem.as_deref().unwrap();
        assert!(problem.contains("the max over 1m will be known"), "{problem}");
    }
}

#[test]
fn a_rate_needs_the_values_of_all_pods() {
    let mut this = Windowed::polled("rate");
    let range = Some(ValueRange { least: "1".into(), ..ValueRange::default() });
    this.poll(0, Ok(SourceValue { range, ..SourceValue::from("2".to_owned()) }));
    assert_eq!(this.message(), "the rate over 1m needs the values of all pods, and some are not measured");
}

#[rstest]
#[case("0s", "it must be from 1s to 24h")]
#[case("25h", "it must be from 1s to 24h")]
#[case("5", "metrics[load].over.window")]
fn a_window_has_a_length(#[case] window: &str, #[case] expected: &str) {
    let error = WindowRule::parse(&metric(window, "mean"), SignedDuration::from_secs(30)).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_formula_has_no_window() {
    let mut metric = metric("1m", "mean");
    metric.source = serde_json::from_value(json!({"formula": {"expression": "a + 1"}})).unwrap();
    let error = WindowRule::parse(&metric, SignedDuration::from_secs(30)).unwrap_err();
    assert!(error.to_string().contains("set it on the metrics that it uses"), "{error}");
}
