//! Writes to pods: creation of replacements, changes of labels and marks, eviction, deletion.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::core::Status;

use super::{Done, api, changed, gone, written};
use crate::api::marks;
use crate::controllers::workload_action::error::ActError;
use crate::controllers::workload_action::replacement;
use crate::logic::facts::{Identity, PodFact, ReplicaSet, SetFact, TemplateFact};
use crate::logic::workload_action::effect::{NewPod, Patch, PodChange, RefusalKind};
use crate::runtime::context::Context;
use crate::runtime::error::{Error, retry_after};
use crate::runtime::writer::only;

/// Creates a replacement pod. An existing pod of that name with the slot's mark is ours: the answer to its creation was
/// lost.
pub async fn create(ctx: &Context, new: &NewPod) -> Result<Done, ActError> {
    let pod = replacement::pod(&template(ctx, new).await?.json, new);
    let pod = pod.ok_or_else(|| Error::Malformed(format!("the pod template of ReplicaSet {}", new.set)))?;
    let words = match ctx.writer.create::<Pod>(marks::MANAGER, &new.key.namespace, &pod).await {
        Ok(made) => return Ok(changed(ctx, PodFact::from(made))),
        Err(Error::Exists(words)) => words,
        // The namespace does not exist.
        Err(Error::Gone(words)) => return Err(ActError::refused(RefusalKind::Gone, words)),
        Err(error) => return Err(error.into()),
    };
    let api = ctx.writer.api::<Pod>(&new.key.namespace);
    let found = PodFact::from(ctx.writer.call(api.get(&new.key.name)).await?);
    let is_ours = found.is_marked_by(&new.slot);
    let done = changed(ctx, found);
    if is_ours { Ok(done) } else { Err(ActError::refused(RefusalKind::Taken, words)) }
}

/// The template of the ReplicaSet. The store does not keep that of a set scaled to zero, see [`SetFact`]: it is read.
async fn template(ctx: &Context, new: &NewPod) -> Result<Arc<TemplateFact>, ActError> {
    let gone = || ActError::refused(RefusalKind::Gone, format!("ReplicaSet {} is gone", new.set));
    let known: Option<SetFact> = ctx.store.read(|world| world.set(&new.set).cloned());
    let known = known.ok_or_else(gone)?;
    if let Some(template) = known.template {
        return Ok(template);
    }
    let found = ctx.writer.get::<ReplicaSet>(&new.set).await?;
    found.and_then(|set| set.spec?.template).map(Arc::new).ok_or_else(gone)
}

/// Changes labels, owner and marks, only if the pod is still as it was planned on.
pub async fn change(ctx: &Context, pod: &Identity, change: &PodChange) -> Result<Done, ActError> {
    let patch = match change.patch(pod) {
        Patch::Strategic(patch) => kube::api::Patch::Strategic(patch),
        Patch::Json(patch) => {
            kube::api::Patch::Json(serde_json::from_value(patch).map_err(|error| Error::Malformed(error.to_string()))?)
        }
    };
    written::<Pod, PodFact>(ctx, pod, ctx.writer.patch(marks::MANAGER, &pod.key, &patch).await)
}

/// Evicts the pod through the Eviction API, so that budgets hold, only if it still has this uid.
pub async fn evict(ctx: &Context, pod: &Identity) -> Result<Done, ActError> {
    let body = eviction(pod);
    let (api, params) = (api::<Pod>(ctx, pod), PostParams::default());
    let call = api.create_subresource::<_, Status>("eviction", &pod.key.name, &params, &body);
    // The general classification of errors does not know the refusals of an eviction.
    let answer = ctx.writer.call(async {
        match call.await {
            Err(kube::Error::Api(status)) => Ok(Err(status)),
            answer => answer.map(Ok),
        }
    });
    match answer.await? {
        Ok(_) => Ok(ending(ctx, pod)),
        Err(status) => match eviction_refused(&status) {
            Some(error) => Err(error),
            None if status.code == 404 => Ok(gone::<PodFact>(ctx, pod)),
            None => Err(Error::from(kube::Error::Api(status)).into()),
        },
    }
}

/// An eviction of the pod with this uid. Not by kube's own `evict`: version 5 misspells `deleteOptions`, and the API
/// server silently ignores the precondition.
fn eviction(pod: &Identity) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            namespace: Some(pod.key.namespace.clone()),
            name: Some(pod.key.name.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

/// The meaning of a refusal that only evictions have; None for a status that any request may get.
fn eviction_refused(status: &Status) -> Option<ActError> {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        429 if causes().any(|cause| cause.reason == "DisruptionBudget") => {
            let words = causes().map(|cause| cause.message.as_str()).find(|words| !words.is_empty());
            Some(ActError::refused(RefusalKind::Budget, words.unwrap_or(&status.message)))
        }
        429 => Some(Error::Throttled(retry_after(status)).into()),
        500 if status.message.contains("more than one PodDisruptionBudget") => {
            Some(ActError::refused(RefusalKind::Budgets, status.message.as_str()))
        }
        _ => None,
    }
}

/// Deletes the pod, only if it still has this uid.
pub async fn delete(ctx: &Context, pod: &Identity) -> Result<Done, ActError> {
    let api = api::<Pod>(ctx, pod);
    match ctx.writer.call(api.delete(&pod.key.name, &only(pod))).await {
        Ok(_) => Ok(ending(ctx, pod)),
        Err(Error::Gone(_)) => Ok(gone::<PodFact>(ctx, pod)),
        Err(error) => Err(error.into()),
    }
}

/// Marks the known pod as terminating in the store: the answer does not contain its new version.
fn ending(ctx: &Context, pod: &Identity) -> Done {
    let known = ctx.store.read(|world| world.pod(&pod.key).filter(|known| known.id.uid == pod.uid).cloned());
    if let Some(known) = known {
        changed(ctx, PodFact { terminating: true, ..known });
    }
    Done::Changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn status(code: u16, message: &str, cause: Option<&str>) -> Status {
        let causes = cause.map(|reason| StatusCause {
            reason: reason.into(),
            message: "The disruption budget web needs 3 healthy pods and has 3 currently".into(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.into_iter().collect(),
            retry_after_seconds: 7,
        };
        let mut status = Status::failure(message, "").with_code(code);
        status.details = Some(details);
        status
    }

    #[test]
    fn a_budget_is_distinguished_from_throttling_and_two_budgets_from_a_failure() {
        let words = |status: &Status| eviction_refused(status).map(|error| error.reason());
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        assert_eq!(words(&status(429, text, Some("DisruptionBudget"))), Some("BudgetBlocked"));
        assert_eq!(words(&status(429, "too many requests", None)), Some("Throttled"));
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert_eq!(words(&status(500, text, None)), Some("BudgetsOverlap"));
        assert_eq!(words(&status(500, "etcd is away", None)), None);
        assert_eq!(words(&status(404, "not found", None)), None);
    }

    #[test]
    fn the_budget_is_named() {
        let error = eviction_refused(&status(429, "Cannot evict pod", Some("DisruptionBudget"))).unwrap();
        assert!(error.to_string().contains("budget web needs 3"), "{error}");
    }
}
