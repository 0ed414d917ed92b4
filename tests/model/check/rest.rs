//! Rules that must hold when no part has anything left to do.

use std::sync::Arc;

use ganglion_api::marks;

use ganglion_core::world::World;

use super::invariants::Invariants;
use super::{Violation, violation};
use crate::cluster::api::Api;
use crate::cluster::object::{APP, Receipt, Set};
use crate::operator::feed::{self, WatchedKind};

pub fn check(invariants: &Invariants, api: &Api, world: &World) -> Result<(), Violation> {
    known(api, world)?;
    for action in api.actions.values() {
        let key = &action.meta.key;
        if !action.finished() {
            return violation("NotEnded", format!("{key} has not ended"));
        }
        if !action.meta.finalizers.is_empty() {
            return violation("LeftBehind", format!("{key} has ended, but still has a finalizer"));
        }
    }
    receipts(invariants, api)?;
    pods(api)?;
    workloads(invariants, api)
}

/// The operator's cache must equal the API server once it has received every event.
fn known(api: &Api, world: &World) -> Result<(), Violation> {
    let counts = feed::known(world);
    for (kind, there) in [
        (WatchedKind::Pod, api.pods.live.len()),
        (WatchedKind::Node, api.nodes.live.len()),
        (WatchedKind::Set, api.sets.live.len()),
        (WatchedKind::Deployment, api.deployments.live.len()),
        (WatchedKind::Receipt, api.receipts.live.len()),
        (WatchedKind::Action, api.actions.live.len()),
    ] {
        let known = counts(kind);
        if known != there {
            return violation("StaleWorld", format!("{there} of kind {kind:?} exist, the cache has {known}"));
        }
    }
    Ok(())
}

/// A receipt prevents its action from ever running again, so an action that did nothing must not have one.
fn receipts(invariants: &Invariants, api: &Api) -> Result<(), Violation> {
    // The effects of a vanished action are unknown.
    let empty = |receipt: &&Arc<Receipt>| {
        !invariants.vanished && !invariants.effective.contains(receipt.spec.action_uid.as_str())
    };
    match api.receipts.values().find(empty) {
        Some(receipt) => violation("LeftBehind", format!("receipt {} of an action without effects", receipt.meta.key)),
        None => Ok(()),
    }
}

fn pods(api: &Api) -> Result<(), Violation> {
    // Pods for which others were preempted belong to no workload.
    for pod in api.pods.values().filter(|pod| pod.meta.deleted.is_none() && !pod.app().is_empty()) {
        let annotations = &pod.meta.annotations;
        let ours = [marks::SLOT, marks::ROLE, marks::PEERS].into_iter().find(|mark| annotations.contains_key(*mark));
        let lowest = annotations.get(marks::DELETION_COST).is_some_and(|cost| cost == marks::LOWEST_COST);
        if let Some(mark) = ours {
            return violation("LeftBehind", format!("pod {} still has {mark}", pod.meta.key));
        }
        if lowest {
            return violation("LeftBehind", format!("pod {} still has the lowest deletion cost", pod.meta.key));
        }
        if pod.meta.controller().is_none() {
            return violation("LeftBehind", format!("pod {} has no controller", pod.meta.key));
        }
    }
    Ok(())
}

fn workloads(invariants: &Invariants, api: &Api) -> Result<(), Violation> {
    let deployments = api.deployments.values().map(|one| (&one.meta, one.replicas));
    let sets = api.sets.values().filter(|set| set.meta.owners.is_empty()).map(|one| (&one.meta, one.replicas));
    for (meta, replicas) in deployments.chain(sets) {
        // If its action has vanished, the owner of a ledger is unknown.
        if meta.annotations.contains_key(marks::LEDGER) && !invariants.vanished {
            return violation("LeftBehind", format!("{} still has a ledger", meta.key));
        }
        let pods = api.pods.values().filter(|pod| pod.app() == meta.key.name && pod.is_active());
        let there = i32::try_from(pods.count()).unwrap_or(i32::MAX);
        let of_app = |set: &&Arc<Set>| set.template.labels.get(APP) == Some(&meta.key.name);
        let wanted: i32 = api.sets.values().filter(of_app).map(|set| set.replicas).sum();
        // Under a quota, the ReplicaSet may lack pods for reasons other than the operator. It must never have too many.
        if there > wanted || (api.quota.is_none() && there < wanted) {
            let text = format!("{} has {there} pods, but its sets should have {wanted}", meta.key);
            return violation("WrongCount", text);
        }
        let Some(account) = invariants.accounts.get(&meta.key.name).filter(|account| !account.ever_disturbed) else {
            continue;
        };
        if account.serving < replicas {
            let text = format!("{} has {} serving replicas, {replicas} asked for", meta.key, account.serving);
            return violation("WrongCount", text);
        }
    }
    Ok(())
}
