//! Bad rules, and the buckets that follow from good ones.

use jiff::SignedDuration;
use rstest::rstest;

use super::bench::{DAY, HOUR, MINUTE, rules};
use crate::forecast::ForecastRules;
use crate::forecast::rules::ForecastGrid;

#[rstest]
#[case::day(10 * MINUTE, DAY, 300, 288, 2)]
#[case::day_by_five(5 * MINUTE, DAY, 300, 288, 1)]
#[case::day_by_the_hour(HOUR, DAY, 300, 288, 12)]
#[case::day_by_the_quarter(15 * MINUTE, DAY, 300, 288, 3)]
#[case::day_by_sixteen(16 * MINUTE, DAY, 320, 270, 3)]
#[case::week(HOUR, 7 * DAY, 3600, 168, 1)]
#[case::hour(MINUTE, HOUR, 60, 60, 1)]
#[case::hour_by_five(5 * MINUTE, HOUR, 60, 60, 5)]
#[case::shortest(MINUTE, 12 * MINUTE, 60, 12, 1)]
#[case::longest(HOUR, 288 * HOUR, 3600, 288, 1)]
fn buckets(#[case] ahead: i64, #[case] season: i64, #[case] width: i64, #[case] count: i64, #[case] horizon: i64) {
    let rules = rules(ahead, season);
    assert_eq!(rules.grid(), Ok(ForecastGrid { width, count, horizon }));
    assert_eq!(rules.check(), Ok(()));
    assert_eq!(rules.bucket(), Ok(SignedDuration::from_secs(width)));
}

#[rstest]
#[case(0, DAY, "ahead is 0s: use whole seconds from 1m to 1h")]
#[case(-600, DAY, "ahead is 0s: use whole seconds from 1m to 1h")]
#[case(59, DAY, "ahead is 59s: use whole seconds from 1m to 1h")]
#[case(3601, DAY, "ahead is 1h: use whole seconds from 1m to 1h")]
#[case(MINUTE, DAY, "season is 24h, with ahead 1m: use a season of 12m to 4h48m")]
#[case(HOUR, 11 * HOUR, "season is 11h, with ahead 1h: use a season of 12h to 288h")]
#[case(HOUR, -DAY, "season is 0s, with ahead 1h: use a season of 12h to 288h")]
#[case(HOUR, i64::MAX, "with ahead 1h: use a season of 12h to 288h")]
#[case(7 * MINUTE, DAY, "season is 24h, no multiple of ahead: instead of ahead 7m, use 8m")]
#[case(50 * MINUTE, DAY, "season is 24h, no multiple of ahead: instead of ahead 50m, use 1h")]
#[case(HOUR, DAY + 1, "instead of ahead 1h, use a time of which the season is a multiple")]
fn bad_rules_are_refused(#[case] ahead: i64, #[case] season: i64, #[case] expected: &str) {
    let problem = rules(ahead, season).check().unwrap_err().to_string();
    assert!(problem.ends_with(expected), "{problem}");
}

#[test]
fn fractions_of_a_second_are_refused() {
    let half = SignedDuration::from_millis(500);
    let daily = rules(10 * MINUTE, DAY);
    assert!(ForecastRules { ahead: daily.ahead + half, ..daily }.check().is_err());
    assert!(ForecastRules { season: daily.season + half, ..daily }.check().is_err());
}
