//! What was learned from pods, and which of their failures were counted.

use super::recent::{Group, Recent};
use super::{RewardRules, updated};
use ganglion_core::facts::RunFailure;
use ganglion_core::world::PodFailure;

/// A value that differs less from the initial one is not remembered.
const NEAR: f64 = 5e-7;

/// Values from 0 to 1 of each type of pods on each node, where they differ from the initial one.
///
/// Each failure of a container counts once, however often the pod is reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardMemory {
    pairs: Recent<f64>,
    /// By pod and container, the number of restarts at the last counted failure.
    counted: Recent<i32>,
}

/// The values of a type on nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeRewards<'a> {
    values: Group<'a, f64>,
    initial: f64,
}

impl NodeRewards<'_> {
    /// Whether something was learned of the type on some node.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.values.is_known()
    }

    /// What was learned of the type on a node, if it is not the initial value.
    #[must_use]
    pub fn learned(&self, node: &str) -> Option<f64> {
        self.values.get(node).copied()
    }

    /// The value of a node; the initial one if no pod of the type was on it.
    #[must_use]
    pub fn of(&self, node: &str) -> f64 {
        self.learned(node).unwrap_or(self.initial)
    }

    /// The score of a node, 0 to 10.
    #[must_use]
    pub fn score(&self, node: &str) -> f64 {
        10.0 * self.of(node)
    }
}

impl RewardMemory {
    /// Learns from a failed pod: from the worst of its failures that were not counted before.
    pub fn fail(&mut self, pod: &PodFailure, rules: &RewardRules) {
        let new = pod.failures.iter().filter(|failure| self.count(&pod.uid, failure, rules));
        let worst = new.map(|failure| rules.judge(failure)).reduce(f64::min);
        if let Some(reward) = worst {
            self.learn((&pod.pod_type, &pod.node), reward, 1, rules);
        }
    }

    /// Counts a failure; whether it was not counted before.
    pub fn count(&mut self, uid: &str, failure: &RunFailure, rules: &RewardRules) -> bool {
        let is_new = self.counted.get(uid, &failure.container) != Some(&failure.restarts);
        self.counted.set(uid, &failure.container, failure.restarts, rules.sizes.counted);
        is_new
    }

    /// Adds a reward for a type on a node, so many times.
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

    /// The values of a type, for many nodes.
    #[must_use]
    pub fn of_type(&self, pod_type: &str, rules: &RewardRules) -> NodeRewards<'_> {
        NodeRewards { values: self.pairs.group(pod_type), initial: rules.initial }
    }

    /// Every value by type and node, the one updated least recently first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = (&str, &str, f64)> {
        self.pairs.iter().map(|(pod_type, node, value)| (pod_type, node, *value))
    }

    /// The memory with these values, in the order of [`Self::values`].
    #[must_use]
    pub fn restored(values: &[(String, String, f64)], rules: &RewardRules) -> Self {
        let mut memory = Self::default();
        values.iter().for_each(|(pod_type, node, value)| memory.set(pod_type, node, *value, rules));
        memory
    }

    /// How many pairs and failures are remembered.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.pairs.len(), self.counted.len())
    }
}
