//! StatefulSets, their volumes, and the policy that gives their pods a node: what a change of each requeues, and the queries of planners.

use std::sync::Arc;

use super::{Indexed, Requeue, World};
use crate::facts::{Key, PinBindingFact, PinPolicyFact, StatefulSetFact, VolumeFact};
use ganglion_api::marks;
use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_api::workload_action::WorkloadAction;

impl Indexed for StatefulSetFact {
    /// Requeues the actions at work on it, and the pools.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(set) = new.or(old) else { return Requeue::none() };
        let at_work = Requeue::all::<WorkloadAction>(world.index.actions_on(&set.id.uid).cloned());
        at_work.and(world.pools_of(PoolWorkloadKind::StatefulSet, &set.id.key))
    }
}

impl Indexed for PinPolicyFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

impl Indexed for PinBindingFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

impl Indexed for VolumeFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

/// The queries of planners.
impl World {
    /// The PersistentVolume that a claim is bound to, as far as both are known.
    #[must_use]
    pub fn volume_of(&self, claim: &Key) -> Option<&VolumeFact> {
        let volume = self.claim(claim)?.volume.clone()?;
        self.tables.volumes.get(&Key::new("", volume)).map(Arc::as_ref)
    }

    #[must_use]
    pub fn stateful_set(&self, key: &Key) -> Option<&StatefulSetFact> {
        self.tables.stateful_sets.get(key).map(Arc::as_ref)
    }

    /// Every StatefulSet.
    pub fn stateful_sets(&self) -> impl Iterator<Item = &StatefulSetFact> {
        self.tables.stateful_sets.values().map(Arc::as_ref)
    }

    /// Whether the cluster gives a pod of a StatefulSet the node that an action wants: the policy is installed and in force.
    #[must_use]
    pub fn pins_pods(&self) -> bool {
        let key = Key::new("", marks::PIN_POLICY);
        let binding = self.tables.pin_bindings.get(&key);
        self.tables.pin_policies.get(&key).is_some() && binding.is_some_and(|one| one.policy == marks::PIN_POLICY)
    }
}
