//! SwarmPools and ConfigMaps: the objects that a change requeues, and the queries of controllers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::loops::is_another;
use super::{Fact, Indexed, Requeue, World};
use crate::facts::{AutoscalerFact, ConfigMapFact, DeploymentFact, Key, PodFact, Selector};
use ganglion_api::swarm_pool::jobs::JobConfigMaps;
use ganglion_api::swarm_pool::{PoolWorkload, PoolWorkloadKind, SwarmPool};

/// Derived from SwarmPools, and updated whenever they change.
#[derive(Debug, Default)]
pub struct PoolIndex {
    /// By the key of the workload.
    of_workload: HashMap<(PoolWorkloadKind, Key), BTreeSet<Key>>,
}

impl PoolIndex {
    fn pools_on(&self, kind: PoolWorkloadKind, workload: &Key) -> impl Iterator<Item = &Key> {
        // A fast path: most clusters have few pools, and pods change often.
        let found = if self.of_workload.is_empty() { None } else { self.of_workload.get(&(kind, workload.clone())) };
        found.into_iter().flatten()
    }

    fn changed(&mut self, old: Option<&SwarmPool>, new: Option<&SwarmPool>) {
        if let Some(pool) = old {
            let on = workload_of(pool);
            if let Some(pools) = self.of_workload.get_mut(&on) {
                pools.remove(&pool.id().key);
                if pools.is_empty() {
                    self.of_workload.remove(&on);
                }
            }
        }
        if let Some(pool) = new {
            self.of_workload.entry(workload_of(pool)).or_default().insert(pool.id().key);
        }
    }
}

fn workload_of(pool: &SwarmPool) -> (PoolWorkloadKind, Key) {
    let PoolWorkload { kind, name, .. } = &pool.spec.workload;
    (*kind, Key::new(pool.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

impl Indexed for SwarmPool {
    /// Requeues the pool. If it was added or removed, also requeues all pools of its workload, since only the oldest is
    /// active.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(pool) = new.or(old) else { return Requeue::none() };
        let own = Requeue::one::<Self>(pool.id().key);
        if !is_another(old, new) && old.map(workload_of) == new.map(workload_of) {
            return own;
        }
        let before = old.map(|pool| world.on_workload_of(pool));
        world.pools.changed(old, new);
        let after = new.map(|pool| world.on_workload_of(pool));
        [before, after].into_iter().flatten().fold(own, Requeue::and)
    }
}

impl Indexed for ConfigMapFact {
    /// Requeues the pools that write or read the ConfigMap.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(map) = new.or(old) else { return Requeue::none() };
        let sides = || [old, new].into_iter().flatten();
        let pools = world.tables.swarm_pools.within(&map.id.key.namespace);
        let concerned = pools.filter(|pool| sides().any(|side| concerns(side, pool)));
        Requeue::all::<SwarmPool>(concerned.map(|pool| pool.id().key))
    }
}

/// Whether the pool writes or reads this ConfigMap.
fn concerns(map: &ConfigMapFact, pool: &SwarmPool) -> bool {
    let name = &map.id.key.name;
    let reads = |jobs: &JobConfigMaps| {
        jobs.names.as_ref().is_some_and(|names| names.contains(name))
            || jobs.selector.as_ref().is_some_and(|selector| Selector::from(selector).matches(&map.labels))
    };
    name.starts_with(&pool.spec.output.config_map) || pool.spec.jobs.config_maps.as_ref().is_some_and(reads)
}

/// Queries of controllers.
impl World {
    fn on_workload_of(&self, pool: &SwarmPool) -> Requeue {
        let (kind, workload) = workload_of(pool);
        self.pools_of(kind, &workload)
    }

    /// The pools of this workload, to requeue.
    pub(super) fn pools_of(&self, kind: PoolWorkloadKind, workload: &Key) -> Requeue {
        Requeue::all::<SwarmPool>(self.pools.pools_on(kind, workload).cloned())
    }

    /// The pools whose worker the pod is or was, to requeue.
    pub(super) fn pools_with(&self, pod: &PodFact) -> Requeue {
        if self.pools.of_workload.is_empty() {
            return Requeue::none();
        }
        let Some(owner) = &pod.controller else { return Requeue::none() };
        let namespace = &pod.id.key.namespace;
        let owner_key = Key::new(namespace.clone(), owner.name.clone());
        match owner.kind.as_str() {
            "StatefulSet" => self.pools_of(PoolWorkloadKind::StatefulSet, &owner_key),
            "ReplicaSet" => match self.set(&owner_key).and_then(|set| set.controller.as_ref()) {
                Some(deployment) => {
                    let deployment = Key::new(namespace.clone(), deployment.name.clone());
                    self.pools_of(PoolWorkloadKind::Deployment, &deployment)
                }
                None => Requeue::none(),
            },
            _ => Requeue::none(),
        }
    }

    /// The pools whose workload this autoscaler scales.
    pub(super) fn pools_scaled_by(&self, autoscaler: &AutoscalerFact) -> impl Iterator<Item = Key> {
        let target = Key::new(autoscaler.id.key.namespace.clone(), autoscaler.target.name.clone());
        let kinds = [PoolWorkloadKind::StatefulSet, PoolWorkloadKind::Deployment];
        kinds.into_iter().flat_map(move |kind| self.pools.pools_on(kind, &target).cloned().collect::<Vec<_>>())
    }

    pub fn config_map(&self, key: &Key) -> Option<&ConfigMapFact> {
        self.tables.config_maps.get(key).map(Arc::as_ref)
    }

    /// The cached ConfigMaps of a namespace, by name.
    pub fn config_maps(&self, namespace: &str) -> impl Iterator<Item = &ConfigMapFact> {
        self.tables.config_maps.within(namespace).map(Arc::as_ref)
    }

    /// The pods of a Deployment, by ReplicaSet and name, including finished and terminating ones.
    pub fn pods_of_deployment<'a>(&'a self, deployment: &DeploymentFact) -> impl Iterator<Item = &'a PodFact> {
        self.sets_of(&deployment.id.uid).flat_map(|set| self.pods_of(&set.id.uid))
    }

    /// The oldest pool of the workload of this pool, by creation time, then name.
    pub fn first_pool_on_workload_of(&self, pool: &SwarmPool) -> Option<&Arc<SwarmPool>> {
        let (kind, workload) = workload_of(pool);
        let pools = self.pools.pools_on(kind, &workload).filter_map(|key| self.tables.swarm_pools.get(key));
        pools.min_by_key(|pool| {
            let created = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, pool.metadata.name.clone())
        })
    }

    /// All namespaces with a pool.
    pub fn namespaces_with_pools(&self) -> BTreeSet<String> {
        self.pools.of_workload.keys().map(|(_, workload)| workload.namespace.clone()).collect()
    }
}
