//! Autoscalers of all kinds.

use super::{Indexed, Requeue, World};
use crate::facts::{AutoscalerFact, HpaFact, ScaledObjectFact, VpaFact};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::swarm_pool::SwarmPool;

macro_rules! autoscalers {
    ($($fact:ty),*) => {
        $(impl Indexed for $fact {
            fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
                world.autoscaler_changed(old.map(|fact| &**fact), new.map(|fact| &**fact))
            }
        })*
    };
}
autoscalers!(HpaFact, ScaledObjectFact, VpaFact);

impl World {
    /// Requeues the loops and SwarmPools with the same target, since their conflicts may have changed.
    fn autoscaler_changed(&self, old: Option<&AutoscalerFact>, new: Option<&AutoscalerFact>) -> Requeue {
        let essence = |fact: Option<&AutoscalerFact>| fact.map(|fact| (fact.target.clone(), fact.controls.clone()));
        if essence(old) == essence(new) {
            return Requeue::none();
        }
        let sides = [old, new].into_iter().flatten();
        let loops = sides.clone().flat_map(|fact| self.loops_on(&fact.id.key.namespace, &fact.target.name));
        let pools = sides.flat_map(|fact| self.pools_scaled_by(fact));
        Requeue::all::<ClosedLoop>(loops).and(Requeue::all::<SwarmPool>(pools))
    }

    /// All autoscalers in this namespace whose target has this name, regardless of the target's kind.
    pub fn autoscalers_on<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a str,
    ) -> impl Iterator<Item = &'a AutoscalerFact> {
        let tables = &self.tables;
        let scaled_objects = tables.scaled_objects.within(namespace).map(|fact| &***fact);
        let hpas = tables.hpas.within(namespace).map(|fact| &***fact);
        let vpas = tables.vpas.within(namespace).map(|fact| &***fact);
        scaled_objects.chain(hpas).chain(vpas).filter(move |fact| fact.target.name == target)
    }

    /// The HorizontalPodAutoscaler that writes the replicas of this workload.
    pub fn replica_scaler_of(&self, namespace: &str, kind: &str, name: &str) -> Option<&AutoscalerFact> {
        let mut all = self.tables.hpas.within(namespace).map(|fact| &***fact);
        all.find(|fact| fact.target.kind == kind && fact.target.name == name)
    }
}
