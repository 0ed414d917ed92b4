//! An action that was decided, and an alarm that was not served. Both are lines of a status.

use std::fmt::{Display, Formatter, Result as FmtResult};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::closed_loop::reasons::LoopReason;
use crate::closed_loop::when::When;
use crate::line::{NotALine, line_in_status, time, variant};

/// A past action, as needed by the limits. In a status it is one line: `3 2026-11-21T10:00:03.000000Z Raise replicas`;
/// with `DryRun` before the direction if it was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// Number of the decision.
    pub seq: i64,
    /// When the action was carried out; until then, when it was decided.
    pub at: MicroTime,
    /// The decision was made in mode DryRun. It counts for the limits only in that mode.
    pub dry_run: bool,
    /// Whether the action raises or lowers capacity.
    pub direction: Direction,
    /// The capacity that changes: `replicas`, `app/memory`.
    pub dimension: String,
}

line_in_status!(Act);

/// Word in the line of an action that was decided in mode DryRun.
const DRY_RUN: &str = "DryRun";

/// Whether an action raises or lowers capacity, or does neither.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    Raise,
    Lower,
    #[default]
    Neither,
}

impl Direction {
    /// Name in statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raise => "Raise",
            Self::Lower => "Lower",
            Self::Neither => "Neither",
        }
    }
}

impl Display for Act {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { seq, at, dry_run, direction, dimension } = self;
        write!(f, "{seq} {:.6} ", at.0)?;
        if *dry_run {
            write!(f, "{DRY_RUN} ")?;
        }
        write!(f, "{} {dimension}", direction.as_str())
    }
}

impl FromStr for Act {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let wrong = |what: &'static str| move || NotALine::new(line, what);
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let [seq, at, rest] = words[..] else {
            return Err(wrong("expected number, time, direction and dimension")());
        };
        let simulated = rest.strip_prefix(DRY_RUN).and_then(|rest| rest.strip_prefix(' '));
        let (direction, dimension) = simulated.unwrap_or(rest).split_once(' ').ok_or_else(wrong("no dimension"))?;
        Ok(Self {
            seq: seq.parse().map_err(|_| wrong("invalid number")())?,
            at: time(at).ok_or_else(wrong("invalid time"))?,
            dry_run: simulated.is_some(),
            direction: variant(direction).ok_or_else(wrong("invalid direction"))?,
            dimension: dimension.to_owned(),
        })
    }
}

/// An alarm that was not served. In a status it is one line: `Low memory Outranked: another alarm is served first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The alarm, or the combination of alarms.
    pub when: When,
    /// Why the alarm was not served.
    pub reason: LoopReason,
    /// The reason as text.
    pub message: String,
}

line_in_status!(Rejected);

impl Display for Rejected {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { when, reason, message } = self;
        write!(f, "{when} {}: {message}", reason.as_str())
    }
}

impl FromStr for Rejected {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let wrong = |what: &'static str| move || NotALine::new(line, what);
        let (when, rest) = When::read(line).ok_or_else(wrong("expected side, metric and reason"))?;
        let (reason, message) = rest.split_once(": ").ok_or_else(wrong("no message"))?;
        Ok(Self { when, reason: variant(reason).ok_or_else(wrong("invalid reason"))?, message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{from_value, json};

    use super::*;
    use crate::closed_loop::metric::Side;
    use crate::closed_loop::when::Alarm;
    use crate::closed_loop::when::tests::when;
    use crate::decision::DecisionStatus;

    proptest! {
        #[test]
        fn an_act_is_read_as_it_was_written(
            (seq, micros, dry_run) in (any::<i64>(), 0..4_000_000_000_000_000_i64, any::<bool>()),
            direction in prop_oneof![Just(Direction::Raise), Just(Direction::Lower), Just(Direction::Neither)],
            dimension in "\\PC{0,30}",
        ) {
            let at = MicroTime(Timestamp::from_microsecond(micros).unwrap());
            let act = Act { seq, at, dry_run, direction, dimension };
            prop_assert_eq!(from_value::<Act>(json!(act)).unwrap(), act);
        }

        #[test]
        fn a_rejection_is_read_as_it_was_written(
            when in when(),
            reason in prop_oneof![Just(LoopReason::Outranked), Just(LoopReason::Dwell), Just(LoopReason::Unknown)],
            message in "\\PC{0,60}",
        ) {
            let rejected = Rejected { when, reason, message };
            prop_assert_eq!(from_value::<Rejected>(json!(rejected)).unwrap(), rejected);
        }

        #[test]
        fn a_metric_with_a_space_does_not_make_the_line_unreadable(metric in "[ a:|]{0,8}") {
            let message = String::new();
            let when = When::One(Alarm { metric, side: Side::Low });
            let rejected = Rejected { when, reason: LoopReason::Dwell, message };
            prop_assert_eq!(rejected.to_string().parse::<Rejected>().unwrap().to_string(), rejected.to_string());
        }
    }

    #[test]
    fn empty_texts_are_read_as_they_were_written() {
        for (metric, reason) in [("", LoopReason::Dwell), ("A", LoopReason::Outranked)] {
            let (metric, message) = (metric.to_owned(), String::new());
            let when = When::One(Alarm { metric, side: Side::Low });
            let line = Rejected { when, reason, message }.to_string();
            assert_eq!(line.parse::<Rejected>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn what_is_no_line_is_left_out_and_the_status_is_read() {
        let act = "3 2026-11-21T10:00:03.000000Z Raise replicas";
        let other =
            json!({"seq": 2, "at": "2026-11-21T10:00:02.000000Z", "direction": "Raise", "dimension": "replicas"});
        let status =
            json!({"seq": 3, "acts": [other, "2 yesterday Raise replicas", act], "history": [other], "rejected": [7]});
        let status: DecisionStatus = from_value(status).unwrap();
        assert_eq!(status.acts.iter().map(ToString::to_string).collect::<Vec<_>>(), [act]);
        assert!(status.seq == 3 && status.history.is_empty() && status.rejected.is_empty());
    }

    #[test]
    fn the_lines_are_for_people() {
        for line in [
            "3 2026-11-21T10:00:03.000000Z Raise app/memory",
            "3 2026-11-21T10:00:03.000000Z DryRun Raise app/memory",
            "4 2026-11-21T10:00:03.000000Z Neither ",
        ] {
            assert_eq!(line.parse::<Act>().unwrap().to_string(), line);
        }
        for line in [
            "Low memory Outranked: another alarm is served first",
            "High queue and Low errors Dwell: no action before 10:00",
        ] {
            assert_eq!(line.parse::<Rejected>().unwrap().to_string(), line);
        }
        assert!("Low memory".parse::<Rejected>().is_err() && "1 now Raise x".parse::<Act>().is_err());
    }
}
