//! What policies learn from pods, and what is kept of it over restarts. Every replica learns by itself, from the watch, in a task
//! beside the requests; those read what was learned last.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;

use crate::cache::PlacementCache;
use ganglion_placement_plan::memory::SavedMemory;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::reward::{RewardLearner, RewardMemory};

/// By the uid of the policy.
#[derive(Default)]
pub(super) struct Learning {
    learners: Mutex<HashMap<String, RewardLearner>>,
    /// What requests read, by the name of the policy.
    rewards: RwLock<HashMap<String, Arc<RewardMemory>>>,
    /// What was saved before this process began, and nobody has learned on from yet.
    saved: Mutex<HashMap<String, SavedMemory>>,
}

fn lock<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PlacementCache {
    /// Begins with what was saved, by the uid of the policy. To be called before anything is learned.
    pub fn restore(&self, saved: impl IntoIterator<Item = (String, SavedMemory)>) {
        for (uid, saved) in saved {
            self.change_inventory(|inventory| inventory.restore(&saved));
            lock(&self.learning().saved).insert(uid, saved);
        }
    }

    /// Takes in what has happened to pods since.
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

    /// What a policy has learned from pods that ran or failed.
    #[must_use]
    pub fn rewards(&self, policy: &str) -> Arc<RewardMemory> {
        let rewards = self.learning().rewards.read().unwrap_or_else(PoisonError::into_inner);
        rewards.get(policy).cloned().unwrap_or_default()
    }

    /// What is to be saved of the policy with this uid; None if it learns nothing, or has not begun to.
    #[must_use]
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
