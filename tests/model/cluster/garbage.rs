//! The garbage collectors: they delete objects whose owners are all gone, and pods whose node is gone.

use std::sync::Arc;

use super::api::{Api, If};
use super::object::{Action, Meta, OwnerRef, Pod, Set};

/// Collects one object; false if there is none to collect.
pub fn step(api: &mut Api) -> bool {
    orphaned_set(api) || orphaned_action(api) || orphaned_pod(api) || pod_without_node(api)
}

fn exists(api: &Api, owner: &OwnerRef) -> bool {
    match owner.kind.as_str() {
        "Deployment" => api.deployments.by_uid(&owner.uid).is_some(),
        "ReplicaSet" => api.sets.by_uid(&owner.uid).is_some(),
        _ => true,
    }
}

fn abandoned(api: &Api, meta: &Meta) -> bool {
    !meta.owners.is_empty() && !meta.owners.iter().any(|owner| exists(api, owner))
}

fn orphaned_set(api: &mut Api) -> bool {
    let Some(set) = api.sets.values().find(|set| abandoned(api, &set.meta)).cloned() else { return false };
    api.say(|| format!("garbage collector: set {}", set.meta.key));
    api.delete::<Set>(&set.meta.key, If::uid(&set.meta.uid)).is_ok()
}

fn orphaned_action(api: &mut Api) -> bool {
    let lost = |action: &&Arc<Action>| action.meta.deleted.is_none() && abandoned(api, &action.meta);
    let Some(action) = api.actions.values().find(lost).cloned() else { return false };
    api.say(|| format!("garbage collector: action {}", action.meta.key));
    api.delete::<Action>(&action.meta.key, If::uid(&action.meta.uid)).is_ok()
}

fn orphaned_pod(api: &mut Api) -> bool {
    let lost = |pod: &&Arc<Pod>| pod.meta.deleted.is_none() && abandoned(api, &pod.meta);
    let Some(pod) = api.pods.values().find(lost).cloned() else { return false };
    api.say(|| format!("garbage collector: pod {}", pod.meta.key));
    api.delete_pod(&pod.meta.key, If::uid(&pod.meta.uid)).is_ok()
}

fn pod_without_node(api: &mut Api) -> bool {
    let homeless = |pod: &&Arc<Pod>| {
        let is_ended = pod.meta.deleted.is_some() && pod.has_ended();
        !is_ended && pod.node.as_ref().is_some_and(|name| api.nodes.values().all(|node| node.meta.key.name != *name))
    };
    let Some(pod) = api.pods.values().find(homeless).cloned() else { return false };
    api.say(|| format!("pod collector: {} was on a node that is gone", pod.meta.key));
    api.end_pod(&pod)
}
