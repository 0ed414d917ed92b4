//! Translates effects into requests: one small function per effect, with its precondition and its timeout.
//!
//! Owns the translation only. The planner decides what a response means for the action.

mod actions;
mod pods;
mod receipts;
mod workloads;

use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::Patch;
use serde_json::Value;

use super::error::ActError;
use ganglion_actions_plan::effect::{Effect, EffectTarget, Scalable, ScalableKind};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{
    DeploymentFact, Identity, PodFact, ReceiptFact, ReplicaSet, ReplicaSetFact, SlimPod, StatefulSet, StatefulSetFact,
};
use ganglion_core::world::{Fact, Origin};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::{Class, Error};
use ganglion_runtime::writer::Kube;
pub use workloads::{owner_path, owner_reading};

/// Result of a successful effect or read. The store contains it already, and the affected objects are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectOutcome {
    /// The object exists.
    Changed,
    /// The object does not exist any more.
    Gone,
}

/// Stores the object of a response.
fn changed<F: Fact>(ctx: &Context, fact: F) -> EffectOutcome {
    ctx.store.apply(fact, Origin::Own);
    EffectOutcome::Changed
}

/// Removes an object that a request did not find from the store. The identity has no version, since no watch reported
/// the deletion.
fn gone<F: Fact>(ctx: &Context, id: &Identity) -> EffectOutcome {
    ctx.store.remove::<F>(&id.clone().unversioned());
    EffectOutcome::Gone
}

/// Stores the result of a write: the object, or its absence.
fn written<K: Kube, F: Fact + From<K>>(
    ctx: &Context,
    id: &Identity,
    answer: Result<K, Error>,
) -> Result<EffectOutcome, ActError> {
    match answer {
        Ok(object) => Ok(changed(ctx, F::from(object))),
        Err(Error::NotFound(_)) => Ok(gone::<F>(ctx, id)),
        Err(error) => Err(error.into()),
    }
}

/// Performs the effect.
pub async fn act(ctx: &Context, effect: &Effect) -> Result<EffectOutcome, ActError> {
    let begun = Instant::now();
    let result = match effect {
        Effect::Record { action, status } | Effect::Admit { action, status, .. } => {
            actions::record(ctx, action, status).await
        }
        Effect::AddFinalizer { action, finalizers } | Effect::RemoveFinalizer { action, finalizers } => {
            actions::set_finalizers(ctx, action, finalizers).await
        }
        Effect::DeleteAction { action } => actions::delete(ctx, action).await,
        Effect::CreatePart { application, part } => actions::create_part(ctx, application, part).await,
        Effect::WriteReceipt(new) => receipts::write(ctx, new).await,
        Effect::FailReceipt { receipt } => receipts::fail(ctx, receipt).await,
        Effect::DeleteReceipt { receipt } => receipts::delete(ctx, receipt).await,
        Effect::CreatePod(new) => pods::create(ctx, new).await,
        Effect::ChangePod { pod, change } => pods::change(ctx, pod, change).await,
        Effect::Evict { pod, grace_seconds } => pods::evict(ctx, pod, *grace_seconds).await,
        Effect::DeletePod { pod, grace_seconds } => pods::delete(ctx, pod, *grace_seconds).await,
        Effect::ReleasePod { pod, node } => pods::release(ctx, pod, node.as_ref()).await,
        Effect::Scale { workload, replicas, ledger } => {
            workloads::scale(ctx, workload, *replicas, ledger.as_deref()).await
        }
        Effect::ClearLedger { workload } => workloads::clear_ledger(ctx, workload).await,
    };
    let label = match &result {
        Ok(EffectOutcome::Changed) => "ok",
        Ok(EffectOutcome::Gone) => "gone",
        Err(ActError::Refused(_)) => "refused",
        Err(ActError::Request(Error::Conflict(_) | Error::AlreadyExists(_))) => "conflict",
        Err(ActError::Request(error)) => match error.class() {
            Class::Terminal => "failed",
            Class::Retry | Class::After(_) => "retry",
        },
    };
    ctx.metrics.effect(effect.name(), label, begun.elapsed());
    result
}

/// Reads the object of an effect again, after a conflict or an unknown outcome.
pub async fn read_target(ctx: &Context, effect: &Effect) -> Result<EffectOutcome, Error> {
    match effect.target() {
        EffectTarget::Action(id) => read::<WorkloadAction, WorkloadAction>(ctx, &id).await,
        EffectTarget::Receipt(id) => read::<WorkloadActionReceipt, ReceiptFact>(ctx, &id).await,
        EffectTarget::Pod(id) => read::<SlimPod, PodFact>(ctx, &id).await,
        EffectTarget::Workload(Scalable { kind, id }) => match &kind {
            ScalableKind::Deployment => read::<Deployment, DeploymentFact>(ctx, &id).await,
            ScalableKind::ReplicaSet => read::<ReplicaSet, ReplicaSetFact>(ctx, &id).await,
            ScalableKind::StatefulSet => read::<StatefulSet, StatefulSetFact>(ctx, &id).await,
            ScalableKind::Other(kind) => workloads::read_other(ctx, kind, &id).await,
        },
    }
}

/// Reads an object into the store.
pub async fn read<K: Kube, F: Fact + From<K>>(ctx: &Context, id: &Identity) -> Result<EffectOutcome, Error> {
    Ok(match ctx.writer.get::<K>(&id.key).await? {
        Some(object) => changed(ctx, F::from(object)),
        None => gone::<F>(ctx, id),
    })
}

fn api<K: Kube>(ctx: &Context, id: &Identity) -> Api<K> {
    ctx.writer.api(&id.key.namespace)
}

/// Sends a merge patch under our field manager. Its body contains uid and version, which the API server checks.
async fn merge<K: Kube>(ctx: &Context, id: &Identity, patch: &Value) -> Result<K, Error> {
    ctx.writer.patch(marks::MANAGER, &id.key, &Patch::Merge(patch)).await
}
