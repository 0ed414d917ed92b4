//! The learned values of policies in this process. [`ganglion_placement_plan::learned`] describes what is learned, when
//! it is written, and what bounds it.
//!
//! Each replica learns independently from its watch, in a task separate from the requests; requests read the latest
//! values. The leader alone writes.
//!
//! | file | content |
//! |---|---|
//! | `restore` | reads the ConfigMaps at the start |
//! | `save` | writes the ConfigMap of a policy, and reports in its status whether that succeeded |

pub mod restore;
pub mod save;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;

use ganglion_core::facts::{Identity, Key, Uid};
use ganglion_core::world::{Fact, World};
use ganglion_placement_plan::agents::AgentError;
use ganglion_placement_plan::learned::{LearnedRewards, LearnedValues, RewardLearner};
use ganglion_placement_plan::pigeon::LearnedDemand;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::world::PlacementWorld;

/// The learners of all policies. The demand of pods is learned in the inventory of the nodes.
#[derive(Default)]
pub struct Learners {
    /// By the uid of the policy.
    rewards: Mutex<HashMap<Uid, RewardLearner>>,
    /// Values that requests read, by the name of the policy.
    latest: RwLock<HashMap<String, Arc<LearnedRewards>>>,
    /// Values saved before this process started that no learner has used yet, by the uid of the policy.
    saved: Mutex<HashMap<Uid, LearnedValues>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Learners {
    /// Restores the saved rewards of the policy with this uid. Must be called before learning begins.
    pub fn restore(&self, uid: Uid, saved: LearnedValues) {
        lock(&self.saved).insert(uid, saved);
    }

    /// Learns rewards from the changes of pods since the last call. `compiled` returns a policy by its name.
    pub fn follow(
        &self,
        world: &World,
        compiled: impl Fn(&str) -> Option<Result<Arc<CompiledPolicy>, AgentError>>,
        now: Timestamp,
    ) {
        let mut learners = lock(&self.rewards);
        let mut latest = HashMap::new();
        for object in world.policies() {
            let Identity { key: Key { name, .. }, uid, .. } = object.id();
            let Some(Ok(policy)) = compiled(&name) else { continue };
            let Some(rules) = policy.rewards() else { continue };
            let is_ours = |scheduler: &str| policy.is_for(scheduler);
            let learner = learners.entry(uid.clone()).or_insert_with(|| {
                let saved = lock(&self.saved).remove(&uid);
                RewardLearner::begin(world, &is_ours, saved.as_ref(), &rules)
            });
            learner.follow(world, &is_ours, &rules, now);
            latest.insert(name, Arc::clone(learner.rewards()));
        }
        let existing: HashSet<Uid> = world.policies().map(|object| Uid::of(&object.metadata)).collect();
        learners.retain(|uid, _| existing.contains(uid));
        *self.latest.write().unwrap_or_else(PoisonError::into_inner) = latest;
    }

    /// Latest rewards of the policy with this name.
    pub fn rewards(&self, policy: &str) -> Arc<LearnedRewards> {
        let latest = self.latest.read().unwrap_or_else(PoisonError::into_inner);
        latest.get(policy).cloned().unwrap_or_default()
    }

    /// Values to save for the policy with this uid; None if it learns nothing, or has not begun to learn.
    pub fn to_save(
        &self,
        policy: &CompiledPolicy,
        uid: &Uid,
        demand: BTreeMap<String, LearnedDemand>,
        now: Timestamp,
    ) -> Option<LearnedValues> {
        let values = LearnedValues::of_demand(now, demand);
        if policy.rewards().is_some() {
            let learners = lock(&self.rewards);
            let learner = learners.get(uid)?;
            Some(values.with_rewards(learner.rewards(), learner.rewarded()))
        } else {
            policy.learns().then_some(values)
        }
    }
}
