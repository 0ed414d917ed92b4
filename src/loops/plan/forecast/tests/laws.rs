//! Laws of forecasts.

use proptest::prelude::*;

use super::bench::{FollowedLoad, MINUTE, SHORT, at};
use super::stored::{recorded, records};
use crate::forecast::{ForecastMemory, ForecastModel, ForecastTrust, with_forecast};

fn some_trust() -> impl Strategy<Value = ForecastTrust> {
    prop_oneof![
        Just(ForecastTrust::Trusted(ForecastModel::SeasonalNaive)),
        Just(ForecastTrust::Trusted(ForecastModel::HoltWinters)),
        (0..288_u32).prop_map(|horizons| ForecastTrust::Learning { horizons, needed: 288 }),
        Just(ForecastTrust::NotBetter),
        Just(ForecastTrust::NoRecentValues),
    ]
}

/// Load of one season of [`SHORT`], a value for each minute, that is far from constant.
fn season() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..50.0_f64, 12).prop_filter("constant", |season| {
        let changes: f64 =
            season.iter().zip(season.iter().cycle().skip(2)).map(|(one, other)| (one - other).abs()).sum();
        changes > 40.0
    })
}

proptest! {
    #[test]
    fn a_forecast_never_lowers(
        reactive in 0..i32::MAX, proposal in prop::option::of(0..i32::MAX), trust in some_trust(),
    ) {
        let result = with_forecast(reactive, proposal, trust);
        prop_assert!(result >= reactive);
        prop_assert!(result == reactive || matches!(trust, ForecastTrust::Trusted(_)) && Some(result) == proposal);
    }

    /// Forecasts are numbers, and a trusted one has a smaller error than the last value.
    #[test]
    fn trust_is_earned(records in records()) {
        let (memory, second) = recorded(&records);
        let outcome = memory.forecast(at(second));
        prop_assert!(outcome.demand.is_none_or(|demand| demand.is_finite() && demand >= 0.0));
        prop_assert!(outcome.errors.horizons <= 12);
        if let ForecastTrust::Trusted(model) = outcome.trust {
            prop_assert_eq!(model, outcome.model);
            prop_assert!(outcome.errors.error(model) < 0.9 * outcome.errors.last_value);
            prop_assert_eq!(outcome.errors.horizons, 12);
        }
    }

    /// A load that repeats itself exactly is trusted after two seasons, and forecast as it is.
    #[test]
    fn an_exact_season_is_forecast(season in season(), minutes in 30..60_i64) {
        let load = |second: i64| season[usize::try_from(second / MINUTE % 12).unwrap()];
        let mut this = FollowedLoad::new(&SHORT);
        this.follow(minutes * MINUTE, |second| Some(load(second)));
        let outcome = this.forecast();
        prop_assert!(this.is_trusted(), "{}", outcome);
        let last = this.second - MINUTE;
        let expected = load(last).max(load(last + MINUTE));
        let demand = outcome.demand.unwrap();
        prop_assert!((demand - expected).abs() < 0.01 * expected, "{} {}", demand, expected);
    }

    /// The unit does not matter: a load 16 times as large has a forecast 16 times as large, and the same trust. (The
    /// stored form rounds both alike.)
    #[test]
    fn a_forecast_scales_with_the_load(loads in prop::collection::vec(1.0..50.0_f64, 60)) {
        let followed = |factor: f64| {
            let mut this = FollowedLoad::new(&SHORT);
            this.follow(60 * MINUTE, |second| Some(factor * loads[usize::try_from(second / MINUTE).unwrap()]));
            this.forecast()
        };
        let (small, large) = (followed(1.0), followed(16.0));
        prop_assert_eq!(small.trust, large.trust);
        let (small, large) = (small.demand.unwrap(), large.demand.unwrap());
        prop_assert!((small * 16.0 - large).abs() < 1e-6 * large.max(1.0), "{} {}", small, large);
    }

    /// A time later by whole seasons has the same forecast.
    #[test]
    fn only_the_time_of_the_season_counts(records in records(), seasons in 1..1000_i64) {
        let (memory, second) = recorded(&records);
        let mut later = ForecastMemory::new(&SHORT, at(seasons * 12 * MINUTE)).unwrap();
        let mut now = seasons * 12 * MINUTE;
        for (pause, value) in &records {
            now += pause;
            later.record(*value, at(now));
        }
        let (one, other) = (memory.forecast(at(second)), later.forecast(at(now)));
        prop_assert_eq!((one.demand, one.trust, one.errors), (other.demand, other.trust, other.errors));
    }
}
