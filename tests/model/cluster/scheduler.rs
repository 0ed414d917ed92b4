//! The scheduler: binds pods to suitable nodes. If there is none, it preempts a pod, or reports that.

use std::sync::Arc;

use ganglion_core::facts::Requests;

use super::api::{Api, If};
use super::object::{Node, Phase, Pod, selects};

/// Tries to schedule one unbound pod; false if nothing changed.
pub fn step(api: &mut Api) -> bool {
    let waiting: Vec<Arc<Pod>> =
        api.pods.values().filter(|pod| pod.node.is_none() && pod.is_active()).cloned().collect();
    let Some(pod) = api.rng.pick(&waiting).cloned() else { return false };
    schedule(api, &pod)
}

fn schedule(api: &mut Api, pod: &Pod) -> bool {
    let fitting: Vec<Arc<Node>> = api.nodes.values().filter(|node| fits(api, pod, node)).cloned().collect();
    let least = fitting.iter().map(|node| load(api, node).0).min();
    let best: Vec<&Arc<Node>> = fitting.iter().filter(|node| Some(load(api, node).0) == least).collect();
    let key = &pod.meta.key;
    match api.rng.pick(&best) {
        Some(node) => {
            let name = node.meta.key.name.clone();
            api.say(|| format!("scheduler: {key} to {name}"));
            api.update::<Pod>(key, If::uid(&pod.meta.uid), |pod| {
                pod.node = Some(name);
                pod.unschedulable = None;
            })
            .is_ok()
        }
        None if pod.template.prioritized && pod.nominated.is_none() && preempt(api, pod) => true,
        None if pod.unschedulable.is_none() => {
            api.say(|| format!("scheduler: no node for {key}"));
            let text = "0 nodes are available".to_owned();
            api.update::<Pod>(key, If::uid(&pod.meta.uid), |pod| pod.unschedulable = Some(text)).is_ok()
        }
        None => false,
    }
}

fn fits(api: &Api, pod: &Pod, node: &Node) -> bool {
    fits_without(api, pod, node, None)
}

/// Whether the node can take the pod once `leaving` is gone.
fn fits_without(api: &Api, pod: &Pod, node: &Node, leaving: Option<&Pod>) -> bool {
    if node.meta.deleted.is_some() || node.cordoned || !node.ready {
        return false;
    }
    let name = &node.meta.key.name;
    if pod.pin.as_ref().is_some_and(|pin| pin != name) || pod.shuns.contains(name) {
        return false;
    }
    if !selects(&pod.template.node_selector, &node.meta.labels) || !selects(&pod.wants, &node.meta.labels) {
        return false;
    }
    let (mut count, mut used) = load(api, node);
    if let Some(leaving) = leaving {
        (count, used) = (count - 1, used - leaving.template.requests);
    }
    let is_nominated = |other: &&Arc<Pod>| {
        !pod.template.prioritized && other.node.is_none() && other.is_active() && other.nominated.as_ref() == Some(name)
    };
    for other in api.pods.values().filter(is_nominated) {
        (count, used) = (count + 1, used + other.template.requests);
    }
    let wanted = used + pod.template.requests;
    count < node.pods && wanted.cpu <= node.capacity.cpu && wanted.memory <= node.capacity.memory
}

/// Deletes a pod without a priority on a node that then has room for this pod, which has one. Tried once for each pod.
fn preempt(api: &mut Api, pod: &Pod) -> bool {
    let makes_room = |victim: &&Arc<Pod>| {
        let node = api.nodes.values().find(|node| victim.node.as_ref() == Some(&node.meta.key.name));
        let gives_way = !victim.template.prioritized && victim.is_active();
        gives_way && node.is_some_and(|node| fits_without(api, pod, node, Some(victim)))
    };
    let victims: Vec<Arc<Pod>> = api.pods.values().filter(makes_room).cloned().collect();
    let Some(victim) = api.rng.pick(&victims).cloned() else { return false };
    let name = victim.node.clone();
    api.say(|| format!("scheduler: preempts {} for {}", victim.meta.key, pod.meta.key));
    let _ = api.update::<Pod>(&pod.meta.key, If::uid(&pod.meta.uid), |pod| pod.nominated = name);
    api.delete_pod(&victim.meta.key, If::uid(&victim.meta.uid)).is_ok()
}

/// Number and requests of the pods on the node, including terminating ones.
fn load(api: &Api, node: &Node) -> (i64, Requests) {
    api.pods
        .values()
        .filter(|pod| pod.node.as_ref() == Some(&node.meta.key.name) && pod.phase != Phase::Failed)
        .fold((0, Requests::default()), |(count, sum), pod| (count + 1, sum + pod.template.requests))
}
