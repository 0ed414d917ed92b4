//! Pods, nodes, workloads, budgets, claims and Services: the objects that a change requeues, and the queries of
//! planners.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Indexed, Requeue, World};
use crate::facts::{
    BudgetFact, ClaimFact, DeploymentFact, Key, Ledger, NodeFact, OutsidePodFact, PodFact, ReplicaSetFact, Requests,
    ServiceFact, group,
};
use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_api::targets::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;

/// WorkloadActions to requeue.
fn actions(keys: impl IntoIterator<Item = Key>) -> Requeue {
    Requeue::all::<WorkloadAction>(keys)
}

impl Indexed for PodFact {
    /// Preserves `terminating`, since a deletion is never undone. After an eviction of ours, the store marks the pod as
    /// terminating before the watch reports it; meanwhile the watch reports the condition DisruptionTarget of a pod
    /// that is not terminating yet.
    fn follow(&mut self, known: &Self) {
        self.terminating |= known.terminating && known.id.uid == self.id.uid;
    }

    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        world.index.pod(old, new);
        world.note_pod(old, new);
        if old.zip(new).is_some_and(|(old, new)| old.differs_in_run_only(new)) {
            // Only the learning of placement uses `run`, and `note_pod` has recorded the change.
            return Requeue::none();
        }
        let sides = || [old, new].into_iter().flatten();
        let requeue = actions(sides().flat_map(|pod| world.index.concerned_by_pod(pod)));
        // Only pods held by the operator's scheduling gate are reconciled on their own.
        let gated = new.filter(|pod| pod.gated).map(|pod| pod.id.key.clone());
        let requeue = requeue.and(Requeue::all::<Self>(gated));
        sides().fold(requeue, |requeue, pod| requeue.and(world.pools_with(pod)))
    }

    fn interrupted(world: &mut World, at: Timestamp) {
        world.broke_off(at);
    }
}

impl Indexed for OutsidePodFact {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        world.index.outside_pod(old, new);
        world.note_outside_pod(old, new);
        Requeue::none()
    }
}

impl Indexed for NodeFact {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        world.note_node(old, new);
        let Some(node) = new.or(old) else { return Requeue::none() };
        let slots = actions(world.slots_to(&node.id.key.name).map(|(action, _)| action.clone()));
        slots.and(world.node_changed(old, new))
    }
}

impl Indexed for ReplicaSetFact {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        world.index.set(old, new);
        let Some(set) = new.or(old) else { return Requeue::none() };
        let at_work = world.index.actions_on(&set.id.uid).cloned();
        // The Deployment controller copies the ledger to the ReplicaSet with a delay, possibly after the action has
        // ended and cleaned up.
        let ledger = Ledger::parse(set.scale.ledger.as_deref());
        let has = |action: &WorkloadAction| {
            let mut slots = action.status.iter().flat_map(|status| &status.slots);
            ledger.as_ref().is_some_and(|ledger| slots.any(|slot| slot.id == ledger.slot))
        };
        let copied = ledger.iter().flat_map(|_| world.tables.actions.iter().filter(|(_, action)| has(action)));
        actions(at_work.chain(copied.map(|(key, _)| key.clone())))
    }

    fn interrupted(world: &mut World, at: Timestamp) {
        world.broke_off(at);
    }
}

impl Indexed for DeploymentFact {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(deployment) = new.or(old) else { return Requeue::none() };
        let sets = world.sets_of(&deployment.id.uid).map(|set| &set.id.uid);
        let at_work = actions(sets.flat_map(|uid| world.index.actions_on(uid)).cloned());
        at_work.and(world.pools_of(PoolWorkloadKind::Deployment, &deployment.id.key))
    }

    fn interrupted(world: &mut World, at: Timestamp) {
        world.broke_off(at);
    }
}

impl Indexed for BudgetFact {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(budget) = new.or(old) else { return Requeue::none() };
        let namespace = &budget.id.key.namespace;
        let guarded = |set: &str| {
            let key = Key::new(namespace.clone(), set.to_owned());
            let sets = world.set(&key).into_iter().chain(world.stateful_set(&key).map(|set| &set.set));
            sets.into_iter().any(|set| budget.guards(namespace, &set.selector.labels))
        };
        let slots = world.slots_at_work();
        let guarded = slots.filter(|(action, slot)| action.namespace == *namespace && guarded(&slot.replica_set.name));
        actions(guarded.map(|(action, _)| action.clone()))
    }
}

/// Requeues nothing: an action reads claims when it is planned, and a waiting action is planned again anyway.
impl Indexed for ClaimFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

impl Indexed for ServiceFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

/// Queries of planners.
impl World {
    /// Records that a watch of workloads or their pods broke: the watches of other controllers may have broken, too.
    fn broke_off(&mut self, at: Timestamp) {
        self.broken = self.broken.max(Some(at));
    }

    /// Time at which such a watch last broke.
    pub fn broken_off(&self) -> Option<Timestamp> {
        self.broken
    }

    pub fn pod(&self, key: &Key) -> Option<&PodFact> {
        self.tables.pods.get(key).map(Arc::as_ref)
    }

    pub fn node(&self, name: &str) -> Option<&NodeFact> {
        self.tables.nodes.get(&Key::new("", name)).map(Arc::as_ref)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFact> {
        self.tables.nodes.values().map(Arc::as_ref)
    }

    /// The PersistentVolumeClaim with this key.
    pub fn claim(&self, key: &Key) -> Option<&ClaimFact> {
        self.tables.claims.get(key).map(Arc::as_ref)
    }

    pub fn set(&self, key: &Key) -> Option<&ReplicaSetFact> {
        self.tables.sets.get(key).map(Arc::as_ref)
    }

    pub fn deployment(&self, key: &Key) -> Option<&DeploymentFact> {
        self.tables.deployments.get(key).map(Arc::as_ref)
    }

    /// All ReplicaSets, by key.
    pub fn sets(&self) -> impl Iterator<Item = &ReplicaSetFact> {
        self.tables.sets.values().map(Arc::as_ref)
    }

    /// All Deployments, by key.
    pub fn deployments(&self) -> impl Iterator<Item = &DeploymentFact> {
        self.tables.deployments.values().map(Arc::as_ref)
    }

    /// The ReplicaSets that the object with this uid controls, by name.
    pub fn sets_of(&self, owner_uid: &str) -> impl Iterator<Item = &ReplicaSetFact> {
        self.index.sets_of(owner_uid).filter_map(|key| self.set(key))
    }

    /// The ReplicaSets whose controller has this group, kind and name, by name.
    pub fn sets_of_named<'a>(
        &'a self,
        namespace: &str,
        workload: &WorkloadRef,
    ) -> impl Iterator<Item = &'a ReplicaSetFact> {
        let WorkloadRef { api_version, kind, name } = workload;
        let group = group(api_version).to_owned();
        let sets = self.index.sets_of_named(namespace, kind, name).filter_map(|key| self.set(key));
        sets.filter(move |set| self::group(&set.controller_version) == group)
    }

    /// The pods that the ReplicaSet with this uid controls, by name, including finished and terminating ones.
    pub fn pods_of(&self, set_uid: &str) -> impl Iterator<Item = &PodFact> {
        self.index.pods_of(set_uid).filter_map(|key| self.pod(key))
    }

    /// The pods of this namespace, by name, including finished and terminating ones.
    pub fn pods_within(&self, namespace: &str) -> impl Iterator<Item = &PodFact> {
        self.tables.pods.within(namespace).map(Arc::as_ref)
    }

    /// The pods with the mark of this slot.
    pub fn pods_marked(&self, slot: &str) -> impl Iterator<Item = &PodFact> {
        self.index.marked_by(slot).filter_map(|key| self.pod(key))
    }

    /// The pods with the mark of any slot.
    pub fn marked_pods(&self) -> impl Iterator<Item = &PodFact> {
        self.index.marked().filter_map(|key| self.pod(key))
    }

    /// Whether the pods of all namespaces are cached. False if the operator watches only some namespaces and may not
    /// read the pods of the others.
    pub fn knows_load(&self) -> bool {
        !self.tables.outside_pods.is_unavailable()
    }

    /// Number of pods bound to this node, and the sum of their requests, without finished pods.
    pub fn usage(&self, node: &str) -> (i64, Requests) {
        self.index.usage(node)
    }

    /// The budgets that select a pod with these labels.
    pub fn budgets_for<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a BudgetFact> {
        self.tables.budgets.within(namespace).map(Arc::as_ref).filter(move |budget| budget.guards(namespace, labels))
    }

    /// Number of pods that this budget selects, and how many of them are Ready.
    pub fn guarded(&self, budget: &BudgetFact) -> (usize, usize) {
        let namespace = &budget.id.key.namespace;
        let pods = self.tables.pods.within(namespace).filter(|pod| budget.guards(namespace, &pod.labels));
        pods.fold((0, 0), |(all, serving), pod| (all + 1, serving + usize::from(pod.is_ready())))
    }

    /// Whether a Service or a budget uses this label to select pods with these labels.
    pub fn selects_by(&self, namespace: &str, labels: &BTreeMap<String, String>, label: &str) -> bool {
        let service = |service: &Arc<ServiceFact>| {
            service.selector.contains_key(label)
                && service.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let budget = |budget: &Arc<BudgetFact>| {
            budget.guards(namespace, labels)
                && budget.selector.as_ref().is_some_and(|selector| selector.mentions(label))
        };
        self.tables.services.within(namespace).any(service) || self.tables.budgets.within(namespace).any(budget)
    }
}
