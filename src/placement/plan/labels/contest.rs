//! Labels that others change again and again. Restoring them at once each time would never end.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::plan::{LabelChange, LabelWrite};
use ganglion_core::facts::{NodeFact, NodeName};

/// Pause before the second write after a change by others. It doubles with each further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// Changes by others that are further apart count as single ones.
const APART: SignedDuration = SignedDuration::from_hours(1);

/// Number of changes by others from which on the condition names the node.
const TOLD: u32 = 3;

/// Labels that the operator wrote to nodes, and how often others changed them.
#[derive(Debug, Default)]
pub struct LabelContests(HashMap<NodeName, LabelContest>);

#[derive(Debug, Default)]
struct LabelContest {
    /// Labels as last written; None for a removed one.
    written: BTreeMap<String, Option<String>>,
    /// Number of changes by others, and the time of the last one.
    changes: u32,
    changed: Timestamp,
}

impl LabelContests {
    /// Compares the nodes with what was written, and counts changes by others.
    pub fn observe<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeFact>, now: Timestamp) {
        let mut present = HashMap::new();
        for node in nodes {
            let name = node.name();
            let Some(mut contest) = self.0.remove(&name) else { continue };
            contest.observe(node, now);
            present.insert(name, contest);
        }
        // The others were deleted.
        self.0 = present;
    }

    /// Records a write.
    pub fn record(&mut self, write: &LabelWrite) {
        let name = NodeName::from(write.node.key.name.as_str());
        let contest = self.0.entry(name).or_default();
        let text = |change: &LabelChange| change.value.to_string();
        contest.written.extend(write.set.iter().map(|(key, change)| (key.clone(), change.as_ref().map(text))));
    }

    /// Whether a node may be written now.
    pub fn may_write(&self, node: &str, now: Timestamp) -> bool {
        self.0.get(&NodeName::from(node)).is_none_or(|contest| contest.may_write(now))
    }

    /// Names a node whose labels others change again and again, and says how many there are; None without any.
    pub fn words(&self, now: Timestamp) -> Option<String> {
        let is_contested = |contest: &LabelContest| contest.changes >= TOLD && contest.is_recent(now);
        let contested = || self.0.iter().filter(|(_, contest)| is_contested(contest)).map(|(node, _)| node);
        let node = contested().min()?;
        let others = match contested().count() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "another program changes labels of node {node}{others} again and again, so they are restored less often: \
             kubectl get node {node} --show-managed-fields -o yaml names it"
        ))
    }
}

impl LabelContest {
    fn observe(&mut self, node: &NodeFact, now: Timestamp) {
        let count = self.written.len();
        // Each change counts once.
        self.written.retain(|key, value| node.labels.get(key) == value.as_ref());
        if self.written.len() < count {
            self.changes = if self.is_recent(now) { self.changes.saturating_add(1) } else { 1 };
            self.changed = now;
        }
    }

    fn is_recent(&self, now: Timestamp) -> bool {
        now.duration_since(self.changed) < APART
    }

    fn may_write(&self, now: Timestamp) -> bool {
        let doublings = self.changes.saturating_sub(2).min(16);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        self.changes < 2 || now.duration_since(self.changed) >= pause
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::labels::LabelValue;
    use crate::labels::history::LabelHistory;
    use ganglion_core::facts::{Identity, Key};

    const LABEL: &str = "d/green";

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).expect("a time")
    }

    fn node(label: Option<&str>) -> NodeFact {
        let id = Identity { key: Key::new("", "a"), uid: "a".into(), version: "1".into() };
        let labels = label.map(|label| (LABEL.to_owned(), label.to_owned())).into_iter().collect();
        NodeFact { id, labels, ..NodeFact::default() }
    }

    fn write(label: &str) -> LabelWrite {
        let value = LabelValue::parse(label).expect("a label");
        let change = LabelChange { value, history: LabelHistory::default() };
        let set = BTreeMap::from([(LABEL.to_owned(), Some(change))]);
        LabelWrite { node: node(None).id, set }
    }

    #[test]
    fn one_change_is_restored_at_once_and_a_fight_is_slowed_down() {
        let (mut contests, mut written) = (LabelContests::default(), Vec::new());
        let mut label = None;
        for now in 0..3000 {
            contests.observe([node(label)].iter(), second(now));
            if label.is_some() {
                // Another program removes it a second after each write.
                label = None;
            } else if contests.may_write("a", second(now)) {
                contests.record(&write("7"));
                written.push(now);
                label = Some("7");
            }
        }
        let pauses: Vec<i64> = written.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[0], 2);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
        assert!(pauses.last().is_some_and(|last| *last >= 600), "{pauses:?}");
        let words = contests.words(second(3000)).expect("a fight");
        assert!(words.starts_with("another program changes labels of node a again and again"), "{words}");
        assert_eq!(contests.words(second(3000 + 3700)), None, "over");
    }

    #[test]
    fn own_writes_and_rare_changes_are_no_fight() {
        let mut contests = LabelContests::default();
        for day in 0..10 {
            let now = second(day * 86_400);
            for label in ["7", "8"] {
                contests.record(&write(label));
                contests.observe([node(Some(label))].iter(), now);
            }
            contests.observe([node(Some("3"))].iter(), now);
            assert!(contests.may_write("a", now));
        }
        assert_eq!(contests.words(second(9 * 86_400)), None);
        contests.observe([].iter(), second(0));
        assert!(contests.0.is_empty(), "a deleted node is forgotten");
    }

    proptest! {
        /// Whatever others do, a label is written again after the longest pause.
        #[test]
        fn each_label_is_restored_in_the_end(changes in prop::collection::vec((0_i64..900, "[0-9]"), 0..40)) {
            let (mut contests, mut now) = (LabelContests::default(), 0);
            for (pause, label) in changes {
                now += pause;
                contests.record(&write("15"));
                contests.observe([node(Some(&label))].iter(), second(now));
            }
            prop_assert!(contests.may_write("a", second(now + 600)));
        }
    }
}
