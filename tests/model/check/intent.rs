//! Intent first: whatever the operator does to pods and replicas, an open slot of a running action says so in the API
//! server, the action is held by our finalizer, and its receipt is written.

use ganglion::api::marks;
use ganglion::api::workload_action::status::Slot;
use ganglion::logic::facts::Key;
use ganglion::logic::workload_action::effect::{Effect, PodChange};
use ganglion::logic::workload_action::ledger::Ledger;

use super::book::Book;
use super::{Violation, violation};
use crate::cluster::api::Api;
use crate::cluster::object::Action;

/// After the effect was done; `changed` says whether anything changed by it.
pub fn check(book: &Book, api: &Api, key: &Key, effect: &Effect, changed: bool) -> Result<(), Violation> {
    if !changed {
        return Ok(());
    }
    match effect {
        Effect::CreatePod(pod) => {
            let slot = open(book, api, key, &pod.slot, "creates a pod")?;
            let known = slot.newcomer.as_ref().is_some_and(|newcomer| newcomer.name == pod.key.name);
            holds(known, key, &format!("creates {} for slot {} which does not name it", pod.key, slot.index))
        }
        Effect::ChangePod { pod, change } => match change {
            PodChange::Detach { slot, .. } => {
                let slot = open(book, api, key, slot, "detaches a pod")?;
                let known = slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.uid));
                holds(known, key, &format!("detaches {} for slot {} whose victim it is not", pod.key, slot.index))
            }
            PodChange::Mark { slot } => open(book, api, key, slot, "marks a pod").map(|_| ()),
            PodChange::Attach { .. } | PodChange::Unmark { .. } => Ok(()),
        },
        Effect::Evict { pod } => {
            let Some(action) = api.actions.get(key) else { return violation("NoIntent", format!("{key} is gone")) };
            let victim =
                |slot: &&Slot| slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.uid));
            match action.open_slots().find(victim) {
                Some(slot) => open(book, api, key, &slot.id, "evicts a pod").map(|_| ()),
                None => violation("NoIntent", format!("{key} evicts {} which is no slot's victim", pod.key)),
            }
        }
        Effect::DeletePod { pod } => {
            let ours = book.newcomers.contains_key(&pod.uid);
            // Of a workload that is gone, the old pod would have gone, too.
            holds(ours || homeless(api, key, &pod.uid), key, &format!("deletes {} which it did not make", pod.key))
        }
        Effect::Scale { workload, ledger, .. } => scale(book, api, key, &workload.id.key.name, ledger.as_deref()),
        Effect::Record { .. }
        | Effect::Admit { .. }
        | Effect::AddFinalizer { .. }
        | Effect::RemoveFinalizer { .. }
        | Effect::DeleteAction { .. }
        | Effect::WriteReceipt { .. }
        | Effect::FailReceipt { .. }
        | Effect::DeleteReceipt { .. }
        | Effect::ClearLedger { .. } => Ok(()),
    }
}

fn holds(condition: bool, key: &Key, text: &str) -> Result<(), Violation> {
    if condition { Ok(()) } else { violation("NoIntent", format!("{key} {text}")) }
}

/// The slot, which must be open, of an action that holds a finalizer and a receipt.
fn open(book: &Book, api: &Api, key: &Key, id: &str, what: &str) -> Result<Slot, Violation> {
    let Some(action) = api.actions.get(key) else { return violation("NoIntent", format!("{key} {what}, and is gone")) };
    let Some(slot) = action.open_slots().find(|slot| slot.id == id) else {
        return violation("NoIntent", format!("{key} {what} for slot {id}, which is not open"));
    };
    holds(action.meta.finalizers.iter().any(|one| one == marks::FINALIZER), key, &format!("{what} without finalizer"))?;
    holds(has_receipt(book, api, action), key, &format!("{what} without receipt"))?;
    Ok(slot.clone())
}

fn has_receipt(book: &Book, api: &Api, action: &Action) -> bool {
    let name = book.terms.get(&action.meta.uid).map(|terms| &terms.decision);
    name.and_then(|name| api.receipts.get(name)).is_some_and(|receipt| receipt.spec.action_uid == action.meta.uid)
}

/// The pod is the victim of a slot whose workload is not there any more.
fn homeless(api: &Api, key: &Key, uid: &str) -> bool {
    let Some(action) = api.actions.get(key) else { return false };
    let mut slots =
        action.open_slots().filter(|slot| slot.victim.as_ref().is_some_and(|pod| pod.uid.as_deref() == Some(uid)));
    slots.any(|slot| {
        let Some(set) = api.sets.by_uid(&slot.replica_set.uid) else { return true };
        set.meta.controller().is_some_and(|owner| api.deployments.by_uid(&owner.uid).is_none())
    })
}

fn scale(book: &Book, api: &Api, key: &Key, workload: &str, ledger: Option<&str>) -> Result<(), Violation> {
    let Some(ledger) = Ledger::parse(ledger) else {
        return violation("NoIntent", format!("{key} scales {workload} without a ledger"));
    };
    open(book, api, key, &ledger.slot, "scales").map(|_| ())
}
