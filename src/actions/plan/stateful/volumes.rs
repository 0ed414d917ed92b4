//! The bound volumes of a replica, and the nodes on which they allow it to run.

use crate::nodes::{NodeRefusal, selects};
use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_core::facts::{Key, NodeFact, StatefulSetFact};
use ganglion_core::world::World;

/// Why the replica with this name cannot run on a node: one of its volumes is bound and cannot be used there. Volumes
/// that are not known are left to the scheduler.
pub fn refusal(world: &World, set: &StatefulSetFact, pod: &str, node: &NodeFact) -> Option<NodeRefusal> {
    let namespace = &set.id.key.namespace;
    set.claims_of(set.ordinal(pod)?).find_map(|claim| {
        let volume = world.volume_of(&Key::new(namespace.clone(), claim.clone()))?;
        if selects(volume.affinity.as_ref()?, node) {
            return None;
        }
        let (node, volume) = (&node.id.key.name, &volume.id.key.name);
        let message =
            format!("node {node}: volume {volume} of claim {claim} cannot be used there because of its node affinity");
        Some((Reason::VolumeOnOtherNode, message))
    })
}
