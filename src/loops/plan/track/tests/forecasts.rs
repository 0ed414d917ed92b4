//! Forecasts that raise a proposal.

use rstest::rstest;

use super::bench::{at, direct, queue, unknown};
use crate::forecast::{ForecastErrors, ForecastModel, ForecastOutcome, ForecastTrust};
use crate::track::{
    ScalePace, TrackMemory, TrackOutcome, TrackPass, TrackRules, TrackStage, TrackedMetric, ZeroOrigin, decide,
};

const TRUSTED: ForecastTrust = ForecastTrust::Trusted(ForecastModel::HoltWinters);

fn forecast(demand: f64, trust: ForecastTrust) -> ForecastOutcome {
    let errors = ForecastErrors { last_value: 2.0, seasonal_naive: 1.5, holt_winters: 1.0, horizons: 288 };
    ForecastOutcome { demand: Some(demand), model: ForecastModel::HoltWinters, until: at(600), errors, trust }
}

/// Result of a pass with a forecast.
fn decided(
    rules: &TrackRules,
    memory: &mut TrackMemory,
    (replicas, second): (i32, i64),
    metrics: &[TrackedMetric],
    forecast: &ForecastOutcome,
) -> TrackOutcome {
    let forecast = Some(forecast);
    decide(rules, memory, &TrackPass { replicas, metrics, zero: ZeroOrigin::Own, now: at(second), forecast })
}

#[rstest]
#[case::f1_a_lower_forecast_lowers_nothing(5.0, TRUSTED, 8)]
#[case::f1_a_higher_forecast_raises(11.4, TRUSTED, 12)]
#[case::f1_without_trust(11.4, ForecastTrust::NotBetter, 8)]
#[case::f1_while_it_learns(11.4, ForecastTrust::Learning { horizons: 5, needed: 288 }, 8)]
#[case::within_the_tolerance(8.3, TRUSTED, 9)]
#[case::at_most_max(700.0, TRUSTED, 60)]
fn a_forecast_only_raises(#[case] demand: f64, #[case] trust: ForecastTrust, #[case] expected: i32) {
    let (rules, metrics) = (direct(1, 60), [queue("8", "1")]);
    let outcome = decided(&rules, &mut TrackMemory::default(), (8, 0), &metrics, &forecast(demand, trust));
    assert_eq!(outcome.replicas, expected);
    let line = outcome.lines.iter().find(|line| line.stage == TrackStage::Forecast).unwrap();
    let raises = expected > 8;
    assert_eq!(line.text.ends_with("instead of 8"), raises, "{line}");
}

#[test]
fn an_unknown_metric_raises_nothing_by_a_forecast() {
    let metrics = [queue("8", "1"), unknown("cpu")];
    let outcome = decided(&direct(1, 60), &mut TrackMemory::default(), (9, 0), &metrics, &forecast(30.0, TRUSTED));
    assert_eq!(outcome.replicas, 9);
}

#[test]
fn a_forecast_neither_wakes_nor_keeps_the_last_replica() {
    for replicas in [0, 1] {
        let mut memory = TrackMemory::default();
        let outcome = decided(&direct(0, 60), &mut memory, (replicas, 0), &[queue("0", "1")], &forecast(30.0, TRUSTED));
        assert_eq!(outcome.replicas, 0);
    }
}

/// A raise by a forecast is held by the window, and limited in a pass, as any other.
#[test]
fn windows_and_rates_apply_to_a_forecast() {
    let rules = TrackRules { pace: ScalePace::default(), ..direct(1, 60) };
    let mut memory = TrackMemory::default();
    let mut replicas = 4;
    let mut found = Vec::new();
    for (second, demand) in [(0, 30.0), (15, 30.0), (30, 30.0), (45, 3.0), (330, 3.0), (331, 3.0)] {
        let outcome = decided(&rules, &mut memory, (replicas, second), &[queue("4", "1")], &forecast(demand, TRUSTED));
        replicas = outcome.replicas;
        found.push(replicas);
    }
    assert_eq!(found, [8, 16, 30, 30, 30, 4]);
}
