//! An action that reports success must have succeeded: at its end, its status is compared with the API server.

use std::sync::Arc;

use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::Key;

use super::invariants::Invariants;
use super::{Violation, violation};
use crate::cluster::api::Api;
use crate::cluster::object::{Action, Pod};

/// Outcome of an action: the reason of its Ready condition.
pub fn word(action: &Action) -> String {
    let conditions = action.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    ready.map_or_else(|| "NoCondition".to_owned(), |ready| ready.reason.clone())
}

/// Checks an action that has just ended.
pub fn check(invariants: &Invariants, action: &Action) -> Result<(), Violation> {
    let key = &action.meta.key;
    if let Some(slot) = action.open_slots().next() {
        return violation("EndedEarly", format!("{key} ended with slot {} at {:?}", slot.index, slot.step));
    }
    if word(action) != "Succeeded" {
        return Ok(());
    }
    if let Some(progress) = action.status.as_ref().and_then(|status| status.application.as_ref())
        && (progress.left, progress.failed, progress.in_motion) != (0, 0, 0)
    {
        return violation("NotSoSucceeded", format!("{key} succeeded with {progress:?}"));
    }
    let Some(terms) = invariants.terms.get(&action.meta.uid) else { return Ok(()) };
    let spent = invariants.spent.get(&terms.decision).cloned().unwrap_or_default();
    let known = |slot: &&Slot| !invariants.unledgered.contains(&slot.workload.name);
    let found = action.status.iter().find_map(|status| status.replicas);
    let wanted = match found {
        // `count: All` deletes all replicas found.
        Some(found) if action.spec.delete.is_some() => -found,
        _ if action.spec.create.is_some() => terms.scale.1,
        _ => terms.scale.0,
    };
    if action.slots().all(|slot| known(&slot)) && spent.scaled != wanted {
        let text = format!("{key} succeeded, but changed replicas by {} instead of {wanted}", spent.scaled);
        return violation("NotSoSucceeded", text);
    }
    for slot in action.slots() {
        if slot.step != Step::Succeeded {
            return violation("NotSoSucceeded", format!("{key} succeeded with slot {} at {:?}", slot.index, slot.step));
        }
    }
    Ok(())
}

/// Checks a slot that has just succeeded. The API server must agree, unless others changed the workload meanwhile.
pub fn slot(invariants: &Invariants, api: &Api, action: &Action, slot: &Slot) -> Result<(), Violation> {
    let quiet = invariants.accounts.get(&slot.workload.name).is_some_and(|account| !account.disturbed);
    if quiet { slot_holds(api, action, slot) } else { Ok(()) }
}

fn pod<'a>(api: &'a Api, action: &Action, pod: &PodOnNode) -> Option<&'a Arc<Pod>> {
    let key = Key::new(action.meta.key.namespace.clone(), pod.name.clone());
    api.pods.get(&key).filter(|live| pod.uid.as_ref().is_none_or(|uid| *uid == *live.meta.uid))
}

fn slot_holds(api: &Api, action: &Action, slot: &Slot) -> Result<(), Violation> {
    let key = &action.meta.key;
    let spec = &action.spec;
    let fail = |text: String| violation("NotSoSucceeded", format!("{key} succeeded, but slot {}: {text}", slot.index));
    if spec.delete.is_none() {
        let Some(replacement) = &slot.replacement else { return fail("no replacement".to_owned()) };
        let Some(live) = pod(api, action, replacement) else {
            return fail(format!("{} does not exist", replacement.name));
        };
        if !live.is_serving() || !live.meta.is_of(slot.replica_set.uid.as_str()) {
            return fail(format!("{} does not serve for its set", replacement.name));
        }
        let to =
            spec.create.as_ref().map(|create| &create.to).or(spec.move_.as_ref().and_then(|moved| moved.to.as_ref()));
        let on = live.node.clone().unwrap_or_default();
        if live.node.is_none()
            || replacement.node != on
            || to.and_then(|to| to.node_name.as_ref()).is_some_and(|name| *name != on)
        {
            return fail(format!("{} runs on {on}", replacement.name));
        }
        let wanted = to.and_then(|to| to.node_selector.as_ref());
        let node = api.nodes.get(&Key::new("", on.as_str()));
        if let Some((labels, node)) = wanted.zip(node)
            && !crate::cluster::object::selects(labels, &node.meta.labels)
        {
            return fail(format!("{} runs on {on}, outside the target", replacement.name));
        }
    }
    if spec.create.is_none() {
        let Some(victim) = &slot.victim else { return fail("no victim".to_owned()) };
        if pod(api, action, victim).is_some() {
            return fail(format!("{} still exists", victim.name));
        }
    }
    Ok(())
}
