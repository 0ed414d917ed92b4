//! Effects as requests: what the API server makes of each, preconditions included, and what the shell makes of the answer.

use ganglion::api::marks;
use ganglion::api::workload_action::WorkloadActionStatus;
use ganglion::logic::facts::{Identity, Key};
use ganglion::logic::workload_action::effect::{
    Effect, NewPod, PodChange, Refusal, RefusalKind, Scalable, ScalableKind, action_owner,
};
use ganglion::logic::world::Object;
use serde_json::Value;
use std::sync::Arc;

use crate::cluster::api::{Api, Held, If, Refused};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Deployment, Meta, OwnerRef, Pod, Receipt, Set};
use crate::cluster::replica_set::from_template;

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Done; the object as it is now, where the answer has one.
    Done(Option<Object>),
    /// Not done: to be planned again on fresh facts.
    Again,
    Refused(Refusal),
}

/// Sends it.
pub fn send(api: &mut Api, effect: &Effect) -> Outcome {
    match effect {
        Effect::Record { action, status } | Effect::Admit { action, status } => record(api, action, status),
        Effect::AddFinalizer { action, finalizers } | Effect::RemoveFinalizer { action, finalizers } => {
            let finalizers = finalizers.clone();
            change::<Action>(api, action, |action| action.meta.finalizers = finalizers)
        }
        Effect::DeleteAction { action } => {
            gone_is_done(api.delete::<Action>(&action.key, If::uid(&action.uid)).map(|()| None))
        }
        Effect::WriteReceipt { receipt, spec } => {
            let meta = Meta { key: receipt.clone(), ..Meta::default() };
            match api.create(Receipt { meta, spec: spec.clone() }) {
                Err(Refused::Exists) => receipt_there(api, receipt, &spec.action_uid),
                made => done(made),
            }
        }
        Effect::FailReceipt { receipt } => {
            change::<Receipt>(api, receipt, |receipt| receipt.spec.outcome = Some("Failed".to_owned()))
        }
        Effect::DeleteReceipt { receipt } => {
            gone_is_done(api.delete::<Receipt>(&receipt.key, If::uid(&receipt.uid)).map(|()| None))
        }
        Effect::CreatePod(pod) => create(api, pod),
        Effect::ChangePod { pod, change: wanted } => change_pod(api, pod, wanted),
        Effect::Evict { pod } => match api.evict(&pod.key, &pod.uid) {
            Ok(_) => Outcome::Done(None),
            Err(Refused::Budget(message)) => refused(RefusalKind::Budget, message),
            Err(Refused::Budgets(message)) => refused(RefusalKind::Budgets, message),
            Err(_) => Outcome::Again,
        },
        Effect::DeletePod { pod } => {
            let left = api.delete_pod(&pod.key, If::uid(&pod.uid));
            gone_is_done(left.map(|pod| pod.map(|pod| pod.fact())))
        }
        Effect::Scale { workload, replicas, ledger } => scale(api, workload, Some(*replicas), ledger.as_deref()),
        Effect::ClearLedger { workload } => scale(api, workload, None, None),
    }
}

fn refused(kind: RefusalKind, message: String) -> Outcome {
    Outcome::Refused(Refusal { kind, message })
}

fn done<T: Held + AsFact>(result: Result<Arc<T>, Refused>) -> Outcome {
    result.map_or(Outcome::Again, |object| Outcome::Done(Some(object.fact())))
}

/// Deleting what is gone is no failure.
fn gone_is_done(result: Result<Option<Object>, Refused>) -> Outcome {
    match result {
        Ok(left) => Outcome::Done(left),
        Err(Refused::NotFound) => Outcome::Done(None),
        Err(_) => Outcome::Again,
    }
}

/// Uid and version as the precondition.
fn exactly(id: &Identity) -> If<'_> {
    If { uid: Some(&id.uid), version: Some(id.order()) }
}

fn change<T: Held + AsFact>(api: &mut Api, id: &Identity, edit: impl FnOnce(&mut T)) -> Outcome {
    done(api.update::<T>(&id.key, exactly(id), edit))
}

fn record(api: &mut Api, action: &Identity, status: &WorkloadActionStatus) -> Outcome {
    // The status goes over the wire in some runs, which cuts times to seconds.
    let wired = api.json.then(|| serde_json::to_string(status).and_then(|text| serde_json::from_str(&text)));
    let status = match wired {
        None => status.clone(),
        Some(Ok(status)) => status,
        Some(Err(error)) => panic!("a status that does not come back from its own text: {error}"),
    };
    change::<Action>(api, action, |action| action.status = Some(status))
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
        Ok(pod) => Outcome::Done(Some(pod.fact())),
        Err(Refused::Quota(message)) => refused(RefusalKind::Denied, message),
        Err(Refused::Exists) => already_there(api, new),
        Err(_) => Outcome::Again,
    }
}

/// The receipt is there: the one that we wrote before, or another action's.
fn receipt_there(api: &Api, key: &Key, uid: &str) -> Outcome {
    match api.receipts.get(key) {
        None => Outcome::Again,
        Some(receipt) if receipt.spec.action_uid == uid => Outcome::Done(Some(receipt.fact())),
        Some(_) => refused(RefusalKind::Taken, format!("workloadactionreceipts {key} already exists")),
    }
}

/// The name is taken: by the pod that we made before, or by somebody else's.
fn already_there(api: &Api, new: &NewPod) -> Outcome {
    match api.pods.get(&new.key) {
        None => Outcome::Again,
        Some(pod) if pod.meta.annotations.get(marks::SLOT) == Some(&new.slot) => Outcome::Done(Some(pod.fact())),
        Some(pod) => refused(RefusalKind::Taken, format!("pods {} already exists", pod.meta.key)),
    }
}

/// Applies the very patch that the real shell sends.
fn change_pod(api: &mut Api, id: &Identity, wanted: &PodChange) -> Outcome {
    let patch = wanted.patch(id);
    let meta = &patch["metadata"];
    let uid = meta["uid"].as_str().map(str::to_owned);
    let version = meta["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let condition = If { uid: uid.as_deref(), version };
    done(api.update::<Pod>(&id.key, condition, |pod| {
        merge(&mut pod.meta.labels, &meta["labels"]);
        merge(&mut pod.meta.annotations, &meta["annotations"]);
        if !meta["ownerReferences"].is_null() {
            pod.meta.owners = owners(&meta["ownerReferences"]);
        }
    }))
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
        ScalableKind::Deployment => change::<Deployment>(api, &workload.id, |one| {
            one.replicas = replicas.unwrap_or(one.replicas);
            note(&mut one.meta);
        }),
        ScalableKind::ReplicaSet => change::<Set>(api, &workload.id, |one| {
            one.replicas = replicas.unwrap_or(one.replicas);
            note(&mut one.meta);
        }),
    }
}

/// One line for the reader of a trace.
pub fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Record { action, status } => format!("record {} {}", action.key, slots(status)),
        Effect::Admit { action, status } => format!("admit {} {}", action.key, slots(status)),
        Effect::AddFinalizer { action, .. } => format!("add finalizer to {}", action.key),
        Effect::RemoveFinalizer { action, .. } => format!("remove finalizer from {}", action.key),
        Effect::DeleteAction { action } => format!("delete action {}", action.key),
        Effect::WriteReceipt { receipt, .. } => format!("write receipt {receipt}"),
        Effect::FailReceipt { receipt } => format!("fail receipt {}", receipt.key),
        Effect::DeleteReceipt { receipt } => format!("delete receipt {}", receipt.key),
        Effect::CreatePod(pod) => format!("create pod {} on {} for {}", pod.key, pod.node, pod.slot),
        Effect::ChangePod { pod, change } => match change {
            PodChange::Detach { peers, .. } => format!("detach {} (peers {peers})", pod.key),
            PodChange::Attach { .. } => format!("attach {}", pod.key),
            PodChange::Mark { slot } => format!("mark {} for {slot}", pod.key),
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
