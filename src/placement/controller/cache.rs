//! Data for requests of schedulers and actions: the nodes as the agents see them, and the compiled policies.
//!
//! Both are derived from the store and refreshed when they are used. This module sends no requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::Timestamp;

use super::learning::Learning;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::world::World;
use ganglion_placement_plan::agents::AgentError;
use ganglion_placement_plan::inventory::Inventory;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::question::{PlacedPod, PlacementQuestion, Siblings};
use ganglion_placement_plan::record::NodeRecord;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::store::Store;

/// Cheap to clone.
#[derive(Clone)]
pub struct PlacementCache(Arc<Inner>);

struct Inner {
    store: Store,
    inventory: RwLock<Inventory>,
    /// Compiled policies by name.
    policies: Mutex<HashMap<String, Compiled>>,
    learning: Learning,
}

/// A compiled policy, and the version of the object that it was compiled from.
struct Compiled {
    uid: Option<String>,
    generation: Option<i64>,
    policy: Result<Arc<CompiledPolicy>, AgentError>,
}

impl PlacementCache {
    pub fn new(store: Store) -> Self {
        let (inventory, policies, learning) = Default::default();
        Self(Arc::new(Inner { store, inventory, policies, learning }))
    }

    /// The policy of this name; None if it does not exist, an error if its spec is invalid.
    pub fn policy(&self, name: &str) -> Option<Result<Arc<CompiledPolicy>, AgentError>> {
        self.0.store.read(|world| self.policy_of(world, name))
    }

    /// The same, for callers that already hold the world.
    pub fn policy_of(&self, world: &World, name: &str) -> Option<Result<Arc<CompiledPolicy>, AgentError>> {
        let Some(object) = world.policy(name) else {
            self.0.policies.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            return None;
        };
        Some(self.compile(object))
    }

    /// Compiles a policy, unless this version of it is compiled already. An error if its spec is invalid.
    pub fn compile(&self, object: &PlacementPolicy) -> Result<Arc<CompiledPolicy>, AgentError> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let mut cached = self.0.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = cached.get(name).filter(|compiled| compiled.is_of(object)) {
            return compiled.policy.clone();
        }
        let compiled = Compiled::of(object);
        let policy = compiled.policy.clone();
        cached.insert(name.to_owned(), compiled);
        policy
    }

    /// Evaluates a policy for a pod and these nodes.
    pub fn ask<R>(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[impl AsRef<str>],
        now: Timestamp,
        answer: impl FnOnce(&PlacementQuestion<'_>) -> R,
    ) -> R {
        let (siblings, known) = self.0.store.read(|world| {
            self.refresh(world);
            let siblings = if policy.reads_siblings() { Siblings::of(world, pod) } else { None };
            (siblings, world.pod(&pod.key).is_some_and(|known| known.id.uid == pod.uid))
        });
        let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
        let scheduler = &pod.scheduler;
        // If the scheduler's watch is ahead of ours, our watch will deliver the pod later and count it for the pods
        // after it.
        let learned =
            if known { inventory.learned(scheduler) } else { inventory.learned_with(scheduler, pod.requests) };
        let candidates: Vec<Option<&NodeRecord>> = nodes.iter().map(|name| inventory.node(name.as_ref())).collect();
        answer(&PlacementQuestion {
            pod,
            inventory: &inventory,
            candidates: &candidates,
            now,
            rules: policy.rules,
            learned: &learned,
            siblings: siblings.as_ref(),
            rewards: &self.rewards(&policy.name),
        })
    }

    /// Reads the nodes as the agents see them.
    pub fn inventory<R>(&self, look: impl FnOnce(&Inventory) -> R) -> R {
        self.0.store.read(|world| self.refresh(world));
        look(&self.0.inventory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of the nodes as the agents see them, which the caller may change.
    pub fn copy(&self, world: &World) -> Inventory {
        self.refresh(world);
        self.0.inventory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change_inventory(&self, change: impl FnOnce(&mut Inventory)) {
        change(&mut self.0.inventory.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn learning(&self) -> &Learning {
        &self.0.learning
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn refresh(&self, world: &World) {
        let behind = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner).is_behind(world);
        if behind {
            self.0.inventory.write().unwrap_or_else(PoisonError::into_inner).refresh(world);
        }
    }
}

impl Compiled {
    fn of(object: &PlacementPolicy) -> Self {
        Self {
            uid: object.metadata.uid.clone(),
            generation: object.metadata.generation,
            policy: CompiledPolicy::of(object).map(Arc::new),
        }
    }

    fn is_of(&self, object: &PlacementPolicy) -> bool {
        (&self.uid, self.generation) == (&object.metadata.uid, object.metadata.generation)
    }
}
