//! Effects as requests: one small function for each, each with its precondition and its time limit.
//!
//! Owns the translation only. What an answer means to the action is the planner's affair.

mod actions;
mod pods;
mod receipts;
mod workloads;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::WorkloadActions;
use crate::api::marks;
use crate::api::receipt::WorkloadActionReceipt;
use crate::api::workload_action::WorkloadAction;
use crate::controllers::error::{Class, Error};
use crate::controllers::writes::changing;
use crate::logic::facts::{Identity, Key};
use crate::logic::workload_action::effect::{Effect, PodChange, Scalable, ScalableKind};
use crate::logic::world::{Kind, Object};

/// What an effect left behind.
#[derive(Debug)]
pub enum Done {
    /// The object as it is now.
    Changed(Box<Object>),
    /// The object is not there any more; its identity bears no version, since no watch told so.
    Gone(Kind, Identity),
    /// Nothing that is known here.
    Nothing,
}

impl Done {
    fn changed(object: Object) -> Self {
        Self::Changed(Box::new(object))
    }

    fn gone(kind: Kind, id: &Identity) -> Self {
        Self::Gone(kind, Identity { version: String::new(), ..id.clone() })
    }
}

/// The effect's name in metrics and logs.
pub fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::Record { .. } => "Record",
        Effect::Admit { .. } => "Admit",
        Effect::AddFinalizer { .. } => "AddFinalizer",
        Effect::RemoveFinalizer { .. } => "RemoveFinalizer",
        Effect::DeleteAction { .. } => "DeleteAction",
        Effect::WriteReceipt(_) => "WriteReceipt",
        Effect::FailReceipt { .. } => "FailReceipt",
        Effect::DeleteReceipt { .. } => "DeleteReceipt",
        Effect::CreatePod(_) => "CreatePod",
        Effect::ChangePod { change: PodChange::Detach { .. }, .. } => "Detach",
        Effect::ChangePod { change: PodChange::Attach { .. }, .. } => "Attach",
        Effect::ChangePod { change: PodChange::Mark { .. }, .. } => "Mark",
        Effect::ChangePod { change: PodChange::Unmark { .. }, .. } => "Unmark",
        Effect::Evict { .. } => "Evict",
        Effect::DeletePod { .. } => "DeletePod",
        Effect::Scale { .. } => "Scale",
        Effect::ClearLedger { .. } => "ClearLedger",
    }
}

/// The slot that the effect names.
pub fn slot(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::CreatePod(new) => Some(&new.slot),
        Effect::ChangePod { change: PodChange::Detach { slot, .. } | PodChange::Mark { slot, .. }, .. } => Some(slot),
        Effect::ChangePod { change: PodChange::Attach { .. } | PodChange::Unmark { .. }, .. }
        | Effect::Record { .. }
        | Effect::Admit { .. }
        | Effect::AddFinalizer { .. }
        | Effect::RemoveFinalizer { .. }
        | Effect::DeleteAction { .. }
        | Effect::WriteReceipt(_)
        | Effect::FailReceipt { .. }
        | Effect::DeleteReceipt { .. }
        | Effect::Evict { .. }
        | Effect::DeletePod { .. }
        | Effect::Scale { .. }
        | Effect::ClearLedger { .. } => None,
    }
}

/// The object that the effect is about.
pub fn target(effect: &Effect) -> &Key {
    match effect {
        Effect::Record { action, .. }
        | Effect::Admit { action, .. }
        | Effect::AddFinalizer { action, .. }
        | Effect::RemoveFinalizer { action, .. }
        | Effect::DeleteAction { action } => &action.key,
        Effect::WriteReceipt(new) => &new.key,
        Effect::FailReceipt { receipt } | Effect::DeleteReceipt { receipt } => &receipt.key,
        Effect::CreatePod(new) => &new.key,
        Effect::ChangePod { pod, .. } | Effect::Evict { pod } | Effect::DeletePod { pod } => &pod.key,
        Effect::Scale { workload, .. } | Effect::ClearLedger { workload } => &workload.id.key,
    }
}

/// Does it.
///
/// # Errors
/// Whatever kept it from happening, classified.
pub async fn act(ctx: &WorkloadActions, effect: &Effect) -> Result<Done, Error> {
    let begun = (ctx.clock)();
    let done = match effect {
        Effect::Record { action, status } | Effect::Admit { action, status, .. } => {
            actions::record(ctx, action, status).await
        }
        Effect::AddFinalizer { action, finalizers } | Effect::RemoveFinalizer { action, finalizers } => {
            actions::set_finalizers(ctx, action, finalizers).await
        }
        Effect::DeleteAction { action } => actions::delete(ctx, action).await,
        Effect::WriteReceipt(new) => receipts::write(ctx, new).await,
        Effect::FailReceipt { receipt } => receipts::fail(ctx, receipt).await,
        Effect::DeleteReceipt { receipt } => receipts::delete(ctx, receipt).await,
        Effect::CreatePod(new) => pods::create(ctx, new).await,
        Effect::ChangePod { pod, change } => pods::change(ctx, pod, change).await,
        Effect::Evict { pod } => pods::evict(ctx, pod).await,
        Effect::DeletePod { pod } => pods::delete(ctx, pod).await,
        Effect::Scale { workload, replicas, ledger } => {
            workloads::scale(ctx, workload, *replicas, ledger.as_deref()).await
        }
        Effect::ClearLedger { workload } => workloads::clear_ledger(ctx, workload).await,
    };
    let outcome = match &done {
        Ok(Done::Changed(_) | Done::Nothing) => "ok",
        Ok(Done::Gone(..)) => "gone",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Conflict(_) | Error::Exists(_)) => "conflict",
        Err(error) => match error.class() {
            Class::Terminal => "failed",
            Class::Retry | Class::After(_) => "retry",
        },
    };
    // Nothing, where the clock was set back meanwhile.
    let time = Duration::try_from((ctx.clock)().duration_since(begun)).unwrap_or(Duration::ZERO);
    ctx.metrics.effect(name(effect), outcome, time);
    done
}

/// Reads afresh the object that an effect was about, after it turned out to be another than known.
///
/// # Errors
/// The read did not succeed.
pub async fn look_again(ctx: &WorkloadActions, effect: &Effect) -> Result<Done, Error> {
    match effect {
        Effect::Record { action, .. }
        | Effect::Admit { action, .. }
        | Effect::AddFinalizer { action, .. }
        | Effect::RemoveFinalizer { action, .. }
        | Effect::DeleteAction { action } => read::<WorkloadAction>(ctx, Kind::Action, action, actions::object).await,
        Effect::FailReceipt { receipt } | Effect::DeleteReceipt { receipt } => {
            read::<WorkloadActionReceipt>(ctx, Kind::Receipt, receipt, receipts::object).await
        }
        Effect::WriteReceipt(new) => {
            let id = Identity { key: new.key.clone(), ..Identity::default() };
            read::<WorkloadActionReceipt>(ctx, Kind::Receipt, &id, receipts::object).await
        }
        Effect::CreatePod(new) => {
            let id = Identity { key: new.key.clone(), ..Identity::default() };
            read::<Pod>(ctx, Kind::Pod, &id, pods::object).await
        }
        Effect::ChangePod { pod, .. } | Effect::Evict { pod } | Effect::DeletePod { pod } => {
            read::<Pod>(ctx, Kind::Pod, pod, pods::object).await
        }
        Effect::Scale { workload, .. } | Effect::ClearLedger { workload } => match workload.kind {
            ScalableKind::Deployment => {
                read::<Deployment>(ctx, Kind::Deployment, &workload.id, workloads::deployment).await
            }
            ScalableKind::ReplicaSet => read::<ReplicaSet>(ctx, Kind::Set, &workload.id, workloads::set).await,
        },
    }
}

async fn read<K: Kube>(
    ctx: &WorkloadActions,
    kind: Kind,
    id: &Identity,
    object: fn(K) -> Object,
) -> Result<Done, Error> {
    let found = timed(ctx, api::<K>(ctx, id).get_opt(&id.key.name)).await?;
    Ok(found.map_or_else(|| Done::gone(kind, id), |found| Done::changed(object(found))))
}

/// What every kind here is.
trait Kube: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug {}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug> Kube for K {}

fn api<K: Kube>(ctx: &WorkloadActions, id: &Identity) -> Api<K> {
    Api::namespaced(ctx.client.clone(), &id.key.namespace)
}

/// A request, bounded in time, with its error classified.
async fn timed<T>(ctx: &WorkloadActions, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(ctx.timeout, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout(ctx.timeout)),
    }
}

/// A merge patch under our name. Its body carries uid and version, which the API server then insists on.
async fn merge<K: Kube>(ctx: &WorkloadActions, id: &Identity, patch: &Value) -> Result<K, Error> {
    patch_by(ctx, id, &Patch::Merge(patch)).await
}

async fn patch_by<K: Kube, P: Serialize + Debug>(
    ctx: &WorkloadActions,
    id: &Identity,
    patch: &Patch<P>,
) -> Result<K, Error> {
    let params = changing(marks::MANAGER);
    timed(ctx, api::<K>(ctx, id).patch(&id.key.name, &params, patch)).await
}

/// Only the object of this uid.
fn only(id: &Identity) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid: Some(id.uid.clone()), resource_version: None })
}

/// Kind of a workload, as the world calls it.
fn kind_of(workload: &Scalable) -> Kind {
    match workload.kind {
        ScalableKind::Deployment => Kind::Deployment,
        ScalableKind::ReplicaSet => Kind::Set,
    }
}
