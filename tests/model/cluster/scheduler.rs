//! The scheduler: binds pods to suitable nodes, and reports if there is none.

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
        None if pod.unschedulable.is_none() => {
            api.say(|| format!("scheduler: no node for {key}"));
            let text = "0 nodes are available".to_owned();
            api.update::<Pod>(key, If::uid(&pod.meta.uid), |pod| pod.unschedulable = Some(text)).is_ok()
        }
        None => false,
    }
}

fn fits(api: &Api, pod: &Pod, node: &Node) -> bool {
    if node.meta.deleted.is_some() || node.cordoned || !node.ready {
        return false;
    }
    let name = &node.meta.key.name;
    if pod.pin.as_ref().is_some_and(|pin| pin != name) || pod.shuns.as_ref() == Some(name) {
        return false;
    }
    if !selects(&pod.template.node_selector, &node.meta.labels) {
        return false;
    }
    let (count, used) = load(api, node);
    let wanted = used + pod.template.requests;
    count < node.pods && wanted.cpu <= node.capacity.cpu && wanted.memory <= node.capacity.memory
}

/// Number and requests of the pods on the node, including terminating ones.
fn load(api: &Api, node: &Node) -> (i64, Requests) {
    api.pods
        .values()
        .filter(|pod| pod.node.as_ref() == Some(&node.meta.key.name) && pod.phase != Phase::Failed)
        .fold((0, Requests::default()), |(count, sum), pod| (count + 1, sum + pod.template.requests))
}
