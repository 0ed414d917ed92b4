//! A small part of `hack/bench forecast`, and cases of the simulation itself.

use ganglion_loops_plan::forecast::ForecastRules;
use jiff::SignedDuration;

use super::{DemandSeries, LoadShape, Provisioning, ScalingRules, simulate};

const DAILY: ForecastRules =
    ForecastRules { ahead: SignedDuration::from_mins(10), season: SignedDuration::from_hours(24) };

const REACTIVE: ScalingRules = ScalingRules { forecast: None, is_tolerant: true, start_up: 90 };

fn both(shape: LoadShape, seed: u64, days: usize) -> [Provisioning; 2] {
    let load = shape.generate(seed, days);
    [None, Some(DAILY)].map(|forecast| simulate(&load, ScalingRules { forecast, ..REACTIVE }).unwrap())
}

/// Two days of learning count, too.
#[test]
fn a_seasonal_load_gains() {
    let [reactive, with_forecast] = both(LoadShape::Daily, 71, 4);
    assert!(with_forecast.trusted_seconds > 0.4 * 4.0 * 86_400.0, "{with_forecast:?}");
    assert!(with_forecast.shortage < 0.7 * reactive.shortage, "{with_forecast:?} {reactive:?}");
    assert!(with_forecast.late < 0.7 * reactive.late, "{with_forecast:?} {reactive:?}");
    assert!(with_forecast.capacity < 1.1 * reactive.capacity, "{with_forecast:?} {reactive:?}");
}

#[test]
fn a_random_walk_loses_nothing() {
    let [reactive, with_forecast] = both(LoadShape::Walk, 72, 4);
    assert!(with_forecast.shortage <= 1.01 * reactive.shortage, "{with_forecast:?} {reactive:?}");
    assert!(with_forecast.capacity <= 1.01 * reactive.capacity, "{with_forecast:?} {reactive:?}");
}

/// Replicas serve after their start-up time: 45 s are three steps.
#[test]
fn late_replicas_are_missing() {
    let mut steps = vec![Some(2.0); 4];
    steps.extend([Some(4.0); 8]);
    let result = simulate(&DemandSeries { steps }, ScalingRules { start_up: 45, ..REACTIVE }).unwrap();
    let expected = Provisioning {
        shortage: 3.0 * 15.0 * 2.0,
        late: 3.0 * 15.0 * 1.8,
        surplus: 0.0,
        capacity: 15.0 * (4.0 * 2.0 + 8.0 * 4.0),
        demand: 15.0 * (4.0 * 2.0 + 8.0 * 4.0),
        seconds: 180.0,
        short_seconds: 45.0,
        trusted_seconds: 0.0,
    };
    let differences = [
        result.shortage - expected.shortage,
        result.late - expected.late,
        result.surplus - expected.surplus,
        result.capacity - expected.capacity,
        result.demand - expected.demand,
        result.short_seconds - expected.short_seconds,
    ];
    assert!(differences.iter().all(|difference| difference.abs() < 1e-6), "{result:?}");
}

/// After a peak, the default window keeps the replicas for five minutes, and those that start are removed first.
#[test]
fn capacity_that_is_not_needed_is_surplus() {
    let mut steps = vec![Some(2.0); 4];
    steps.extend([Some(4.0)]);
    steps.extend([Some(2.0); 40]);
    let result = simulate(&DemandSeries { steps }, ScalingRules { start_up: 3600, ..REACTIVE }).unwrap();
    assert!((result.shortage - 15.0 * 2.0).abs() < 1e-6, "{result:?}");
    assert!(result.surplus.abs() < 1e-6, "the new replicas never serve: {result:?}");
    let kept = result.capacity - 45.0 * 15.0 * 2.0;
    assert!((kept - 2.0 * (300.0 + 15.0)).abs() < 31.0, "{kept}");
}

#[test]
fn a_seed_is_a_load() {
    for shape in [LoadShape::SEASONAL.as_slice(), &[LoadShape::Walk, LoadShape::Steps, LoadShape::Noise]].concat() {
        assert_eq!(shape.generate(5, 1), shape.generate(5, 1));
        assert_ne!(shape.generate(5, 1), shape.generate(6, 1), "{}", shape.name());
    }
}

#[test]
fn a_file_is_a_load() {
    let steps = |text: &str, target| DemandSeries::from_csv(text, target).map(|load| load.steps).unwrap();
    let (one, two) = (Some(1.0), Some(2.0));
    assert_eq!(steps("time,value\n0,10\n15,20\n30,10\n", Some(10.0)), [one, two, one]);
    assert_eq!(steps("0,10\r\n\r\n30,20\r\n", Some(10.0)), [one, one, two]);
    let times = "2026-11-28T10:00:00Z,10\n2026-11-28T11:00:15+01:00,\n2026-11-28T10:00:30Z,20\n";
    assert_eq!(steps(times, Some(10.0)), [one, None, two]);
    assert_eq!(steps("0,50\n15,100", None), [Some(25.0), Some(50.0)]);
    // A value counts for two of the usual times between rows.
    let gap = steps("0,10\n15,10\n30,10\n120,20\n", Some(10.0));
    assert_eq!(gap, [one, one, one, one, one, None, None, None, two]);
}

#[test]
fn faults_of_a_file_are_named() {
    for (text, expected) in [
        ("", "no rows of time,value"),
        ("time,value\n", "no rows of time,value"),
        ("0,1", "one row only: a load needs some days"),
        ("time,value\n0,1\nx,2", "line 3: field time: \"x\" is neither a number of seconds since 1970 nor a time such"),
        ("0,1\n15,x", "line 2: field value: \"x\" is not a number of 0 or more; leave it empty if it is unknown"),
        ("0,1\n15,NaN", "line 2: field value: \"NaN\" is not a number"),
        ("0,1\n15,-3", "line 2: field value: \"-3\" is not a number of 0 or more"),
        ("0,1\n15,1,2", "line 2: 3 fields: write time,value"),
        ("0,1\n0,1", "line 2, field time: not later than that of the line before"),
        ("0,1\n99999999,1", "1157 days between the first and the last row: use two years or less"),
        ("0,0\n15,0", "the value for each replica is 0: use a number above 0"),
    ] {
        let problem = format!("{:#}", DemandSeries::from_csv(text, None).unwrap_err());
        assert!(problem.starts_with(expected), "{problem}");
    }
    assert!(DemandSeries::from_csv("0,1\n15,1", Some(f64::NAN)).is_err());
}
