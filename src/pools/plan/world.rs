//! SwarmPools in the [`World`]: the queries of the controller, and the pools that a change requeues.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use ganglion_api::swarm_pool::{JobConfigMaps, PoolWorkload, PoolWorkloadKind, SwarmPool};
use ganglion_core::facts::{
    AutoscalerFact, ConfigMapFact, DeploymentFact, HpaFact, Key, PodFact, ReplicaSetFact, ScaledObjectFact, Selector,
    StatefulSetFact, VpaFact,
};
use ganglion_core::world::{Fact, Follows, KeysBy, Requeue, State, World, is_another};

/// Queries of the controller of SwarmPools.
pub trait PoolsWorld {
    /// The pods of a Deployment, by ReplicaSet and name, including finished and terminating ones.
    fn pods_of_deployment<'a>(&'a self, deployment: &DeploymentFact) -> impl Iterator<Item = &'a PodFact>;

    /// The oldest pool of the workload of this pool, by creation time, then name.
    fn first_pool_on_workload_of(&self, pool: &SwarmPool) -> Option<&Arc<SwarmPool>>;

    /// All namespaces with a pool.
    fn namespaces_with_pools(&self) -> BTreeSet<String>;
}

impl PoolsWorld for World {
    fn pods_of_deployment<'a>(&'a self, deployment: &DeploymentFact) -> impl Iterator<Item = &'a PodFact> {
        self.sets_of(&deployment.id.uid).flat_map(|set| self.pods_of(&set.id.uid))
    }

    fn first_pool_on_workload_of(&self, pool: &SwarmPool) -> Option<&Arc<SwarmPool>> {
        let pools = index(self).of_workload.of(&workload_of(pool)).filter_map(|key| self.table::<SwarmPool>().get(key));
        pools.min_by_key(|pool| {
            let created = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, pool.metadata.name.clone())
        })
    }

    fn namespaces_with_pools(&self) -> BTreeSet<String> {
        index(self).of_workload.owners().map(|(_, workload)| workload.namespace.clone()).collect()
    }
}

/// Derived from SwarmPools.
#[derive(Default)]
struct PoolIndex {
    /// Pools, by the key of their workload.
    of_workload: KeysBy<(PoolWorkloadKind, Key)>,
}

impl State for PoolIndex {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<PoolIndex> = LazyLock::new(PoolIndex::default);
        &EMPTY
    }
}

fn index(world: &World) -> &PoolIndex {
    world.state()
}

/// Registers the kinds that SwarmPools follow.
pub fn register(world: &mut World) {
    world.follow::<PoolIndex, SwarmPool>();
    world.follow::<PoolIndex, ConfigMapFact>();
    world.follow::<PoolIndex, PodFact>();
    world.follow::<PoolIndex, DeploymentFact>();
    world.follow::<PoolIndex, StatefulSetFact>();
    world.follow::<PoolIndex, HpaFact>();
    world.follow::<PoolIndex, ScaledObjectFact>();
    world.follow::<PoolIndex, VpaFact>();
}

impl Follows<SwarmPool> for PoolIndex {
    fn update(&mut self, old: Option<&SwarmPool>, new: Option<&SwarmPool>) {
        let Some(pool) = new.or(old) else { return };
        self.of_workload.update(&pool.key(), old.map(workload_of).as_ref(), new.map(workload_of).as_ref());
    }

    /// Requeues the pool. If it was added or removed, also requeues all pools of its workload, since only the oldest is
    /// active.
    fn requeue(world: &World, old: Option<&SwarmPool>, new: Option<&SwarmPool>) -> Requeue {
        let Some(pool) = new.or(old) else { return Requeue::none() };
        let own = Requeue::one::<SwarmPool>(pool.key().into_owned());
        if !is_another(old, new) && old.map(workload_of) == new.map(workload_of) {
            return own;
        }
        let workloads = [old, new].into_iter().flatten().map(workload_of);
        workloads.fold(own, |requeue, (kind, key)| requeue.and(pools_of(world, kind, &key)))
    }
}

impl Follows<ConfigMapFact> for PoolIndex {
    /// Requeues the pools that write or read the ConfigMap.
    fn requeue(world: &World, old: Option<&ConfigMapFact>, new: Option<&ConfigMapFact>) -> Requeue {
        let Some(map) = new.or(old) else { return Requeue::none() };
        let sides = || [old, new].into_iter().flatten();
        let pools = world.within::<SwarmPool>(&map.id.key.namespace);
        let concerned = pools.filter(|pool| sides().any(|side| concerns(side, pool)));
        Requeue::all::<SwarmPool>(concerned.map(|pool| pool.key().into_owned()))
    }
}

impl Follows<PodFact> for PoolIndex {
    /// Requeues the pools whose worker the pod is or was.
    fn requeue(world: &World, old: Option<&PodFact>, new: Option<&PodFact>) -> Requeue {
        // Most clusters have few pools, and pods change often.
        if index(world).of_workload.is_empty() || old.zip(new).is_some_and(|(old, new)| old.differs_in_run_only(new)) {
            return Requeue::none();
        }
        [old, new].into_iter().flatten().fold(Requeue::none(), |requeue, pod| requeue.and(pools_with(world, pod)))
    }
}

impl Follows<DeploymentFact> for PoolIndex {
    fn requeue(world: &World, old: Option<&DeploymentFact>, new: Option<&DeploymentFact>) -> Requeue {
        let Some(deployment) = new.or(old) else { return Requeue::none() };
        pools_of(world, PoolWorkloadKind::Deployment, &deployment.id.key)
    }
}

impl Follows<StatefulSetFact> for PoolIndex {
    fn requeue(world: &World, old: Option<&StatefulSetFact>, new: Option<&StatefulSetFact>) -> Requeue {
        let Some(set) = new.or(old) else { return Requeue::none() };
        pools_of(world, PoolWorkloadKind::StatefulSet, &set.id.key)
    }
}

macro_rules! autoscalers {
    ($($fact:ty),*) => {
        $(impl Follows<$fact> for PoolIndex {
            fn requeue(world: &World, old: Option<&$fact>, new: Option<&$fact>) -> Requeue {
                pools_scaled_by(world, old.map(|fact| &fact.0), new.map(|fact| &fact.0))
            }
        })*
    };
}
autoscalers!(HpaFact, ScaledObjectFact, VpaFact);

/// The pools whose workload the autoscaler scales, since their conflicts may have changed.
fn pools_scaled_by(world: &World, old: Option<&AutoscalerFact>, new: Option<&AutoscalerFact>) -> Requeue {
    if old.map(|fact| (&fact.target, &fact.controls)) == new.map(|fact| (&fact.target, &fact.controls)) {
        return Requeue::none();
    }
    let mut requeue = Requeue::none();
    for fact in [old, new].into_iter().flatten() {
        let target = Key::new(fact.id.key.namespace.clone(), fact.target.name.clone());
        requeue.extend(pools_of(world, PoolWorkloadKind::StatefulSet, &target));
        requeue.extend(pools_of(world, PoolWorkloadKind::Deployment, &target));
    }
    requeue
}

/// The pools of this workload.
fn pools_of(world: &World, kind: PoolWorkloadKind, workload: &Key) -> Requeue {
    let pools = &index(world).of_workload;
    if pools.is_empty() {
        return Requeue::none();
    }
    Requeue::all::<SwarmPool>(pools.of(&(kind, workload.clone())).cloned())
}

/// The pools whose worker the pod is.
fn pools_with(world: &World, pod: &PodFact) -> Requeue {
    let Some(owner) = &pod.controller else { return Requeue::none() };
    let namespace = &pod.id.key.namespace;
    let owner_key = Key::new(namespace.clone(), owner.name.clone());
    match owner.kind.as_str() {
        "StatefulSet" => pools_of(world, PoolWorkloadKind::StatefulSet, &owner_key),
        "ReplicaSet" => match world.get::<ReplicaSetFact>(&owner_key).and_then(|set| set.controller.as_ref()) {
            Some(deployment) => {
                let deployment = Key::new(namespace.clone(), deployment.name.clone());
                pools_of(world, PoolWorkloadKind::Deployment, &deployment)
            }
            None => Requeue::none(),
        },
        _ => Requeue::none(),
    }
}

fn workload_of(pool: &SwarmPool) -> (PoolWorkloadKind, Key) {
    let PoolWorkload { kind, name, .. } = &pool.spec.workload;
    (*kind, Key::new(pool.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// Whether the pool writes or reads this ConfigMap.
fn concerns(map: &ConfigMapFact, pool: &SwarmPool) -> bool {
    let name = &map.id.key.name;
    let reads = |jobs: &JobConfigMaps| {
        jobs.names.as_ref().is_some_and(|names| names.contains(name))
            || jobs
                .selector
                .as_ref()
                .is_some_and(|selector| map.reduced || Selector::from(selector).matches(&map.labels))
    };
    name.starts_with(&pool.spec.output.config_map) || pool.spec.jobs.config_maps.as_ref().is_some_and(reads)
}
