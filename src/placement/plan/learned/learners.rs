//! Learning from the pods of the world: rewards from failures and running pods, demand from created pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::rewards::{LearnedRewards, RUNNING, RewardRules};
use super::saved::LearnedValues;
use crate::pigeon::{LearnedDemand, SMOOTHING};
use crate::record::demand;
use crate::world::{PlacementWorld, PodFailure, is_placed, wants_place};
use ganglion_core::facts::{NodeName, PodFact, PodRun, Requests};
use ganglion_core::world::World;

/// Maximum number of existing pods, the newest ones, from which the demand of a new scheduler is learned. Older pods
/// hardly count: the weight of a demand is at most a hundredth once many have been learned, and shrinks with each later
/// one.
const REPLAYED: usize = 1000;

/// Maximum number of schedulers for which demand is learned. For other schedulers, each pod is handled as the first
/// one.
const MAX_SCHEDULERS: usize = 256;

/// Learns the rewards of one policy from the pods of the world.
#[derive(Clone, Debug, Default)]
pub struct RewardLearner {
    /// Shared with requests that score by them.
    rewards: Arc<LearnedRewards>,
    /// Clock of the world up to which failures have been learned.
    clock: u64,
    /// Time at which running pods were last rewarded.
    rewarded: Option<Timestamp>,
}

/// Predicate: whether the policy applies to the pods of a scheduler.
type IsOurs<'a> = &'a dyn Fn(&str) -> bool;

impl RewardLearner {
    /// Starts from saved values and from the failures of existing pods.
    pub fn begin(world: &World, is_ours: IsOurs<'_>, saved: Option<&LearnedValues>, rules: &RewardRules) -> Self {
        let mut rewards = saved.map(|saved| LearnedRewards::restored(&saved.rewards, rules)).unwrap_or_default();
        for pod in world.all::<PodFact>().filter(|pod| is_ours(&pod.scheduler)).filter_map(PodFailure::of) {
            for failure in &pod.failures {
                // Failures up to the save are included in the saved values.
                let at = failure.finished.unwrap_or(pod.created);
                if saved.is_some_and(|saved| at <= saved.saved_at) {
                    rewards.count(&pod.uid, failure, rules);
                }
            }
            rewards.fail(&pod, rules);
        }
        let rewarded = saved.and_then(|saved| saved.rewarded_at);
        Self { rewards: Arc::new(rewards), clock: world.placement_clock(), rewarded }
    }

    /// Learns from all events since the last call. Returns whether anything was learned.
    pub fn follow(&mut self, world: &World, is_ours: IsOurs<'_>, rules: &RewardRules, now: Timestamp) -> bool {
        let mut failures = world.failures_since(self.clock).filter(|pod| is_ours(&pod.scheduler)).peekable();
        let is_due = self.is_due(rules, now);
        let is_new = is_due || failures.peek().is_some();
        if is_new {
            let rewards = Arc::make_mut(&mut self.rewards);
            failures.for_each(|pod| rewards.fail(pod, rules));
            if is_due {
                reward_running(rewards, world, is_ours, rules);
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

    pub fn rewards(&self) -> &Arc<LearnedRewards> {
        &self.rewards
    }

    /// Time at which running pods were last rewarded.
    pub fn rewarded(&self) -> Option<Timestamp> {
        self.rewarded
    }
}

/// Rewards running pods. Pods of one type on one node are rewarded in one step, since there may be very many.
fn reward_running(rewards: &mut LearnedRewards, world: &World, is_ours: IsOurs<'_>, rules: &RewardRules) {
    let mut running: HashMap<(&str, &NodeName), i32> = HashMap::new();
    let steady = world.all::<PodFact>().filter(|pod| pod.run == PodRun::Steady && !pod.terminating && is_placed(pod));
    for pod in steady.filter(|pod| is_ours(&pod.scheduler)) {
        if let Some(node) = pod.node.as_ref() {
            *running.entry((pod.pod_type(), node)).or_default() += 1;
        }
    }
    let mut running: Vec<_> = running.into_iter().collect();
    // Sorted, so that all replicas drop the same entries first.
    running.sort_unstable();
    running.into_iter().for_each(|(pair, times)| rewards.learn(pair, RUNNING, times, rules));
}

/// Learns the demand of created pods, by scheduler name, for all policies together.
#[derive(Clone, Debug, Default)]
pub struct DemandLearner {
    learned: HashMap<String, LearnedDemand>,
    /// Demand restored from a previous process and the time of its save.
    saved: HashMap<String, (Timestamp, LearnedDemand)>,
}

impl DemandLearner {
    /// Restores saved demand for schedulers whose demand has not been learned yet. If several saves contain the same
    /// scheduler, the latest save wins.
    pub fn restore(&mut self, saved: &LearnedValues) {
        for (scheduler, demand) in &saved.demand {
            if self.saved.get(scheduler).is_none_or(|(at, _)| *at < saved.saved_at) {
                self.saved.insert(scheduler.clone(), (saved.saved_at, *demand));
            }
        }
    }

    /// Whether a policy names a scheduler whose demand has not been learned yet.
    pub fn is_behind(&self, world: &World) -> bool {
        self.unlearned(world).next().is_some()
    }

    /// Learns from the pods that were created after this clock, and begins with new schedulers.
    pub fn follow(&mut self, world: &World, clock: u64) {
        for arrival in world.arrivals_since(clock) {
            if let Some(learned) = self.learned.get_mut(&arrival.scheduler) {
                learned.learn(&demand(arrival.requests), SMOOTHING);
            }
        }
        let new: BTreeSet<String> = self.unlearned(world).map(str::to_owned).collect();
        for scheduler in new.into_iter().take(MAX_SCHEDULERS.saturating_sub(self.learned.len())) {
            let learned = replay(world, &scheduler, self.saved.remove(&scheduler));
            self.learned.insert(scheduler, learned);
        }
    }

    /// Learned demand of the pods of a scheduler.
    pub fn demand(&self, scheduler: &str) -> LearnedDemand {
        self.learned.get(scheduler).copied().unwrap_or_default()
    }

    /// Learned demand of the pods of a scheduler, including one more pod with these requests.
    pub fn demand_with(&self, scheduler: &str, requests: Requests) -> LearnedDemand {
        let mut learned = self.demand(scheduler);
        learned.learn(&demand(requests), SMOOTHING);
        learned
    }

    /// Schedulers named by policies whose demand has not been learned yet; none once [`MAX_SCHEDULERS`] is reached.
    fn unlearned<'w>(&'w self, world: &'w World) -> impl Iterator<Item = &'w str> {
        let policies = world.policies().filter(|_| self.learned.len() < MAX_SCHEDULERS);
        let named = policies.flat_map(|policy| policy.spec.schedulers());
        named.filter(|scheduler| !self.learned.contains_key(*scheduler))
    }
}

/// Learns the demand of a scheduler from its existing pods. If saved demand exists, only pods created after the save
/// are added to it.
fn replay(world: &World, scheduler: &str, saved: Option<(Timestamp, LearnedDemand)>) -> LearnedDemand {
    let (since, mut learned) = saved.unwrap_or((Timestamp::MIN, LearnedDemand::default()));
    let ours =
        world.all::<PodFact>().filter(|pod| pod.scheduler == scheduler && wants_place(pod) && pod.created > since);
    let mut pods: Vec<&PodFact> = ours.collect();
    pods.sort_by(|one, other| (one.created, &one.id.uid).cmp(&(other.created, &other.id.uid)));
    let first = pods.len().saturating_sub(REPLAYED);
    for pod in pods.iter().skip(first) {
        learned.learn(&demand(pod.hold.requests), SMOOTHING);
    }
    learned
}
