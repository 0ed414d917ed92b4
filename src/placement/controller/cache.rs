//! Data for requests of schedulers and actions: the nodes as the agents see them, and the compiled policies.
//!
//! Both are derived from the store and refreshed when they are used. Learning runs in a task of its own.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::learned::{Learners, restore};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{NodeName, Uid};
use ganglion_core::world::{Fact, World};
use ganglion_placement_plan::agents::AgentError;
use ganglion_placement_plan::answered::{NodeSet, PreemptedPod};
use ganglion_placement_plan::inventory::Inventory;
use ganglion_placement_plan::labels::labeling::NodeVerdict;
use ganglion_placement_plan::labels::typical::TypicalPod;
use ganglion_placement_plan::learned::{LearnedRewards, LearnedValues};
use ganglion_placement_plan::policy::{CompiledPolicy, best};
use ganglion_placement_plan::preempted::{self, PreemptionNode};
use ganglion_placement_plan::question::{NodeRejection, PlacedPod, PlacementQuestion, Siblings};
use ganglion_placement_plan::ranking::PolicyRanking;
use ganglion_placement_plan::record::NodeRecord;
use ganglion_placement_plan::verdicts::verdicts;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::fairness::largest;
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::Readiness;

/// Interval between two learning steps.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of pods that are on their way to a node.
const MAX_ANSWERED: usize = 1024;

/// Maximum number of evaluations for one answer, while pods of other schedulers are answered for.
const ATTEMPTS: usize = 10;

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

/// State that an answer depends on.
struct SeenState {
    /// The pod is in the cache.
    cached: bool,
    /// Version of the pods on their way to a node; None if it does not matter.
    version: Option<u64>,
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

    /// Filters nodes for a scheduler, which places the pod on one of those that pass. Until it is bound, it counts on
    /// each of them. If a later answer may have nodes that pass, also returns the namespaces of the pods to wait for.
    pub fn filter(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[&str],
        now: Timestamp,
    ) -> (Vec<Option<NodeRejection>>, BTreeSet<String>) {
        for _ in 0..ATTEMPTS {
            let ((rejections, open, awaited), seen) = self.evaluate(policy, pod, nodes, now, |question| {
                let rejections = policy.offer(question);
                let passing = question.candidates.iter().zip(&rejections).filter(|(_, rejection)| rejection.is_none());
                let open: NodeSet = passing.filter_map(|(record, _)| Some((*record)?.place)).collect();
                let awaited = policy.awaited(question, &rejections);
                (rejections, open, awaited)
            });
            if self.record(pod, open, None, &seen, now) {
                return (rejections, awaited);
            }
        }
        // Other schedulers were always faster.
        let rejection = NodeRejection("other schedulers place pods at the same time".to_owned());
        let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
        (vec![Some(rejection); nodes.len()], inventory.answered.settling(&pod.uid, now))
    }

    /// Filters nodes for a policy in mode Shadow. The scheduler does not get the result, so the pod does not count on
    /// them.
    pub fn shadow(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[&str],
        now: Timestamp,
    ) -> Vec<Option<NodeRejection>> {
        self.evaluate(policy, pod, nodes, now, |question| policy.filter(question)).0
    }

    /// Scores nodes. If `counts` is true, the pod is on its way to one of them, most likely to the best.
    pub fn score(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[&str],
        counts: bool,
        now: Timestamp,
    ) -> Vec<f64> {
        let ((totals, open, likely), mut seen) = self.evaluate(policy, pod, nodes, now, |question| {
            let totals = policy.score(question).totals;
            let best = best(question.candidates, &totals, |record| question.likely(record).pods);
            let likely = best.and_then(|at| question.candidates.get(at).copied().flatten()).map(|record| record.place);
            (totals, question.candidates.iter().flatten().map(|record| record.place).collect(), likely)
        });
        if counts {
            // Scores are no promise, so other pods that were counted meanwhile do not matter.
            seen.version = None;
            self.record(pod, open, likely, &seen, now);
        }
        totals
    }

    /// Number of pods of each node.
    pub fn pods(&self) -> HashMap<NodeName, i64> {
        self.inventory(|inventory| inventory.nodes().map(|record| (record.node.name(), record.pods)).collect())
    }

    /// Opinions of a policy about all nodes, for the pod that stands for all others.
    pub fn verdicts(
        &self,
        policy: &CompiledPolicy,
        typical: &TypicalPod,
        now: Timestamp,
    ) -> HashMap<NodeName, NodeVerdict> {
        let all: Vec<(NodeName, bool)> = self
            .inventory(|inventory| inventory.nodes().map(|record| (record.node.name(), record.row.counted)).collect());
        let accepting: Vec<&str> = all.iter().filter(|(_, counted)| *counted).map(|(name, _)| name.as_str()).collect();
        let pair = typical.pair();
        let (found, _) =
            self.evaluate(policy, &typical.pod, &accepting, now, |question| verdicts(policy, question, &pair));
        let mut known: HashMap<NodeName, NodeVerdict> =
            all.iter().map(|(name, _)| (name.clone(), NodeVerdict::Unknown)).collect();
        known.extend(accepting.iter().map(|name| NodeName::from(*name)).zip(found));
        known
    }

    /// Filters nodes on which a scheduler would preempt pods. These pods do not count.
    pub fn filter_preemption<'n>(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &'n [PreemptionNode<'_>],
        now: Timestamp,
    ) -> Vec<Option<NodeRejection>> {
        let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
        let uids = |node: &'n PreemptionNode<'_>| node.uids.iter().map(|uid| &**uid).collect();
        let uids = nodes.iter().map(|node| (&*node.name, uids(node))).collect();
        let mut preempted = self.0.store.read(|world| preempted::find(world, &uids));
        let (rejections, seen) =
            self.evaluate_without(policy, pod, &names, &preempted, now, |question| policy.filter(question));
        let kept = names.iter().zip(&rejections).filter(|(_, rejection)| rejection.is_none());
        let kept: HashSet<&str> = kept.map(|(name, _)| *name).collect();
        preempted.retain(|pod| kept.contains(pod.node.as_str()));
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        inventory.answered.record_preempted(pod, preempted, seen.cached, now);
        rejections
    }

    /// Evaluates a policy for a pod and these nodes. Pods that the scheduler has preempted for the pod on its nominated
    /// node do not count there, although they may still be in the cache.
    fn evaluate<R>(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[&str],
        now: Timestamp,
        answer: impl FnOnce(&PlacementQuestion<'_>) -> R,
    ) -> (R, SeenState) {
        let preempted = match &pod.nominated {
            None => Vec::new(),
            Some(nominated) => {
                let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
                let preempted = inventory.answered.preempted_for(&pod.uid).iter();
                preempted.filter(|pod| pod.node == *nominated).cloned().collect()
            }
        };
        self.evaluate_without(policy, pod, nodes, &preempted, now, answer)
    }

    fn evaluate_without<R>(
        &self,
        policy: &CompiledPolicy,
        pod: &PlacedPod,
        nodes: &[&str],
        preempted: &[PreemptedPod],
        now: Timestamp,
        answer: impl FnOnce(&PlacementQuestion<'_>) -> R,
    ) -> (R, SeenState) {
        let (siblings, leaving, seen) = self.0.store.read(|world| {
            self.refresh(world, now);
            let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
            let siblings = if policy.reads_siblings() { Siblings::from_world(world, &inventory, pod) } else { None };
            let leaving = preempted::leaving(world, &inventory, preempted, &policy.rules, now);
            let cached = world.pod(&pod.key).is_some_and(|cached| cached.id.uid == pod.uid);
            (siblings, leaving, SeenState { cached, version: Some(inventory.answered.version()) })
        });
        let inventory = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner);
        let scheduler = &pod.scheduler;
        // If the scheduler's watch is ahead of ours, our watch will deliver the pod later and count it for the pods
        // after it.
        let learned = if seen.cached {
            inventory.learned.demand(scheduler)
        } else {
            inventory.learned.demand_with(scheduler, pod.requests)
        };
        let candidates: Vec<Option<&NodeRecord>> = nodes.iter().map(|name| inventory.node(name)).collect();
        let answer = answer(&PlacementQuestion {
            pod,
            inventory: &inventory,
            arriving: inventory.answered.others(&pod.uid),
            candidates: &candidates,
            now,
            rules: policy.rules,
            learned: &learned,
            siblings: siblings.as_ref(),
            rewards: &self.rewards(&policy.name),
            leaving: &leaving,
            narrows: false,
            one_more: false,
            counts_arriving: true,
        });
        (answer, seen)
    }

    /// Records the nodes that an answer leaves open. False if the pods that count are not those of the answer any more.
    fn record(&self, pod: &PlacedPod, open: NodeSet, likely: Option<usize>, seen: &SeenState, now: Timestamp) -> bool {
        let is_recorded = |inventory: &Inventory| inventory.answered.is_recorded(&pod.uid, &open, likely, now);
        if is_recorded(&self.0.inventory.read().unwrap_or_else(PoisonError::into_inner)) {
            return true;
        }
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let answered = &mut inventory.answered;
        if seen.version.is_some_and(|version| version != answered.version()) {
            return false;
        }
        answered.record(pod, open, likely, seen.cached, now);
        if answered.len() > MAX_ANSWERED
            && let Some((namespace, _)) = largest(answered.namespaces().map(|namespace| (namespace, 1)))
        {
            let namespace = namespace.to_owned();
            answered.forget_oldest(&namespace);
        }
        true
    }

    /// Reads the nodes as the agents see them.
    pub fn inventory<R>(&self, look: impl FnOnce(&Inventory) -> R) -> R {
        self.0.store.read(|world| self.refresh(world, Timestamp::now()));
        look(&self.0.inventory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of the nodes as the agents see them, which the caller may change.
    pub fn copy(&self, world: &World, now: Timestamp) -> Inventory {
        self.refresh(world, now);
        self.0.inventory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Restores saved values, by the uid of the policy. Must be called before learning begins.
    pub fn restore(&self, saved: impl IntoIterator<Item = (Uid, LearnedValues)>) {
        for (uid, saved) in saved {
            self.0.inventory.write().unwrap_or_else(PoisonError::into_inner).learned.restore(&saved);
            self.0.learners.restore(uid, saved);
        }
    }

    /// A ranking of nodes by the policy of this name, for an action; None if there is no such policy, an error if its
    /// spec is invalid.
    pub fn ranking(
        &self,
        world: &World,
        policy: &str,
        pod: PlacedPod,
        now: Timestamp,
    ) -> Option<Result<PolicyRanking, AgentError>> {
        let rank = |policy: Arc<CompiledPolicy>| {
            let rewards = self.rewards(&policy.name);
            PolicyRanking::new(world, self.copy(world, now), policy, rewards, pod, now)
        };
        self.policy_of(world, policy).map(|policy| policy.map(rank))
    }

    /// Learns from the changes of pods since the last call.
    pub fn learn(&self, now: Timestamp) {
        self.0.store.read(|world| {
            self.refresh(world, now);
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

    fn refresh(&self, world: &World, now: Timestamp) {
        let behind = self.0.inventory.read().unwrap_or_else(PoisonError::into_inner).is_behind(world, now);
        if behind {
            self.0.inventory.write().unwrap_or_else(PoisonError::into_inner).refresh(world, now);
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
