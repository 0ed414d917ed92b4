//! Reads what a pool is planned from, from the caches.

use std::collections::BTreeMap;

use super::{SwarmPoolController, namespace};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{Output, OutputLayout, PoolWorkloadKind, SwarmPool};
use ganglion_core::facts::{ConfigMapFact, DeploymentFact, Key, PodFact, Selector, StatefulSetFact, Uid};
use ganglion_core::world::World;
use ganglion_pools_plan::PoolProblem;
use ganglion_pools_plan::output::ObservedOutputs;
use ganglion_pools_plan::replicas::ObservedWorkload;
use ganglion_pools_plan::sources::ObservedSources;
use ganglion_pools_plan::step::{ObservedPool, PoolBlock};
use ganglion_pools_plan::workers::PoolWorkloadFact;
use ganglion_pools_plan::world::PoolsWorld;
use ganglion_runtime::watch::namespaces::NamespaceWatch;

impl SwarmPoolController {
    /// None if the pool does not exist or is being deleted.
    pub(super) fn observe_pool(&self, key: &Key) -> Option<ObservedPool> {
        let pool = self.ctx.store.read(|world| world.table::<SwarmPool>().get(key).cloned())?;
        if pool.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let block = self.block(&pool);
        let (workload, sources, outputs) =
            self.ctx.store.read(|world| (workload(world, &pool), source_maps(world, &pool), output_maps(world, &pool)));
        let (probed, unprobed) =
            workload.as_ref().map(|workload| self.probes.reports(&pool, &workload.pods)).unwrap_or_default();
        let (room, now) = (self.job_room(&key.namespace), self.ctx.now());
        Some(ObservedPool { block, workload, sources, outputs, probed, unprobed, room, now, pool })
    }

    /// Reason for which the controller reads and writes nothing for the pool.
    fn block(&self, pool: &SwarmPool) -> Option<PoolBlock> {
        if let Some(message) = self.namespaces.refusal(&namespace(pool)) {
            return Some(PoolBlock::Refused(PoolProblem::new(PoolReason::NamespaceRefused, message)));
        }
        if let Some(problem) = self.ctx.store.read(|world| workload_taken(world, pool)) {
            return Some(PoolBlock::Refused(problem));
        }
        if pool.spec.suspend == Some(true) {
            return Some(PoolBlock::Suspended);
        }
        match self.config_maps.state(&namespace(pool)) {
            NamespaceWatch::Ready => None,
            NamespaceWatch::Waiting => Some(PoolBlock::WatchStarts),
            NamespaceWatch::Refused => Some(PoolBlock::WatchForbidden),
        }
    }
}

/// Returns the problem of a pool whose workload an older pool manages.
fn workload_taken(world: &World, pool: &SwarmPool) -> Option<PoolProblem> {
    let first = world.first_pool_on_workload_of(pool)?;
    if first.metadata.uid == pool.metadata.uid {
        return None;
    }
    let name = first.metadata.name.clone().unwrap_or_default();
    let workload = &pool.spec.workload;
    let message = format!(
        "SwarmPool {name} is older and already manages {} {}: delete one of the two pools",
        workload.kind.as_str(),
        workload.name
    );
    Some(PoolProblem::new(PoolReason::WorkloadTaken, message))
}

fn workload(world: &World, pool: &SwarmPool) -> Option<ObservedWorkload> {
    let (kind, name) = (pool.spec.workload.kind, &pool.spec.workload.name);
    let key = Key::new(namespace(pool), name.clone());
    // If a stale cache holds two pods of one name, the newer wins.
    let by_name = |pod: &PodFact| (pod.id.key.name.clone(), pod.clone());
    let (id, scale, status_replicas, selector, first_ordinal, pods) = match kind {
        PoolWorkloadKind::StatefulSet => {
            let set = world.get::<StatefulSetFact>(&key).filter(|set| !set.terminating)?;
            let pods: BTreeMap<_, _> = world.pods_of(&set.id.uid).map(by_name).collect();
            (&set.id, &set.set.scale, set.status_replicas, &set.selector, set.first_ordinal, pods)
        }
        PoolWorkloadKind::Deployment => {
            let deployment = world.get::<DeploymentFact>(&key).filter(|deployment| !deployment.terminating)?;
            let pods = world.pods_of_deployment(deployment).map(by_name).collect();
            (&deployment.id, &deployment.scale, deployment.status_replicas, &deployment.selector, 0, pods)
        }
    };
    let autoscaler = world.replica_scaler_of(&key.namespace, kind.as_str(), name);
    let replicas = u32::try_from(scale.replicas).unwrap_or(0);
    Some(ObservedWorkload {
        fact: PoolWorkloadFact { kind, name: name.clone(), replicas, first_ordinal },
        id: id.clone(),
        scale: scale.clone(),
        autoscaler: autoscaler.map(|autoscaler| autoscaler.id.key.name.clone()),
        status_replicas,
        selector: selector.clone(),
        pods,
    })
}

/// Source ConfigMaps of the pool: those that the spec names, and those that its selector matches.
fn source_maps(world: &World, pool: &SwarmPool) -> ObservedSources {
    let mut sources = ObservedSources::new();
    let Some(maps) = &pool.spec.jobs.config_maps else { return sources };
    let namespace = namespace(pool);
    for name in maps.names.iter().flatten() {
        let map = world.get::<ConfigMapFact>(&Key::new(namespace.clone(), name.clone()));
        sources.insert(name.clone(), map.map(|map| map.id.clone()));
    }
    if let Some(selector) = &maps.selector {
        let selector = Selector::from(selector);
        // Output of this or another pool is never a source.
        let is_output = |map: &ConfigMapFact| map.controller.as_ref().is_some_and(|owner| owner.kind == "SwarmPool");
        for map in world.within::<ConfigMapFact>(&namespace).filter(|map| !is_output(map)) {
            let name = &map.id.key.name;
            if map.reduced && !sources.contains_key(name) {
                // Without its labels, the ConfigMap may be a source. The jobs of a missing source stay.
                sources.insert(name.clone(), None);
            } else if selector.matches(&map.labels) {
                sources.insert(name.clone(), Some(map.id.clone()));
            }
        }
    }
    sources
}

/// Existing output ConfigMaps of the pool.
fn output_maps(world: &World, pool: &SwarmPool) -> Result<ObservedOutputs, PoolProblem> {
    let Output { config_map: name, layout, .. } = &pool.spec.output;
    let namespace = namespace(pool);
    match layout {
        OutputLayout::Shared => match world.get::<ConfigMapFact>(&Key::new(namespace, name.clone())) {
            Some(map) if !is_own(pool, map) => Err(not_owned(name)),
            map => Ok(map.into_iter().map(|map| (name.clone(), map.id.clone())).collect()),
        },
        OutputLayout::PerWorker => {
            let prefix = format!("{name}-");
            let mut own = ObservedOutputs::new();
            for map in world.within::<ConfigMapFact>(&namespace) {
                if is_own(pool, map) && map.id.key.name.starts_with(&prefix) {
                    own.insert(map.id.key.name.clone(), map.id.clone());
                }
            }
            Ok(own)
        }
    }
}

/// Whether the pool owns the ConfigMap.
pub fn is_own(pool: &SwarmPool, map: &ConfigMapFact) -> bool {
    map.controller.as_ref().is_some_and(|owner| owner.uid == Uid::of(&pool.metadata))
}

/// Problem of an output ConfigMap that the pool does not own.
pub fn not_owned(name: &str) -> PoolProblem {
    let message = format!(
        "ConfigMap {name} exists, but the pool does not own it: delete it, so that the pool can create its own, or \
         create a pool with another output.configMap"
    );
    PoolProblem::new(PoolReason::NotOwned, message)
}
