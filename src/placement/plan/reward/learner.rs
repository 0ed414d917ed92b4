//! Learning from the pods of a world: from failures as they are recorded, and from running pods once per period.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{RUNNING, RewardMemory, RewardRules};
use crate::memory::SavedMemory;
use crate::world::{PlacementWorld, PodFailure, is_placed};
use ganglion_core::facts::{PodFact, PodRun};
use ganglion_core::world::World;

/// Learning state of one policy.
#[derive(Clone, Debug, Default)]
pub struct RewardLearner {
    /// Learned values, shared with requests that score by them.
    memory: Arc<RewardMemory>,
    /// Clock of the world up to which failures have been learned.
    clock: u64,
    /// Time at which running pods were last rewarded.
    rewarded: Option<Timestamp>,
}

/// Predicate: whether the policy applies to the pods of a scheduler.
type IsOurs<'a> = &'a dyn Fn(&str) -> bool;

impl RewardLearner {
    /// Starts from saved values and from the failures of existing pods.
    pub fn begin(world: &World, is_ours: IsOurs<'_>, saved: Option<&SavedMemory>, rules: &RewardRules) -> Self {
        let mut memory = saved.map(|saved| RewardMemory::restored(&saved.rewards, rules)).unwrap_or_default();
        for pod in world.all::<PodFact>().filter(|pod| is_ours(&pod.scheduler)).filter_map(PodFailure::of) {
            for failure in &pod.failures {
                // Failures up to the save are included in the saved values.
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

    /// Learns from all events since the last call. Returns whether anything was learned.
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

    /// Whether a new period has started since running pods were last rewarded. Periods start at the same times on all
    /// replicas and after a restart. Setting the clock back does not stop rewards.
    fn is_due(&self, rules: &RewardRules, now: Timestamp) -> bool {
        let period = |at: Timestamp| at.as_second().div_euclid(rules.period.max(1));
        self.rewarded.is_none_or(|last| period(last) != period(now))
    }

    /// The learned values.
    pub fn memory(&self) -> &Arc<RewardMemory> {
        &self.memory
    }

    /// Time at which running pods were last rewarded.
    pub fn rewarded(&self) -> Option<Timestamp> {
        self.rewarded
    }
}

/// Rewards running pods. Pods of one type on one node are rewarded in one step, since there may be very many.
fn reward(memory: &mut RewardMemory, world: &World, is_ours: IsOurs<'_>, rules: &RewardRules) {
    let mut running: HashMap<(&str, &str), i32> = HashMap::new();
    let steady = world.all::<PodFact>().filter(|pod| pod.run == PodRun::Steady && !pod.terminating && is_placed(pod));
    for pod in steady.filter(|pod| is_ours(&pod.scheduler)) {
        if let Some(node) = pod.node.as_deref() {
            *running.entry((pod.pod_type(), node)).or_default() += 1;
        }
    }
    let mut running: Vec<_> = running.into_iter().collect();
    // Sorted, so that all replicas drop the same entries first.
    running.sort_unstable();
    running.into_iter().for_each(|(pair, times)| memory.learn(pair, RUNNING, times, rules));
}
