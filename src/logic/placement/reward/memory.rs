//! What was learned from pods, and which of their runs were counted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::recent::{Group, Recent};
use super::run::{Judgement, PodRun};
use super::{FAILURE, RUNNING, RewardRules, RewardSizes, updated};

/// The values of a type on all nodes together have this name.
const ALL: &str = "all";

/// A pod as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport<'a> {
    pub uid: &'a str,
    pub pod_type: &'a str,
    pub node: &'a str,
    pub run: PodRun,
}

/// Values from 0 to 1: of each node, of each type, and of each type on each node.
///
/// Each run of a container counts once, however often the pod is reported. Without `counted`, which takes most of the space,
/// a restart of the operator counts all runs again that have ended badly and are still reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewardMemory {
    nodes: Recent<f64>,
    types: Recent<f64>,
    pairs: Recent<f64>,
    /// By pod and container, the number of restarts at the last counted failure, or the last rewarded period of a running pod.
    #[serde(default)]
    counted: Recent<i64>,
}

/// The values of a type on nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeRewards<'a> {
    values: Group<'a, f64>,
    initial: f64,
}

impl NodeRewards<'_> {
    /// The value of a node; the initial one if no pod of the type was on it.
    #[must_use]
    pub fn of(&self, node: &str) -> f64 {
        self.values.get(node).copied().unwrap_or(self.initial)
    }

    /// The score of a node, 0 to 10.
    #[must_use]
    pub fn score(&self, node: &str) -> f64 {
        10.0 * self.of(node)
    }
}

/// Names no container: the pod itself.
const POD: &str = "";
/// Names no container: the pod as long as it runs.
const PERIOD: &str = "/";

impl RewardMemory {
    /// Learns from a pod that is not being deleted.
    pub fn observe(&mut self, pod: &PodReport<'_>, now: Timestamp, rules: &RewardRules) {
        if let Some(reward) = self.reward(pod, now, rules) {
            self.learn(pod.pod_type, pod.node, reward, rules);
        }
    }

    /// Adds a reward for a type on a node.
    pub fn learn(&mut self, pod_type: &str, node: &str, reward: f64, rules: &RewardRules) {
        let (sizes, learn) = (rules.sizes, |recent: &mut Recent<f64>, group: &str, name: &str, most: usize| {
            let value = recent.get(group, name).copied().unwrap_or(rules.initial);
            recent.set(group, name, updated(value, reward, rules.weight), most);
        });
        learn(&mut self.nodes, "", node, sizes.nodes);
        learn(&mut self.types, pod_type, ALL, sizes.types);
        learn(&mut self.pairs, pod_type, node, sizes.pairs);
    }

    /// The reward of a report; None if it says nothing new.
    fn reward(&mut self, pod: &PodReport<'_>, now: Timestamp, rules: &RewardRules) -> Option<f64> {
        let containers = match &pod.run {
            PodRun::Neutral => return None,
            PodRun::Failed => return self.is_new(pod.uid, POD, 0, rules).then_some(FAILURE),
            PodRun::Running(containers) => containers,
        };
        let (mut worst, mut runs, mut settled) = (None::<f64>, false, true);
        for container in containers {
            match container.judge(rules) {
                Judgement::Runs => runs = true,
                Judgement::Done => {}
                Judgement::Unsettled => settled = false,
                Judgement::Fails(reward) => {
                    settled = false;
                    if self.is_new(pod.uid, &container.name, container.restarts.into(), rules) {
                        worst = Some(worst.map_or(reward, |worst| worst.min(reward)));
                    }
                }
            }
        }
        worst.or_else(|| (runs && settled && self.is_due(pod.uid, now, rules)).then_some(RUNNING))
    }

    /// Counts a run, and whether it was not counted before.
    fn is_new(&mut self, uid: &str, container: &str, restarts: i64, rules: &RewardRules) -> bool {
        let is_new = self.counted.get(uid, container) != Some(&restarts);
        self.counted.set(uid, container, restarts, rules.sizes.counted);
        is_new
    }

    /// Counts a period of a running pod, and whether one has passed.
    fn is_due(&mut self, uid: &str, now: Timestamp, rules: &RewardRules) -> bool {
        let now = now.as_second();
        let is_due = self.counted.get(uid, PERIOD).is_none_or(|last| now.saturating_sub(*last) as f64 >= rules.period);
        if is_due {
            self.counted.set(uid, PERIOD, now, rules.sizes.counted);
        }
        is_due
    }

    /// The values of a type, for many nodes.
    #[must_use]
    pub fn of_type(&self, pod_type: &str, rules: &RewardRules) -> NodeRewards<'_> {
        NodeRewards { values: self.pairs.group(pod_type), initial: rules.initial }
    }

    /// How much is remembered.
    #[must_use]
    pub fn sizes(&self) -> RewardSizes {
        let Self { nodes, types, pairs, counted } = self;
        RewardSizes { nodes: nodes.len(), types: types.len(), pairs: pairs.len(), counted: counted.len() }
    }

    /// The value of a node, all types together.
    #[must_use]
    pub fn of_node(&self, node: &str) -> Option<f64> {
        self.nodes.get("", node).copied()
    }

    /// The value of a type, all nodes together.
    #[must_use]
    pub fn of_type_everywhere(&self, pod_type: &str) -> Option<f64> {
        self.types.get(pod_type, ALL).copied()
    }
}
