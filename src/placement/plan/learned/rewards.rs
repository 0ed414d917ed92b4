//! The values of the agent `reward`: how well pods of a type run on a node, and which failures were counted.
//!
//! A failed container that has been restarted and waits or runs again is not rewarded: its failure was counted when it
//! ended.

use std::collections::BTreeMap;

use crate::world::PodFailure;
use ganglion_core::facts::{NodeName, RunFailure, Uid};

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardRules {
    /// Weight of a new reward, 0 to 1.
    pub weight: f64,
    /// Value before the first reward, 0 to 1. With a high value, pods try nodes that no pod of their type has run on.
    pub initial: f64,
    /// Time in seconds. A container that runs longer than this before it fails gets [`RARE_FAILURE`].
    pub lasting: f64,
    /// Period in seconds in which a running pod is rewarded once; more than 0.
    pub period: i64,
    pub sizes: RewardSizes,
}

/// Maximum numbers of entries. Beyond them, the least recently updated entry is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewardSizes {
    /// Pairs of pod type and node.
    pub pairs: usize,
    /// Containers with a counted failure.
    pub counted: usize,
}

impl Default for RewardRules {
    fn default() -> Self {
        let sizes = RewardSizes { pairs: 20_000, counted: 20_000 };
        Self { weight: 0.1, initial: 1.0, lasting: 600.0, period: 600, sizes }
    }
}

/// Reward of a running pod.
pub const RUNNING: f64 = 1.0;
/// Reward of a container that failed after a long time.
pub const RARE_FAILURE: f64 = 0.5;
/// Reward of a container that failed soon, or of a failed pod.
pub const FAILURE: f64 = 0.0;

/// Value after `times` equal rewards.
pub fn updated(value: f64, reward: f64, weight: f64, times: i32) -> f64 {
    (reward + (value - reward) * (1.0 - weight).powi(times)).clamp(0.0, 1.0)
}

impl RewardRules {
    /// Reward of a failure, by the times that the kubelet reports. A run without times counts as one that failed soon.
    pub fn judge(&self, failure: &RunFailure) -> f64 {
        // Time since the previous failure, or since the start if there was none.
        let since = failure.failed_before.or(failure.started);
        let lasted = since.zip(failure.finished).map(|(since, end)| end.duration_since(since).as_secs_f64());
        if lasted.is_some_and(|lasted| lasted > self.lasting) { RARE_FAILURE } else { FAILURE }
    }
}

/// Minimum difference from the initial value. A value that is closer to it is not stored.
const NEAR: f64 = 5e-7;

/// Values from 0 to 1 per pod type and node, stored if they differ from the initial value.
///
/// Each failure of a container counts once, no matter how often the watch reports the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedRewards {
    pairs: Recent<f64>,
    /// Restart count at the last counted failure, by pod uid and container.
    counted: Recent<i32>,
}

/// Values of one pod type, by node.
#[derive(Clone, Copy, Debug)]
pub struct NodeRewards<'a> {
    values: Group<'a, f64>,
    initial: f64,
}

impl NodeRewards<'_> {
    /// Whether any node has a learned value for the type.
    pub fn is_known(&self) -> bool {
        self.values.is_known()
    }

    /// Learned value of a node; None if it is the initial value.
    pub fn learned(&self, node: &str) -> Option<f64> {
        self.values.get(node).copied()
    }

    /// Value of a node; the initial value if none was learned.
    pub fn value(&self, node: &str) -> f64 {
        self.learned(node).unwrap_or(self.initial)
    }

    /// Score of a node, 0 to 10.
    pub fn score(&self, node: &str) -> f64 {
        10.0 * self.value(node)
    }
}

impl LearnedRewards {
    /// Learns from a failed pod. Only the worst of its uncounted failures counts.
    pub fn fail(&mut self, pod: &PodFailure, rules: &RewardRules) {
        let new = pod.failures.iter().filter(|failure| self.count(&pod.uid, failure, rules));
        let worst = new.map(|failure| rules.judge(failure)).reduce(f64::min);
        if let Some(reward) = worst {
            self.learn((&pod.pod_type, &pod.node), reward, 1, rules);
        }
    }

    /// Marks a failure as counted. Returns whether it was not counted before.
    pub fn count(&mut self, uid: &Uid, failure: &RunFailure, rules: &RewardRules) -> bool {
        let is_new = self.counted.get(uid.as_str(), &failure.container) != Some(&failure.restarts);
        self.counted.set(uid.as_str(), &failure.container, failure.restarts, rules.sizes.counted);
        is_new
    }

    /// Adds a reward for a pod type on a node, `times` times.
    pub fn learn(&mut self, (pod_type, node): (&str, &NodeName), reward: f64, times: i32, rules: &RewardRules) {
        let value = self.of_type(pod_type, rules).value(node.as_str());
        self.set(pod_type, node.as_str(), updated(value, reward, rules.weight, times), rules);
    }

    fn set(&mut self, pod_type: &str, node: &str, value: f64, rules: &RewardRules) {
        if (value - rules.initial).abs() < NEAR {
            self.pairs.remove(pod_type, node);
        } else {
            self.pairs.set(pod_type, node, value, rules.sizes.pairs);
        }
    }

    /// Values of a pod type, for look-ups of many nodes.
    pub fn of_type(&self, pod_type: &str, rules: &RewardRules) -> NodeRewards<'_> {
        NodeRewards { values: self.pairs.group(pod_type), initial: rules.initial }
    }

    /// All values as pod type, node and value, the least recently updated first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = (&str, &str, f64)> {
        self.pairs.iter().map(|(pod_type, node, value)| (pod_type, node, *value))
    }

    /// Restores values in the order of [`Self::values`].
    pub fn restored(values: &[(String, String, f64)], rules: &RewardRules) -> Self {
        let mut memory = Self::default();
        values.iter().for_each(|(pod_type, node, value)| memory.set(pod_type, node, *value, rules));
        memory
    }

    /// Number of stored values and of counted failures.
    pub fn len(&self) -> (usize, usize) {
        (self.pairs.len(), self.counted.len())
    }
}

/// Values by group and name. With two levels, the values of one group are looked up without copying names.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent<V> {
    groups: BTreeMap<String, BTreeMap<String, Stamped<V>>>,
    /// Group and name of each entry, by the number of its last update.
    order: BTreeMap<u64, (String, String)>,
    updates: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), order: BTreeMap::new(), updates: 0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Stamped<V> {
    update: u64,
    value: V,
}

/// Values of a group; empty if the group does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a, V>(Option<&'a BTreeMap<String, Stamped<V>>>);

impl<'a, V> Group<'a, V> {
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    pub fn get(&self, name: &str) -> Option<&'a V> {
        self.0?.get(name).map(|stamped| &stamped.value)
    }
}

impl<V> Recent<V> {
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn get(&self, group: &str, name: &str) -> Option<&V> {
        self.group(group).get(name)
    }

    /// Values of a group, for look-ups of many names.
    pub fn group(&self, group: &str) -> Group<'_, V> {
        Group(self.groups.get(group))
    }

    /// Sets a value and drops the least recently updated entries beyond `most`.
    pub fn set(&mut self, group: &str, name: &str, value: V, most: usize) {
        self.updates = self.updates.saturating_add(1);
        let stamped = Stamped { update: self.updates, value };
        let old = match self.groups.get_mut(group) {
            Some(values) => values.insert(name.to_owned(), stamped),
            None => {
                self.groups.insert(group.to_owned(), BTreeMap::from([(name.to_owned(), stamped)]));
                None
            }
        };
        old.and_then(|old| self.order.remove(&old.update));
        self.order.insert(self.updates, (group.to_owned(), name.to_owned()));
        while self.order.len() > most && self.forget() {}
    }

    /// Drops the least recently updated entry; false if the map is empty.
    fn forget(&mut self) -> bool {
        let Some((_, (group, name))) = self.order.pop_first() else { return false };
        self.drop_value(&group, &name);
        true
    }

    /// Removes an entry.
    pub fn remove(&mut self, group: &str, name: &str) {
        if let Some(stamped) = self.drop_value(group, name) {
            self.order.remove(&stamped.update);
        }
    }

    fn drop_value(&mut self, group: &str, name: &str) -> Option<Stamped<V>> {
        let values = self.groups.get_mut(group)?;
        let dropped = values.remove(name);
        if values.is_empty() {
            self.groups.remove(group);
        }
        dropped
    }

    /// All entries, the least recently updated first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str, &V)> {
        self.order.values().filter_map(|(group, name)| Some((group.as_str(), name.as_str(), self.get(group, name)?)))
    }
}
