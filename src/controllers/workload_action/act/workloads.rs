//! Writes to Deployments, ReplicaSets and StatefulSets: replicas and ledger, always in one patch.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::{Done, merge, written};
use crate::api::marks;
use crate::controllers::workload_action::error::ActError;
use crate::logic::facts::{DeploymentFact, ReplicaSet, SetFact, StatefulSet, StatefulSetFact};
use crate::logic::workload_action::effect::{Scalable, ScalableKind};
use crate::runtime::context::Context;

/// Writes replicas and ledger, only if the workload still has the version that was planned on.
pub async fn scale(ctx: &Context, workload: &Scalable, replicas: i32, ledger: Option<&str>) -> Result<Done, ActError> {
    let mut patch = ledger_patch(workload, ledger);
    patch["spec"] = json!({ "replicas": replicas });
    write(ctx, workload, &patch).await
}

/// Removes the ledger.
pub async fn clear_ledger(ctx: &Context, workload: &Scalable) -> Result<Done, ActError> {
    write(ctx, workload, &ledger_patch(workload, None)).await
}

fn ledger_patch(workload: &Scalable, ledger: Option<&str>) -> Value {
    json!({"metadata": {
        "uid": workload.id.uid, "resourceVersion": workload.id.version, "annotations": {marks::LEDGER: ledger},
    }})
}

async fn write(ctx: &Context, workload: &Scalable, patch: &Value) -> Result<Done, ActError> {
    let id = &workload.id;
    match workload.kind {
        ScalableKind::Deployment => written::<Deployment, DeploymentFact>(ctx, id, merge(ctx, id, patch).await),
        ScalableKind::ReplicaSet => written::<ReplicaSet, SetFact>(ctx, id, merge(ctx, id, patch).await),
        ScalableKind::StatefulSet => written::<StatefulSet, StatefulSetFact>(ctx, id, merge(ctx, id, patch).await),
    }
}
