//! Learns from the pods of a world: from failures as they are noted, and from running pods once in a period.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{RUNNING, RewardMemory, RewardRules};
use crate::memory::SavedMemory;
use ganglion_core::facts::PodRun;
use ganglion_core::world::{PodFailure, World, is_placed};

/// What one policy learns.
#[derive(Clone, Debug, Default)]
pub struct RewardLearner {
    /// Shared with those who score by it.
    memory: Arc<RewardMemory>,
    /// The failures up to here are learned, by the clock of the world.
    clock: u64,
    /// When running pods were last rewarded.
    rewarded: Option<Timestamp>,
}

/// Whether the policy is for the pods of a scheduler.
type IsOurs<'a> = &'a dyn Fn(&str) -> bool;

impl RewardLearner {
    /// From what was saved, and from the pods that there are.
    #[must_use]
    pub fn begin(world: &World, is_ours: IsOurs<'_>, saved: Option<&SavedMemory>, rules: &RewardRules) -> Self {
        let mut memory = saved.map(|saved| RewardMemory::restored(&saved.rewards, rules)).unwrap_or_default();
        for pod in world.pods().filter(|pod| is_ours(&pod.scheduler)).filter_map(PodFailure::of) {
            for failure in &pod.failures {
                // What has failed before is in what was saved.
                let at = failure.finished.unwrap_or(pod.created);
                if saved.is_some_and(|saved| at <= saved.saved_at) {
                    memory.count(&pod.uid, failure, rules);
                }
            }
            memory.fail(&pod, rules);
        }
        let rewarded = saved.and_then(|saved| saved.rewarded_at);
        Self { memory: Arc::new(memory), clock: world.placement_clock(), rewarded }
    }

    /// Takes in what has happened since; whether something was learned.
    pub fn follow(&mut self, world: &World, is_ours: IsOurs<'_>, rules: &RewardRules, now: Timestamp) -> bool {
        let mut failures = world.failures_since(self.clock).filter(|pod| is_ours(&pod.scheduler)).peekable();
        let is_due = self.is_due(rules, now);
        let is_new = is_due || failures.peek().is_some();
        if is_new {
            let memory = Arc::make_mut(&mut self.memory);
            failures.for_each(|pod| memory.fail(pod, rules));
            if is_due {
                reward(memory, world, is_ours, rules);
                self.rewarded = Some(now);
            }
        }
        self.clock = world.placement_clock();
        is_new
    }

    /// Whether a period has begun since running pods were last rewarded. Periods begin at the same times on all replicas, and
    /// after a restart; a clock that was set back does not stop rewards.
    fn is_due(&self, rules: &RewardRules, now: Timestamp) -> bool {
        let period = |at: Timestamp| at.as_second().div_euclid(rules.period.max(1));
        self.rewarded.is_none_or(|last| period(last) != period(now))
    }

    /// What was learned.
    #[must_use]
    pub fn memory(&self) -> &Arc<RewardMemory> {
        &self.memory
    }

    /// When running pods were last rewarded.
    #[must_use]
    pub fn rewarded(&self) -> Option<Timestamp> {
        self.rewarded
    }
}

/// Rewards the pods that run: those of one type on one node at once, as there may be very many.
fn reward(memory: &mut RewardMemory, world: &World, is_ours: IsOurs<'_>, rules: &RewardRules) {
    let mut running: HashMap<(&str, &str), i32> = HashMap::new();
    let steady = world.pods().filter(|pod| pod.run == PodRun::Steady && !pod.terminating && is_placed(pod));
    for pod in steady.filter(|pod| is_ours(&pod.scheduler)) {
        if let Some(node) = pod.node.as_deref() {
            *running.entry((pod.pod_type(), node)).or_default() += 1;
        }
    }
    let mut running: Vec<_> = running.into_iter().collect();
    // What is forgotten first is the same on all replicas.
    running.sort_unstable();
    running.into_iter().for_each(|(pair, times)| memory.learn(pair, RUNNING, times, rules));
}
