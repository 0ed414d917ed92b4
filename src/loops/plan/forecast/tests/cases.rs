//! Cases of loads: which are trusted, when, and what follows.

use rstest::rstest;

use super::bench::{DAILY, DAY, FollowedLoad, HOUR, MINUTE, noise, office, offices};
use crate::forecast::number::stored;
use crate::forecast::samples::BucketSamples;
use crate::forecast::season::StoredSeason;
use crate::forecast::trust::{BucketForecasts, Judgement};
use crate::forecast::{ForecastModel, ForecastTrust, with_forecast};

const TRUSTED: ForecastTrust = ForecastTrust::Trusted(ForecastModel::SeasonalNaive);

/// F1 of the cases that users of autoscalers ran into.
#[rstest]
#[case::f1_lower(8, Some(5), TRUSTED, 8)]
#[case::f1_higher(8, Some(12), TRUSTED, 12)]
#[case::f1_learning(8, Some(12), ForecastTrust::Learning { horizons: 0, needed: 288 }, 8)]
#[case::f1_not_better(8, Some(12), ForecastTrust::NotBetter, 8)]
#[case::f1_no_recent_values(8, Some(12), ForecastTrust::NoRecentValues, 8)]
#[case::no_forecast(8, None, TRUSTED, 8)]
#[case::zero_is_not_its_decision(0, Some(12), TRUSTED, 0)]
fn a_forecast_only_raises(
    #[case] reactive: i32,
    #[case] proposal: Option<i32>,
    #[case] trust: ForecastTrust,
    #[case] expected: i32,
) {
    assert_eq!(with_forecast(reactive, proposal, trust), expected);
}

#[test]
fn a_season_is_learned_and_another_one_judged_before_trust() {
    let mut this = offices(0);
    let load = |second| Some(office(second));
    this.follow(DAY, load);
    assert_eq!(this.trust(), ForecastTrust::Learning { horizons: 0, needed: 288 });
    this.follow(2 * DAY - HOUR, load);
    let ForecastTrust::Learning { horizons, .. } = this.trust() else { panic!("{}", this.trust()) };
    assert!((260..288).contains(&horizons), "{horizons}");
    this.follow(2 * DAY + 2 * HOUR, load);
    assert!(this.is_trusted(), "{}", this.forecast());
}

#[test]
fn capacity_is_raised_before_the_load() {
    let mut this = offices(4);
    // In the middle of the ramp, the load grows by half a replica each minute.
    this.follow(4 * DAY + 8 * HOUR + 30 * MINUTE, |second| Some(office(second)));
    let outcome = this.forecast();
    let expected = 10.0 + 30.0 * 40.0 / 60.0;
    assert!(outcome.demand.is_some_and(|demand| (expected - 1.0..expected + 4.0).contains(&demand)), "{outcome}");
    assert!(outcome.replicas().is_some_and(|replicas| replicas >= 30), "{outcome}");
    // Shortly before a fall, the forecast is not below the load of that time.
    this.follow(4 * DAY + 17 * HOUR, |second| Some(office(second)));
    assert!(this.forecast().demand.is_some_and(|demand| demand > 37.0), "{}", this.forecast());
}

/// Twice the load of other days: Holt-Winters follows the level.
#[test]
fn the_level_of_the_day_counts() {
    let mut this = offices(4);
    this.follow(4 * DAY + 12 * HOUR, |second| Some(office(second) * 2.0));
    let outcome = this.forecast();
    assert_eq!(outcome.trust, ForecastTrust::Trusted(ForecastModel::HoltWinters));
    assert!(outcome.demand.is_some_and(|demand| (76.0..90.0).contains(&demand)), "{outcome}");
}

/// Sum of random steps.
fn walk(seed: i64) -> impl Fn(i64) -> Option<f64> {
    let mut level = 40.0_f64;
    let levels: Vec<f64> = (0..8 * DAY / MINUTE)
        .map(|minute| {
            level = (level + 0.4 * noise(seed + minute)).abs();
            level
        })
        .collect();
    move |second| levels.get(usize::try_from(second / MINUTE).unwrap()).copied()
}

#[rstest]
#[case::walk(walk(1_000_000))]
#[case::another_walk(walk(2_000_000))]
#[case::constant(|_| Some(12.0))]
#[case::zero(|_| Some(0.0))]
#[case::steps(|second| Some(20.0 + 15.0 * noise(second / (5 * HOUR))))]
fn loads_without_a_season_are_never_trusted(#[case] load: impl Fn(i64) -> Option<f64>) {
    let mut this = FollowedLoad::new(&DAILY);
    for hour in 0..8 * 24 {
        this.follow(hour * HOUR, &load);
        assert!(hour == 0 || !this.is_trusted(), "hour {hour}: {}", this.forecast());
    }
    assert_eq!(this.trust(), ForecastTrust::NotBetter);
}

#[test]
fn trust_ends_with_the_season() {
    let mut this = offices(4);
    let walk = walk(3_000_000);
    this.follow(6 * DAY, |second| walk(second - 4 * DAY));
    assert_eq!(this.trust(), ForecastTrust::NotBetter, "{}", this.forecast());
    assert_eq!(with_forecast(3, this.forecast().replicas(), this.trust()), 3);
}

/// A constant load of 12 replicas does not ask for 13, although the stored form rounds.
#[test]
fn rounding_asks_for_no_replica() {
    for demand in [0.0, 1.0, 3.0, 7.0, 12.0, 100.0, 999.0] {
        let mut this = FollowedLoad::new(&DAILY);
        this.follow(2 * DAY, |_| Some(demand));
        assert_eq!(this.forecast().replicas(), Some(demand as i32), "{}", this.forecast());
    }
}

#[test]
fn the_explanation_has_all_numbers() {
    let text = offices(3).forecast().to_string();
    for part in [" replicas until 2027-01-19T00:09:00Z by ", ", trusted (mean error over 288 horizons: Holt-Winters 0."]
    {
        assert!(text.contains(part), "{text}");
    }
    let text = FollowedLoad::new(&DAILY).follow(MINUTE, |_| None).forecast().to_string();
    assert_eq!(text, "no forecast until 2027-01-16T00:10:00Z, not used: 0 of 288 horizons are judged");
}

/// Judgement with these errors of last value, seasonal naive and Holt-Winters.
fn judged(before: Option<ForecastModel>, errors: [f64; 3]) -> Option<ForecastModel> {
    let mut judgement = Judgement { trusted: before, ..Judgement::default() };
    let [last_value, seasonal_naive, holt_winters] = errors;
    judgement.judge(BucketForecasts { last_value, seasonal_naive, holt_winters }, 0.0, 1);
    judgement.trusted
}

#[rstest]
#[case::none_is_better(None, [1.0, 1.0, 1.0], None)]
#[case::not_clearly_better(None, [1.0, 0.85, 0.85], None)]
#[case::better(None, [1.0, 0.7, 0.75], Some(ForecastModel::SeasonalNaive))]
#[case::the_other_is_better(None, [1.0, 0.75, 0.7], Some(ForecastModel::HoltWinters))]
#[case::still_better(Some(ForecastModel::HoltWinters), [1.0, 2.0, 0.85], Some(ForecastModel::HoltWinters))]
#[case::no_more(Some(ForecastModel::HoltWinters), [1.0, 2.0, 0.92], None)]
#[case::the_other_is_a_little_better(
    Some(ForecastModel::HoltWinters), [1.0, 0.69, 0.7], Some(ForecastModel::HoltWinters)
)]
#[case::the_other_is_much_better(
    Some(ForecastModel::HoltWinters), [1.0, 0.5, 0.7], Some(ForecastModel::SeasonalNaive)
)]
#[case::nothing_is_better_than_exact(None, [0.0, 0.0, 0.0], None)]
#[case::exact_again(Some(ForecastModel::HoltWinters), [0.0, 0.0, 0.0], None)]
fn trust_has_a_margin(
    #[case] before: Option<ForecastModel>,
    #[case] errors: [f64; 3],
    #[case] expected: Option<ForecastModel>,
) {
    assert_eq!(judged(before, errors), expected);
}

#[test]
fn errors_of_long_ago_are_forgotten() {
    let mut judgement = Judgement::default();
    let forecasts = |last_value| BucketForecasts { last_value, seasonal_naive: 0.0, holt_winters: 1.0 };
    for (number, error) in [(100, 9.0), (2000, 1.0)] {
        for _ in 0..number {
            judgement.judge(forecasts(error), 0.0, 288);
        }
    }
    assert_eq!(judgement.errors.horizons, 288);
    assert!((judgement.errors.last_value - 1.0).abs() < 0.1, "{:?}", judgement.errors);
}

/// An odd day is a part of what is usual, not all of it.
#[test]
fn usual_is_a_mean_over_seasons() {
    let mut season = StoredSeason::new(4);
    for (number, demand) in (0..).zip([10.0, 10.0, 10.0, 20.0]) {
        season.close(4 * number, Some(demand));
    }
    assert_eq!(season.latest(16), Some(stored(20.0)));
    assert!(season.usual(16).is_some_and(|usual| (usual - 13.0).abs() < 0.01), "{:?}", season.usual(16));
    // Without a value, what was usual stays.
    season.close(16, None);
    assert_eq!(season.latest(20), None);
    assert!(season.usual(20).is_some_and(|usual| (usual - 13.0).abs() < 0.01), "{:?}", season.usual(20));
    assert_eq!(season.usual(17), None);
}

#[test]
fn a_bucket_counts_with_its_upper_quartile() {
    let quartile = |samples: &[f64]| {
        let mut bucket = BucketSamples::default();
        samples.iter().for_each(|sample| bucket.add(*sample));
        bucket.quartile()
    };
    assert_eq!(quartile(&[]), None);
    assert_eq!(quartile(&[3.0]), Some(3.0));
    assert_eq!(quartile(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some(4.0));
    // One outlier of 20 samples does not count.
    let mut samples = [7.0; 20];
    samples[11] = 1e6;
    assert_eq!(quartile(&samples), Some(7.0));
    // The samples of an hour, one each second.
    let hour: Vec<f64> = (0..3600).map(f64::from).collect();
    assert!(quartile(&hour).is_some_and(|quartile| (quartile - 2700.0).abs() < 80.0), "{:?}", quartile(&hour));
}
