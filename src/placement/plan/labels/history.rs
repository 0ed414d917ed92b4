//! The history of a label: its last values, and when each was written. It is an annotation of the node with the key of
//! the label, such as `12@1764364800,9@1764360000`, the newest first. Each write of a label writes it too.
//!
//! A label that somebody else has changed differs from the newest entry. Others may change the annotation as well, so
//! text of another form is no history.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::LabelValue;
use ganglion_core::facts::{MAX_LABEL_HISTORY, NodeFact};

/// Maximum number of entries.
pub const ENTRIES: usize = 8;

/// Maximum difference between the clocks of two replicas. A history from further in the future is not ours.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelEntry {
    pub value: LabelValue,
    /// Time at which the label was written, in whole seconds.
    pub written: Timestamp,
}

impl LabelEntry {
    fn parse(text: &str) -> Option<Self> {
        let (value, seconds) = text.split_once('@')?;
        let written = Timestamp::from_second(seconds.parse().ok()?).ok()?;
        // One spelling for each number, so that a history is written again as it was read.
        (written.as_second() > 0 && written.as_second().to_string() == seconds)
            .then_some(Self { value: LabelValue::parse(value)?, written })
    }
}

impl fmt::Display for LabelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.value, self.written.as_second())
    }
}

/// The last values of a label, the newest first; without entries if there is no history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelHistory(Vec<LabelEntry>);

/// Value of a label at a moment in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastLabel {
    Known(LabelEntry),
    /// The history is full, and its oldest entry is of this time: older ones were dropped.
    Dropped(Timestamp),
    /// The history begins at this time. Before, the node had no label, or one without a history.
    Before(Timestamp),
    NoHistory,
}

impl LabelHistory {
    /// Parses an annotation; None if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LABEL_HISTORY {
            return None;
        }
        let mut entries: Vec<LabelEntry> = Vec::new();
        for part in text.split(',') {
            let entry = LabelEntry::parse(part)?;
            let is_older = entries.last().is_none_or(|newer| entry.written <= newer.written);
            if entries.len() == ENTRIES || !is_older {
                return None;
            }
            entries.push(entry);
        }
        Some(Self(entries))
    }

    /// History of a label of a node.
    pub fn of(node: &NodeFact, key: &str) -> Self {
        node.label_history(key).and_then(Self::parse).unwrap_or_default()
    }

    /// The history after the label is written.
    #[must_use]
    pub fn with(&self, value: LabelValue, now: Timestamp) -> Self {
        let newest = self.newest().map(|entry| entry.written);
        let is_ours = newest.is_none_or(|newest| newest.duration_since(now) <= SKEW);
        let written = Timestamp::from_second(now.as_second()).unwrap_or(now);
        // The clock of the former leader may be ahead by a little, and entries are in the order of their times.
        let written = newest.filter(|_| is_ours).map_or(written, |newest| written.max(newest));
        let former = if is_ours { self.0.as_slice() } else { &[] };
        let entries = std::iter::once(LabelEntry { value, written }).chain(former.iter().copied());
        Self(entries.take(ENTRIES).collect())
    }

    pub fn newest(&self) -> Option<LabelEntry> {
        self.0.first().copied()
    }

    /// Time at which the operator wrote the value of this entry once more, since somebody else had changed the label.
    pub fn restored(&self, entry: LabelEntry) -> Option<Timestamp> {
        let at = self.0.iter().position(|one| *one == entry)?;
        let next = self.0.get(at.checked_sub(1)?)?;
        (next.value == entry.value).then_some(next.written)
    }

    /// The entry before this one.
    pub fn before(&self, entry: LabelEntry) -> Option<LabelEntry> {
        let at = self.0.iter().position(|one| *one == entry)?;
        self.0.get(at + 1).copied()
    }

    /// Value of the label at a moment: that of the newest entry which is not later.
    pub fn at(&self, moment: Timestamp) -> PastLabel {
        if let Some(entry) = self.0.iter().find(|entry| entry.written <= moment) {
            return PastLabel::Known(*entry);
        }
        match self.0.last() {
            Some(oldest) if self.0.len() == ENTRIES => PastLabel::Dropped(oldest.written),
            Some(oldest) => PastLabel::Before(oldest.written),
            None => PastLabel::NoHistory,
        }
    }
}

impl fmt::Display for LabelHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            write!(f, "{}{entry}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::labels::TOP;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn entry(level: u8, at: i64) -> LabelEntry {
        LabelEntry { value: LabelValue::Level(level), written: second(at) }
    }

    fn parsed(text: &str) -> LabelHistory {
        LabelHistory::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_time("12")]
    #[case::no_level("@1764364800")]
    #[case::blank("12@1764364800, 9@1764360000")]
    #[case::comma("12@1764364800,")]
    #[case::level("16@1764364800")]
    #[case::spelled_otherwise("12@01764364800")]
    #[case::sign("12@+1764364800")]
    #[case::before_all("12@0")]
    #[case::negative("12@-5")]
    #[case::fraction("12@1764364800.5")]
    #[case::no_second("12@999999999999999")]
    #[case::two_times("12@1764364800@1764364800")]
    #[case::oldest_first("9@1764360000,12@1764364800")]
    #[case::nine("1@9,1@8,1@7,1@6,1@5,1@4,1@3,1@2,1@1")]
    fn other_text_is_no_history(#[case] text: &str) {
        assert_eq!(LabelHistory::parse(text), None);
    }

    #[test]
    fn each_write_is_the_newest_entry_and_eight_are_kept() {
        let mut history = LabelHistory::default();
        for at in 1..=10 {
            history = history.with(LabelValue::Level(u8::try_from(at).expect("a level")), second(100 * at));
        }
        assert_eq!(history.to_string(), "10@1000,9@900,8@800,7@700,6@600,5@500,4@400,3@300");
        let restored = history.with(LabelValue::Level(10), second(1001));
        assert!(restored.to_string().starts_with("10@1001,10@1000,"), "{restored}");
        let repelled = parsed("12@5").with(LabelValue::Rejected, "1970-01-01T00:00:09.9Z".parse().expect("a time"));
        assert_eq!(repelled.to_string(), "rejected@9,12@5");
    }

    #[test]
    fn a_clock_that_is_behind_keeps_the_order_and_a_history_of_the_future_ends() {
        let history = parsed("12@1000,9@900");
        assert_eq!(history.with(LabelValue::Level(3), second(998)).to_string(), "3@1000,12@1000,9@900");
        assert_eq!(history.with(LabelValue::Level(3), second(939)).to_string(), "3@939");
    }

    #[test]
    fn the_past_is_known_back_to_the_oldest_entry() {
        let history = parsed("12@1000,9@900");
        let restored = parsed("12@1100,12@1000,9@900");
        assert_eq!(restored.restored(entry(12, 1000)), Some(second(1100)));
        assert_eq!(restored.before(entry(12, 1000)), Some(entry(9, 900)));
        assert_eq!(restored.before(entry(9, 900)), None);
        assert_eq!([entry(12, 1100), entry(9, 900)].map(|entry| restored.restored(entry)), [None, None]);
        assert_eq!(history.at(second(2000)), PastLabel::Known(entry(12, 1000)));
        assert_eq!(history.at(second(1000)), PastLabel::Known(entry(12, 1000)));
        assert_eq!(history.at(second(999)), PastLabel::Known(entry(9, 900)));
        assert_eq!(history.at(second(899)), PastLabel::Before(second(900)));
        assert_eq!(parsed("8@8,7@7,6@6,5@5,4@4,3@3,2@2,1@2").at(second(1)), PastLabel::Dropped(second(2)));
        assert_eq!(LabelHistory::default().at(second(1)), PastLabel::NoHistory);
    }

    #[test]
    fn the_longest_history_fits() {
        let last = Timestamp::MAX.as_second();
        let text = vec![format!("rejected@{last}"); ENTRIES].join(",");
        assert_eq!(parsed(&text).to_string(), text);
    }

    proptest! {
        /// Text that can be parsed is written again as it was.
        #[test]
        fn a_history_is_written_as_it_was_read(text in "(1?[0-9]|rejected)@[0-9]{1,3}(,(1?[0-9]|rejected)@[0-9]{1,3}){0,9}") {
            if let Some(history) = LabelHistory::parse(&text) {
                prop_assert_eq!(history.to_string(), text);
            }
        }

        /// After any writes, also with a clock that jumps, the history can be parsed, ends with the last value, and has
        /// only values that were written.
        #[test]
        fn writes_leave_a_history(writes in prop::collection::vec((0_u8..=TOP, 1_i64..300), 1..20)) {
            let mut history = LabelHistory::default();
            for (level, at) in &writes {
                history = history.with(LabelValue::Level(*level), second(*at));
                prop_assert_eq!(LabelHistory::parse(&history.to_string()), Some(history.clone()));
                prop_assert_eq!(history.newest().map(|entry| entry.value), Some(LabelValue::Level(*level)));
            }
        }

        /// With a clock that goes on, the answer about the last eight writes is right. There is none about older ones.
        #[test]
        fn the_state_of_the_last_writes_is_right(
            pauses in prop::collection::vec((0_u8..=TOP, 1_i64..100), 1..20),
            moment in 0_i64..2000,
        ) {
            let (mut history, mut written, mut now) = (LabelHistory::default(), Vec::new(), 0);
            for (level, pause) in pauses {
                now += pause;
                history = history.with(LabelValue::Level(level), second(now));
                written.push(entry(level, now));
            }
            let recent = &written[written.len().saturating_sub(ENTRIES)..];
            let expected = match recent.iter().rev().find(|entry| entry.written <= second(moment)) {
                Some(entry) => PastLabel::Known(*entry),
                None if recent.len() == ENTRIES => PastLabel::Dropped(recent[0].written),
                None => PastLabel::Before(recent[0].written),
            };
            prop_assert_eq!(history.at(second(moment)), expected);
        }
    }
}
