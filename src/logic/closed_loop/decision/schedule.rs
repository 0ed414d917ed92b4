//! Time windows: when one begins, by cron fields in a time zone, and how long it lasts.
//!
//! This is the only file that uses chrono, which the cron library requires; all other code uses jiff, as k8s-openapi does. The time zones are compiled in, so that the result does not depend on the machine. Has no clock.

use chrono::{DateTime, Datelike, NaiveDate};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Weekday};
use jiff::{SignedDuration, Timestamp};

use crate::api::closed_loop::policy::Window;
use crate::logic::closed_loop::common::{FieldError, duration, later};

/// A parsed window.
#[derive(Clone, Debug)]
pub struct Calendar {
    cron: Cron,
    zone: Tz,
    duration: SignedDuration,
}

/// One time at which a window is open. The begin belongs to it, the end does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub begin: Timestamp,
    pub end: Timestamp,
}

impl Calendar {
    /// Parses a window.
    ///
    /// # Errors
    ///
    /// The fields, the zone or the duration cannot be parsed, or there is no such day within five years.
    pub fn parse(field: &str, window: &Window) -> Result<Self, FieldError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&window.cron).map_err(|error| {
            FieldError::new(
                format!("{field}.cron"),
                format!("{:?} is not a cron pattern of five fields such as 0 8 * * MON-FRI: {error}", window.cron),
            )
        })?;
        if !occurs(&cron) {
            let problem = format!("{:?} names a day that does not come within five years", window.cron);
            return Err(FieldError::new(format!("{field}.cron"), problem));
        }
        let zone = match &window.time_zone {
            None => Tz::UTC,
            Some(name) => zone(name).ok_or_else(|| {
                FieldError::new(
                    format!("{field}.timeZone"),
                    format!("{name:?} is not a time zone: write an IANA name such as Europe/Berlin"),
                )
            })?,
        };
        let duration = duration(&format!("{field}.duration"), Some(&window.duration))?;
        if duration.is_zero() {
            return Err(FieldError::new(format!("{field}.duration"), "the duration of a window must be above 0"));
        }
        Ok(Self { cron, zone, duration })
    }

    /// The last occurrence that has begun, whether or not it has ended.
    #[must_use]
    pub fn last_occurrence(&self, now: Timestamp) -> Option<Occurrence> {
        let now = DateTime::from_timestamp_micros(now.as_microsecond())?.with_timezone(&self.zone);
        let begin = self.cron.find_previous_occurrence(&now, true).ok()?;
        let begin = Timestamp::from_second(begin.timestamp()).ok()?;
        Some(Occurrence { begin, end: later(begin, self.duration) })
    }

    /// Whether the window is open.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        // Occurrences all have the same duration: if an earlier one is open, so is the last one.
        self.last_occurrence(now).is_some_and(|last| now < last.end)
    }
}

/// Whether the days of a pattern exist. The search of the cron library for a day that never comes, such as the 30th of
/// February, goes back to the year 1, in each evaluation. The five years are fixed ones with two leap days, so that the
/// result depends on nothing but the pattern: a valid spec stays valid.
fn occurs(cron: &Cron) -> bool {
    let Some(first) = NaiveDate::from_ymd_opt(2024, 1, 1) else { return false };
    first.iter_days().take_while(|day| day.year() < 2029).any(|day| {
        let weekday = Weekday::from_days_from_sunday(day.weekday().num_days_from_sunday());
        cron.pattern.month_match(day.month()).unwrap_or(false)
            && cron.pattern.day_match(day.year(), day.month(), day.day(), weekday).unwrap_or(false)
    })
}

/// The time zone with this name, in upper or lower case.
fn zone(name: &str) -> Option<Tz> {
    let exact = name.parse().ok();
    exact.or_else(|| chrono_tz::TZ_VARIANTS.into_iter().find(|zone| zone.name().eq_ignore_ascii_case(name)))
}

/// Parses several windows.
///
/// # Errors
///
/// One of them cannot be parsed.
pub fn parse(field: &str, windows: Option<&Vec<Window>>) -> Result<Vec<Calendar>, FieldError> {
    let windows = windows.into_iter().flatten().enumerate();
    windows.map(|(index, window)| Calendar::parse(&format!("{field}[{index}]"), window)).collect()
}

/// Whether one of the windows is open. No windows at all mean always.
#[must_use]
pub fn any_open(windows: &[Calendar], now: Timestamp) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.is_open(now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn window(cron: &str, zone: Option<&str>, lasts: &str) -> Window {
        Window { cron: cron.into(), time_zone: zone.map(Into::into), duration: lasts.into() }
    }

    #[rstest]
    #[case("2026-11-23T06:59:59Z", false)] // a Monday, 7:59:59 in Berlin
    #[case("2026-11-23T06:59:59.999999999Z", false)]
    #[case("2026-11-23T07:00:00Z", true)]
    #[case("2026-11-23T07:00:00.000000001Z", true)]
    #[case("2026-11-23T16:59:59Z", true)]
    #[case("2026-11-23T17:00:00Z", false)]
    #[case("2026-11-22T12:00:00Z", false)] // a Sunday
    #[case("2026-07-20T06:00:00Z", true)] // in summer eight o'clock is earlier
    #[case("2026-07-20T05:59:59Z", false)]
    fn a_window_is_open_in_its_own_zone(#[case] now: &str, #[case] expected: bool) {
        for zone in ["Europe/Berlin", "europe/berlin"] {
            let calendar = Calendar::parse("w", &window("0 8 * * MON-FRI", Some(zone), "10h")).unwrap();
            assert_eq!(calendar.is_open(now.parse().unwrap()), expected);
        }
    }

    #[rstest]
    #[case(None, "2026-11-23T08:00:00Z")]
    #[case(Some("Asia/Kolkata"), "2026-11-23T02:30:00Z")]
    #[case(Some("America/St_Johns"), "2026-11-23T11:30:00Z")]
    #[case(Some("Pacific/Kiritimati"), "2026-11-22T18:00:00Z")]
    fn a_zone_moves_the_begin(#[case] zone: Option<&str>, #[case] begin: &str) {
        let begin: Timestamp = begin.parse().unwrap();
        let calendar = Calendar::parse("w", &window("0 8 * * *", zone, "90m")).unwrap();
        let expected = Occurrence { begin, end: later(begin, SignedDuration::from_mins(90)) };
        assert_eq!(calendar.last_occurrence(later(begin, SignedDuration::from_hours(23))), Some(expected));
        assert!(!calendar.is_open(later(begin, SignedDuration::from_secs(-1))) && calendar.is_open(begin));
    }

    // In Berlin the clocks go from 2 to 3 on 2026-03-29 and from 3 to 2 on 2026-10-25; on Lord Howe by half an hour,
    // from 2:00 to 2:30 on 2026-10-04 and from 2:00 to 1:30 on 2026-04-05.
    #[rstest]
    // The begin does not exist: the window opens after the gap.
    #[case("30 2 * * *", "Europe/Berlin", "2026-03-29T03:00:00Z", "2026-03-29T01:00:00Z")]
    #[case("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T20:00:00Z", "2026-10-03T15:30:00Z")]
    // The begin comes twice: a fixed time counts once, the first time, and what comes every hour both times.
    #[case("30 2 * * *", "Europe/Berlin", "2026-10-25T01:45:00Z", "2026-10-25T00:30:00Z")]
    #[case("30 * * * *", "Europe/Berlin", "2026-10-25T01:45:00Z", "2026-10-25T01:30:00Z")]
    #[case("30 * * * *", "Europe/Berlin", "2026-10-25T01:29:59Z", "2026-10-25T00:30:00Z")]
    #[case("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T15:20:00Z", "2026-04-04T14:45:00Z")]
    // The day after, all is as ever.
    #[case("30 2 * * *", "Europe/Berlin", "2026-03-30T00:30:00Z", "2026-03-30T00:30:00Z")]
    #[case("30 2 * * *", "Europe/Berlin", "2026-10-26T01:30:00Z", "2026-10-26T01:30:00Z")]
    fn a_window_begins_once_when_the_clocks_change(
        #[case] cron: &str,
        #[case] zone: &str,
        #[case] now: &str,
        #[case] begin: &str,
    ) {
        let calendar = Calendar::parse("w", &window(cron, Some(zone), "1h")).unwrap();
        let last = calendar.last_occurrence(now.parse().unwrap()).unwrap();
        assert_eq!(last.begin, begin.parse().unwrap());
    }

    #[test]
    fn a_window_across_a_change_of_the_clocks_lasts_as_long_as_ever() {
        let calendar = Calendar::parse("w", &window("0 1 * * *", Some("Europe/Berlin"), "3h")).unwrap();
        for (begin, end) in
            [("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"), ("2026-10-24T23:00:00Z", "2026-10-25T02:00:00Z")]
        {
            let (begin, end): (Timestamp, Timestamp) = (begin.parse().unwrap(), end.parse().unwrap());
            assert_eq!(calendar.last_occurrence(end), Some(Occurrence { begin, end }));
            assert!(calendar.is_open(later(end, SignedDuration::from_secs(-1))) && !calendar.is_open(end));
        }
    }

    #[test]
    fn windows_that_overlap_are_open_throughout() {
        let calendar = Calendar::parse("w", &window("0 * * * *", None, "90m")).unwrap();
        assert!((0..200).all(|minute| calendar.is_open(Timestamp::from_second(1_795_000_000 + minute * 60).unwrap())));
        assert!(
            any_open(&[], Timestamp::UNIX_EPOCH)
                && !any_open(&parse("w", Some(&vec![window("0 8 * * *", None, "1h")])).unwrap(), Timestamp::UNIX_EPOCH)
        );
    }

    #[rstest]
    #[case("0 0 30 2 *")]
    #[case("0 0 31 4,6,9,11 *")]
    #[case("* * 31 FEB *")]
    #[case("0 0 30 2 +MON")]
    fn a_day_that_never_comes_is_refused(#[case] cron: &str) {
        let error = Calendar::parse("w", &window(cron, None, "1h")).unwrap_err();
        assert_eq!(error.to_string(), format!("w.cron: {cron:?} names a day that does not come within five years"));
    }

    #[rstest]
    #[case("0 0 29 2 *", "2024-02-29T00:00:00Z")]
    #[case("0 0 31 * *", "2026-10-31T00:00:00Z")]
    #[case("0 0 30 2 MON", "2026-02-23T00:00:00Z")] // that day of the month or that weekday
    #[case("0 0 L 2 *", "2026-02-28T00:00:00Z")]
    #[case("0 0 * * FRI#5", "2026-10-30T00:00:00Z")]
    fn a_rare_day_is_accepted(#[case] cron: &str, #[case] begin: &str) {
        let calendar = Calendar::parse("w", &window(cron, None, "1h")).unwrap();
        let last = calendar.last_occurrence("2026-11-21T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(last.begin, begin.parse().unwrap());
    }

    #[rstest]
    #[case("0 8 * *", None, "1h", "w.cron")]
    #[case("0 0 8 * * *", None, "1h", "w.cron")]
    #[case("99 8 * * *", None, "1h", "w.cron")]
    #[case("0 8 * * *", Some("Mars/Olympus"), "1h", "w.timeZone")]
    #[case("0 8 * * *", Some(""), "1h", "w.timeZone")]
    #[case("0 8 * * *", None, "1", "w.duration")]
    #[case("0 8 * * *", None, "0s", "w.duration")]
    fn an_error_names_the_field(
        #[case] cron: &str,
        #[case] zone: Option<&str>,
        #[case] lasts: &str,
        #[case] field: &str,
    ) {
        assert_eq!(Calendar::parse("w", &window(cron, zone, lasts)).unwrap_err().field, field);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn never_panics(cron in ".{0,40}", near in "([0-9*,/LW#?-]{1,4} ){4}[0-9*,/LW#?-]{1,4}", second in 0_i64..4_000_000_000) {
            for cron in [cron, near] {
                if let Ok(calendar) = Calendar::parse("w", &window(&cron, Some("Europe/Berlin"), "1h")) {
                    let _ = calendar.is_open(Timestamp::from_second(second).unwrap());
                }
            }
        }

        #[test]
        fn the_last_occurrence_is_the_last(
            minute in prop_oneof![Just("0"), Just("30"), Just("*/7"), Just("*")],
            hour in prop_oneof![Just("0"), Just("2"), Just("8-17"), Just("*/6")],
            day in prop_oneof![Just("* * *"), Just("1 * *"), Just("29 2 *"), Just("* * SUN"), Just("L * *")],
            zone in proptest::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
            second in 1_700_000_000_i64..2_100_000_000,
        ) {
            let calendar = Calendar::parse("w", &window(&format!("{minute} {hour} {day}"), Some(zone), "1h")).unwrap();
            let now = Timestamp::from_second(second).unwrap();
            let last = calendar.last_occurrence(now).unwrap();
            prop_assert!(last.begin <= now);
            let begin = DateTime::from_timestamp(last.begin.as_second(), 0).unwrap().with_timezone(&calendar.zone);
            let next = calendar.cron.find_next_occurrence(&begin, false).unwrap();
            prop_assert!(next.timestamp() > second, "{} comes after {} and before {}", next, begin, now);
        }
    }
}
