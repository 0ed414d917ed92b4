//! The simulated API server as the operator sees it: requests over HTTP, with the preconditions and the answers of a
//! real one. The objects inside are plain structs; JSON is written and parsed only here.

pub mod asked;
pub mod deed;
pub mod json;
mod pods;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ganglion_core::facts::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::cluster::api::{Api, Held, If, Refused};
use crate::cluster::object::{Action, Deployment, Labels, Meta, Receipt, Set};
use asked::{Asked, Head, Kind, MergePatch, MetaPatch, OwnerPatch, What};
use json::AsJson;

/// Status code and body.
pub type HttpAnswer = (u16, String);

/// Carries out a request.
pub fn serve(api: &mut Api, asked: &Asked) -> HttpAnswer {
    match asked.kind {
        Kind::Pod => pods::serve(api, asked),
        Kind::Set => workload::<Set>(api, asked, |set| &mut set.replicas),
        Kind::Deployment => workload::<Deployment>(api, asked, |one| &mut one.replicas),
        Kind::Action => action(api, asked),
        Kind::Receipt => receipt(api, asked),
    }
}

fn action(api: &mut Api, asked: &Asked) -> HttpAnswer {
    let key = &asked.key;
    match &asked.what {
        What::Get => read::<Action>(api, key),
        What::Status(head, status) => {
            let result = update::<Action>(api, key, head, |action| action.status = Some((**status).clone()));
            answer(asked, result)
        }
        What::Unversioned => {
            failure(422, "Invalid", "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update")
        }
        What::NewAction(action) => {
            let sent = &action.metadata;
            let meta = Meta {
                key: key.clone(),
                labels: sent.labels.clone().unwrap_or_default(),
                owners: sent.owner_references.iter().flatten().map(pods::owner).collect(),
                finalizers: sent.finalizers.clone().unwrap_or_default(),
                ..Meta::default()
            };
            match api.make_action(meta, action.spec.clone()) {
                Ok(action) => (201, action.json()),
                Err(refused) => refusal(asked, &refused),
            }
        }
        What::Merge(MergePatch { metadata, .. }) => answer(asked, merge::<Action>(api, key, metadata, |_| ())),
        What::Delete(uid) => match api.delete::<Action>(key, only(uid.as_ref())) {
            Ok(()) => api.actions.get(key).map_or_else(|| success(200), |left| (200, left.json())),
            Err(refused) => refusal(asked, &refused),
        },
        _ => panic!("{asked} is not supported by the model"),
    }
}

fn receipt(api: &mut Api, asked: &Asked) -> HttpAnswer {
    let key = &asked.key;
    match &asked.what {
        What::Get => read::<Receipt>(api, key),
        What::NewReceipt(spec) => {
            let meta = Meta { key: key.clone(), ..Meta::default() };
            match api.create(Receipt { meta, spec: spec.clone() }) {
                Ok(receipt) => (201, receipt.json()),
                Err(refused) => refusal(asked, &refused),
            }
        }
        What::Merge(MergePatch { metadata, spec }) => {
            let outcome = spec.outcome.clone();
            answer(asked, merge::<Receipt>(api, key, metadata, |receipt| receipt.spec.outcome = outcome))
        }
        What::Delete(uid) => match api.delete::<Receipt>(key, only(uid.as_ref())) {
            Ok(()) => success(200),
            Err(refused) => refusal(asked, &refused),
        },
        _ => panic!("{asked} is not supported by the model"),
    }
}

fn workload<T: Held + AsJson>(api: &mut Api, asked: &Asked, replicas: fn(&mut T) -> &mut i32) -> HttpAnswer {
    match &asked.what {
        What::Get => read::<T>(api, &asked.key),
        What::Merge(MergePatch { metadata, spec }) => {
            let result = merge::<T>(api, &asked.key, metadata, |object| {
                let replicas = replicas(object);
                *replicas = spec.replicas.unwrap_or(*replicas);
            });
            answer(asked, result)
        }
        _ => panic!("{asked} is not supported by the model"),
    }
}

fn read<T: Held + AsJson>(api: &Api, key: &Key) -> HttpAnswer {
    T::store(api)
        .get(key)
        .map_or_else(|| failure(404, "NotFound", &format!("{key} not found")), |one| (200, one.json()))
}

fn only(uid: Option<&String>) -> If<'_> {
    If { uid: uid.map(String::as_str), version: None }
}

/// Precondition from uid and version, if given. A version that is not a number never matches.
fn condition<'a>(uid: Option<&'a String>, version: Option<&String>) -> If<'a> {
    If { version: version.map(|version| version.parse().unwrap_or(u64::MAX)), ..only(uid) }
}

fn update<T: Held>(api: &mut Api, key: &Key, head: &Head, change: impl FnOnce(&mut T)) -> Result<Arc<T>, Refused> {
    api.update::<T>(key, condition(head.uid.as_ref(), head.resource_version.as_ref()), change)
}

/// Applies the metadata of a merge patch, and the changes of `more`.
fn merge<T: Held>(api: &mut Api, key: &Key, patch: &MetaPatch, more: impl FnOnce(&mut T)) -> Result<Arc<T>, Refused> {
    api.update::<T>(key, condition(patch.uid.as_ref(), patch.resource_version.as_ref()), |object| {
        let meta = object.meta_mut();
        merge_labels(&mut meta.labels, &patch.labels);
        merge_labels(&mut meta.annotations, &patch.annotations);
        for owner in &patch.owner_references {
            if let OwnerPatch::Delete { patch, .. } = owner {
                assert_eq!(patch, "delete");
            }
            let (OwnerPatch::Delete { uid, .. } | OwnerPatch::Set(OwnerReference { uid, .. })) = owner;
            meta.owners.retain(|there| there.uid != *uid);
            if let OwnerPatch::Set(owner) = owner {
                meta.owners.push(pods::owner(owner));
            }
        }
        if let Some(finalizers) = &patch.finalizers {
            meta.finalizers.clone_from(finalizers);
        }
        more(object);
    })
}

fn merge_labels(labels: &mut Labels, patch: &std::collections::BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(text) => labels.insert(key.clone(), text.clone()),
            None => labels.remove(key),
        };
    }
}

/// Answer to a write.
fn answer<T: AsJson>(asked: &Asked, result: Result<Arc<T>, Refused>) -> HttpAnswer {
    match result {
        Ok(object) => (200, object.json()),
        Err(refused) => refusal(asked, &refused),
    }
}

fn refusal(asked: &Asked, refused: &Refused) -> HttpAnswer {
    let Asked { kind, key, .. } = asked;
    match refused {
        Refused::NotFound => failure(404, "NotFound", &format!("{kind:?} {key} not found")),
        Refused::Conflict => failure(409, "Conflict", &format!("{kind:?} {key}: the object has been modified")),
        Refused::Exists => failure(409, "AlreadyExists", &format!("{kind:?} {key} already exists")),
        Refused::Quota(words) => failure(403, "Forbidden", &format!("{kind:?} {key} is forbidden: {words}")),
        Refused::Budget(words) => {
            let mut status = status(429, "TooManyRequests", words);
            status["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": words, "field": ""}]});
            (429, status.to_string())
        }
        Refused::Webhook(words) => failure(500, "InternalError", words),
        Refused::Budgets(words) => failure(500, "InternalError", words),
    }
}

fn success(code: u16) -> HttpAnswer {
    (code, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}).to_string())
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code})
}

/// Answer with an error.
pub fn failure(code: u16, reason: &str, message: &str) -> HttpAnswer {
    (code, status(code, reason, message).to_string())
}
