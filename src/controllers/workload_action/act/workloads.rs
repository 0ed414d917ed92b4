//! Writes to Deployments and ReplicaSets: replicas and ledger, always in one patch.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::{Done, WorkloadActions, kind_of, merge};
use crate::api::marks;
use crate::controllers::error::Error;
use crate::logic::workload_action::effect::{Scalable, ScalableKind};
use crate::logic::world::Object;

/// Writes replicas and ledger, only if the workload is still of the version that was planned on.
pub async fn scale(
    ctx: &WorkloadActions,
    workload: &Scalable,
    replicas: i32,
    ledger: Option<&str>,
) -> Result<Done, Error> {
    let mut patch = ledger_patch(workload, ledger);
    patch["spec"] = json!({ "replicas": replicas });
    write(ctx, workload, &patch).await
}

/// Takes the ledger off.
pub async fn clear_ledger(ctx: &WorkloadActions, workload: &Scalable) -> Result<Done, Error> {
    write(ctx, workload, &ledger_patch(workload, None)).await
}

fn ledger_patch(workload: &Scalable, ledger: Option<&str>) -> Value {
    json!({"metadata": {
        "uid": workload.id.uid, "resourceVersion": workload.id.version, "annotations": {marks::LEDGER: ledger},
    }})
}

async fn write(ctx: &WorkloadActions, workload: &Scalable, patch: &Value) -> Result<Done, Error> {
    let written = match workload.kind {
        ScalableKind::Deployment => merge::<Deployment>(ctx, &workload.id, patch).await.map(deployment),
        ScalableKind::ReplicaSet => merge::<ReplicaSet>(ctx, &workload.id, patch).await.map(set),
    };
    match written {
        Err(Error::Gone(_)) => Ok(Done::gone(kind_of(workload), &workload.id)),
        written => Ok(Done::changed(written?)),
    }
}

/// The Deployment as a fact.
#[expect(clippy::needless_pass_by_value, reason = "the shape that every kind's conversion has here")]
pub fn deployment(deployment: Deployment) -> Object {
    Object::Deployment((&deployment).into())
}

/// The ReplicaSet as a fact.
#[expect(clippy::needless_pass_by_value, reason = "the shape that every kind's conversion has here")]
pub fn set(set: ReplicaSet) -> Object {
    Object::Set((&set).into())
}
