//! Writes to pods: creates replacements, changes labels and marks, evicts, deletes, and removes our scheduling gate.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::DeleteParams;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{EffectOutcome, api, changed, gone, written};
use crate::error::ActError;
use crate::replacement::{self, SpreadForm};
use ganglion_actions_plan::effect::{NewPod, Patch, PodChange, RefusalKind};
use ganglion_actions_plan::stateful::gate::release_patch;
use ganglion_api::marks;
use ganglion_core::facts::{Identity, NodeName, PodFact, ReplicaSet, ReplicaSetFact, SlimPod, TemplateFact, Uid};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::eviction::{self, EvictionAnswer};
use ganglion_runtime::writer::only;

/// A pod as the API server sends it. Its spec stays JSON, so that fields survive that this program does not know.
#[derive(Resource, Deserialize, Serialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
struct WholePod {
    metadata: ObjectMeta,
    spec: Value,
}

/// Creates a replacement pod. An existing pod of this name with the slot's mark is ours: the response to its creation
/// was lost.
pub async fn create(ctx: &Context, new: &NewPod) -> Result<EffectOutcome, ActError> {
    let template = template(ctx, new).await?;
    let message = match create_from(ctx, new, &template.json).await {
        Ok(created) => return Ok(changed(ctx, PodFact::from(created))),
        Err(Error::AlreadyExists(message)) => message,
        // The namespace does not exist.
        Err(Error::NotFound(message)) => return Err(ActError::refused(RefusalKind::Gone, message)),
        Err(error) => return Err(error.into()),
    };
    let api = ctx.writer.api::<SlimPod>(&new.key.namespace);
    let existing = PodFact::from(ctx.writer.call(api.get(&new.key.name)).await?);
    let is_ours = existing.is_marked_by(&new.slot);
    let outcome = changed(ctx, existing);
    if is_ours { Ok(outcome) } else { Err(ActError::refused(RefusalKind::Taken, message)) }
}

async fn create_from(ctx: &Context, new: &NewPod, template: &str) -> Result<SlimPod, Error> {
    let admitted = admitted(ctx, new, template).await?;
    let model = admitted.as_deref().unwrap_or(template);
    let created = create_in(ctx, new, model, SpreadForm::Merged).await;
    match created {
        Err(Error::Denied(_)) if replacement::has_spread_key(model, &new.label) => {
            create_in(ctx, new, model, SpreadForm::Replaced).await
        }
        other => other,
    }
}

async fn create_in(ctx: &Context, new: &NewPod, model: &str, form: SpreadForm) -> Result<SlimPod, Error> {
    let pod = replacement::pod(model, new, form).ok_or_else(|| malformed(new))?;
    ctx.writer.create::<SlimPod>(marks::MANAGER, &new.key.namespace, &pod).await
}

/// Asks what admission makes of a pod that the ReplicaSet creates, in a dry run. Some webhooks look at the controller
/// of a pod, which a replacement does not have yet: a VerticalPodAutoscaler finds the workload by it, Istio names the
/// workload after it. None if a webhook does not support dry runs.
async fn admitted(ctx: &Context, new: &NewPod, template: &str) -> Result<Option<String>, Error> {
    let pod = replacement::sibling(template, new).ok_or_else(|| malformed(new))?;
    match ctx.writer.create_dry::<WholePod>(marks::MANAGER, &new.key.namespace, &pod).await {
        Ok(pod) => replacement::as_template(json!(pod)).map(Some).ok_or_else(|| malformed(new)),
        Err(Error::Denied(message)) if message.contains("does not support dry run") => Ok(None),
        Err(error) => Err(error),
    }
}

fn malformed(new: &NewPod) -> Error {
    Error::Malformed(format!("the pod template of ReplicaSet {}", new.set_key()))
}

/// The template of the ReplicaSet. The store does not contain the template of a set scaled to zero (see
/// [`ReplicaSetFact`]), or of one that is reduced; it is then read from the API server.
async fn template(ctx: &Context, new: &NewPod) -> Result<Arc<TemplateFact>, ActError> {
    let cached: Option<ReplicaSetFact> = ctx.store.read(|world| world.get::<ReplicaSetFact>(&new.set_key()).cloned());
    let Some(cached) = cached else { return Err(set_gone(new)) };
    if let Some(template) = cached.template.filter(|_| !cached.reduced) {
        return Ok(template);
    }
    let stored = ctx.writer.get::<ReplicaSet>(&new.set_key()).await?;
    stored.and_then(|set| set.spec?.template).map(Arc::new).ok_or_else(|| set_gone(new))
}

fn set_gone(new: &NewPod) -> ActError {
    ActError::refused(RefusalKind::Gone, format!("ReplicaSet {} is gone", new.set_key()))
}

/// Changes labels, owner and marks if the pod has not changed since the plan.
pub async fn change(ctx: &Context, pod: &Identity, change: &PodChange) -> Result<EffectOutcome, ActError> {
    let patch = match change.patch(pod) {
        Patch::Strategic(patch) => kube::api::Patch::Strategic(patch),
        Patch::Json(patch) => kube::api::Patch::Json(patch.into()),
    };
    written::<SlimPod, PodFact>(ctx, pod, ctx.writer.patch(marks::MANAGER, &pod.key, &patch).await)
}

/// Evicts the pod through the Eviction API, which respects budgets, if it still has this uid.
pub async fn evict(ctx: &Context, pod: &Identity, grace_seconds: Option<u32>) -> Result<EffectOutcome, ActError> {
    match eviction::evict(ctx, pod, grace_seconds).await? {
        EvictionAnswer::Accepted => Ok(EffectOutcome::Changed),
        EvictionAnswer::NotFound => Ok(gone::<PodFact>(ctx, pod)),
        EvictionAnswer::BlockedByBudget(message) => Err(ActError::refused(RefusalKind::Budget, message)),
        EvictionAnswer::TooManyBudgets(message) => Err(ActError::refused(RefusalKind::Budgets, message)),
    }
}

/// Deletes the pod if it still has this uid.
pub async fn delete(ctx: &Context, pod: &Identity, grace_seconds: Option<u32>) -> Result<EffectOutcome, ActError> {
    let api = api::<Pod>(ctx, pod);
    let params = DeleteParams { grace_period_seconds: grace_seconds, ..only(pod) };
    match ctx.writer.call(api.delete(&pod.key.name, &params)).await {
        Ok(_) => {
            eviction::mark_ending(ctx, pod);
            Ok(EffectOutcome::Changed)
        }
        Err(Error::NotFound(_)) => Ok(gone::<PodFact>(ctx, pod)),
        Err(error) => Err(error.into()),
    }
}

/// Removes our scheduling gate from the pod if it still has this uid. If a node is given, also pins the pod to it.
pub async fn release(ctx: &Context, pod: &Identity, node: Option<&NodeName>) -> Result<EffectOutcome, ActError> {
    let Some(stored) = ctx.writer.get::<WholePod>(&pod.key).await? else { return Ok(gone::<PodFact>(ctx, pod)) };
    if Uid::of(&stored.metadata) != pod.uid {
        return Err(Error::Conflict(format!("another pod has the name {}", pod.key.name)).into());
    }
    let Some(patch) = release_patch(&json!({"spec": stored.spec}), &pod.uid, node) else {
        return Err(Error::Conflict(format!("pod {} is not gated any more", pod.key.name)).into());
    };
    written::<SlimPod, PodFact>(ctx, pod, ctx.writer.patch_json(marks::MANAGER, &pod.key, patch).await)
}
