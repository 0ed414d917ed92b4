//! Time windows: cron fields in a time zone define when a window begins, a duration how long it lasts.
//!
//! This is the only file that uses chrono, which the cron library requires; all other code uses jiff, as k8s-openapi
//! does. Time zones are compiled in, so that the result does not depend on the machine. Does not read the clock.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Datelike, Days, NaiveDate, TimeZone};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Weekday};
use jiff::{SignedDuration, Timestamp};

use crate::common::{FieldError, duration, later};
use ganglion_api::closed_loop::policy::Window;
use ganglion_core::words::quoted;

/// Maximum time between two begins of a window, in days: five years.
const LONGEST_PAUSE: u64 = 5 * 366;

/// A parsed window.
#[derive(Clone, Debug)]
pub struct Calendar {
    cron: Cron,
    zone: Tz,
    duration: SignedDuration,
    /// Last computed phase. A search in the calendar costs far more than the rest of a reconcile.
    last: Arc<Mutex<Option<Phase>>>,
}

/// Period during which the window stays open, or stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    pub open: bool,
    pub begin: Timestamp,
    /// Exclusive end.
    pub end: Timestamp,
}

impl Calendar {
    /// Parses a window. Fails if the window does not open within five years.
    pub fn parse(field: &str, window: &Window) -> Result<Self, FieldError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&window.cron).map_err(|error| {
            FieldError::new(
                format!("{field}.cron"),
                format!(
                    "{} is not a cron pattern of five fields such as 0 8 * * MON-FRI: {error}",
                    quoted(&window.cron)
                ),
            )
        })?;
        let zone = match &window.time_zone {
            None => Tz::UTC,
            Some(name) => zone(name).ok_or_else(|| {
                FieldError::new(
                    format!("{field}.timeZone"),
                    format!("{} is not a time zone: write an IANA name such as Europe/Berlin", quoted(name)),
                )
            })?,
        };
        if !has_day_in_time(&cron) || !has_time(&cron, zone) {
            let problem = format!("{} names a time that does not come within five years", quoted(&window.cron));
            return Err(FieldError::new(format!("{field}.cron"), problem));
        }
        let duration = duration(&format!("{field}.duration"), Some(&window.duration))?;
        if duration.is_zero() {
            return Err(FieldError::new(format!("{field}.duration"), "the duration of a window must be above 0"));
        }
        Ok(Self { cron, zone, duration, last: Arc::default() })
    }

    /// The phase at this time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some(phase) if phase.begin <= now && now < phase.end => phase,
            Some(_) | None => *last.insert(self.find_phase(now)),
        }
    }

    fn find_phase(&self, now: Timestamp) -> Phase {
        let last_end = self.last_begin(now).map(|begin| (begin, later(begin, self.duration)));
        match last_end {
            // Occurrences all have the same duration: if an earlier one is open, so is the last one.
            Some((begin, end)) if now < end => Phase { open: true, begin, end },
            _ => Phase {
                open: false,
                begin: last_end.map_or(now, |(_, end)| end),
                end: self.next_begin(now).unwrap_or(Timestamp::MAX),
            },
        }
    }

    /// Returns the last begin at or before this time.
    fn last_begin(&self, now: Timestamp) -> Option<Timestamp> {
        instant(&self.cron.find_previous_occurrence(&self.civil(now)?, true).ok()?)
    }

    /// Returns the next begin after this time.
    fn next_begin(&self, now: Timestamp) -> Option<Timestamp> {
        instant(&self.cron.find_next_occurrence(&self.civil(now)?, false).ok()?)
    }

    fn civil(&self, time: Timestamp) -> Option<DateTime<Tz>> {
        Some(DateTime::from_timestamp_micros(time.as_microsecond())?.with_timezone(&self.zone))
    }
}

fn instant(time: &DateTime<Tz>) -> Option<Timestamp> {
    Timestamp::from_second(time.timestamp()).ok()
}

/// Whether each day of a pattern comes within five years of the previous one. If a pattern has no day, such as the 30th
/// of February, the cron library searches day by day up to the year 1 or 5000, so it is called only after this check.
/// The calendar repeats after the 28 years that are checked: the result depends only on the pattern, and a valid spec
/// stays valid.
fn has_day_in_time(cron: &Cron) -> bool {
    let is_day = |day: &NaiveDate| {
        let weekday = Weekday::from_days_from_sunday(day.weekday().num_days_from_sunday());
        cron.pattern.month_match(day.month()).unwrap_or(false)
            && cron.pattern.day_match(day.year(), day.month(), day.day(), weekday).unwrap_or(false)
    };
    let mut last = NaiveDate::from_ymd_opt(2024, 1, 1).unwrap_or_default();
    while last.year() < 2052 {
        // Takes the latest day in range, so that a pattern with many days needs few steps.
        let mut days = (1..=LONGEST_PAUSE).rev().filter_map(|days| last.checked_add_days(Days::new(days)));
        let Some(next) = days.find(is_day) else { return false };
        last = next;
    }
    true
}

/// Whether a pattern has a time of day that exists: a clock change may skip the only one.
fn has_time(cron: &Cron, zone: Tz) -> bool {
    let Some(first) = zone.with_ymd_and_hms(2024, 1, 1, 0, 0, 0).earliest() else { return false };
    let next = cron.find_next_occurrence(&first, true);
    next.is_ok_and(|next| next.signed_duration_since(first).num_days().unsigned_abs() <= LONGEST_PAUSE)
}

/// The time zone with this name, in upper or lower case.
fn zone(name: &str) -> Option<Tz> {
    let exact = name.parse().ok();
    exact.or_else(|| chrono_tz::TZ_VARIANTS.into_iter().find(|zone| zone.name().eq_ignore_ascii_case(name)))
}

/// Parses several windows.
pub fn parse(field: &str, windows: Option<&Vec<Window>>) -> Result<Vec<Calendar>, FieldError> {
    let windows = windows.into_iter().flatten().enumerate();
    windows.map(|(index, window)| Calendar::parse(&format!("{field}[{index}]"), window)).collect()
}

/// Returns the phase of several windows together, which are open while at least one of them is. Without windows, the
/// phase is always open.
pub fn phase(windows: &[Calendar], now: Timestamp) -> Phase {
    let always = Phase { open: true, begin: Timestamp::MIN, end: Timestamp::MAX };
    let phases = || windows.iter().map(|window| window.phase(now));
    let open = phases().filter(|phase| phase.open).max_by_key(|phase| phase.end);
    open.or_else(|| phases().min_by_key(|phase| phase.end)).unwrap_or(always)
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
    #[case("2026-07-20T06:00:00Z", true)] // in summer, 8:00 in Berlin is 6:00 UTC
    #[case("2026-07-20T05:59:59Z", false)]
    fn a_window_is_open_in_its_own_zone(#[case] now: &str, #[case] expected: bool) {
        for zone in ["Europe/Berlin", "europe/berlin"] {
            let calendar = Calendar::parse("w", &window("0 8 * * MON-FRI", Some(zone), "10h")).unwrap();
            assert_eq!(calendar.phase(now.parse().unwrap()).open, expected);
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
        let end = later(begin, SignedDuration::from_mins(90));
        assert_eq!(calendar.phase(begin), Phase { open: true, begin, end });
        let next = later(begin, SignedDuration::from_hours(24));
        assert_eq!(calendar.phase(end), Phase { open: false, begin: end, end: next });
        assert!(!calendar.phase(later(begin, SignedDuration::from_secs(-1))).open);
    }

    // In Berlin the clocks go from 2 to 3 on 2026-03-29 and from 3 to 2 on 2026-10-25; on Lord Howe by half an hour,
    // from 2:00 to 2:30 on 2026-10-04 and from 2:00 to 1:30 on 2026-04-05.
    #[rstest]
    // The begin does not exist: the window opens after the gap.
    #[case("30 2 * * *", "Europe/Berlin", "2026-03-29T03:00:00Z", "2026-03-29T01:00:00Z")]
    #[case("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T20:00:00Z", "2026-10-03T15:30:00Z")]
    // The begin occurs twice: a fixed time counts only the first time, an hourly pattern both times.
    #[case("30 2 * * *", "Europe/Berlin", "2026-10-25T01:45:00Z", "2026-10-25T00:30:00Z")]
    #[case("30 * * * *", "Europe/Berlin", "2026-10-25T01:45:00Z", "2026-10-25T01:30:00Z")]
    #[case("30 * * * *", "Europe/Berlin", "2026-10-25T01:29:59Z", "2026-10-25T00:30:00Z")]
    #[case("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T15:20:00Z", "2026-04-04T14:45:00Z")]
    // The next day is a normal day.
    #[case("30 2 * * *", "Europe/Berlin", "2026-03-30T00:30:00Z", "2026-03-30T00:30:00Z")]
    #[case("30 2 * * *", "Europe/Berlin", "2026-10-26T01:30:00Z", "2026-10-26T01:30:00Z")]
    fn a_window_begins_once_when_the_clocks_change(
        #[case] cron: &str,
        #[case] zone: &str,
        #[case] now: &str,
        #[case] begin: &str,
    ) {
        let calendar = Calendar::parse("w", &window(cron, Some(zone), "1h")).unwrap();
        assert_eq!(calendar.last_begin(now.parse().unwrap()), Some(begin.parse().unwrap()));
    }

    #[test]
    fn a_window_across_a_change_of_the_clocks_lasts_as_long_as_ever() {
        let calendar = Calendar::parse("w", &window("0 1 * * *", Some("Europe/Berlin"), "3h")).unwrap();
        for (begin, end) in
            [("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"), ("2026-10-24T23:00:00Z", "2026-10-25T02:00:00Z")]
        {
            let (begin, end): (Timestamp, Timestamp) = (begin.parse().unwrap(), end.parse().unwrap());
            assert_eq!(calendar.phase(begin), Phase { open: true, begin, end });
            assert!(calendar.phase(later(end, SignedDuration::from_secs(-1))).open && !calendar.phase(end).open);
        }
    }

    #[test]
    fn windows_that_overlap_are_open_throughout() {
        let calendar = Calendar::parse("w", &window("0 * * * *", None, "90m")).unwrap();
        assert!(
            (0..200).all(|minute| calendar.phase(Timestamp::from_second(1_795_000_000 + minute * 60).unwrap()).open)
        );
    }

    #[test]
    fn one_search_serves_a_whole_phase() {
        let calendar = Calendar::parse("w", &window("0 8 * * *", None, "1h")).unwrap();
        let planted =
            Phase { open: true, begin: Timestamp::from_second(0).unwrap(), end: Timestamp::from_second(9).unwrap() };
        *calendar.last.lock().unwrap() = Some(planted);
        for (second, open) in [(0, true), (8, true), (9, false), (8, false), (-1, false)] {
            assert_eq!(calendar.phase(Timestamp::from_second(second).unwrap()).open, open, "{second}");
        }
    }

    #[test]
    fn of_several_windows_one_is_enough() {
        let windows = |crons: &[&str]| -> Vec<Calendar> {
            crons.iter().map(|cron| Calendar::parse("w", &window(cron, None, "1h")).unwrap()).collect()
        };
        let at = |text: &str| -> Timestamp { format!("2026-11-23T{text}:00Z").parse().unwrap() };
        let end = |crons: &[&str], now: &str| {
            let phase = phase(&windows(crons), at(now));
            (phase.open, phase.end)
        };
        assert_eq!(end(&[], "08:00"), (true, Timestamp::MAX));
        assert_eq!(end(&["0 8 * * *", "0 9 * * *"], "07:00"), (false, at("08:00")));
        assert_eq!(end(&["0 8 * * *", "30 8 * * *", "0 7 * * *"], "08:40"), (true, at("09:30")));
    }

    #[rstest]
    #[case("0 0 30 2 *")]
    #[case("0 0 31 4,6,9,11 *")]
    #[case("0 0 31 2,4,6,9,11 *")]
    #[case("* * 31 FEB *")]
    #[case("0 0 30 2 +MON")]
    #[case("0 0 31 2,4,6,9,11 *")]
    #[case("0 0 29 2 +THU")] // in 2024 and 2052 only
    #[case("*/30 2 * 3 SUN#L")] // on that day the clocks go from 2 to 3
    fn a_time_that_does_not_come_is_refused(#[case] cron: &str) {
        let error = Calendar::parse("w", &window(cron, Some("Europe/Berlin"), "1h")).unwrap_err();
        assert_eq!(error.to_string(), format!("w.cron: {cron:?} names a time that does not come within five years"));
    }

    #[rstest]
    #[case("0 0 29 2 *", "2024-02-29T00:00:00Z")]
    #[case("0 0 31 * *", "2026-10-31T00:00:00Z")]
    #[case("0 0 30 2 MON", "2026-02-23T00:00:00Z")] // cron: the day of the month or the weekday
    #[case("0 0 L 2 *", "2026-02-28T00:00:00Z")]
    #[case("0 0 * * FRI#5", "2026-10-30T00:00:00Z")]
    fn a_rare_day_is_accepted(#[case] cron: &str, #[case] begin: &str) {
        let calendar = Calendar::parse("w", &window(cron, None, "1h")).unwrap();
        let now = "2026-11-21T00:00:00Z".parse().unwrap();
        assert_eq!(calendar.last_begin(now), Some(begin.parse().unwrap()));
        assert!(calendar.next_begin(now).is_some_and(|next| next > now));
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
                    let _ = calendar.phase(Timestamp::from_second(second).unwrap());
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
            let last = calendar.last_begin(now).unwrap();
            prop_assert!(last <= now);
            let next = calendar.next_begin(last).unwrap();
            prop_assert!(next > now, "{} comes after {} and before {}", next, last, now);
            prop_assert_eq!(calendar.next_begin(now), Some(next));
        }
    }
}
