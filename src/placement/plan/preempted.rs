//! Pods that a scheduler may preempt for another pod: they do not count when the policy filters the nodes for it.
//!
//! A scheduler names them by uid, and some nodes of it. The resources that they occupy come from the cache.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use super::answered::{ExpectedLoad, PreemptedPod};
use super::inventory::Inventory;
use super::record::SampleRules;
use ganglion_core::facts::{NodeName, OutsidePodFact, PodFact, PodHold};
use ganglion_core::world::{Fact, World};

/// A node on which a scheduler would preempt pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionNode<'a> {
    pub name: Cow<'a, str>,
    /// Uids of the pods.
    pub uids: Vec<Cow<'a, str>>,
    /// Number of PodDisruptionBudgets that the preemption violates.
    pub violations: i64,
}

/// Load that leaves nodes, by their index in the inventory.
pub type LeavingLoads = HashMap<usize, ExpectedLoad>;

/// Finds the pods with these uids, by node. Pods that are not in the cache are left out.
pub fn find(world: &World, uids: &HashMap<&str, HashSet<&str>>) -> Vec<PreemptedPod> {
    let watched = world.all::<PodFact>().map(|pod| (&pod.id, &pod.node));
    let outside = world.all::<OutsidePodFact>().map(|pod| (&pod.id, &pod.node));
    let mut found = Vec::new();
    for (id, node) in watched.chain(outside) {
        let Some(node) = node else { continue };
        if uids.get(node.as_str()).is_some_and(|uids| uids.contains(id.uid.as_str())) {
            found.push(PreemptedPod { key: id.key.clone(), uid: id.uid.clone(), node: node.clone() });
        }
    }
    found
}

/// Load that leaves nodes with these pods.
pub fn leaving<'a>(
    world: &World,
    inventory: &Inventory,
    pods: impl IntoIterator<Item = &'a PreemptedPod>,
    rules: &SampleRules,
    now: Timestamp,
) -> LeavingLoads {
    let mut loads = LeavingLoads::new();
    for pod in pods {
        let Some((node, hold)) = held(world, pod) else { continue };
        let Some(record) = inventory.node(node.as_str()) else { continue };
        let load = loads.entry(record.place).or_default();
        *load = *load
            + ExpectedLoad {
                pods: 1,
                requests: hold.requests,
                cores: if hold.pending { hold.cores } else { 0 },
                unmeasured: record.unmeasured_of(&hold, now, rules),
            };
    }
    loads
}

/// Node of a cached pod, and the resources that it occupies there.
fn held<'w>(world: &'w World, pod: &PreemptedPod) -> Option<(&'w NodeName, PodHold)> {
    fn same<'w, F: Fact>(world: &'w World, pod: &PreemptedPod) -> Option<&'w F> {
        world.get::<F>(&pod.key).filter(|fact| *fact.unique_id() == pod.uid)
    }
    match same::<PodFact>(world, pod) {
        Some(fact) => fact.held(),
        None => same::<OutsidePodFact>(world, pod)?.held(),
    }
}
