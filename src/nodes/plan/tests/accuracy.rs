//! Comparisons of predicted and measured power.

use proptest::prelude::*;

use super::*;
use crate::accuracy::{ENOUGH, KnownAccuracy, MOST, PowerComparison};
use ganglion_api::node_config::status::PowerAccuracy;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A node that draws 100 W when idle and 300 W when fully used, at alternating usages.
fn compare(
    known: &mut KnownAccuracy,
    minutes: std::ops::Range<i64>,
    cpu: impl Fn(i64) -> f64,
    by: impl Fn(f64) -> f64,
) {
    for minute in minutes {
        let cpu = cpu(minute);
        let measured = 100.0 + 2.0 * cpu;
        known.record(PowerComparison { at: at(60 * minute), cpu, predicted: by(cpu), measured }, HOUR);
    }
}

fn varied(minute: i64) -> f64 {
    [10.0, 30.0, 50.0, 70.0][usize::try_from(minute).unwrap() % 4]
}

fn shown(known: &KnownAccuracy, minute: i64) -> PowerAccuracy {
    known.shown(HOUR, at(60 * minute)).unwrap()
}

/// Error, and whether the line is used.
fn verdict(known: &KnownAccuracy, minute: i64) -> (String, bool) {
    let shown = shown(known, minute);
    (shown.mean_absolute_error.unwrap_or_default(), shown.worse_than_line == Some(true))
}

#[test]
fn a_predictor_that_is_worse_than_a_line_is_found_and_rehabilitated() {
    let mut known = KnownAccuracy::default();
    compare(&mut known, 0..11, varied, |cpu| 300.0 - 2.0 * cpu);
    assert!(!verdict(&known, 11).1 && shown(&known, 11).line.is_none(), "too few comparisons");
    compare(&mut known, 11..20, varied, |cpu| 300.0 - 2.0 * cpu);
    assert_eq!(verdict(&known, 20), ("80".to_owned(), true));
    let line = shown(&known, 20).line.unwrap();
    assert_eq!((line.idle_watts.as_str(), line.full_watts.as_str()), ("100", "300"));
    assert_eq!(line.mean_absolute_error.as_deref(), Some("0"));
    compare(&mut known, 20..60, varied, |cpu| 100.0 + 2.0 * cpu);
    assert!(verdict(&known, 60).1, "the window still has its errors");
    compare(&mut known, 60..82, varied, |cpu| 100.0 + 2.0 * cpu);
    assert_eq!(verdict(&known, 82), ("0".to_owned(), false));
}

#[test]
fn a_predictor_that_knows_more_than_the_usage_is_not_worse() {
    let mut known = KnownAccuracy::default();
    // The power of this machine rises by steps, which the predictor knows.
    for minute in 0..40 {
        let cpu = varied(minute);
        let measured = if cpu < 40.0 { 100.0 } else { 300.0 };
        known.record(PowerComparison { at: at(60 * minute), cpu, predicted: measured + 3.0, measured }, HOUR);
    }
    assert_eq!(verdict(&known, 40), ("3".to_owned(), false));
}

#[test]
fn without_varied_usage_there_is_no_line_and_a_known_line_stays() {
    let mut known = KnownAccuracy::default();
    compare(&mut known, 0..30, |_| 20.0, |_| 500.0);
    assert_eq!((verdict(&known, 30), shown(&known, 30).line), (("360".to_owned(), false), None));
    compare(&mut known, 30..60, varied, |_| 500.0);
    assert!(verdict(&known, 60).1);
    // At night.
    compare(&mut known, 60..200, |_| 5.0, |_| 500.0);
    assert!(verdict(&known, 200).1, "the line is compared at the usage that there is");
    compare(&mut known, 200..300, |_| 5.0, |_| 110.0);
    assert!(!verdict(&known, 300).1);
}

#[test]
fn a_restart_changes_no_verdict_and_old_results_end() {
    let mut known = KnownAccuracy::default();
    compare(&mut known, 0..30, varied, |_| 500.0);
    let written = shown(&known, 30);
    let mut restored = KnownAccuracy::restored(&written);
    assert_eq!(shown(&restored, 31), written);
    compare(&mut restored, 31..31 + i64::try_from(ENOUGH).unwrap() - 1, varied, |cpu| 100.0 + 2.0 * cpu);
    assert_eq!(shown(&restored, 42), written, "too few new comparisons");
    compare(&mut restored, 42..43, varied, |cpu| 100.0 + 2.0 * cpu);
    assert_eq!(verdict(&restored, 43), ("0".to_owned(), false));
    let restored = KnownAccuracy::restored(&written);
    assert_eq!(restored.shown(HOUR, at(60 * 89 + 1)), None, "older than the window");
    assert_eq!(known.shown(HOUR, at(60 * 89 + 1)), None);
}

#[test]
fn comparisons_are_spread_over_the_window() {
    let mut known = KnownAccuracy::default();
    for second in 0..600 {
        known.record(PowerComparison { at: at(second), cpu: 1.0, predicted: 1.0, measured: 1.0 }, HOUR);
    }
    assert_eq!(shown(&known, 10).samples, Some(12), "one in 54 s");
}

fn comparison() -> impl Strategy<Value = (i64, f64, f64, f64)> {
    (0..4000_i64, 0.0..=100.0_f64, prop_oneof![any::<f64>(), 0.0..500.0_f64], 1.0..500.0_f64)
}

proptest! {
    /// Whatever is compared: the numbers are bounded and consistent, and the status restores them.
    #[test]
    fn results_are_consistent(mut all in proptest::collection::vec(comparison(), 0..200), window in 1..86_400_i64) {
        all.sort_by_key(|one| one.0);
        let window = SignedDuration::from_secs(window);
        let mut known = KnownAccuracy::default();
        for (second, cpu, predicted, measured) in all {
            known.record(PowerComparison { at: at(second), cpu, predicted, measured }, window);
            let Some(shown) = known.shown(window, at(second)) else { continue };
            prop_assert!(shown.samples.unwrap() <= i64::try_from(MOST).unwrap());
            prop_assert!(shown.worse_than_line.is_none() || shown.line.is_some());
            if let Some(line) = &shown.line {
                let (idle, full): (f64, f64) = (line.idle_watts.parse().unwrap(), line.full_watts.parse().unwrap());
                prop_assert!(0.0 <= idle && idle <= full, "{line:?}");
            }
            let again = KnownAccuracy::restored(&shown).shown(window, at(second));
            prop_assert_eq!(again.as_ref(), Some(&shown));
        }
    }

    /// A predictor that is exact is never replaced, and one that is off by much more than the noise always is.
    #[test]
    fn verdicts_are_right(
        idle in 50.0..500.0_f64, dynamic in 50.0..500.0_f64, off in 0.0..300.0_f64,
        cpus in proptest::collection::vec((0.0..=100.0_f64, -0.4..=0.4_f64), 30..60),
    ) {
        let run = |off: f64| {
            let mut known = KnownAccuracy::default();
            for (minute, (cpu, noise)) in cpus.iter().enumerate() {
                let exact = idle + dynamic * cpu / 100.0;
                let at = at(60 * i64::try_from(minute).unwrap());
                known.record(PowerComparison { at, cpu: *cpu, predicted: exact + off, measured: exact + noise }, HOUR);
            }
            shown(&known, i64::try_from(cpus.len()).unwrap())
        };
        prop_assert_eq!(run(0.0).worse_than_line, None);
        let shown = run(off);
        if off > 3.0 + 0.02 * (idle + dynamic) && shown.line.is_some() {
            prop_assert_eq!(shown.worse_than_line, Some(true));
        }
    }
}
