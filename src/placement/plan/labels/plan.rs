//! The nodes to write now. One write sets the labels of all policies.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::LabelValue;
use super::history::LabelHistory;
use ganglion_api::marks::LABEL_DOMAIN;
use ganglion_core::facts::{Identity, NodeFact, NodeName};

/// A label that differs by fewer levels than this can wait, since each write wakes all watchers of nodes.
const URGENT: u8 = 3;

/// Time over which writes that can wait are counted, and part of the nodes that may be written in it.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const SHARE: usize = 10;

/// Labels of a policy.
#[derive(Clone, Debug)]
pub struct WantedLabels {
    pub key: String,
    /// Value by node; None if the policy is invalid at present, so that its labels stay.
    pub values: Option<HashMap<NodeName, LabelValue>>,
}

/// A label to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelChange {
    pub value: LabelValue,
    /// History before the change.
    pub history: LabelHistory,
}

/// Labels of a node to write; None removes a label and its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelWrite {
    pub node: Identity,
    pub set: BTreeMap<String, Option<LabelChange>>,
}

impl LabelWrite {
    /// Merge patch of the node: the labels, and as annotations with the same keys their histories.
    pub fn patch(&self, now: Timestamp) -> Value {
        let value = |change: &LabelChange| change.value.to_string();
        let history = |change: &LabelChange| change.history.with(change.value, now).to_string();
        // The uid is a precondition: another node may have the name meanwhile.
        json!({"metadata": {"uid": self.node.uid, "labels": self.each(value), "annotations": self.each(history)}})
    }

    fn each(&self, text: impl Fn(&LabelChange) -> String) -> BTreeMap<&str, Option<String>> {
        self.set.iter().map(|(key, change)| (key.as_str(), change.as_ref().map(&text))).collect()
    }
}

/// Writes that follow from the wanted labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPlan {
    /// Missing, removed and very different labels, and those of policies that no longer exist.
    pub urgent: Vec<LabelWrite>,
    /// The others, the largest difference first.
    pub minor: Vec<LabelWrite>,
}

impl LabelPlan {
    /// Names of the nodes to write.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.urgent.iter().chain(&self.minor).map(|write| write.node.key.name.as_str())
    }

    /// Keeps the writes that this returns true for.
    pub fn retain(&mut self, keep: impl Fn(&LabelWrite) -> bool) {
        self.urgent.retain(&keep);
        self.minor.retain(&keep);
    }
}

/// Compares the labels of all nodes with those that the policies want. Unless the policies are complete, labels of
/// others stay. `is_filling` says whether a node has got pods since its labels were written: then, a lower label is
/// urgent, since the scheduler goes on to place pods there.
pub fn plan<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    wanted: &[WantedLabels],
    is_complete: bool,
    is_filling: impl Fn(&NodeName) -> bool,
) -> LabelPlan {
    let mut plan = LabelPlan::default();
    let mut minor = Vec::new();
    for node in nodes.filter(|node| !node.terminating) {
        let LabelChanges { set, step, lowers } = changes(node, wanted, is_complete);
        if set.is_empty() {
            continue;
        }
        let write = LabelWrite { node: node.id.clone(), set };
        let is_urgent = step >= URGENT || lowers && is_filling(&node.name());
        if is_urgent { plan.urgent.push(write) } else { minor.push((step, write)) }
    }
    minor.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.node.key.cmp(&other.1.node.key)));
    plan.minor = minor.into_iter().map(|(_, write)| write).collect();
    plan
}

/// Labels of a node that have to change.
#[derive(Default)]
struct LabelChanges {
    set: BTreeMap<String, Option<LabelChange>>,
    /// Largest difference in levels.
    step: u8,
    /// Whether a level falls.
    lowers: bool,
}

fn changes(node: &NodeFact, wanted: &[WantedLabels], is_complete: bool) -> LabelChanges {
    let mut changes = LabelChanges::default();
    let name = node.name();
    for WantedLabels { key, values } in wanted {
        let Some(value) = values.as_ref().and_then(|values| values.get(&name)) else { continue };
        let present = node.labels.get(key);
        let step = match (present.and_then(|text| LabelValue::parse(text)), value) {
            (Some(present), value) if present == *value => continue,
            (Some(LabelValue::Level(present)), LabelValue::Level(level)) => {
                changes.lowers |= *level < present;
                present.abs_diff(*level)
            }
            (None | Some(_), _) => u8::MAX,
        };
        changes.step = changes.step.max(step);
        let change = LabelChange { value: *value, history: LabelHistory::of(node, key) };
        changes.set.insert(key.clone(), Some(change));
    }
    let is_wanted = |key: &str| !is_complete || wanted.iter().any(|one| one.key == key);
    for key in node.labels.keys().filter(|key| key.starts_with(LABEL_DOMAIN) && !is_wanted(key)) {
        changes.step = u8::MAX;
        changes.set.insert(key.clone(), None);
    }
    changes
}

/// Limits the writes that can wait to a tenth of the nodes per minute.
#[derive(Debug, Default)]
pub struct MinorWrites(VecDeque<Timestamp>);

impl MinorWrites {
    /// Number of writes that are possible now, in a cluster with so many nodes.
    pub fn left(&mut self, nodes: usize, now: Timestamp) -> usize {
        while self.0.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.0.pop_front();
        }
        nodes.div_ceil(SHARE).saturating_sub(self.0.len())
    }

    pub fn record(&mut self, writes: usize, now: Timestamp) {
        self.0.extend(std::iter::repeat_n(now, writes));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::labels::{TOP, key};
    use ganglion_core::facts::Key;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeFact {
        let id = Identity { key: Key::new("", name), uid: name.into(), version: "1".into() };
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeFact { id, labels, ..NodeFact::default() }
    }

    fn wanted(policy: &str, values: &[(&str, LabelValue)]) -> WantedLabels {
        let values = values.iter().map(|(node, value)| (NodeName::from(*node), *value)).collect();
        WantedLabels { key: key(policy), values: Some(values) }
    }

    fn names(writes: &[LabelWrite]) -> Vec<&str> {
        writes.iter().map(|write| write.node.key.name.as_str()).collect()
    }

    #[test]
    fn a_write_has_all_labels_of_a_node_that_differ() {
        let (green, blue, old) = (key("green"), key("blue"), key("old"));
        let nodes = [node("a", &[(&green, "7"), (&blue, "9"), (&old, "3"), ("zone", "a")])];
        let level = LabelValue::Level;
        let wanted = [wanted("green", &[("a", level(8))]), wanted("blue", &[("a", level(9))])];
        let plan = plan(nodes.iter(), &wanted, true, |_| false);
        assert_eq!(plan.urgent.len(), 1);
        let change = LabelChange { value: LabelValue::Level(8), history: LabelHistory::default() };
        let expected = BTreeMap::from([(green, Some(change)), (old, None)]);
        assert_eq!(plan.urgent[0].set, expected);
    }

    #[test]
    fn a_patch_writes_the_history_of_each_label_and_removes_it_with_the_label() {
        let (green, blue, old) = (key("green"), key("blue"), key("old"));
        let mut node = node("a", &[(&green, "7"), (&old, "3")]);
        let histories = [(&green, "7@1000,15@900"), (&blue, "no history"), (&old, "3@800")];
        node.label_histories = histories.map(|(key, text)| (key.as_str().into(), text.into())).into();
        let level = LabelValue::Level;
        let wanted = [wanted("green", &[("a", level(2))]), wanted("blue", &[("a", LabelValue::Rejected)])];
        let plan = plan([node].iter(), &wanted, true, |_| false);
        let patch = plan.urgent[0].patch(Timestamp::from_millisecond(1_500_700).expect("a time"));
        let expected = json!({"metadata": {
            "uid": "a",
            "labels": {&green: "2", &blue: "rejected", &old: null},
            "annotations": {&green: "2@1500,7@1000,15@900", &blue: "rejected@1500", &old: null},
        }});
        assert_eq!(patch, expected);
    }

    #[test]
    fn missing_and_very_different_labels_are_urgent_and_small_steps_can_wait() {
        let green = key("green");
        let label = |value| vec![(green.as_str(), value)];
        let nodes = [
            node("new", &[]),
            node("broken", &label("best")),
            node("far", &label("7")),
            node("rejected", &label("rejected")),
            node("near", &label("9")),
            node("nearer", &label("8")),
            node("right", &label("10")),
        ];
        let all: Vec<_> = nodes.iter().map(|node| (node.id.key.name.as_str(), LabelValue::Level(10))).collect();
        let mut going = node("going", &[]);
        going.terminating = true;
        let plan = plan(nodes.iter().chain([&going]), &[wanted("green", &all)], true, |_| false);
        assert_eq!(names(&plan.urgent), ["new", "broken", "far", "rejected"]);
        assert_eq!(names(&plan.minor), ["nearer", "near"]);
    }

    #[test]
    fn a_node_that_fills_gets_a_lower_label_at_once() {
        let green = key("green");
        let nodes = [node("fills", &[(&green, "9")]), node("empties", &[(&green, "9")])];
        let level = LabelValue::Level;
        let wanted = [wanted("green", &[("fills", level(8)), ("empties", level(10))])];
        let plan = plan(nodes.iter(), &wanted, true, |_| true);
        assert_eq!((names(&plan.urgent), names(&plan.minor)), (vec!["fills"], vec!["empties"]));
    }

    #[test]
    fn labels_of_an_invalid_policy_stay_and_those_of_a_deleted_one_go() {
        let green = key("green");
        let nodes = [node("a", &[(&green, "7")])];
        let invalid = WantedLabels { key: green.clone(), values: None };
        assert_eq!(plan(nodes.iter(), &[invalid], true, |_| false), LabelPlan::default());
        assert_eq!(
            plan(nodes.iter(), &[], false, |_| false),
            LabelPlan::default(),
            "a policy that cannot be read may want it"
        );
        let removed = plan(nodes.iter(), &[], true, |_| false);
        assert_eq!(removed.urgent[0].set, BTreeMap::from([(green, None)]));
    }

    proptest! {
        /// Writes that can wait are at most a tenth of the nodes in any minute, and one in small clusters.
        #[test]
        fn small_steps_cost_at_most_a_tenth_of_the_nodes_a_minute(
            nodes in 1_usize..200,
            pauses in prop::collection::vec((0_i64..40, 0_usize..30), 1..60),
        ) {
            let (mut writes, mut now, mut written) = (MinorWrites::default(), 1000, Vec::new());
            for (pause, asked) in pauses {
                now += pause;
                let at = Timestamp::from_second(now).expect("a time");
                let count = writes.left(nodes, at).min(asked);
                writes.record(count, at);
                written.push((now, count));
                let within: usize =
                    written.iter().filter(|(at, _)| now - at < 60).map(|(_, count)| count).sum();
                prop_assert!(within <= nodes.div_ceil(10));
            }
        }

        /// After all writes are applied, nothing is left to write.
        #[test]
        fn writes_bring_what_is_wanted(
            present in prop::collection::vec(prop::option::of("[0-9]{1,2}|rejected|x"), 1..20),
            levels in prop::collection::vec(0_u8..=TOP, 20),
        ) {
            let green = key("green");
            let mut nodes: Vec<NodeFact> = present.iter().enumerate().map(|(at, label)| {
                let labels: Vec<(&str, &str)> = label.iter().map(|text| (green.as_str(), text.as_str())).collect();
                node(&format!("n{at}"), &labels)
            }).collect();
            let names: Vec<String> = nodes.iter().map(|node| node.id.key.name.clone()).collect();
            let values: Vec<_> =
                names.iter().zip(&levels).map(|(name, level)| (name.as_str(), LabelValue::Level(*level))).collect();
            let wanted = [wanted("green", &values)];
            let LabelPlan { urgent, minor } = plan(nodes.iter(), &wanted, true, |_| false);
            for LabelWrite { node, set } in urgent.into_iter().chain(minor) {
                let fact = nodes.iter_mut().find(|fact| fact.id == node).expect("the node");
                for (key, value) in set {
                    match value {
                        Some(change) => fact.labels.insert(key, change.value.to_string()),
                        None => fact.labels.remove(&key),
                    };
                }
            }
            prop_assert_eq!(plan(nodes.iter(), &wanted, true, |_| false), LabelPlan::default());
        }
    }
}
