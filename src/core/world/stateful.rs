//! StatefulSets, their volumes, and the policy that pins their pods to nodes: the objects that a change requeues, and
//! the queries of planners.

use std::sync::Arc;

use super::{Indexed, Requeue, World};
use crate::facts::{Key, PinBindingFact, PinPolicyFact, StatefulSetFact, VolumeFact};
use ganglion_api::marks;
use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_api::workload_action::WorkloadAction;

impl Indexed for StatefulSetFact {
    /// Requeues the actions at work on the StatefulSet, and its pools.
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

/// Queries of planners.
impl World {
    /// The PersistentVolume that a claim is bound to or requests, if both are cached.
    pub fn volume_of(&self, claim: &Key) -> Option<&VolumeFact> {
        let volume = self.claim(claim)?.volume.clone()?;
        self.tables.volumes.get(&Key::new("", volume)).map(Arc::as_ref)
    }

    pub fn stateful_set(&self, key: &Key) -> Option<&StatefulSetFact> {
        self.tables.stateful_sets.get(key).map(Arc::as_ref)
    }

    /// All StatefulSets.
    pub fn stateful_sets(&self) -> impl Iterator<Item = &StatefulSetFact> {
        self.tables.stateful_sets.values().map(Arc::as_ref)
    }

    /// Whether pods of StatefulSets can be pinned to a node: the policy is installed and its binding is in effect.
    pub fn pins_pods(&self) -> bool {
        let key = Key::new("", marks::PIN_POLICY);
        let binding = self.tables.pin_bindings.get(&key);
        self.tables.pin_policies.get(&key).is_some() && binding.is_some_and(|one| one.policy == marks::PIN_POLICY)
    }
}
