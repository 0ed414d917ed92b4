//! Requests that the operator must not send given its cached facts. The facts may be stale, but each decision must
//! follow from them.

use ganglion_actions_plan::world::ActionsWorld;
use ganglion_api::workload_action::status::{Protocol, Slot};
use ganglion_core::facts::{DeploymentFact, Key, PodFact, ReplicaSetFact, Uid};
use ganglion_core::world::World;

use super::{Violation, violation};
use crate::cluster::object::APP;
use crate::face::deed::Deed;

/// Without break-before-make, a pod may be evicted only while the cache shows that its replacement serves, or that
/// enough other pods serve.
pub fn check(world: &World, key: &Key, deed: &Deed) -> Result<(), Violation> {
    let Deed::Evict { pod, uid } = deed else { return Ok(()) };
    let Some(action) = world.action(key) else {
        return violation("BlindEviction", format!("{key} evicts {pod}, but the action is not in the cache"));
    };
    let victim = |slot: &&Slot| {
        slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref().is_some_and(|known| *known == **uid))
    };
    let Some(slot) = action.status.iter().flat_map(|status| &status.slots).find(victim) else {
        return violation("BlindEviction", format!("{key} evicts {pod}, which is no slot's victim"));
    };
    if slot.break_first || (action.spec.move_.is_none() && action.spec.swap.is_none()) {
        return Ok(());
    }
    // Nobody misses a pod that is not Ready: its ReplicaSet creates the next one.
    if slot.protocol == Protocol::Successor && world.pod(pod).is_some_and(|pod| !pod.is_ready()) {
        return Ok(());
    }
    if world.pod(pod).is_some_and(|pod| pod.finished) {
        return Ok(());
    }
    let replacement =
        slot.replacement.as_ref().and_then(|one| world.pod(&Key::new(key.namespace.clone(), one.name.clone())));
    if replacement.is_some_and(PodFact::is_ready) || enough(world, key, &slot.workload.name, uid) {
        return Ok(());
    }
    violation("BlindEviction", format!("{key} evicts {pod}, but the cache has no Ready pod in its place"))
}

/// Whether enough replicas serve without this one, according to the cache.
fn enough(world: &World, key: &Key, app: &str, without: &str) -> bool {
    let asked = match world.get::<DeploymentFact>(&Key::new(key.namespace.clone(), app)) {
        Some(deployment) => deployment.scale.replicas,
        None => world.get::<ReplicaSetFact>(&Key::new(key.namespace.clone(), app)).map_or(0, |set| set.scale.replicas),
    };
    let mut uids: Vec<Uid> = Vec::new();
    if let Some(deployment) = world.get::<DeploymentFact>(&Key::new(key.namespace.clone(), app)) {
        uids.extend(world.sets_of(&deployment.id.uid).map(|set| set.id.uid.clone()));
    }
    uids.extend(world.get::<ReplicaSetFact>(&Key::new(key.namespace.clone(), app)).map(|set| set.id.uid.clone()));
    let owned = uids.iter().flat_map(|uid| world.pods_of(uid));
    let serving = owned.filter(|pod| pod.is_ready() && pod.id.uid != *without).count();
    let detached = world.marked_pods().filter(|pod| {
        pod.controller.is_none()
            && pod.is_ready()
            && pod.id.uid != *without
            && pod.labels.get(APP).is_some_and(|label| label == app)
    });
    i32::try_from(serving + detached.count()).unwrap_or(i32::MAX) >= asked
}
