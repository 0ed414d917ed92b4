//! Requests for curves, and interpolation between their points.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use CpuUsageFormat::{Percent, Raw};

fn key(format: CpuUsageFormat, cores: f64, inlet: f64, pascals: f64) -> Option<CurveKey> {
    CurveKey::new(format, cores, inlet, pascals)
}

fn percent(inlet: f64, pascals: f64) -> CurveKey {
    key(Percent, 8.0, inlet, pascals).expect("a key")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn curve(key: &CurveKey, watts: impl Fn(f64) -> f64, second: i64) -> Curve {
    let points: Vec<_> = key.inputs().map(|input| watts(input.usage)).collect();
    Curve::of(key, &points, at(second)).expect("a curve")
}

#[test]
fn a_curve_is_asked_for_from_idle_to_full() {
    let usages = |key: &CurveKey| key.inputs().map(|input| input.usage).collect::<Vec<_>>();
    let all = usages(&percent(22.0, 0.0));
    assert_eq!((all.len(), all[0], all[1], all[20]), (POINTS, 0.0, 5.0, 100.0));
    let all = usages(&key(Raw, 7.91, 22.0, 0.0).expect("a key"));
    assert_eq!((all.len(), all[0], all[20]), (POINTS, 0.0, 7.91));
}

#[rstest]
#[case(Percent, 8.0, Some(25.0))]
#[case(Percent, 0.0, Some(25.0))]
#[case(Raw, 8.0, Some(2.0))]
#[case(Raw, 0.0, None)]
fn usage_is_in_the_unit_of_the_model(
    #[case] format: CpuUsageFormat,
    #[case] cores: f64,
    #[case] expected: Option<f64>,
) {
    assert_eq!(usage(format, 25.0, cores), expected);
}

#[rstest]
#[case(22.24, 22.0)]
#[case(22.26, 22.5)]
#[case(-3.1, -3.0)]
fn inlet_temperatures_are_rounded(#[case] inlet: f64, #[case] asked: f64) {
    assert!(percent(inlet, 0.0).inputs().all(|input| input.inlet_celsius == asked));
}

#[rstest]
#[case(Percent, 64.0, true)]
#[case(Raw, 64.0, false)]
#[case(Raw, 8.0, true)]
#[case(Raw, 8.000_000_000_1, true)]
fn sizes_matter_in_cores_only(#[case] format: CpuUsageFormat, #[case] cores: f64, #[case] same: bool) {
    assert_eq!(key(format, 8.0, 22.0, 0.0) == key(format, cores, 22.0, 0.0), same);
}

#[rstest]
#[case(f64::NAN, 0.0)]
#[case(1e9, 0.0)]
#[case(22.0, f64::NEG_INFINITY)]
#[case(22.0, f64::INFINITY)]
fn what_is_not_plausible_has_no_key(#[case] inlet: f64, #[case] pascals: f64) {
    for format in [Percent, Raw] {
        assert_eq!(key(format, 8.0, inlet, pascals), None);
    }
    for cores in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(key(Raw, cores, 22.0, 0.0), None);
    }
}

#[test]
fn what_is_no_curve_is_none() {
    let of = |points: &[f64]| Curve::of(&percent(22.0, 0.0), points, at(0));
    assert!(of(&[1.0; 21]).is_some());
    assert_eq!(of(&[1.0; 20]), None);
    assert_eq!(of(&[1.0; 22]), None);
    assert_eq!(of(&[f64::NAN; 21]), None);
    assert_eq!(of(&[f64::MAX; 21]), None);
}

#[test]
fn it_is_known_within_the_node_only() {
    let curve = curve(&percent(22.0, 0.0), |usage| usage, 0);
    assert_eq!([0.0, 0.5, 1.0, 1.0 + 1e-12].map(|part| curve.watts(part)), [0.0, 50.0, 100.0, 100.0].map(Some));
    assert_eq!([-0.01, 1.01, f64::NAN, f64::INFINITY].map(|part| curve.watts(part)), [None; 4]);
}

/// Noise around a step must not cause a request with each measurement.
#[rstest]
#[case(22.7, 10.0, 0, true)]
#[case(23.3, 10.0, 0, false)]
#[case(22.0, 10.4, 0, true)]
#[case(22.0, 12.0, 0, false)]
#[case(22.0, 10.0, 1799, true)]
#[case(22.0, 10.0, 1800, false)]
fn a_curve_serves_nearby_and_for_a_while(
    #[case] inlet: f64,
    #[case] pascals: f64,
    #[case] now: i64,
    #[case] serves: bool,
) {
    let curve = curve(&percent(22.0, 10.0), |usage| usage, 0);
    assert_eq!(curve.serves(&percent(inlet, pascals), at(now)), serves);
}

#[test]
fn nodes_share_what_is_asked_for() {
    let (warm, cold) = (percent(30.0, 10.0), percent(20.0, 10.0));
    let known = Arc::new(curve(&cold, |usage| usage, 0));
    let curves = Curves::of([(cold, Arc::clone(&known)), (warm, known)], at(10));
    assert_eq!(curves.missing([warm, cold, warm], 5), [warm], "the curve of a cold node is none of a warm one");
    assert_eq!(curves.missing([warm, percent(40.0, 10.0)], 1).len(), 1);
    assert!(curves.get(&cold).is_some() && curves.get(&warm).is_none());
}

#[test]
fn an_invalid_prediction_is_asked_for_again_after_a_pause() {
    let key = percent(22.0, 10.0);
    let mut known = KnownCurve::default();
    assert!(known.is_due(&key, at(0)));
    assert_eq!(known.shown(), None);
    known.take(Err("no number".into()), at(0));
    assert!(!known.is_due(&key, at(299)) && known.is_due(&key, at(300)));
    assert_eq!(known.shown().and_then(|shown| shown.problem).as_deref(), Some("no number"));
    known.take(Ok(Arc::new(curve(&key, |usage| usage, 300))), at(300));
    assert_eq!(known.problem, None);
    assert!(!known.is_due(&key, at(400)) && known.is_due(&key, at(2100)));
}

proptest! {
    #[test]
    fn a_linear_model_is_exact(base in -100.0..2000.0_f64, slope in -20.0..20.0_f64, part in 0.0..=1.0_f64) {
        let curve = curve(&percent(22.0, 0.0), |usage| base + slope * usage, 0);
        let (found, expected) = (curve.watts(part).expect("watts"), base + slope * 100.0 * part);
        prop_assert!((found - expected).abs() <= 1e-11 * (base.abs() + slope.abs() * 100.0), "{found} {expected}");
    }

    #[test]
    fn rising_points_give_a_rising_curve(
        mut points in prop::collection::vec(-1e9..=1e9_f64, POINTS), mut parts in prop::collection::vec(0.0..=1.0_f64,
            2..50),
        near in prop::collection::vec((0..=20_u8, -4..=4_i8), 0..50),
    ) {
        points.sort_by(f64::total_cmp);
        parts.extend(near.into_iter().map(|(at, ulps)| {
            let exact = f64::from(at) / 20.0;
            (exact + f64::from(ulps) * exact * f64::EPSILON).clamp(0.0, 1.0)
        }));
        parts.sort_by(f64::total_cmp);
        let curve = Curve::of(&percent(22.0, 0.0), &points, at(0)).expect("a curve");
        let watts: Vec<_> = parts.iter().map(|part| curve.watts(*part).expect("watts")).collect();
        prop_assert!(watts.is_sorted(), "{watts:?}");
    }

    #[test]
    fn watts_are_between_the_points(points in prop::collection::vec(any::<f64>(), POINTS), part in any::<f64>()) {
        if let Some(watts) = Curve::of(&percent(22.0, 0.0), &points, at(0)).and_then(|curve| curve.watts(part)) {
            prop_assert!(points.iter().any(|point| watts <= *point) && points.iter().any(|point| watts >= *point), "{watts}");
        }
    }

    /// The rounding error is less than 5 % over the whole range of sensors.
    #[test]
    fn pressures_are_rounded_by_a_part(pascals in prop_oneof![-2000.0..2000.0_f64, -1.0..1.0_f64]) {
        for input in percent(22.0, pascals).inputs() {
            // Values less than half a step above the minimum count as zero, too.
            let bound = (0.03 * pascals.abs()).max(1.025 * LEAST_PRESSURE);
            prop_assert!((input.pascals - pascals).abs() <= bound, "{}", input.pascals);
        }
    }

    /// A straight line needs no temperature and no pressure, and is no answer of a model.
    #[test]
    fn a_status_keeps_a_straight_line(idle in 0..1000_i32, dynamic in 0..1000_i32, part in 0.0..=1.0_f64) {
        let line = PowerLine { idle: f64::from(idle), full: f64::from(idle + dynamic) };
        let curve = Curve::straight(&line, at(77)).expect("a curve");
        prop_assert!((curve.watts(part).expect("watts") - line.watts(part)).abs() < 1e-6);
        let known = KnownCurve { last: Some(Arc::new(curve.clone())), problem: None };
        let shown = known.shown().expect("a status");
        prop_assert_eq!((&shown.inlet_temperature, &shown.differential_pressure), (&None, &None));
        let restored = KnownCurve::restored(&shown);
        let again = restored.last.as_ref().and_then(|curve| curve.watts(part)).expect("watts");
        prop_assert!((again - line.watts(part)).abs() <= 0.005 + 1e-6);
        prop_assert!(known.is_at(&Curve::straight(&line, at(99)).expect("a curve")));
        prop_assert!(restored.is_due(&percent(22.0, 0.0), at(78)), "a model is asked for its own curve");
    }

    /// The status restores the curve for the next process and for placement.
    #[test]
    fn a_status_keeps_a_curve(
        base in 0.0..2000.0_f64, slope in 0.0..20.0_f64, inlet in -20.0..60.0_f64,
        pascals in prop_oneof![-2000.0..2000.0_f64, -1.0..1.0_f64],
    ) {
        let key = percent(inlet, pascals);
        let known = KnownCurve { last: Some(Arc::new(curve(&key, |usage| base + slope * usage, 77))), problem: None };
        let restored = KnownCurve::restored(&known.shown().expect("a status"));
        prop_assert!(!restored.is_due(&key, at(100)));
        let (before, after) = (known.last.expect("a curve"), restored.last.expect("a curve"));
        prop_assert_eq!((before.at, before.air), (after.at, after.air));
        for part in [0.0, 0.33, 1.0] {
            prop_assert!((before.watts(part).expect("watts") - after.watts(part).expect("watts")).abs() <= 0.005 + 1e-9);
        }
    }

    #[test]
    fn a_status_of_any_text_is_no_panic(watts in prop::collection::vec(".{0,4}|[0-9]{1,3}", 19..23), inlet in ".{0,5}", pascals in "[-0-9.e]{0,6}") {
        let status = PowerCurve {
            watts, inlet_temperature: Some(inlet), differential_pressure: Some(pascals),
            predicted_at: Some(Time(at(1))), problem: None,
        };
        if let Some(curve) = Curve::read(&status) {
            prop_assert!(curve.watts(0.5).is_some_and(f64::is_finite));
        }
    }
}
