//! Times that come again and again: cron fields in a time zone, and how long each lasts.
//!
//! Knows the time zones that are built in, so that the answer does not depend on the machine. Has no clock.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::api::closed_loop::policy::Window;
use crate::logic::closed_loop::common::{FieldError, duration};

/// A window, read.
#[derive(Clone, Debug)]
pub struct Calendar {
    cron: Cron,
    zone: TimeZone,
    lasts: SignedDuration,
}

impl Calendar {
    /// Reads a window.
    ///
    /// # Errors
    ///
    /// The fields, the zone or the duration cannot be read.
    pub fn parse(field: &str, window: &Window) -> Result<Self, FieldError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&window.cron).map_err(|error| {
            FieldError::new(
                format!("{field}.cron"),
                format!("{:?} is not a cron pattern of five fields such as 0 8 * * MON-FRI: {error}", window.cron),
            )
        })?;
        let zone = match &window.time_zone {
            None => TimeZone::UTC,
            Some(name) => TimeZoneDatabase::bundled().get(name).map_err(|_| {
                FieldError::new(
                    format!("{field}.timeZone"),
                    format!("{name:?} is not a time zone: write an IANA name such as Europe/Berlin"),
                )
            })?,
        };
        let lasts = duration(&format!("{field}.duration"), Some(&window.duration))?;
        if lasts.is_zero() {
            return Err(FieldError::new(format!("{field}.duration"), "the duration of a window must be above 0"));
        }
        Ok(Self { cron, zone, lasts })
    }

    /// Whether the window holds now: its beginning counts, its end does not.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        let local = now.to_zoned(self.zone.clone());
        // A pattern that never comes, such as the 30th of February, has no beginning and never holds.
        self.cron
            .find_previous_occurrence(&local, true)
            .is_ok_and(|begin| now.duration_since(begin.timestamp()) < self.lasts)
    }
}

/// Reads several windows.
///
/// # Errors
///
/// One of them cannot be read.
pub fn parse(field: &str, windows: Option<&Vec<Window>>) -> Result<Vec<Calendar>, FieldError> {
    let windows = windows.into_iter().flatten().enumerate();
    windows.map(|(index, window)| Calendar::parse(&format!("{field}[{index}]"), window)).collect()
}

/// Whether one of the windows holds; none at all always do.
#[must_use]
pub fn any_holds(windows: &[Calendar], now: Timestamp) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.holds(now))
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
    #[case("2026-11-23T07:00:00Z", true)]
    #[case("2026-11-23T16:59:59Z", true)]
    #[case("2026-11-23T17:00:00Z", false)]
    #[case("2026-11-22T12:00:00Z", false)] // a Sunday
    #[case("2026-07-20T06:00:00Z", true)] // in summer eight o'clock is earlier
    #[case("2026-07-20T05:59:59Z", false)]
    fn holds_in_its_own_zone(#[case] now: &str, #[case] expected: bool) {
        let calendar = Calendar::parse("w", &window("0 8 * * MON-FRI", Some("Europe/Berlin"), "10h")).unwrap();
        assert_eq!(calendar.holds(now.parse().unwrap()), expected);
    }

    #[rstest]
    // The clocks go from 2 to 3 on 2026-03-29: the hour in between does not exist, and the window opens after it.
    #[case("30 2 * * *", "2026-03-29T01:05:00Z", true)]
    // They go from 3 to 2 on 2026-10-25: half past two comes twice.
    #[case("30 2 * * *", "2026-10-25T00:35:00Z", true)]
    fn holds_when_the_clocks_change(#[case] cron: &str, #[case] now: &str, #[case] expected: bool) {
        let calendar = Calendar::parse("w", &window(cron, Some("Europe/Berlin"), "1h")).unwrap();
        assert_eq!(calendar.holds(now.parse().unwrap()), expected);
    }

    #[test]
    fn what_never_comes_never_holds() {
        if let Ok(calendar) = Calendar::parse("w", &window("0 0 30 2 *", None, "1h")) {
            assert!(!calendar.holds("2026-03-02T00:00:00Z".parse().unwrap()));
        }
    }

    #[rstest]
    #[case("0 8 * *", None, "1h", "w.cron")]
    #[case("0 0 8 * * *", None, "1h", "w.cron")]
    #[case("99 8 * * *", None, "1h", "w.cron")]
    #[case("0 8 * * *", Some("Mars/Olympus"), "1h", "w.timeZone")]
    #[case("0 8 * * *", None, "1", "w.duration")]
    #[case("0 8 * * *", None, "0s", "w.duration")]
    fn says_what_it_cannot_read(
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
                    let _ = calendar.holds(Timestamp::from_second(second).unwrap());
                }
            }
        }
    }
}
