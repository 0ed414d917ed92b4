//! State of a ladder, a line of a status.

use std::fmt::{Display, Formatter, Result as FmtResult};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::closed_loop::when::When;
use crate::line::{NotALine, flag, line_in_status, read_parts, time, word, write_parts};
use crate::scalars::Number;

/// State of a ladder. In a status it is one line:
/// `Low cpu rung 1, value 2, judged at 2026-11-21T10:00:03.000000Z, digest 4307aa25`.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderState {
    /// The alarm, or the combination of alarms.
    pub when: When,
    /// Index of the next rung, from 0.
    pub rung: i32,
    /// When the effect of the last action can be judged.
    pub judge_at: Option<MicroTime>,
    /// The value at the last action.
    pub value: Option<Number>,
    /// Until when the ladder counts as exhausted.
    pub exhausted_until: Option<MicroTime>,
    /// Digest of the ladder in the spec. A ladder that was changed starts again at its first rung.
    pub digest: Option<String>,
    /// The last action was decided in mode DryRun. In another mode, the ladder starts again.
    pub dry_run: bool,
}

line_in_status!(LadderState);

const VALUE: &str = "value";
const JUDGED: &str = "judged";
const EXHAUSTED: &str = "exhausted";
const DIGEST: &str = "digest";
const DRY_RUN: &str = "DryRun";

impl Display for LadderState {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(f, "{} rung {}", self.when, self.rung)?;
        let time = |word: &str, time: &Option<MicroTime>| time.as_ref().map(|time| format!("{word} {:.6}", time.0));
        let parts = [
            (VALUE, self.value.as_ref().map(|value| word(value.as_str()).into_owned())),
            (JUDGED, time("at", &self.judge_at)),
            (EXHAUSTED, time("until", &self.exhausted_until)),
            (DIGEST, self.digest.as_ref().map(|digest| word(digest).into_owned())),
            (DRY_RUN, flag(self.dry_run)),
        ];
        write_parts(f, &parts)
    }
}

impl FromStr for LadderState {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let wrong = |what: &'static str| move || NotALine::new(line, what);
        let (when, rest) = When::read(line).ok_or_else(wrong("expected side, metric and rung"))?;
        let (head, parts) = read_parts(rest);
        let ["rung", rung] = head[..] else { return Err(wrong("expected rung")()) };
        let mut state = Self {
            when,
            rung: rung.parse().map_err(|_| wrong("invalid rung")())?,
            judge_at: None,
            value: None,
            exhausted_until: None,
            digest: None,
            dry_run: false,
        };
        let read = |word: &str, text: &str| {
            let text = text.strip_prefix(word).and_then(|text| text.strip_prefix(' '));
            text.and_then(time).ok_or_else(wrong("invalid time"))
        };
        for (name, text) in parts {
            match name {
                VALUE => state.value = Some(text.into()),
                JUDGED => state.judge_at = Some(read("at", text)?),
                EXHAUSTED => state.exhausted_until = Some(read("until", text)?),
                DIGEST => state.digest = Some(text.to_owned()),
                DRY_RUN => state.dry_run = true,
                _ => return Err(wrong("unknown part")()),
            }
        }
        Ok(state)
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

    fn micros() -> impl Strategy<Value = Option<MicroTime>> {
        let time = |micros| MicroTime(Timestamp::from_microsecond(micros).unwrap());
        proptest::option::of((0..4_000_000_000_000_000_i64).prop_map(time))
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(
            when in when(),
            (rung, dry_run) in (any::<i32>(), any::<bool>()),
            (judge_at, exhausted_until) in (micros(), micros()),
            value in proptest::option::of("[0-9.]{1,12}"),
            digest in proptest::option::of("[0-9a-f]{8}"),
        ) {
            let value = value.as_deref().map(Number::from);
            let state = LadderState { when, rung, judge_at, value, exhausted_until, digest, dry_run };
            prop_assert_eq!(from_value::<LadderState>(json!(state)).unwrap(), state);
        }

        #[test]
        fn whatever_the_texts_hold_the_line_is_read_again(metric in "\\PC{0,10}", text in "\\PC{0,10}") {
            let (value, digest) = (Some(Number::from(text.as_str())), Some(text));
            let (judge_at, exhausted_until) = (None, None);
            let when = When::One(Alarm { metric, side: Side::Low });
            let state = LadderState { when, rung: 0, judge_at, value, exhausted_until, digest, dry_run: true };
            let line = state.to_string();
            prop_assert_eq!(line.parse::<LadderState>().unwrap().to_string(), line);
        }

        #[test]
        fn no_line_is_a_panic(line in "[0-9 ,a-zA-Z:-]{0,60}") {
            let _ = line.parse::<LadderState>();
        }
    }

    #[test]
    fn the_line_is_for_people() {
        let line = "High cpu rung 1, value 2.5, judged at 2026-11-21T10:00:03.000000Z, \
                    exhausted until 2026-11-21T10:01:03.000000Z, digest 4307aa25, DryRun";
        let state: LadderState = line.parse().unwrap();
        assert_eq!((state.rung, state.dry_run, state.to_string().as_str()), (1, true, line));
        for line in ["Low cpu rung 0", "High queue or High lag rung 1, digest 4307aa25"] {
            assert_eq!(line.parse::<LadderState>().unwrap().to_string(), line);
        }
        assert!("Low cpu rung 0, value 2, judged soon".parse::<LadderState>().is_err());
    }
}
