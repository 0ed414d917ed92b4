//! One past decision.

use std::fmt::{Display, Formatter, Result as FmtResult};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::Outcome;
use crate::closed_loop::when::When;
use crate::line::{NotALine, line_in_status, part, time, variant, word};
use crate::scalars::Number;

/// Separator between the parts of a line.
const SEPARATOR: &str = " | ";

/// Words between the number of repetitions and the time of the first.
const REPEATED: &str = " times since ";

/// Placeholder for an absent part.
const NONE: &str = "-";

/// A past decision, for display. In a status it is one line:
/// `3 2026-11-21T10:00:03.000000Z Low cpu 2 rung 0 | scale by 1, at most 10 | Served | 3 -> 4`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Number of the decision.
    pub seq: i64,
    /// When the decision was made.
    pub at: MicroTime,
    /// The alarm that was served, or the combination of alarms.
    pub when: When,
    /// Value of the metric at the decision; unset for a combination.
    pub value: Option<Number>,
    /// Index of the rung in the ladder, from 0.
    pub rung: i32,
    /// The action as text: `scale by 1, at most 10`.
    pub action: String,
    /// Outcome; unset while the decision is being carried out.
    pub outcome: Option<Outcome>,
    /// When the decision ended; unset if it ended when it was made.
    pub ended: Option<MicroTime>,
    /// The change as text: `3 -> 4`.
    pub effect: Option<String>,
    /// In mode DryRun, the decisions that this entry stands for; unset if there is only one.
    pub repeated: Option<Repetitions>,
}

/// Number of equal decisions of mode DryRun, of which an entry shows the last one.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetitions {
    /// Number of decisions.
    pub times: u32,
    /// When the first of them was made.
    pub since: MicroTime,
}

line_in_status!(Entry);

impl Entry {
    /// Whether both decisions were made in mode DryRun, for the same alarm, with the same action.
    pub fn is_repeated_by(&self, other: &Self) -> bool {
        let what = |entry: &Self| (entry.rung, entry.outcome);
        let is_same = what(self) == what(other) && self.when == other.when && self.action == other.action;
        is_same && self.outcome == Some(Outcome::DryRun)
    }

    /// Number of decisions that this entry stands for if it is repeated once more.
    pub fn once_more(&self) -> Repetitions {
        match &self.repeated {
            Some(Repetitions { times, since }) => Repetitions { times: times.saturating_add(1), since: since.clone() },
            None => Repetitions { times: 2, since: self.at.clone() },
        }
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { seq, at, when, rung, .. } = self;
        let value = self.value.as_ref().map_or(NONE.into(), |value| word(value.as_str()));
        write!(f, "{seq} {:.6} {when} {value} rung {rung}", at.0)?;
        write!(f, "{SEPARATOR}{}{SEPARATOR}", part(&self.action))?;
        f.write_str(self.outcome.map_or(NONE, |outcome| outcome.reason().as_str()))?;
        if let Some(ended) = &self.ended {
            write!(f, " {:.6}", ended.0)?;
        } else if let Some(Repetitions { times, since }) = &self.repeated {
            write!(f, " {times}{REPEATED}{:.6}", since.0)?;
        }
        self.effect.as_ref().map_or(Ok(()), |effect| write!(f, "{SEPARATOR}{}", part(effect)))
    }
}

impl FromStr for Entry {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let wrong = |what: &'static str| move || NotALine::new(line, what);
        let mut parts = line.splitn(4, SEPARATOR);
        let mut next = |what: &'static str| parts.next().ok_or_else(wrong(what));
        let (head, action, end) = (next("empty line")?, next("no action")?, next("no outcome")?);
        let effect = parts.next().map(str::to_owned);
        let begin: Vec<&str> = head.splitn(3, ' ').collect();
        let [seq, at, rest] = begin[..] else { return Err(wrong("expected number, time and alarm")()) };
        let (when, rest) = When::read(rest).ok_or_else(wrong("invalid alarm"))?;
        let rest: Vec<&str> = rest.split(' ').collect();
        let [value, "rung", rung] = rest[..] else { return Err(wrong("expected value and rung")()) };
        let (outcome, rest) = end.split_once(' ').map_or((end, None), |(outcome, rest)| (outcome, Some(rest)));
        let repeated = rest.and_then(|rest| rest.split_once(REPEATED));
        let ended = rest.filter(|_| repeated.is_none());
        let repeated = repeated.map(|(times, since)| {
            let times = times.parse().map_err(|_| wrong("invalid number of repetitions")())?;
            Ok(Repetitions { times, since: time(since).ok_or_else(wrong("invalid time of the first"))? })
        });
        Ok(Self {
            seq: seq.parse().map_err(|_| wrong("invalid number")())?,
            at: time(at).ok_or_else(wrong("invalid time"))?,
            when,
            value: present(value).map(Number::from),
            rung: rung.parse().map_err(|_| wrong("invalid rung")())?,
            action: action.to_owned(),
            outcome: present(outcome).map(|word| variant(word).ok_or_else(wrong("invalid outcome"))).transpose()?,
            ended: ended.map(|ended| time(ended).ok_or_else(wrong("invalid end time"))).transpose()?,
            effect,
            repeated: repeated.transpose()?,
        })
    }
}

fn present(text: &str) -> Option<&str> {
    (text != NONE).then_some(text)
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

    fn micros() -> impl Strategy<Value = MicroTime> {
        (0..4_000_000_000_000_000_i64).prop_map(|micros| MicroTime(Timestamp::from_microsecond(micros).unwrap()))
    }

    prop_compose! {
        /// An arbitrary entry whose words and texts match these patterns.
        fn entry(word: &'static str, text: &'static str)(
            (seq, rung) in (any::<i64>(), any::<i32>()),
            (at, ended) in (micros(), proptest::option::of(micros())),
            (combined, side) in
                (when(), prop_oneof![Just(Side::Low), Just(Side::High), Just(Side::Equal), Just(Side::Missing)]),
            outcome in proptest::option::of(prop_oneof![
                Just(Outcome::Served), Just(Outcome::DryRun), Just(Outcome::Limited), Just(Outcome::Failed),
                Just(Outcome::Overtaken), Just(Outcome::Lost), Just(Outcome::Withdrawn),
            ]),
            (metric, value) in (word, proptest::option::of(word)),
            (action, effect) in (text, proptest::option::of(text)),
            repeated in proptest::option::of((any::<u32>(), micros())),
        ) -> Entry {
            let value = value.as_deref().map(Number::from);
            let repeated = repeated.filter(|_| ended.is_none()).map(|(times, since)| Repetitions { times, since });
            let one = When::One(Alarm { metric, side });
            let when = if combined.one().is_some() { one } else { combined };
            Entry { seq, at, when, value, rung, action, outcome, ended, effect, repeated }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(entry in entry("[a-zA-Z0-9.]{1,20}", "[^|]{0,40}")) {
            let line = json!(entry);
            prop_assert_eq!(from_value::<Entry>(line).unwrap(), entry);
        }

        #[test]
        fn whatever_the_texts_hold_the_line_is_read_and_stays_as_it_is(entry in entry("\\PC{0,10}", "[ |a\n]{0,12}")) {
            let line = entry.to_string();
            let read: Entry = line.parse().unwrap();
            prop_assert_eq!(read.to_string(), line);
            prop_assert_eq!((read.seq, read.at, read.outcome, read.ended), (entry.seq, entry.at, entry.outcome,
                entry.ended));
        }

        #[test]
        fn no_line_is_a_panic(line in "[0-9 |a-zA-Z:-]{0,60}") {
            let _ = line.parse::<Entry>();
        }
    }

    #[test]
    fn an_effect_without_action_and_outcome_stays() {
        let entry = Entry {
            seq: 0,
            at: MicroTime(Timestamp::UNIX_EPOCH),
            when: When::One(Alarm { metric: "0".to_owned(), side: Side::Low }),
            value: None,
            rung: 0,
            action: String::new(),
            outcome: None,
            ended: None,
            effect: Some("A".to_owned()),
            repeated: None,
        };
        let line = entry.to_string();
        assert_eq!(line.parse::<Entry>().unwrap().to_string(), line);
    }

    #[test]
    fn a_line_is_for_people() {
        let line = "3 2026-11-21T10:00:03.000000Z Low cpu 2 rung 0 | scale by 1, at most 10 | Served | 3 -> 4";
        let entry: Entry = line.parse().unwrap();
        assert_eq!(
            (entry.seq, entry.when.to_string().as_str(), entry.effect.as_deref()),
            (3, "Low cpu", Some("3 -> 4"))
        );
        assert_eq!(entry.to_string(), line);
        let repeated = "9 2026-11-21T10:00:09.000000Z Low cpu 2 rung 0 | scale by 1 | DryRun 7 times since \
                        2026-11-21T10:00:03.000000Z";
        let entry: Entry = repeated.parse().unwrap();
        assert_eq!(entry.repeated.as_ref().map(|repeated| repeated.times), Some(7));
        assert_eq!(entry.to_string(), repeated);
        let combined =
            "3 2026-11-21T10:00:03.000000Z High queue and Low errors - rung 0 | scale by 1 | Served | 3 -> 4";
        assert_eq!(combined.parse::<Entry>().unwrap().to_string(), combined);
        let open = "4 2026-11-21T10:00:03.000000Z Missing cpu - rung 1 | scale by 1 | -";
        assert_eq!(open.parse::<Entry>().unwrap().to_string(), open);
        assert!(
            "4 yesterday Low cpu 2 rung 0 | scale by 1 | -".parse::<Entry>().unwrap_err().to_string().contains("time")
        );
    }
}
