//! Nodes whose labels others change again and again, or refuse to accept. Writing them at once each time would never
//! end, and the labels of the other nodes are valid all the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use super::plan::{LabelChange, LabelWrite};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::facts::{NodeFact, NodeName};

/// Pause before the second write after a change by others. It doubles with each further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// Changes by others that are further apart count as single ones.
const APART: SignedDuration = SignedDuration::from_hours(1);

/// Number of changes by others from which on the condition names the node.
const TOLD: u32 = 3;

/// Nodes whose labels may be outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesAside {
    pub reason: PolicyReason,
    pub words: String,
    pub nodes: usize,
}

/// Labels that the operator wrote to nodes, and how often others changed or refused them.
#[derive(Debug, Default)]
pub struct LabelContests(HashMap<NodeName, LabelContest>);

#[derive(Debug, Default)]
struct LabelContest {
    /// Labels as last written; None for a removed one.
    written: BTreeMap<String, Option<String>>,
    /// Number of changes by others, and the time of the last one.
    changes: u32,
    changed: Timestamp,
    /// Number of writes that were refused since the last one that was accepted, and the last refusal.
    refusals: u32,
    refused: Timestamp,
    why: String,
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
        contest.refusals = 0;
        contest.written.extend(write.set.iter().map(|(key, change)| (key.clone(), change.as_ref().map(text))));
    }

    /// Records that the write to this node was refused. The other nodes can be written.
    pub fn refuse(&mut self, node: &str, why: String, now: Timestamp) {
        let contest = self.0.entry(NodeName::from(node)).or_default();
        (contest.refusals, contest.refused, contest.why) = (contest.refusals.saturating_add(1), now, why);
    }

    /// Whether a node may be written now.
    pub fn may_write(&self, node: &str, now: Timestamp) -> bool {
        self.0.get(&NodeName::from(node)).is_none_or(|contest| contest.may_write(now))
    }

    /// Forgets the refusals of all nodes but these, which have to be written: the others have the right labels.
    pub fn forget_refusals<'a>(&mut self, unwritten: impl Iterator<Item = &'a str>) {
        let unwritten: HashSet<&str> = unwritten.collect();
        let right = self.0.iter_mut().filter(|(node, _)| !unwritten.contains(node.as_str()));
        right.for_each(|(_, contest)| contest.refusals = 0);
    }

    /// Names a node whose labels cannot be kept, and says how many there are; None without any.
    pub fn aside(&self, now: Timestamp) -> Option<NodesAside> {
        let is_refused = |contest: &LabelContest| contest.refusals > 0;
        let is_contested = |contest: &LabelContest| contest.changes >= TOLD && contest.is_recent(now);
        let aside = || self.0.iter().filter(|(_, contest)| is_refused(contest) || is_contested(contest));
        let nodes = aside().count();
        // A refusal first: it says what to do.
        let (node, contest) = aside().min_by_key(|(node, contest)| (!is_refused(contest), *node))?;
        let others = if nodes > 1 { format!(" and {} more", nodes - 1) } else { String::new() };
        let (reason, words) = if is_refused(contest) {
            (PolicyReason::LabelsNotWritten, format!("node {node}{others} cannot be labeled: {}", contest.why))
        } else {
            let words = format!(
                "another program changes labels of node {node}{others} again and again, so they are restored less \
                 often: kubectl get node {node} --show-managed-fields -o yaml names it"
            );
            (PolicyReason::LabelsContested, words)
        };
        Some(NodesAside { reason, words, nodes })
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
        let may_restore = self.changes < 2 || now.duration_since(self.changed) >= pause(self.changes - 1);
        let may_try = self.refusals == 0 || now.duration_since(self.refused) >= pause(self.refusals);
        may_restore && may_try
    }
}

/// Pause after so many changes or refusals, at least one.
fn pause(times: u32) -> SignedDuration {
    let doublings = times.saturating_sub(1).min(16);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
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
        let NodesAside { reason, words, nodes } = contests.aside(second(3000)).expect("a fight");
        assert_eq!((reason, nodes), (PolicyReason::LabelsContested, 1));
        assert!(words.starts_with("another program changes labels of node a again and again"), "{words}");
        assert_eq!(contests.aside(second(3000 + 3700)), None, "over");
    }

    #[test]
    fn a_refused_write_is_tried_less_and_less_often_and_the_first_accepted_one_ends_that() {
        let (mut contests, mut tried) = (LabelContests::default(), Vec::new());
        contests.refuse("b", "no".to_owned(), second(0));
        for now in 0..3000 {
            if contests.may_write("a", second(now)) {
                contests.refuse("a", format!("webhook: {now}"), second(now));
                tried.push(now);
            }
        }
        assert_eq!(tried, [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430]);
        let words = "node a and 1 more cannot be labeled: webhook: 2430".to_owned();
        let expected = NodesAside { reason: PolicyReason::LabelsNotWritten, words, nodes: 2 };
        assert_eq!(contests.aside(second(3000)), Some(expected));
        contests.record(&write("7"));
        assert!(contests.may_write("a", second(3000)));
        assert!(contests.aside(second(3000)).is_some_and(|aside| aside.words.starts_with("node b cannot")));
        contests.forget_refusals(["b"].into_iter());
        assert!(contests.aside(second(3000)).is_some());
        contests.forget_refusals([].into_iter());
        assert_eq!(contests.aside(second(3000)), None, "node b has the right label without a write");
    }

    #[test]
    fn refused_and_changed_nodes_are_counted_together() {
        let mut contests = LabelContests::default();
        for now in 0..3 {
            contests.record(&write("7"));
            contests.observe([node(Some("9"))].iter(), second(now));
        }
        contests.refuse("b", "no".to_owned(), second(3));
        let words = "node b and 1 more cannot be labeled: no".to_owned();
        let expected = NodesAside { reason: PolicyReason::LabelsNotWritten, words, nodes: 2 };
        assert_eq!(contests.aside(second(3)), Some(expected));
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
        assert_eq!(contests.aside(second(9 * 86_400)), None);
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
