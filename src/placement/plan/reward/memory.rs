//! The values learned from pods, and the failures that were counted.

use super::recent::{Group, Recent};
use super::{RewardRules, updated};
use crate::world::PodFailure;
use ganglion_core::facts::RunFailure;

/// Minimum difference from the initial value. A value that is closer to it is not stored.
const NEAR: f64 = 5e-7;

/// Values from 0 to 1 per pod type and node, stored if they differ from the initial value.
///
/// Each failure of a container counts once, no matter how often the watch reports the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardMemory {
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
    pub fn of(&self, node: &str) -> f64 {
        self.learned(node).unwrap_or(self.initial)
    }

    /// Score of a node, 0 to 10.
    pub fn score(&self, node: &str) -> f64 {
        10.0 * self.of(node)
    }
}

impl RewardMemory {
    /// Learns from a failed pod. Only the worst of its uncounted failures counts.
    pub fn fail(&mut self, pod: &PodFailure, rules: &RewardRules) {
        let new = pod.failures.iter().filter(|failure| self.count(&pod.uid, failure, rules));
        let worst = new.map(|failure| rules.judge(failure)).reduce(f64::min);
        if let Some(reward) = worst {
            self.learn((&pod.pod_type, &pod.node), reward, 1, rules);
        }
    }

    /// Marks a failure as counted. Returns whether it was not counted before.
    pub fn count(&mut self, uid: &str, failure: &RunFailure, rules: &RewardRules) -> bool {
        let is_new = self.counted.get(uid, &failure.container) != Some(&failure.restarts);
        self.counted.set(uid, &failure.container, failure.restarts, rules.sizes.counted);
        is_new
    }

    /// Adds a reward for a pod type on a node, `times` times.
    pub fn learn(&mut self, (pod_type, node): (&str, &str), reward: f64, times: i32, rules: &RewardRules) {
        let value = self.of_type(pod_type, rules).of(node);
        self.set(pod_type, node, updated(value, reward, rules.weight, times), rules);
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
