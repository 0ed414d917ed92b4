//! Keys, and the watts between the points of a curve.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::logic::placement::power::PowerNode;

fn key(scale: UsageScale, capacity: f64, inlet: f64, pascals: f64) -> Option<CurveKey> {
    CurveKey::new("model".into(), scale, capacity, inlet, pascals)
}

fn percent() -> CurveKey {
    key(UsageScale::Percent, 8.0, 22.0, 0.0).expect("a key")
}

/// The curve of a model.
fn curve(key: &CurveKey, watts: impl Fn(f64) -> f64) -> Curve {
    let points: Vec<_> = key.inputs().map(|input| Some(watts(input.usage))).collect();
    Curve::of(key, &points).expect("a curve")
}

#[test]
fn a_curve_is_asked_for_from_idle_to_full() {
    let usages = |key: &CurveKey| key.inputs().map(|input| input.usage).collect::<Vec<_>>();
    let all = usages(&percent());
    assert_eq!((all.len(), all[0], all[1], all[20]), (POINTS, 0.0, 5.0, 100.0));
    let all = usages(&key(UsageScale::Cores, 7.91, 22.0, 0.0).expect("a key"));
    assert_eq!((all.len(), all[0], all[20]), (POINTS, 0.0, 7.91));
}

#[rstest]
#[case(22.24, 0.24, 22.0, 0.0)]
#[case(22.26, 0.26, 22.5, 0.5)]
#[case(21.76, -0.26, 22.0, -0.5)]
#[case(-3.1, 7.8, -3.0, 8.0)]
fn predictions_are_asked_for_rounded_values(
    #[case] inlet: f64,
    #[case] pascals: f64,
    #[case] asked_inlet: f64,
    #[case] asked_pascals: f64,
) {
    let inputs: Vec<_> = key(UsageScale::Percent, 8.0, inlet, pascals).expect("a key").inputs().collect();
    assert!(inputs.iter().all(|input| (input.inlet_celsius, input.pascals) == (asked_inlet, asked_pascals)));
}

#[rstest]
#[case(UsageScale::Percent, 64.0, true)]
#[case(UsageScale::Cores, 64.0, false)]
#[case(UsageScale::Cores, 8.0, true)]
#[case(UsageScale::Cores, 8.000_000_000_1, true)]
fn sizes_matter_in_cores_only(#[case] scale: UsageScale, #[case] capacity: f64, #[case] same: bool) {
    assert_eq!(key(scale, 8.0, 22.0, 0.0) == key(scale, capacity, 22.0, 0.0), same);
}

#[rstest]
#[case(f64::NAN, 22.0, 0.0)]
#[case(0.0, 22.0, 0.0)]
#[case(-1.0, 22.0, 0.0)]
#[case(f64::INFINITY, 22.0, 0.0)]
#[case(8.0, f64::NAN, 0.0)]
#[case(8.0, 1e9, 0.0)]
#[case(8.0, 22.0, f64::NEG_INFINITY)]
fn what_is_not_plausible_has_no_key(#[case] capacity: f64, #[case] inlet: f64, #[case] pascals: f64) {
    for scale in [UsageScale::Percent, UsageScale::Cores] {
        assert_eq!(key(scale, capacity, inlet, pascals), None);
    }
}

#[rstest]
#[case(40.0, Some(400.0))]
#[case(45.0, None)]
#[case(40.001, None)]
#[case(49.999, None)]
#[case(50.0, Some(500.0))]
#[case(100.0, Some(1000.0))]
#[case(100.1, None)]
#[case(-0.1, None)]
#[case(f64::NAN, None)]
#[case(f64::INFINITY, None)]
fn a_gap_reaches_to_its_neighbours(#[case] usage: f64, #[case] expected: Option<f64>) {
    let points: Vec<_> = (0..21).map(|at| (at != 9).then_some(f64::from(at) * 50.0)).collect();
    assert_eq!(Curve::of(&percent(), &points).expect("a curve").watts(usage), expected);
}

#[test]
fn what_is_no_curve_is_none() {
    let of = |points: &[Option<f64>]| Curve::of(&percent(), points);
    assert_eq!(of(&[Some(1.0); 20]), None);
    assert_eq!(of(&[Some(1.0); 22]), None);
    assert_eq!(of(&[None; 21]), None);
    assert_eq!(of(&[Some(f64::NAN); 21]), None);
    assert_eq!(of(&[Some(f64::MAX); 21]), None);
}

#[test]
fn a_small_pod_adds_its_part() {
    let node = PowerNode { capacity: 64.0, usage: Some(12.345), pending: 0.0 };
    let all = [(UsageScale::Percent, 2.0), (UsageScale::Cores, 3.125)];
    for (scale, slope) in all {
        let curve = curve(&key(scale, 64.0, 22.0, 0.0).expect("a key"), |usage| 100.0 + slope * usage);
        let usage = node.inputs(0.01, 0.5, scale).expect("inputs");
        match curve.increment(usage) {
            Increment::Watts(watts) => assert!((watts - 0.031_25).abs() < 1e-9, "{watts}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_gap_makes_the_increment_unknown() {
    let points: Vec<_> = (0..21).map(|at| (at != 9).then_some(50.0)).collect();
    let curve = Curve::of(&percent(), &points).expect("a curve");
    let of = |before, after| curve.increment(PowerUsage { before, after });
    assert_eq!(of(41.0, 60.0), Increment::Unknown);
    assert_eq!(of(30.0, 44.0), Increment::Unknown);
    assert_eq!(of(30.0, 60.0), Increment::Watts(0.0));
}

fn scale() -> impl Strategy<Value = UsageScale> {
    prop_oneof![Just(UsageScale::Cores), Just(UsageScale::Percent)]
}

proptest! {
    #[test]
    fn a_linear_model_is_exact(
        (scale, capacity) in (scale(), 0.1..1024.0_f64), (base, slope) in (-100.0..2000.0_f64, -20.0..20.0_f64), part in 0.0..=1.0_f64,
    ) {
        let key = key(scale, capacity, 22.0, 0.0).expect("a key");
        let curve = curve(&key, |usage| base + slope * usage);
        let usage = part * key.top();
        let (found, expected) = (curve.watts(usage).expect("watts"), base + slope * usage);
        prop_assert!((found - expected).abs() <= 1e-12 * (base.abs() + slope.abs() * key.top()), "{found} {expected}");
    }

    #[test]
    fn points_are_met(points in prop::collection::vec(-1e9..=1e9_f64, POINTS), (scale, capacity) in (scale(), 0.1..1024.0_f64)) {
        let key = key(scale, capacity, 22.0, 0.0).expect("a key");
        let given: Vec<_> = points.iter().copied().map(Some).collect();
        let curve = Curve::of(&key, &given).expect("a curve");
        let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(*one), high.max(*one)));
        for (input, point) in key.inputs().zip(&points) {
            let found = curve.watts(input.usage).expect("watts");
            prop_assert!((found - point).abs() <= 1e-12 * (high - low), "{found} {point}");
        }
    }

    #[test]
    fn rising_points_give_a_rising_curve(
        mut points in prop::collection::vec(-1e9..=1e9_f64, POINTS), mut usages in prop::collection::vec(0.0..=100.0_f64, 2..50),
        near in prop::collection::vec((0..=20_u8, -4..=4_i8), 0..50),
    ) {
        points.sort_by(f64::total_cmp);
        usages.extend(near.into_iter().map(|(at, ulps)| {
            let exact = f64::from(at) * 5.0;
            (exact + f64::from(ulps) * exact * f64::EPSILON).clamp(0.0, 100.0)
        }));
        usages.sort_by(f64::total_cmp);
        let points: Vec<_> = points.into_iter().map(Some).collect();
        let curve = Curve::of(&percent(), &points).expect("a curve");
        let watts: Vec<_> = usages.iter().map(|usage| curve.watts(*usage).expect("watts")).collect();
        prop_assert!(watts.is_sorted(), "{watts:?}");
    }

    #[test]
    fn watts_are_finite_and_between_the_points(points in prop::collection::vec(any::<Option<f64>>(), POINTS), usage in any::<f64>()) {
        if let Some(watts) = Curve::of(&percent(), &points).and_then(|curve| curve.watts(usage)) {
            let near = |watts: f64| points.iter().flatten().any(|point| point.abs() <= 1e9 && watts <= *point)
                && points.iter().flatten().any(|point| point.abs() <= 1e9 && watts >= *point);
            prop_assert!(watts.is_finite() && near(watts), "{watts}");
        }
    }

    /// Whatever the capacity, what `PowerNode` accepts is on the curve.
    #[test]
    fn a_curve_covers_the_whole_node(capacity in 0.001..4096.0_f64, scale in scale(), part in 0.0..=1.0_f64, assumption in 0.0..=1.0_f64) {
        let key = key(scale, capacity, 22.0, 0.0).expect("a key");
        let curve = curve(&key, |usage| usage);
        let used = part * capacity;
        let node = PowerNode { capacity, usage: Some(used), pending: 0.0 };
        for cores in [capacity - used, (capacity - used) / 3.0] {
            if let Ok(usage) = node.inputs(cores, assumption, scale) {
                prop_assert!(matches!(curve.increment(usage), Increment::Watts(_)), "{usage:?} of {}", key.top());
            }
        }
    }
}
