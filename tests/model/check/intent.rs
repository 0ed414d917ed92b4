//! Intent first: before the operator changes pods or replicas, the API server must show an open slot of a running
//! action for it, a finalizer of ours on the action, and its receipt.

use ganglion_api::marks;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::{Key, Ledger, SlotId};

use super::invariants::Invariants;
use super::{Violation, violation};
use crate::cluster::api::Api;
use crate::cluster::object::Action;
use crate::face::deed::Deed;

/// Checks a request that was carried out; `changed` says whether it changed anything.
pub fn check(invariants: &Invariants, api: &Api, key: &Key, deed: &Deed, changed: bool) -> Result<(), Violation> {
    // Requests planned for an action that has vanished may still arrive.
    if !changed || invariants.vanished {
        return Ok(());
    }
    match deed {
        Deed::CreatePod { pod, slot } => {
            let slot = open(invariants, api, key, slot, "creates a pod")?;
            let known = slot.replacement.as_ref().is_some_and(|replacement| replacement.name == pod.name);
            holds(known, key, &format!("creates {pod} for slot {}, which does not name it", slot.index))
        }
        Deed::Detach { pod, uid, slot } => {
            let slot = open(invariants, api, key, slot, "detaches a pod")?;
            let known =
                slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref().is_some_and(|known| *known == **uid));
            holds(known, key, &format!("detaches {pod} for slot {} whose victim it is not", slot.index))
        }
        Deed::Mark { slot } => open(invariants, api, key, slot, "marks a pod").map(|_| ()),
        Deed::Evict { pod, uid } => {
            let Some(action) = api.actions.get(key) else { return violation("NoIntent", format!("{key} is gone")) };
            let victim = |slot: &&Slot| {
                slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref().is_some_and(|known| *known == **uid))
            };
            match action.open_slots().find(victim) {
                Some(slot) => open(invariants, api, key, &slot.id, "evicts a pod").map(|_| ()),
                None => violation("NoIntent", format!("{key} evicts {pod}, which is no slot's victim")),
            }
        }
        Deed::DeletePod { pod, uid } => {
            let ours = invariants.replacements.contains_key(uid);
            holds(ours || lost_its_workload(api, key, uid), key, &format!("deletes {pod}, which it did not create"))
        }
        Deed::Scale { workload, ledger } => scale(invariants, api, key, workload, ledger.as_deref()),
        Deed::Release | Deed::Own => Ok(()),
    }
}

/// Whether the pod is a victim that was released from its ReplicaSet when the workload was deleted, so that it cannot
/// be taken back.
fn lost_its_workload(api: &Api, key: &Key, uid: &String) -> bool {
    let Some(action) = api.actions.get(key) else { return false };
    let victim = |slot: &&Slot| {
        slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref().is_some_and(|known| *known == **uid))
    };
    action.open_slots().find(victim).is_some_and(|slot| {
        let name = Key::new(&key.namespace, &slot.workload.name);
        let set = Key::new(&key.namespace, &slot.replica_set.name);
        let deployed = slot.workload.kind != "Deployment" || api.deployments.get(&name).is_some();
        !deployed || api.sets.get(&set).is_none()
    })
}

fn holds(condition: bool, key: &Key, text: &str) -> Result<(), Violation> {
    if condition { Ok(()) } else { violation("NoIntent", format!("{key} {text}")) }
}

/// Returns the slot, which must be open, of an action with a finalizer and a receipt.
fn open(invariants: &Invariants, api: &Api, key: &Key, id: &SlotId, what: &str) -> Result<Slot, Violation> {
    let Some(action) = api.actions.get(key) else { return violation("NoIntent", format!("{key} {what}, but is gone")) };
    let Some(slot) = action.open_slots().find(|slot| slot.id == *id) else {
        return violation("NoIntent", format!("{key} {what} for slot {id}, which is not open"));
    };
    holds(action.meta.finalizers.iter().any(|one| one == marks::FINALIZER), key, &format!("{what} without finalizer"))?;
    holds(has_receipt(invariants, api, action), key, &format!("{what} without receipt"))?;
    Ok(slot.clone())
}

fn has_receipt(invariants: &Invariants, api: &Api, action: &Action) -> bool {
    // A move of an application uses the receipt of the application.
    let uid = action.meta.controller().map_or(&action.meta.uid, |owner| &owner.uid);
    let name = invariants.terms.get(uid).map(|terms| &terms.decision);
    name.and_then(|name| api.receipts.get(name)).is_some_and(|receipt| receipt.spec.action_uid == **uid)
}

fn scale(invariants: &Invariants, api: &Api, key: &Key, workload: &str, ledger: Option<&str>) -> Result<(), Violation> {
    let Some(ledger) = Ledger::parse(ledger) else {
        return violation("NoIntent", format!("{key} scales {workload} without a ledger"));
    };
    open(invariants, api, key, &ledger.slot, "scales").map(|_| ())
}
