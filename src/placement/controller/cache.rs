//! Data for requests of schedulers and actions: the nodes as the agents see them, and the compiled policies.
//!
//! Both are derived from the store and refreshed when they are used. Learning runs in a task of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::learned::{Learners, restore};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::Uid;
use ganglion_core::world::{Fact, World};
use ganglion_placement_plan::agents::AgentError;
use ganglion_placement_plan::inventory::Inventory;
use ganglion_placement_plan::learned::{LearnedRewards, LearnedValues};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::question::{PlacedPod, PlacementQuestion, Siblings};
use ganglion_placement_plan::record::NodeRecord;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::Readiness;

/// Interval between two learning steps.
const PAUSE: Duration = Duration::from_secs(1);

/// Cheap to clone.
#[derive(Clone)]
pub struct PlacementCache(Arc<Inner>);

struct Inner {
    store: Store,
    inventory: RwLock<Inventory>,
    /// Compiled policies by name.
    policies: Mutex<HashMap<String, CachedPolicy>>,
    learners: Learners,
}

/// A compiled policy, and the version of the object that it was compiled from.
struct CachedPolicy {
    uid: Uid,
    generation: Option<i64>,
    policy: Result<Arc<CompiledPolicy>, AgentError>,
}

impl PlacementCache {
    pub fn new(store: Store) -> Self {
        let (inventory, policies, learners) = Default::default();
        Self(Arc::new(Inner { store, inventory, policies, learners }))
    }

    /// The policy of this name; None if it does not exist, an error if its spec is invalid.
    pub fn policy(&self, name: &str) -> Option<Result<Arc<CompiledPolicy>, AgentError>> {
        self.0.store.read(|world| self.policy_of(world, name))
    }

    /// The same, for callers that already hold the world.
    pub fn policy_of(&self, world: &World, name: &str) -> Option<Result<Arc<CompiledPolicy>, AgentError>> {
        // Without the admission policies of the kind, anybody may have written the policy.
        let is_guarded = world.policy_problem(PlacementPolicy::KIND).is_none();
        let Some(object) = world.policy(name).filter(|_| is_guarded) else {
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
        let compiled = CachedPolicy::compile(object);
        let policy = compiled.policy.clone();
        cached.insert(name.to_owned(), compiled);
        policy
    }

    /// Evaluates a policy for a pod and these nodes.
    pub fn evaluate<R>(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[impl AsRef<str>],
        now: Timestamp,
        answer: impl FnOnce(&PlacementQuestion<'_>) -> R,
    ) -> R {
        let (siblings, known) = self.0.store.read(|world| {
            self.refresh(world);
            let siblings = if policy.reads_siblings() { Siblings::from_world(world, pod) } else { None };
            (siblings, world.pod(&pod.key).is_some_and(|known| known.id.uid == pod.uid))
        });
        let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
        let scheduler = &pod.scheduler;
        // If the scheduler's watch is ahead of ours, our watch will deliver the pod later and count it for the pods
        // after it.
        let learned = if known {
            inventory.learned.demand(scheduler)
        } else {
            inventory.learned.demand_with(scheduler, pod.requests)
        };
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

    /// Restores saved values, by the uid of the policy. Must be called before learning begins.
    pub fn restore(&self, saved: impl IntoIterator<Item = (Uid, LearnedValues)>) {
        for (uid, saved) in saved {
            self.0.inventory.write().unwrap_or_else(PoisonError::into_inner).learned.restore(&saved);
            self.0.learners.restore(uid, saved);
        }
    }

    /// Learns from the changes of pods since the last call.
    pub fn learn(&self, now: Timestamp) {
        self.0.store.read(|world| {
            self.refresh(world);
            self.0.learners.follow(world, |name| self.policy_of(world, name), now);
        });
    }

    /// Values that a policy has learned from pods that ran or failed.
    pub fn rewards(&self, policy: &str) -> Arc<LearnedRewards> {
        self.0.learners.rewards(policy)
    }

    /// Values to save for the policy with this uid; None if it learns nothing, or has not begun to learn.
    pub fn learned_values(&self, policy: &CompiledPolicy, uid: &Uid, now: Timestamp) -> Option<LearnedValues> {
        let demand = self.inventory(|inventory| {
            policy.reads_demand().map(|scheduler| (scheduler.to_owned(), inventory.learned.demand(scheduler))).collect()
        });
        self.0.learners.to_save(policy, uid, demand, now)
    }

    fn refresh(&self, world: &World) {
        let behind = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner).is_behind(world);
        if behind {
            self.0.inventory.write().unwrap_or_else(PoisonError::into_inner).refresh(world);
        }
    }
}

impl CachedPolicy {
    fn compile(object: &PlacementPolicy) -> Self {
        Self {
            uid: Uid::of(&object.metadata),
            generation: object.metadata.generation,
            policy: CompiledPolicy::compile(object).map(Arc::new),
        }
    }

    fn is_of(&self, object: &PlacementPolicy) -> bool {
        self.uid == Uid::of(&object.metadata) && self.generation == object.metadata.generation
    }
}

/// Restores the values saved in this namespace, and then learns until `stop`. The replica is not ready until the values
/// are restored.
pub fn learn(
    client: Client,
    namespace: String,
    placement: PlacementCache,
    timeout: Duration,
    ready: &Readiness,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Registers now, not when the task first runs.
    let mut awaited = ready.expect_one();
    let ready = ready.clone();
    let learning = async move {
        placement.restore(restore::read_saved(&client, &namespace, timeout).await);
        awaited.ready();
        ready.ready().await;
        loop {
            let placement = placement.clone();
            // A learning step may examine every pod.
            let learned = tokio::task::spawn_blocking(move || placement.learn(Timestamp::now())).await;
            if let Err(failed) = learned
                && failed.is_panic()
            {
                std::panic::resume_unwind(failed.into_panic());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = learning => {}
        }
    }
}
