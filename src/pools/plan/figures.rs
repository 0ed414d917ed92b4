//! Figures of all pools that people watch over time, read off the world on request. Knows no metrics format.

use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::SwarmPoolStatus;
use ganglion_core::world::World;

/// Sums over all pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Jobs with a worker.
    pub assigned: i64,
    /// Jobs without a worker.
    pub unassigned: i64,
    /// Workers that use their current job list, of the workers with jobs.
    pub converged: i64,
    /// Workers with jobs that do not use their current job list.
    pub behind: i64,
}

/// Sums over all pools.
pub fn of_pools(world: &World) -> PoolFigures {
    let mut sums = PoolFigures::default();
    for status in world.all::<SwarmPool>().filter_map(|pool| pool.status.as_ref()) {
        let unassigned = status.unassigned.as_ref().map_or(0, |jobs| jobs.count);
        let (converged, workers) = converged(status);
        sums.assigned = sums.assigned.saturating_add(status.jobs.unwrap_or(0).saturating_sub(unassigned).max(0));
        sums.unassigned = sums.unassigned.saturating_add(unassigned);
        sums.converged = sums.converged.saturating_add(converged);
        sums.behind = sums.behind.saturating_add(workers.saturating_sub(converged).max(0));
    }
    sums
}

/// Numbers of converged workers and of all workers with jobs. The list of workers may be cut, so they are read from the
/// summary.
fn converged(status: &SwarmPoolStatus) -> (i64, i64) {
    let parts = status.converged.as_deref().and_then(|text| text.split_once('/'));
    let numbers = parts.and_then(|(converged, all)| Some((converged.parse().ok()?, all.parse().ok()?)));
    numbers.unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use ganglion_core::world::Origin;

    fn put(world: &mut World, name: &str, status: Value) {
        let pool = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool",
            "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": {
                "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name},
                "jobs": {"inline": [{"name": "a"}]}, "output": {"configMap": name},
            },
            "status": status,
        });
        let _ = world.apply(serde_json::from_value::<SwarmPool>(pool).unwrap(), Origin::Watch);
    }

    #[test]
    fn jobs_and_workers_of_all_pools_are_summed() {
        let mut world = World::default();
        crate::world::register(&mut world);
        assert_eq!(of_pools(&world), PoolFigures::default());
        put(&mut world, "a", json!({"jobs": 10, "converged": "3/4", "unassigned": {"count": 2, "names": []}}));
        put(&mut world, "b", json!({"jobs": 5, "converged": "2/2"}));
        put(&mut world, "new", json!({}));
        put(&mut world, "odd", json!({"jobs": 1, "converged": "some", "unassigned": {"count": 3, "names": []}}));
        assert_eq!(of_pools(&world), PoolFigures { assigned: 13, unassigned: 5, converged: 5, behind: 1 });
    }
}
