//! Occurrences of cron fields in a time zone.
//!
//! This is the only file that uses chrono, which the cron library requires; all other code uses jiff, as k8s-openapi
//! does. Time zones are compiled in, so that the result does not depend on the machine.

use chrono::{DateTime, Datelike, Days, NaiveDate, TimeZone};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Weekday};
use jiff::{SignedDuration, Timestamp};

use super::TIES;
use crate::common::{FieldError, later};
use ganglion_core::words::quoted;

/// Maximum time between two occurrences, in days: five years.
const LONGEST_PAUSE: u64 = 5 * 366;

/// Times that cron fields in a time zone define.
#[derive(Clone, Debug)]
pub struct CronTimes {
    cron: Cron,
    zone: Tz,
}

impl CronTimes {
    /// Parses cron fields. Fails if the time between two occurrences may be longer than five years.
    pub fn parse(field: &str, text: &str, zone: Tz) -> Result<Self, FieldError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(text).map_err(|error| {
            let text = quoted(text);
            let problem = format!("{text} is not a cron pattern of five fields such as 0 8 * * MON-FRI: {error}");
            FieldError::new(field, problem)
        })?;
        if !has_day_in_time(&cron) || !has_time(&cron, zone) {
            let problem = format!("{} names a time that does not come within five years", quoted(text));
            return Err(FieldError::new(field, problem));
        }
        Ok(Self { cron, zone })
    }

    /// Whether the next occurrences are the same.
    pub fn has_times_of(&self, other: &Self) -> bool {
        let (mut one, mut two) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        (0..TIES).all(|_| match (self.next(one), other.next(two)) {
            (Some(next), Some(others)) => {
                (one, two) = (next, others);
                next == others
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        })
    }

    /// Returns the last occurrence at or before this time.
    pub fn last(&self, now: Timestamp) -> Option<Timestamp> {
        instant(&self.cron.find_previous_occurrence(&self.civil(now)?, true).ok()?)
    }

    /// Returns the last occurrence before this time.
    pub fn before(&self, time: Timestamp) -> Option<Timestamp> {
        self.last(later(time, SignedDuration::from_nanos(-1)))
    }

    /// Returns the next occurrence after this time.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
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

/// Returns the time zone with this name, in upper or lower case. Default: UTC.
pub fn zone_named(field: &str, name: Option<&str>) -> Result<Tz, FieldError> {
    let Some(name) = name else { return Ok(Tz::UTC) };
    let zone = name.parse().ok();
    let zone = zone.or_else(|| chrono_tz::TZ_VARIANTS.into_iter().find(|zone| zone.name().eq_ignore_ascii_case(name)));
    zone.ok_or_else(|| {
        let problem = format!("{} is not a time zone: write an IANA name such as Europe/Berlin", quoted(name));
        FieldError::new(field, problem)
    })
}
