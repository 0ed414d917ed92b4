//! Windows in their time zones, over changes of the clocks, with several patterns.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn between(start: &str, until: &str) -> Window {
    let (start, until, time_zone) = (Some(start.into()), Some(until.into()), Some("Europe/Berlin".into()));
    Window { start, until, time_zone, ..Window::default() }
}

fn window(cron: &str, zone: Option<&str>, lasts: &str) -> Window {
    Window {
        cron: Some(cron.into()),
        duration: Some(lasts.into()),
        time_zone: zone.map(Into::into),
        ..Window::default()
    }
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
    assert_eq!(calendar.begins.last(now.parse().unwrap()), Some(begin.parse().unwrap()));
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
    assert!((0..200).all(|minute| calendar.phase(Timestamp::from_second(1_795_000_000 + minute * 60).unwrap()).open));
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
    assert_eq!(calendar.begins.last(now), Some(begin.parse().unwrap()));
    assert!(calendar.begins.next(now).is_some_and(|next| next > now));
}

#[rstest]
#[case("0 8 * *", None, "1h", "w.cron")]
#[case("0 0 8 * * *", None, "1h", "w.cron")]
#[case("99 8 * * *", None, "1h", "w.cron")]
#[case("0 8 * * *", Some("Mars/Olympus"), "1h", "w.timeZone")]
#[case("0 8 * * *", Some(""), "1h", "w.timeZone")]
#[case("0 8 * * *", None, "1", "w.duration")]
#[case("0 8 * * *", None, "0s", "w.duration")]
fn an_error_names_the_field(#[case] cron: &str, #[case] zone: Option<&str>, #[case] lasts: &str, #[case] field: &str) {
    assert_eq!(Calendar::parse("w", &window(cron, zone, lasts)).unwrap_err().field, field);
}

// KEDA stays open in case C5 until Sunday 22:10, and opens in case C10 at the end of the window before.
#[rstest]
#[case::c5_friday_evening("30 6 * * MON-FRI", "10 22 * * *", "2026-11-27T21:09:59Z", true)]
#[case::c5_friday_end("30 6 * * MON-FRI", "10 22 * * *", "2026-11-27T21:10:00Z", false)]
#[case::c5_sunday("30 6 * * MON-FRI", "10 22 * * *", "2026-11-29T12:00:00Z", false)]
#[case::c5_monday_before("30 6 * * MON-FRI", "10 22 * * *", "2026-11-30T05:29:59Z", false)]
#[case::c5_monday("30 6 * * MON-FRI", "10 22 * * *", "2026-11-30T05:30:00Z", true)]
// Each day begins the window that is open already.
#[case::daily_start_weekly_end("0 8 * * *", "0 18 * * FRI", "2026-11-25T02:00:00Z", true)]
#[case::daily_start_weekly_end("0 8 * * *", "0 18 * * FRI", "2026-11-27T17:30:00Z", false)]
#[case::over_midnight("0 22 * * *", "0 6 * * *", "2026-11-27T02:00:00Z", true)]
#[case::over_midnight("0 22 * * *", "0 6 * * *", "2026-11-27T05:00:00Z", false)]
// In Berlin the clocks go from 2 to 3 on 2026-03-29, and from 3 to 2 on 2026-10-25.
#[case::c10_before_the_gap("30 2 * * *", "0 4 * * *", "2026-03-29T00:59:59Z", false)]
#[case::c10_after_the_gap("30 2 * * *", "0 4 * * *", "2026-03-29T01:00:00Z", true)]
#[case::within_the_gap("15 2 * * *", "45 2 * * *", "2026-03-29T01:00:00Z", false)]
#[case::until_the_gap("0 1 * * *", "30 2 * * *", "2026-03-29T00:59:59Z", true)]
#[case::until_the_gap("0 1 * * *", "30 2 * * *", "2026-03-29T01:00:00Z", false)]
#[case::an_hour_twice("15 2 * * *", "45 2 * * *", "2026-10-25T00:30:00Z", true)]
#[case::an_hour_twice("15 2 * * *", "45 2 * * *", "2026-10-25T01:30:00Z", false)]
// On Mondays at 8 it ends and begins again.
#[case::adjacent("0 8 * * *", "0 8 * * MON", "2026-11-23T07:00:00Z", true)]
#[case::adjacent("0 8 * * *", "0 8 * * MON", "2026-11-22T07:00:00Z", true)]
fn a_window_is_open_from_start_to_until(
    #[case] start: &str,
    #[case] until: &str,
    #[case] now: &str,
    #[case] expected: bool,
) {
    let calendar = Calendar::parse("w", &between(start, until)).unwrap();
    let now: Timestamp = now.parse().unwrap();
    let phase = calendar.phase(now);
    assert_eq!(phase.open, expected, "{phase:?}");
    assert!(phase.begin <= now && now < phase.end, "{phase:?}");
}

#[rstest]
#[case("0 8 * * *", "0 8 * * *")]
#[case("0 8 * * MON", "0 8 * * 1")]
#[case("0 8 * * *", "0 8 * * 0-6")]
fn c6_a_window_that_ends_whenever_it_begins_is_refused(#[case] start: &str, #[case] until: &str) {
    let error = Calendar::parse("w", &between(start, until)).unwrap_err();
    let expected = format!("w.until: {until:?} is always the time of start: such a window never opens");
    assert_eq!(error.to_string(), expected);
}

#[rstest]
#[case(Some("0 8 * * *"), None, None, None)]
#[case(Some("0 8 * * *"), None, None, Some("1h"))]
#[case(Some("0 8 * * *"), Some("0 9 * * *"), Some("0 8 * * *"), Some("1h"))]
#[case(None, None, None, None)]
fn a_window_has_one_form(
    #[case] start: Option<&str>,
    #[case] until: Option<&str>,
    #[case] cron: Option<&str>,
    #[case] lasts: Option<&str>,
) {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let window = Window {
        start: text(start),
        until: text(until),
        cron: text(cron),
        duration: lasts.map(Into::into),
        time_zone: None,
    };
    let error = Calendar::parse("w", &window).unwrap_err();
    assert_eq!(error.to_string(), "w: set either start and until, or cron and duration");
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
        let last = calendar.begins.last(now).unwrap();
        prop_assert!(last <= now);
        let next = calendar.begins.next(last).unwrap();
        prop_assert!(next > now, "{} comes after {} and before {}", next, last, now);
        prop_assert_eq!(calendar.begins.next(now), Some(next));
    }

    #[test]
    fn a_window_between_two_patterns_is_what_minute_by_minute_events_say(
        start in proptest::sample::select(vec!["0 8 * * *", "30 6 * * MON-FRI", "0 */6 * * *", "15 2 * * *"]),
        until in proptest::sample::select(vec!["0 18 * * FRI", "10 22 * * *", "45 2 * * *", "0 */4 * * *"]),
        day in 0_i64..3650,
        minute in 0_i64..20_000,
    ) {
        let calendar = Calendar::parse("w", &between(start, until)).unwrap();
        let times = |text: &str| CronTimes::parse("w", text, zone_named("w", Some("Europe/Berlin")).unwrap()).unwrap();
        let (begins, ends) = (times(start), times(until));
        // Two weeks have a begin and an end of each pattern.
        let first = Timestamp::from_second(1_700_000_000 / 60 * 60 + day * 86_400).unwrap();
        let now = later(first, SignedDuration::from_mins(20_160 + minute));
        let events = |times: &CronTimes| {
            let next = std::iter::successors(times.next(first), |at| times.next(*at));
            next.take_while(|at| *at <= now).collect::<std::collections::BTreeSet<_>>()
        };
        let (begins, ends) = (events(&begins), events(&ends));
        let open = begins.union(&ends).fold(None, |open: Option<bool>, at| {
            match (begins.contains(at), ends.contains(at)) {
                (true, true) => open,
                (begun, _) => Some(begun),
            }
        });
        if let Some(open) = open {
            prop_assert_eq!(calendar.phase(now).open, open);
        }
    }
}
