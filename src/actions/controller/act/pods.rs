//! Writes to pods: creates replacements, changes labels and marks, evicts, deletes, and removes our scheduling gate.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::DeleteParams;
use serde::Deserialize;
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

/// A pod as the API server sends it. Its spec stays JSON, so that fields of the affinity survive that this program does
/// not know.
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
struct PodWithGate {
    metadata: ObjectMeta,
    spec: Value,
}

/// Creates a replacement pod. An existing pod of this name with the slot's mark is ours: the response to its creation
/// was lost.
pub async fn create(ctx: &Context, new: &NewPod) -> Result<EffectOutcome, ActError> {
    let template = template(ctx, new).await?;
    let mut created = create_in(ctx, new, &template, SpreadForm::Merged).await;
    if matches!(created, Err(Error::Denied(_))) && replacement::has_spread_key(&template.json, &new.label) {
        created = create_in(ctx, new, &template, SpreadForm::Replaced).await;
    }
    let message = match created {
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

async fn create_in(ctx: &Context, new: &NewPod, template: &TemplateFact, form: SpreadForm) -> Result<SlimPod, Error> {
    let pod = replacement::pod(&template.json, new, form)
        .ok_or_else(|| Error::Malformed(format!("the pod template of ReplicaSet {}", new.set_key())))?;
    ctx.writer.create::<SlimPod>(marks::MANAGER, &new.key.namespace, &pod).await
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
    let Some(stored) = ctx.writer.get::<PodWithGate>(&pod.key).await? else { return Ok(gone::<PodFact>(ctx, pod)) };
    if Uid::of(&stored.metadata) != pod.uid {
        return Err(Error::Conflict(format!("another pod has the name {}", pod.key.name)).into());
    }
    let Some(patch) = release_patch(&json!({"spec": stored.spec}), &pod.uid, node) else {
        return Err(Error::Conflict(format!("pod {} is not gated any more", pod.key.name)).into());
    };
    written::<SlimPod, PodFact>(ctx, pod, ctx.writer.patch_json(marks::MANAGER, &pod.key, patch).await)
}
