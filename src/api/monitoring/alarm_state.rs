//! State of an alarm, a line of a status.

use std::fmt::{Display, Formatter, Result as FmtResult};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::closed_loop::metric::Side;
use crate::line::{NotALine, flag, line_in_status, read_parts, time, variant, word, write_parts};
use crate::scalars::Number;

/// An alarm and its state. In a status it is one line: `Low cpu since 2026-11-21T10:00:03.000000Z, excess 0.6`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmState {
    /// Name of the metric.
    pub metric: String,
    /// The side of the alarm.
    pub side: Side,
    /// When the value crossed the level.
    pub since: MicroTime,
    /// Excess of the value over the level, relative to the level: "0.6" means 60 percent.
    pub excess: Option<Number>,
    /// true: the value is unknown or assumed, and the alarm must not lower capacity.
    pub unknown: bool,
    /// true: the value is unknown, and the alarm keeps its state and triggers no action.
    pub held: bool,
}

line_in_status!(AlarmState);

const EXCESS: &str = "excess";
const UNKNOWN: &str = "unknown";
const HELD: &str = "held";

impl Display for AlarmState {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(f, "{} {} since {:.6}", self.side, word(&self.metric), self.since.0)?;
        let excess = self.excess.as_ref().map(|excess| word(excess.as_str()).into_owned());
        write_parts(f, &[(EXCESS, excess), (UNKNOWN, flag(self.unknown)), (HELD, flag(self.held))])
    }
}

impl FromStr for AlarmState {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let wrong = |what: &'static str| move || NotALine::new(line, what);
        let (head, parts) = read_parts(line);
        let [side, metric, "since", since] = head[..] else { return Err(wrong("expected side, metric and time")()) };
        let mut alarm = Self {
            metric: metric.to_owned(),
            side: variant(side).ok_or_else(wrong("invalid side"))?,
            since: time(since).ok_or_else(wrong("invalid time"))?,
            excess: None,
            unknown: false,
            held: false,
        };
        for (name, text) in parts {
            match name {
                EXCESS => alarm.excess = Some(text.into()),
                UNKNOWN => alarm.unknown = true,
                HELD => alarm.held = true,
                _ => return Err(wrong("unknown part")()),
            }
        }
        Ok(alarm)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{from_value, json};

    use super::*;

    proptest! {
        #[test]
        fn an_alarm_is_read_as_it_was_written(
            side in prop_oneof![Just(Side::Low), Just(Side::High), Just(Side::Equal), Just(Side::Missing)],
            metric in "[a-zA-Z][a-zA-Z0-9_]{0,39}",
            micros in 0..4_000_000_000_000_000_i64,
            excess in proptest::option::of("[0-9.]{1,12}"),
            (unknown, held) in (any::<bool>(), any::<bool>()),
        ) {
            let since = MicroTime(Timestamp::from_microsecond(micros).unwrap());
            let alarm = AlarmState { metric, side, since, excess: excess.as_deref().map(Number::from), unknown, held };
            prop_assert_eq!(from_value::<AlarmState>(json!(alarm)).unwrap(), alarm);
        }

        #[test]
        fn no_line_is_a_panic(line in "[0-9 ,a-zA-Z:-]{0,60}") {
            let _ = line.parse::<AlarmState>();
        }
    }

    #[test]
    fn the_line_is_for_people() {
        for line in [
            "Low cpu since 2026-11-21T10:00:03.000000Z",
            "High cpu since 2026-11-21T10:00:03.000000Z, excess 0.6",
            "Missing cpu since 2026-11-21T10:00:03.000000Z, unknown, held",
        ] {
            assert_eq!(line.parse::<AlarmState>().unwrap().to_string(), line);
        }
        assert!("Low cpu since yesterday".parse::<AlarmState>().is_err());
    }
}
