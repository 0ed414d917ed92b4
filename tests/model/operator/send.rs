//! Effects as requests: what the API server makes of each, preconditions included, and what the shell makes of the answer.

use ganglion::api::marks;
use ganglion::api::workload_action::WorkloadActionStatus;
use ganglion::logic::facts::{Identity, Key};
use ganglion::logic::workload_action::effect::{
    Effect, NewPod, NewReceipt, Patch, PodChange, Refusal, RefusalKind, Scalable, ScalableKind, action_owner,
};
use ganglion::logic::world::{Kind, Object};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::cluster::api::{Api, Held, If, Refused};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Deployment, Meta, OwnerRef, Pod, Receipt, Set};
use crate::cluster::replica_set::from_template;

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Done; the object as it is now.
    Changed(Object),
    /// The object is not there any more; its identity bears no version, since no watch told so.
    Gone(Kind, Identity),
    /// The pod is on its way out; the answer does not say of which version it is now.
    Ending(Identity),
    /// Not done: the object is another than known, and read afresh.
    Conflict,
    Refused(Refusal),
}

impl Outcome {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::Gone(..) | Self::Ending(_))
    }
}

/// Sends it.
pub fn send(api: &mut Api, effect: &Effect) -> Outcome {
    match effect {
        Effect::Record { action, status } | Effect::Admit { action, status, .. } => record(api, action, status),
        Effect::AddFinalizer { action, finalizers } | Effect::RemoveFinalizer { action, finalizers } => {
            let finalizers = finalizers.clone();
            change::<Action>(api, Kind::Action, action, |action| action.meta.finalizers = finalizers)
        }
        Effect::DeleteAction { action } => match api.delete::<Action>(&action.key, If::uid(&action.uid)) {
            Err(Refused::Conflict) => Outcome::Conflict,
            _ => read::<Action>(api, Kind::Action, action),
        },
        Effect::WriteReceipt(new) => write_receipt(api, new),
        Effect::FailReceipt { receipt } => change::<Receipt>(api, Kind::Receipt, receipt, |receipt| {
            receipt.spec.outcome = Some("Failed".to_owned());
        }),
        Effect::DeleteReceipt { receipt } => match api.delete::<Receipt>(&receipt.key, If::uid(&receipt.uid)) {
            Err(Refused::Conflict) => Outcome::Conflict,
            _ => gone(Kind::Receipt, receipt),
        },
        Effect::CreatePod(pod) => create(api, pod),
        Effect::ChangePod { pod, change: wanted } => change_pod(api, pod, wanted),
        Effect::Evict { pod } => ending(pod, api.evict(&pod.key, &pod.uid).map(|_| ())),
        Effect::DeletePod { pod } => ending(pod, api.delete_pod(&pod.key, If::uid(&pod.uid)).map(|_| ())),
        Effect::Scale { workload, replicas, ledger } => scale(api, workload, Some(*replicas), ledger.as_deref()),
        Effect::ClearLedger { workload } => scale(api, workload, None, None),
    }
}

fn refused(kind: RefusalKind, message: String) -> Outcome {
    Outcome::Refused(Refusal { kind, message })
}

fn gone(kind: Kind, id: &Identity) -> Outcome {
    Outcome::Gone(kind, Identity { version: String::new(), ..id.clone() })
}

/// What a write to an object came to.
fn written<T: Held + AsFact>(kind: Kind, id: &Identity, result: Result<Arc<T>, Refused>) -> Outcome {
    match result {
        Ok(object) => Outcome::Changed(object.fact()),
        Err(Refused::NotFound) => gone(kind, id),
        Err(_) => Outcome::Conflict,
    }
}

/// What an eviction or a deletion of a pod came to.
fn ending(pod: &Identity, result: Result<(), Refused>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ending(pod.clone()),
        Err(Refused::NotFound) => gone(Kind::Pod, pod),
        Err(Refused::Budget(message)) => refused(RefusalKind::Budget, message),
        Err(Refused::Budgets(message)) => refused(RefusalKind::Budgets, message),
        Err(_) => Outcome::Conflict,
    }
}

fn read<T: Held + AsFact>(api: &Api, kind: Kind, id: &Identity) -> Outcome {
    T::store(api).get(&id.key).map_or_else(|| gone(kind, id), |object| Outcome::Changed(object.fact()))
}

/// Reads afresh what an effect was about.
pub fn look_again(api: &Api, effect: &Effect) -> Outcome {
    let named = |key: &Key| Identity { key: key.clone(), ..Identity::default() };
    match effect {
        Effect::Record { action, .. }
        | Effect::Admit { action, .. }
        | Effect::AddFinalizer { action, .. }
        | Effect::RemoveFinalizer { action, .. }
        | Effect::DeleteAction { action } => read::<Action>(api, Kind::Action, action),
        Effect::FailReceipt { receipt } | Effect::DeleteReceipt { receipt } => {
            read::<Receipt>(api, Kind::Receipt, receipt)
        }
        Effect::WriteReceipt(new) => read::<Receipt>(api, Kind::Receipt, &named(&new.key)),
        Effect::CreatePod(new) => read::<Pod>(api, Kind::Pod, &named(&new.key)),
        Effect::ChangePod { pod, .. } | Effect::Evict { pod } | Effect::DeletePod { pod } => {
            read::<Pod>(api, Kind::Pod, pod)
        }
        Effect::Scale { workload, .. } | Effect::ClearLedger { workload } => match workload.kind {
            ScalableKind::Deployment => read::<Deployment>(api, Kind::Deployment, &workload.id),
            ScalableKind::ReplicaSet => read::<Set>(api, Kind::Set, &workload.id),
        },
    }
}

/// Uid and version as the precondition.
fn exactly(id: &Identity) -> If<'_> {
    If { uid: Some(&id.uid), version: Some(id.order()) }
}

fn change<T: Held + AsFact>(api: &mut Api, kind: Kind, id: &Identity, edit: impl FnOnce(&mut T)) -> Outcome {
    let result = api.update::<T>(&id.key, exactly(id), edit);
    written(kind, id, result)
}

fn record(api: &mut Api, action: &Identity, status: &WorkloadActionStatus) -> Outcome {
    // The status goes over the wire in some runs, which cuts times to seconds.
    let wired = api.json.then(|| serde_json::to_string(status).and_then(|text| serde_json::from_str(&text)));
    let status = match wired {
        None => status.clone(),
        Some(Ok(status)) => status,
        Some(Err(error)) => panic!("a status that does not come back from its own text: {error}"),
    };
    change::<Action>(api, Kind::Action, action, |action| action.status = Some(status))
}

fn plain_owner(action: &Identity) -> Vec<OwnerRef> {
    owners(&Value::Array(vec![action_owner(action)]))
}

fn create(api: &mut Api, new: &NewPod) -> Outcome {
    let Some(set) = api.sets.get(&new.set).cloned() else {
        return refused(RefusalKind::Gone, format!("replicasets.apps {} not found", new.set));
    };
    let mut pod = from_template(&set, &new.key.name);
    pod.meta.labels.remove(&new.label);
    pod.meta.annotations.insert(marks::SLOT.to_owned(), new.slot.clone());
    pod.meta.annotations.insert(marks::ROLE.to_owned(), marks::ROLE_NEWCOMER.to_owned());
    pod.meta.owners = plain_owner(&new.action);
    pod.pin = Some(new.node.clone());
    pod.fate = api.newcomer_fate();
    match api.create_pod(pod) {
        Ok(pod) => Outcome::Changed(pod.fact()),
        Err(Refused::Quota(message)) => refused(RefusalKind::Denied, message),
        Err(Refused::Exists) => already_there(api, new),
        Err(_) => Outcome::Conflict,
    }
}

/// Makes the receipt.
pub fn write_receipt(api: &mut Api, new: &NewReceipt) -> Outcome {
    let meta = Meta { key: new.key.clone(), ..Meta::default() };
    match api.create(Receipt { meta, spec: new.spec.clone() }) {
        Ok(receipt) => Outcome::Changed(receipt.fact()),
        Err(_) => receipt_there(api, &new.key, &new.spec.action_uid),
    }
}

/// The receipt is there: the one that we wrote before, or another action's.
fn receipt_there(api: &Api, key: &Key, uid: &str) -> Outcome {
    match api.receipts.get(key) {
        None => Outcome::Conflict,
        Some(receipt) if receipt.spec.action_uid == uid => Outcome::Changed(receipt.fact()),
        Some(_) => refused(RefusalKind::Taken, format!("workloadactionreceipts {key} already exists")),
    }
}

/// The name is taken: by the pod that we made before, or by somebody else's.
fn already_there(api: &Api, new: &NewPod) -> Outcome {
    match api.pods.get(&new.key) {
        None => Outcome::Conflict,
        Some(pod) if pod.meta.annotations.get(marks::SLOT) == Some(&new.slot) => Outcome::Changed(pod.fact()),
        Some(pod) => refused(RefusalKind::Taken, format!("pods {} already exists", pod.meta.key)),
    }
}

/// Applies the very patch that the real shell sends.
fn change_pod(api: &mut Api, id: &Identity, wanted: &PodChange) -> Outcome {
    let result = match wanted.patch(id) {
        Patch::Merge(patch) => merge_patch(api, &id.key, &patch["metadata"]),
        Patch::Json(patch) => json_patch(api, &id.key, &patch),
    };
    written(Kind::Pod, id, result)
}

fn merge_patch(api: &mut Api, key: &Key, meta: &Value) -> Result<Arc<Pod>, Refused> {
    let version = meta["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let condition = If { uid: meta["uid"].as_str(), version };
    api.update::<Pod>(key, condition, |pod| {
        merge(&mut pod.meta.labels, &meta["labels"]);
        merge(&mut pod.meta.annotations, &meta["annotations"]);
        if !meta["ownerReferences"].is_null() {
            pod.meta.owners = owners(&meta["ownerReferences"]);
        }
    })
}

/// Of labels and annotations, which is all that such a patch changes. A test for `null` holds where there is nothing, as
/// on the API server; the library would have a `null` there.
fn json_patch(api: &mut Api, key: &Key, patch: &Value) -> Result<Arc<Pod>, Refused> {
    let pod = api.pods.get(key).ok_or(Refused::NotFound)?;
    let mut meta = json!({"uid": pod.meta.uid, "labels": pod.meta.labels});
    if !pod.meta.annotations.is_empty() {
        meta["annotations"] = json!(pod.meta.annotations);
    }
    if let Some(deleted) = pod.meta.deleted {
        meta["deletionTimestamp"] = json!(deleted);
    }
    let mut pod = json!({ "metadata": meta });
    let (absent, rest): (Vec<&Value>, Vec<&Value>) =
        patch.as_array().into_iter().flatten().partition(|step| step["op"] == "test" && step["value"].is_null());
    let there = |step: &&Value| step["path"].as_str().is_some_and(|path| pod.pointer(path).is_some());
    if absent.iter().any(there) {
        return Err(Refused::Conflict);
    }
    let rest: json_patch::Patch = serde_json::from_value(json!(rest)).expect("a JSON patch");
    json_patch::patch(&mut pod, &rest).map_err(|_| Refused::Conflict)?;
    api.update::<Pod>(key, If::any(), |object| {
        object.meta.labels = serde_json::from_value(pod["metadata"]["labels"].take()).expect("labels");
        object.meta.annotations = serde_json::from_value(pod["metadata"]["annotations"].take()).expect("annotations");
    })
}

fn merge(labels: &mut crate::cluster::object::Labels, patch: &Value) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => labels.insert(key.clone(), text.to_owned()),
            None => labels.remove(key),
        };
    }
}

fn owners(list: &Value) -> Vec<OwnerRef> {
    let text = |owner: &Value, key: &str| owner[key].as_str().unwrap_or_default().to_owned();
    let one = |owner: &Value| OwnerRef {
        kind: text(owner, "kind"),
        name: text(owner, "name"),
        uid: text(owner, "uid"),
        controller: owner["controller"].as_bool().unwrap_or(false),
    };
    list.as_array().into_iter().flatten().map(one).collect()
}

fn scale(api: &mut Api, workload: &Scalable, replicas: Option<i32>, ledger: Option<&str>) -> Outcome {
    let note = |meta: &mut Meta| {
        match ledger {
            Some(text) => meta.annotations.insert(marks::LEDGER.to_owned(), text.to_owned()),
            None => meta.annotations.remove(marks::LEDGER),
        };
    };
    match workload.kind {
        ScalableKind::Deployment => change::<Deployment>(api, Kind::Deployment, &workload.id, |one| {
            one.replicas = replicas.unwrap_or(one.replicas);
            note(&mut one.meta);
        }),
        ScalableKind::ReplicaSet => change::<Set>(api, Kind::Set, &workload.id, |one| {
            one.replicas = replicas.unwrap_or(one.replicas);
            note(&mut one.meta);
        }),
    }
}

/// One line for the reader of a trace.
pub fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Record { action, status } => format!("record {} {}", action.key, slots(status)),
        Effect::Admit { action, status, .. } => format!("admit {} {}", action.key, slots(status)),
        Effect::AddFinalizer { action, .. } => format!("add finalizer to {}", action.key),
        Effect::RemoveFinalizer { action, .. } => format!("remove finalizer from {}", action.key),
        Effect::DeleteAction { action } => format!("delete action {}", action.key),
        Effect::WriteReceipt(new) => format!("write receipt {}", new.key),
        Effect::FailReceipt { receipt } => format!("fail receipt {}", receipt.key),
        Effect::DeleteReceipt { receipt } => format!("delete receipt {}", receipt.key),
        Effect::CreatePod(pod) => format!("create pod {} on {} for {}", pod.key, pod.node, pod.slot),
        Effect::ChangePod { pod, change } => match change {
            PodChange::Detach { peers, .. } => format!("detach {} (peers {peers})", pod.key),
            PodChange::Attach { .. } => format!("attach {}", pod.key),
            PodChange::Mark { slot, .. } => format!("mark {} for {slot}", pod.key),
            PodChange::Unmark { .. } => format!("unmark {}", pod.key),
        },
        Effect::Evict { pod } => format!("evict {}", pod.key),
        Effect::DeletePod { pod } => format!("delete pod {}", pod.key),
        Effect::Scale { workload, replicas, .. } => format!("scale {} to {replicas}", workload.id.key),
        Effect::ClearLedger { workload } => format!("clear ledger of {}", workload.id.key),
    }
}

fn slots(status: &WorkloadActionStatus) -> String {
    let one = |slot: &ganglion::api::workload_action::status::Slot| {
        let reason = slot.reason.map(|reason| format!("({reason})")).unwrap_or_default();
        format!("{}:{:?}{reason}", slot.index, slot.step)
    };
    let all: Vec<String> = status.slots.iter().map(one).collect();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let word = ready.map(|ready| format!("{}={}", ready.status, ready.reason)).unwrap_or_default();
    let end = if status.finished_at.is_some() { " finished" } else { "" };
    format!("[{}] {word}{end}", all.join(" "))
}
