//! Gaps in the data, and steps of the clock.

use super::bench::{DAILY, DAY, FollowedLoad, HOUR, MINUTE, at, office, offices};
use crate::forecast::{ForecastMemory, ForecastTrust};

fn load(second: i64) -> Option<f64> {
    Some(office(second))
}

#[test]
fn unknown_values_are_gaps_and_not_zeros() {
    let mut this = offices(4);
    let noon = 4 * DAY + 12 * HOUR;
    this.follow(noon, load);
    let before = this.forecast().demand.unwrap();
    this.follow(noon + HOUR, |_| None);
    assert_eq!(this.trust(), ForecastTrust::NoRecentValues);
    this.follow(noon + HOUR + 6 * MINUTE, load);
    let outcome = this.forecast();
    assert!(this.is_trusted(), "{outcome}");
    assert!((outcome.demand.unwrap() - before).abs() < 3.0, "{outcome}");
    // On the next day, neither model expects a load of 0 at that time.
    this.follow(5 * DAY + 12 * HOUR + 30 * MINUTE, load);
    assert!(this.is_trusted() && this.forecast().demand.unwrap() > 36.0, "{}", this.forecast());
    assert!(this.memory.judgement.errors.seasonal_naive < 3.0, "{:?}", this.memory.judgement);
}

#[test]
fn numbers_that_are_none_are_gaps() {
    let mut this = offices(3);
    this.memory.record(None, at(this.second));
    let before = this.memory.judgement;
    for (minute, value) in (0..).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0]) {
        this.memory.record(Some(value), at(this.second + minute * MINUTE));
    }
    assert_eq!(this.memory.judgement, before);
    assert_eq!(this.memory.samples.quartile(), None);
}

/// A gap shorter than `ahead` changes nothing.
#[test]
fn a_short_gap_keeps_the_forecast() {
    let mut this = offices(4);
    this.follow(4 * DAY + 12 * HOUR, load);
    this.follow(4 * DAY + 12 * HOUR + 10 * MINUTE, |_| None);
    assert!(this.is_trusted(), "{}", this.forecast());
}

#[test]
fn a_long_gap_resets_trust() {
    for (hours, is_reset) in [(5, false), (7, true)] {
        let mut this = offices(4);
        this.second += hours * HOUR;
        this.follow(4 * DAY + hours * HOUR + 20 * MINUTE, load);
        assert_eq!(!this.is_trusted(), is_reset, "{hours} h: {}", this.forecast());
        // Usual loads are not forgotten: a season has to be judged again, not to be learned again.
        this.follow(6 * DAY + 8 * HOUR, load);
        assert!(this.is_trusted(), "{}", this.forecast());
    }
}

#[test]
fn a_clock_that_steps_back_a_little_changes_nothing() {
    let (mut this, mut other) = (offices(3), offices(3));
    for second in [0, MINUTE, -9 * MINUTE, -5 * MINUTE, 0, 5 * MINUTE] {
        this.memory.record(load(3 * DAY + second), at(3 * DAY + second));
    }
    for second in [0, MINUTE, 5 * MINUTE] {
        other.memory.record(load(3 * DAY + second), at(3 * DAY + second));
    }
    assert_eq!(this.memory.judgement.trusted, other.memory.judgement.trusted);
    assert_eq!(this.memory.open, other.memory.open);
    assert!(this.is_trusted());
}

#[test]
fn a_clock_that_steps_back_far_resets_trust() {
    let mut this = offices(4);
    this.second -= 3 * HOUR;
    this.follow(4 * DAY, load);
    assert!(matches!(this.trust(), ForecastTrust::Learning { horizons, .. } if horizons < 40), "{}", this.forecast());
    this.follow(6 * DAY, load);
    assert!(this.is_trusted(), "{}", this.forecast());
}

#[test]
fn a_clock_that_was_ahead_for_some_hours_ends_well() {
    let mut this = offices(4);
    this.second += 3 * HOUR;
    this.follow(4 * DAY + 5 * HOUR, |second| load(second - 3 * HOUR));
    this.second -= 3 * HOUR;
    this.follow(7 * DAY, load);
    assert!(this.is_trusted(), "{}", this.forecast());
}

/// Each call takes a bounded time, whatever the step is.
#[test]
fn steps_of_centuries() {
    let mut this = offices(2);
    let (first, last) = ("0001-01-01T00:00:00Z".parse().unwrap(), "9999-12-30T22:00:00Z".parse().unwrap());
    for _ in 0..50 {
        for time in [last, first, at(0)] {
            this.memory.record(Some(5.0), time);
            assert_ne!(this.memory.forecast(time).demand, Some(f64::INFINITY));
        }
    }
    assert!(!matches!(this.memory.forecast(at(0)).trust, ForecastTrust::Trusted(_)));
    let mut this = FollowedLoad { second: 0, ..this };
    this.follow(3 * DAY, load);
    assert!(this.is_trusted(), "{}", this.forecast());
}

/// Long after the last value, a forecast is not used.
#[test]
fn a_forecast_without_a_current_value_is_not_used() {
    let this = offices(4);
    assert_eq!(this.memory.forecast(at(4 * DAY + HOUR)).trust, ForecastTrust::NoRecentValues);
    let never = ForecastMemory::new(&DAILY, at(0)).unwrap();
    assert_eq!(never.forecast(at(0)).demand, None);
}
