//! Writes to WorkloadActionReceipts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::ObjectMeta;
use serde_json::json;

use super::{EffectOutcome, changed, gone, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::{NewReceipt, RefusalKind};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, ReceiptFact, Uid};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Creates the receipt. An existing receipt counts as created if it belongs to the same action; otherwise the action
/// ran before.
pub async fn write(ctx: &Context, new: &NewReceipt) -> Result<EffectOutcome, ActError> {
    let NewReceipt { key, spec, is_owned } = new;
    let receipt = WorkloadActionReceipt {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            owner_references: is_owned.then(|| vec![owner(&spec.action_name, &spec.action_uid)]),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
    };
    let message = match ctx.writer.create::<WorkloadActionReceipt>(marks::MANAGER, &key.namespace, &receipt).await {
        Ok(created) => return Ok(changed(ctx, ReceiptFact::from(created))),
        Err(Error::AlreadyExists(message)) => message,
        Err(Error::NotFound(message)) => return Err(ActError::refused(RefusalKind::Gone, message)),
        Err(error) => return Err(error.into()),
    };
    let api = ctx.writer.api::<WorkloadActionReceipt>(&key.namespace);
    let existing = ctx.writer.call(api.get(&key.name)).await?;
    let is_ours = existing.spec.action_uid == spec.action_uid;
    let outcome = changed(ctx, ReceiptFact::from(existing));
    if is_ours { Ok(outcome) } else { Err(ActError::refused(RefusalKind::Taken, message)) }
}

/// The action as a plain owner: the garbage collector deletes the receipt when the action is gone.
fn owner(name: &str, uid: &Uid) -> OwnerReference {
    OwnerReference {
        api_version: WorkloadAction::api_version(&()).into_owned(),
        kind: WorkloadAction::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_string(),
        ..OwnerReference::default()
    }
}

/// Records that the action did not fully succeed.
pub async fn fail(ctx: &Context, receipt: &Identity) -> Result<EffectOutcome, ActError> {
    let patch = json!({
        "metadata": {"uid": receipt.uid, "resourceVersion": receipt.version},
        "spec": {"outcome": "Failed"},
    });
    written::<WorkloadActionReceipt, ReceiptFact>(ctx, receipt, merge(ctx, receipt, &patch).await)
}

pub async fn delete(ctx: &Context, receipt: &Identity) -> Result<EffectOutcome, ActError> {
    match ctx.writer.delete::<WorkloadActionReceipt>(receipt).await {
        Ok(_) | Err(Error::NotFound(_)) => Ok(gone::<ReceiptFact>(ctx, receipt)),
        Err(error) => Err(error.into()),
    }
}
