//! Learning of policies from pods, and the values that survive restarts. Each replica learns independently from its
//! watch, in a task separate from the requests; requests read the latest values.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;

use crate::cache::PlacementCache;
use ganglion_placement_plan::memory::SavedMemory;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::reward::{RewardLearner, RewardMemory};
use ganglion_placement_plan::world::PlacementWorld;

/// Learners by the uid of the policy.
#[derive(Default)]
pub(super) struct Learning {
    learners: Mutex<HashMap<String, RewardLearner>>,
    /// Values that requests read, by the name of the policy.
    rewards: RwLock<HashMap<String, Arc<RewardMemory>>>,
    /// Values saved before this process started that no learner has used yet.
    saved: Mutex<HashMap<String, SavedMemory>>,
}

fn lock<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PlacementCache {
    /// Restores saved values, by the uid of the policy. Must be called before learning begins.
    pub fn restore(&self, saved: impl IntoIterator<Item = (String, SavedMemory)>) {
        for (uid, saved) in saved {
            self.change_inventory(|inventory| inventory.restore(&saved));
            lock(&self.learning().saved).insert(uid, saved);
        }
    }

    /// Learns from the changes of pods since the last call.
    pub fn learn(&self, now: Timestamp) {
        let learning = self.learning();
        let mut learners = lock(&learning.learners);
        let mut rewards = HashMap::new();
        self.store().read(|world| {
            self.refresh(world);
            for object in world.policies() {
                let (uid, name) = (object.metadata.uid.as_deref(), object.metadata.name.as_deref());
                let (uid, name) = (uid.unwrap_or_default(), name.unwrap_or_default());
                let Some(Ok(policy)) = self.policy_of(world, name) else { continue };
                let Some(rules) = policy.rewards() else { continue };
                let is_ours = |scheduler: &str| policy.is_for(scheduler);
                let begin = || {
                    let saved = lock(&learning.saved).remove(uid);
                    RewardLearner::begin(world, &is_ours, saved.as_ref(), &rules)
                };
                let learner = learners.entry(uid.to_owned()).or_insert_with(begin);
                learner.follow(world, &is_ours, &rules, now);
                rewards.insert(name.to_owned(), Arc::clone(learner.memory()));
            }
            let there: HashSet<&str> = world.policies().filter_map(|object| object.metadata.uid.as_deref()).collect();
            learners.retain(|uid, _| there.contains(uid.as_str()));
        });
        *learning.rewards.write().unwrap_or_else(PoisonError::into_inner) = rewards;
    }

    /// Values that a policy has learned from pods that ran or failed.
    pub fn rewards(&self, policy: &str) -> Arc<RewardMemory> {
        let rewards = self.learning().rewards.read().unwrap_or_else(PoisonError::into_inner);
        rewards.get(policy).cloned().unwrap_or_default()
    }

    /// Values to save for the policy with this uid; None if it learns nothing, or has not begun to learn.
    pub fn memory(&self, policy: &CompiledPolicy, uid: &str, now: Timestamp) -> Option<SavedMemory> {
        let demand = self.inventory(|inventory| {
            policy.reads_demand().map(|scheduler| (scheduler.to_owned(), inventory.learned(scheduler))).collect()
        });
        let saved = SavedMemory::of(now, demand);
        if policy.rewards().is_some() {
            let learners = lock(&self.learning().learners);
            let learner = learners.get(uid)?;
            Some(saved.with_rewards(learner.memory(), learner.rewarded()))
        } else {
            policy.learns().then_some(saved)
        }
    }
}
