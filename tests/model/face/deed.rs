//! Effect of a request on pods and workloads, for the invariants; derived from the request itself.

use ganglion_api::marks;
use ganglion_core::facts::{Key, SlotId};
use serde_json::Value;

use super::asked::{Asked, Kind, MergePatch, What};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Reads, or writes the operator's own records: statuses, finalizers, receipts, a removed ledger.
    Own,
    CreatePod {
        pod: Key,
        slot: SlotId,
    },
    /// Releases a pod from its ReplicaSet, for this slot.
    Detach {
        pod: Key,
        uid: String,
        slot: SlotId,
    },
    /// Marks the pod that the ReplicaSet deletes as surplus.
    Mark {
        slot: SlotId,
    },
    /// Attaches a pod to its ReplicaSet, or removes our marks.
    Release,
    Evict {
        pod: Key,
        uid: String,
    },
    DeletePod {
        pod: Key,
        uid: String,
    },
    Scale {
        workload: String,
        ledger: Option<String>,
    },
}

impl Deed {
    pub fn of(asked: &Asked) -> Self {
        let pod = || asked.key.clone();
        let text = |uid: &Option<String>| uid.clone().unwrap_or_default();
        match (asked.kind, &asked.what) {
            (Kind::Pod, What::NewPod(new)) => {
                let slot = new.metadata.annotations.as_ref().and_then(|all| all.get(marks::SLOT));
                Self::CreatePod { pod: pod(), slot: slot.cloned().unwrap_or_default().into() }
            }
            (Kind::Pod, What::Evict(uid)) => Self::Evict { pod: pod(), uid: text(uid) },
            (Kind::Pod, What::Delete(uid)) => Self::DeletePod { pod: pod(), uid: text(uid) },
            (Kind::Pod, What::Json(patch)) => Self::Mark { slot: marked_for(patch) },
            (Kind::Pod, What::Merge(patch)) => change(asked, patch),
            (Kind::Set | Kind::Deployment, What::Merge(patch)) if patch.spec.replicas.is_some() => {
                let ledger = patch.metadata.annotations.get(marks::LEDGER).cloned().flatten();
                Self::Scale { workload: asked.key.name.clone(), ledger }
            }
            _ => Self::Own,
        }
    }
}

/// Deed of a merge patch of a pod, identified by the slot's mark and the label that ties the pod to its ReplicaSet.
fn change(asked: &Asked, patch: &MergePatch) -> Deed {
    match patch.metadata.annotations.get(marks::SLOT) {
        Some(Some(slot)) => {
            let uid = patch.metadata.uid.clone().unwrap_or_default();
            Deed::Detach { pod: asked.key.clone(), uid, slot: slot.as_str().into() }
        }
        // Attached, unmarked, or given back.
        Some(None) | None => Deed::Release,
    }
}

/// Slot whose mark a JSON patch sets, by itself or with all annotations.
fn marked_for(patch: &[Value]) -> SlotId {
    let mut adds = patch.iter().filter(|step| step["op"] == "add");
    let slot = adds.find_map(|step| match step["path"].as_str()?.strip_prefix("/metadata/annotations")? {
        "" => step["value"][marks::SLOT].as_str(),
        key if key.ends_with("~1slot") => step["value"].as_str(),
        _ => None,
    });
    slot.unwrap_or_default().into()
}
