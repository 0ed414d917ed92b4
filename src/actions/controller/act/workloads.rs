//! Writes to Deployments, ReplicaSets, StatefulSets and owners of other kinds: replicas and ledger in one patch.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{EffectOutcome, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::{Scalable, ScalableKind};
use ganglion_actions_plan::world::ActionsWorld;
use ganglion_actions_plan::world::OwnerReading;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_core::facts::{
    DeploymentFact, Identity, OtherKind, OwnerFact, ReplicaSet, ReplicaSetFact, StatefulSet, StatefulSetFact, Uid,
};
use ganglion_core::kind_path::KindPath;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::context::Context;
use ganglion_runtime::dynamic;
use ganglion_runtime::error::Error;

/// Writes replicas and ledger if the workload still has the version that was planned on.
pub async fn scale(
    ctx: &Context,
    workload: &Scalable,
    replicas: i32,
    ledger: Option<&str>,
) -> Result<EffectOutcome, ActError> {
    let mut patch = ledger_patch(workload, ledger);
    patch["spec"] = json!({ "replicas": replicas });
    write(ctx, workload, &patch).await
}

pub async fn clear_ledger(ctx: &Context, workload: &Scalable) -> Result<EffectOutcome, ActError> {
    write(ctx, workload, &ledger_patch(workload, None)).await
}

fn ledger_patch(workload: &Scalable, ledger: Option<&str>) -> Value {
    json!({"metadata": {
        "uid": workload.id.uid, "resourceVersion": workload.id.version, "annotations": {marks::LEDGER: ledger},
    }})
}

async fn write(ctx: &Context, workload: &Scalable, patch: &Value) -> Result<EffectOutcome, ActError> {
    let id = &workload.id;
    match &workload.kind {
        ScalableKind::Deployment => written::<Deployment, DeploymentFact>(ctx, id, merge(ctx, id, patch).await),
        ScalableKind::ReplicaSet => written::<ReplicaSet, ReplicaSetFact>(ctx, id, merge(ctx, id, patch).await),
        ScalableKind::StatefulSet => written::<StatefulSet, StatefulSetFact>(ctx, id, merge(ctx, id, patch).await),
        ScalableKind::Other(kind) => {
            let objects = owner_path(kind, &id.key.namespace)?;
            let path = ObjectPath { kind: &objects, name: &id.key.name, subresource: None };
            Ok(answered(ctx, kind, id, dynamic::merge(&ctx.writer, marks::MANAGER, path, patch).await)?)
        }
    }
}

/// Reads an object of another kind again.
pub async fn read_other(ctx: &Context, kind: &OtherKind, id: &Identity) -> Result<EffectOutcome, Error> {
    let objects = owner_path(kind, &id.key.namespace)?;
    let path = ObjectPath { kind: &objects, name: &id.key.name, subresource: None };
    answered(ctx, kind, id, dynamic::get(&ctx.writer, path).await)
}

fn answered(
    ctx: &Context,
    kind: &OtherKind,
    id: &Identity,
    answer: Result<DynamicObject, Error>,
) -> Result<EffectOutcome, Error> {
    match answer {
        Ok(object) if Uid::of(&object.metadata) == id.uid => {
            let reading = owner_reading(kind.clone(), &object);
            ctx.store.write(|world| world.put_owner(&id.uid, reading, ctx.now()));
            Ok(EffectOutcome::Changed)
        }
        Ok(_) | Err(Error::NotFound(_)) => {
            ctx.store.write(|world| world.drop_owner(&id.uid));
            Ok(EffectOutcome::Gone)
        }
        Err(error) => Err(error),
    }
}

/// Path of the objects of this kind in a namespace.
pub fn owner_path(kind: &OtherKind, namespace: &str) -> Result<KindPath, Error> {
    Ok(KindPath::namespaced(&kind.api_version, namespace, &kind.plural)?)
}

/// Converts the object to the fact that the planner uses.
pub fn owner_reading(kind: OtherKind, object: &DynamicObject) -> OwnerReading {
    let subject = format!("{} {}", kind.kind, object.metadata.name.as_deref().unwrap_or_default());
    match OwnerFact::read(kind, &object.metadata, &object.data) {
        Ok(fact) => OwnerReading::Known(Box::new(fact)),
        Err(why) => OwnerReading::Unfit {
            reason: Reason::NotSupported,
            message: format!("replicas of {subject} are moved, not created or deleted: it {why}"),
        },
    }
}
