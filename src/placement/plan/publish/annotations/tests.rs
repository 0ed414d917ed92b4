//! Tests of the annotations: when they are written, and that readers get the measured usage back.

use std::collections::HashMap;

use proptest::prelude::*;
use rstest::rstest;

use super::super::{LEAST_SAMPLES, Statistic};
use super::*;
use crate::safe::{SafeRules, Statistics, Usage};

const AGE: SignedDuration = SignedDuration::from_secs(300);
const AGES: SampleAges = SampleAges { most: AGE, shortest: AGE };
const GI: f64 = 1_073_741_824.0;

type Texts = BTreeMap<String, String>;

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn size() -> PerResource<NodeSize> {
    let cpu = NodeSize { allocatable: 3800.0, capacity: 4000.0 };
    PerResource { cpu, memory: NodeSize { allocatable: 7.0 * GI, capacity: 8.0 * GI } }
}

fn numbers() -> HashMap<Statistic, f64> {
    HashMap::from([
        (Statistic::CpuMean, 1234.56),
        (Statistic::CpuDeviation, 200.04),
        (Statistic::CpuForecast, 4500.0),
        (Statistic::MemoryMean, 2.0 * GI + 0.4),
        (Statistic::MemoryDeviation, 1e7),
        (Statistic::MemoryForecast, 2.5 * GI),
        (Statistic::Samples, 60.0),
    ])
}

fn of(numbers: &HashMap<Statistic, f64>, at: i64) -> Option<NodeUsage> {
    NodeUsage::new(|statistic| numbers.get(&statistic).copied(), second(at))
}

/// The usage with one number changed.
fn with(statistic: Statistic, value: f64, at: i64) -> Option<NodeUsage> {
    let mut numbers = numbers();
    numbers.insert(statistic, value);
    of(&numbers, at)
}

fn get<'a>(texts: &'a Texts) -> impl Fn(&str) -> Option<&'a str> {
    |key| texts.get(key).map(String::as_str)
}

fn ask(texts: &Texts, usage: Option<&NodeUsage>, now: i64) -> Option<BTreeMap<&'static str, String>> {
    changes(get(texts), usage, &size(), second(now), AGES)
}

/// Simulates server-side apply: our annotations that the set omits are removed, annotations of others stay.
fn apply(texts: &Texts, ours: &[&str], set: &BTreeMap<&'static str, String>) -> Texts {
    let mut texts = texts.clone();
    texts.retain(|key, _| !ours.contains(&key.as_str()));
    texts.extend(set.iter().map(|(key, text)| ((*key).to_owned(), text.clone())));
    texts
}

fn published(usage: &NodeUsage) -> Texts {
    let now = usage.sampled_at.as_second();
    apply(&Texts::new(), &[], &ask(&Texts::new(), Some(usage), now).expect("changes"))
}

#[test]
fn the_set_is_complete() {
    let usage = of(&numbers(), 1_763_719_205).expect("a usage");
    let expected = [
        ("forcasted-free-memory", "4831838208"),
        ("forecasted-used-cpu", "4000"),
        ("forecasted-used-memory", "2684354560"),
        ("ganglion.dev/usage-sampled-at", "2025-11-21T10:00:05Z"),
        ("ganglion.dev/usage-samples", "60"),
        ("mean-free-cpu", "2565.4"),
        ("mean-free-memory", "5368709120"),
        ("mean-used-cpu", "1234.6"),
        ("mean-used-memory", "2147483648"),
        ("std-free-cpu", "200"),
        ("std-free-memory", "10000000"),
        ("std-used-cpu", "200"),
        ("std-used-memory", "10000000"),
    ];
    let found = published(&usage);
    assert_eq!(found.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect::<Vec<_>>(), expected);
}

#[test]
fn times_are_whole_seconds() {
    let at: Timestamp = "2026-11-21T10:00:05.987654321Z".parse().expect("a time");
    let usage = NodeUsage { sampled_at: at, ..of(&numbers(), 0).expect("a usage") };
    assert_eq!(published(&usage)[SAMPLED_AT], "2026-11-21T10:00:05Z");
    let again = changes(get(&published(&usage)), Some(&usage), &size(), at, AGES);
    assert_eq!(again, None);
}

#[rstest]
#[case(Statistic::Samples, 9.0, false)]
#[case(Statistic::Samples, 9.99, false)]
#[case(Statistic::Samples, 10.0, true)]
#[case(Statistic::Samples, f64::NAN, false)]
#[case(Statistic::Samples, -10.0, false)]
#[case(Statistic::CpuMean, f64::NAN, true)]
fn few_samples_are_no_usage(#[case] statistic: Statistic, #[case] value: f64, #[case] expected: bool) {
    assert_eq!(with(statistic, value, 0).is_some(), expected);
    let mut numbers = numbers();
    numbers.remove(&Statistic::Samples);
    assert_eq!(of(&numbers, 0), None);
}

#[test]
fn without_any_mean_there_is_no_usage() {
    let mut numbers = numbers();
    numbers.insert(Statistic::CpuMean, f64::INFINITY);
    assert!(of(&numbers, 0).is_some());
    numbers.remove(&Statistic::MemoryMean);
    assert_eq!(of(&numbers, 0), None);
}

#[rstest]
#[case(Statistic::CpuMean, &["mean-used-cpu", "std-used-cpu", "forecasted-used-cpu", "mean-free-cpu", "std-free-cpu"])]
#[case(Statistic::CpuDeviation, &["std-used-cpu", "std-free-cpu"])]
#[case(Statistic::MemoryForecast, &["forecasted-used-memory", "forcasted-free-memory"])]
fn what_is_not_known_is_left_out(#[case] statistic: Statistic, #[case] missing: &[&str]) {
    let (all, usage) = (published(&of(&numbers(), 0).expect("a usage")), with(statistic, f64::NAN, 0));
    let found = published(&usage.expect("a usage"));
    let left_out: Vec<_> = all.keys().filter(|key| !found.contains_key(*key)).map(String::as_str).collect();
    let mut missing = missing.to_vec();
    missing.sort_unstable();
    assert_eq!(left_out, missing);
}

#[test]
fn forecasts_are_between_nothing_and_everything() {
    for (value, used, free) in [(-5.0 * GI, 0.0, 7.0 * GI), (f64::MAX, 8.0 * GI, 0.0), (7.5 * GI, 7.5 * GI, 0.0)] {
        let texts = published(&with(Statistic::MemoryForecast, value, 0).expect("a usage"));
        let found = ["forecasted-used-memory", "forcasted-free-memory"].map(|key| number(&texts[key]));
        assert_eq!(found, [Some(used), Some(free)]);
    }
}

#[test]
fn without_a_size_there_is_no_forecast_and_nothing_free() {
    let usage = of(&numbers(), 0).expect("a usage");
    let none = PerResource::default();
    let set = changes(|_| None, Some(&usage), &none, second(0), AGES).expect("changes");
    let keys: Vec<_> = set.into_keys().collect();
    assert_eq!(keys, [SAMPLED_AT, SAMPLES, "mean-used-cpu", "mean-used-memory", "std-used-cpu", "std-used-memory"]);
}

// One percent of the mean is 10 m; a tenth of a percent of allocatable is 3.8 m.
#[rstest]
#[case(Statistic::CpuMean, 1000.0, 1010.0, false)]
#[case(Statistic::CpuMean, 1000.0, 1010.1, true)]
#[case(Statistic::CpuMean, 1000.0, 989.9, true)]
#[case(Statistic::CpuDeviation, 0.0, 3.8, false)]
#[case(Statistic::CpuDeviation, 0.0, 3.9, true)]
#[case(Statistic::CpuDeviation, 10.0, 13.0, false)]
#[case(Statistic::CpuDeviation, 500.0, 504.0, false)]
#[case(Statistic::CpuDeviation, 500.0, 506.0, true)]
#[case(Statistic::CpuMean, 3700.0, 3705.0, true)] // What is free falls from 100 to 95.
#[case(Statistic::Samples, 60.0, 40.0, false)]
fn only_news_are_written(#[case] statistic: Statistic, #[case] old: f64, #[case] new: f64, #[case] expected: bool) {
    let texts = published(&with(statistic, old, 0).expect("a usage"));
    let set = ask(&texts, with(statistic, new, 60).as_ref(), 60);
    assert_eq!(set.is_some(), expected);
    assert!(set.is_none_or(|set| set.len() == texts.len() && set[SAMPLED_AT] == "1970-01-01T00:01:00Z"));
}

#[rstest]
#[case(0, 150, 150, false)]
#[case(0, 151, 151, true)]
#[case(0, 0, 200, false)] // There is no other sample.
#[case(400, 300, 300, false)] // A clock that was a little ahead.
#[case(500, 300, 300, true)] // A clock that was far ahead.
#[case(100, 90, 100, false)] // An answer that came late.
fn samples_are_renewed(#[case] old: i64, #[case] new: i64, #[case] now: i64, #[case] expected: bool) {
    let texts = published(&of(&numbers(), old).expect("a usage"));
    assert_eq!(ask(&texts, of(&numbers(), new).as_ref(), now).is_some(), expected);
}

#[rstest]
#[case(60, 30, false)]
#[case(60, 31, true)]
#[case(300, 150, false)]
fn samples_are_renewed_for_the_policy_that_is_the_first_to_forget_them(
    #[case] shortest: i64,
    #[case] now: i64,
    #[case] expected: bool,
) {
    let texts = published(&of(&numbers(), 0).expect("a usage"));
    let ages = SampleAges { most: AGE, shortest: SignedDuration::from_secs(shortest) };
    let set = changes(get(&texts), of(&numbers(), now).as_ref(), &size(), second(now), ages);
    assert_eq!(set.is_some(), expected);
}

#[rstest]
#[case(&[("mean-used-cpu", None)], true)]
#[case(&[("mean-used-cpu", Some("hunter2"))], true)]
#[case(&[("mean-used-cpu", Some("NaN"))], true)]
#[case(&[(SAMPLED_AT, Some("yesterday"))], true)]
#[case(&[(SAMPLED_AT, None)], true)]
#[case(&[(SAMPLES, Some("many"))], true)]
#[case(&[("forcasted-free-cpu", Some("5")), ("other", Some("5"))], false)]
fn what_others_spoil_is_repaired(#[case] edits: &[(&str, Option<&str>)], #[case] expected: bool) {
    let usage = of(&numbers(), 0).expect("a usage");
    let mut texts = published(&usage);
    for (key, text) in edits {
        match text {
            Some(text) => drop(texts.insert((*key).to_owned(), (*text).to_owned())),
            None => drop(texts.remove(*key)),
        }
    }
    assert_eq!(ask(&texts, Some(&usage), 0), expected.then(|| ask(&Texts::new(), Some(&usage), 0)).flatten());
}

#[test]
fn an_older_sample_never_replaces_a_newer_one() {
    let texts = published(&of(&numbers(), 100).expect("a usage"));
    let older = with(Statistic::CpuMean, 1.0, 90);
    assert_eq!(ask(&texts, older.as_ref(), 100), None);
}

#[test]
fn what_ended_goes_with_the_next_set() {
    let old = of(&numbers(), 0).expect("a usage");
    let texts = published(&old);
    let ours: Vec<_> = texts.keys().map(String::as_str).collect();
    let mut numbers = numbers();
    numbers.remove(&Statistic::MemoryForecast);
    assert_eq!(ask(&texts, of(&numbers, 60).as_ref(), 60), None);
    let set = ask(&texts, of(&numbers, 180).as_ref(), 180).expect("changes");
    assert!(!apply(&texts, &ours, &set).contains_key("forcasted-free-memory"));
}

#[rstest]
#[case(None)]
#[case(Some(0))] // Itself too old.
fn without_usage_everything_is_taken_away_in_time(#[case] usage: Option<i64>) {
    let texts = published(&of(&numbers(), 0).expect("a usage"));
    let usage = usage.and_then(|at| of(&numbers(), at));
    assert_eq!(ask(&texts, usage.as_ref(), 300), None);
    assert_eq!(ask(&texts, usage.as_ref(), 301), Some(BTreeMap::new()));
    let mut others = texts;
    others.remove(SAMPLED_AT);
    assert_eq!(ask(&others, usage.as_ref(), 301), None, "others may own the rest");
}

#[rstest]
#[case(0.0, 1, "0")]
#[case(-0.0, 0, "0")]
#[case(-0.0, 1, "0")]
#[case(0.04, 1, "0")]
#[case(0.05, 1, "0.1")]
#[case(100.0, 1, "100")]
#[case(100.0, 0, "100")]
#[case(1e15, 1, "1000000000000000")]
#[case(1e15, 0, "1000000000000000")]
#[case(1e-300, 0, "0")]
fn numbers_are_plain_decimals(#[case] value: f64, #[case] digits: usize, #[case] expected: &str) {
    assert_eq!(decimal(value, digits), expected);
}

/// Usage that the agent `safe` reads, up to allocatable.
fn used(statistics: Option<Statistics>, allocatable: f64, forecast_weight: f64) -> f64 {
    let rules = SafeRules { forecast_weight, ..SafeRules::default() };
    let usage = Usage { capacity: allocatable, statistics, unmeasured: 0.0 };
    usage.with(0.0, &rules).map_or(f64::NAN, |moments| moments.mean * allocatable)
}

/// Any number: of all magnitudes, and NaN or infinite.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..20_000.0_f64,
        4 => 0.0..1e13_f64,
        2 => any::<f64>(),
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(1e15),
            Just(f64::MIN_POSITIVE)],
    ]
}

prop_compose! {
    fn any_usage()(values in prop::collection::vec(prop::option::weighted(0.9, any_number()), 7), at in 0..2000_i64,
        few in any::<bool>()) -> Option<NodeUsage> {
        let all = [Statistic::CpuMean, Statistic::CpuDeviation, Statistic::CpuForecast, Statistic::MemoryMean,
            Statistic::MemoryDeviation, Statistic::MemoryForecast, Statistic::Samples];
        let mut numbers: HashMap<_, _> = all.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)))
            .collect();
        if !few {
            numbers.insert(Statistic::Samples, 60.0);
        }
        of(&numbers, at)
    }
}

prop_compose! {
    fn any_size()(allocatable in any_number(), capacity in any_number()) -> NodeSize {
        NodeSize { allocatable, capacity }
    }
}

fn sizes() -> impl Strategy<Value = PerResource<NodeSize>> {
    prop_oneof![Just(size()), (any_size(), any_size()).prop_map(|(cpu, memory)| PerResource { cpu, memory })]
}

proptest! {
    /// Holds after any sequence of writes. Annotations of others stay and do not cause endless writes.
    #[test]
    fn once_written_nothing_is_left_to_write(
        steps in prop::collection::vec((any_usage(), sizes(), 0..2000_i64), 1..6), age in 0..1000_i64,
        foreign in prop::collection::btree_map(prop_oneof![Just("mean-free-cpu"), Just("forcasted-free-cpu"), Just("forcasted-free-memory"),
            Just("std-used-memory"), Just("mean-used-cpu")], "[0-9]{1,6}|NaN|x", 0..4),
    ) {
        let mut texts: Texts = foreign.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        let (mut ours, ages) = (Vec::new(), SampleAges::from(SignedDuration::from_secs(age)));
        for (usage, size, now) in steps {
            let now = second(now);
            if let Some(set) = changes(get(&texts), usage.as_ref(), &size, now, ages) {
                texts = apply(&texts, &ours, &set);
                ours = set.keys().copied().collect();
            }
            prop_assert_eq!(changes(get(&texts), usage.as_ref(), &size, now, ages), None);
        }
    }

    #[test]
    fn only_plain_decimals_are_written(usage in any_usage(), size in sizes()) {
        let Some(usage) = usage else { return Ok(()) };
        let set = changes(|_| None, Some(&usage), &size, usage.sampled_at, AGES).expect("changes");
        for (key, text) in &set {
            if *key == SAMPLED_AT {
                prop_assert_eq!(text.parse::<Timestamp>().ok(), Some(usage.sampled_at));
                continue;
            }
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            prop_assert!(!whole.is_empty() && whole.len() <= 16 && are_digits(whole) && are_digits(fraction), "{key}: {text}");
            prop_assert!(fraction.len() <= usize::from(key.ends_with("cpu")), "{key}: {text}");
            prop_assert!(text.contains('.') != fraction.is_empty(), "{key}: {text}");
        }
        prop_assert!(usage.samples >= LEAST_SAMPLES && set.contains_key(SAMPLES));
    }

    /// Readers of both forms get the measured usage; from the free amount only up to allocatable.
    #[test]
    fn what_is_written_is_read_back(
        mean in 0.0..200_000.0_f64, deviation in 0.0..50_000.0_f64, forecast in -1e5..3e5_f64,
            allocatable in 1.0..200_000.0_f64, reserved in 0.0..1e5_f64,
    ) {
        let capacity = allocatable + reserved;
        let size = NodeSize { allocatable, capacity };
        let numbers = HashMap::from([
            (Statistic::CpuMean, mean), (Statistic::CpuDeviation, deviation), (Statistic::CpuForecast, forecast),
            (Statistic::MemoryMean, mean), (Statistic::MemoryDeviation, deviation), (Statistic::MemoryForecast,
                forecast),
            (Statistic::Samples, 60.0),
        ]);
        let usage = of(&numbers, 0).expect("a usage");
        let set = changes(|_| None, Some(&usage), &PerResource { cpu: size, memory: size }, second(0), AGES).expect("changes");
        let all = |key: &str| set.get(key).map(String::as_str);
        let free = |key: &str| all(key).filter(|_| !key.contains("used"));
        let expected = (1.0, forecast.clamp(0.0, capacity));
        // No forecast of free CPU is published.
        let cases = [(CPU, 0.05, false, expected), (CPU, 0.05, true, (0.0, 0.0)), (MEMORY, 0.5, false, expected),
            (MEMORY, 0.5, true, expected)];
        for (keys, error, is_free, (weight, forecast)) in cases {
            let statistics = if is_free { keys.read(free) } else { keys.read(all) };
            let used = |weight| used(statistics, allocatable, weight);
            let bound = |used: f64| used.min(allocatable);
            prop_assert!((used(0.0) - bound(mean)).abs() <= error + 1e-6, "{set:?}");
            prop_assert!((used(weight) - bound(if weight > 0.0 { forecast } else { mean })).abs() <= error + 1e-6, "{set:?}");
            let read = statistics.and_then(|statistics| statistics.deviation());
            prop_assert!(read.is_some_and(|read| (read - deviation).abs() <= error + 1e-6), "{set:?}");
        }
    }
}
