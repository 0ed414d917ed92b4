//! Writes to WorkloadActionReceipts.

use kube::api::ObjectMeta;
use serde_json::json;

use super::{EffectOutcome, changed, gone, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::{NewReceipt, RefusalKind};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_core::facts::{Identity, ReceiptFact};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Creates the receipt. An existing receipt counts as created if it belongs to the same action; otherwise the action
/// ran before.
pub async fn write(ctx: &Context, new: &NewReceipt) -> Result<EffectOutcome, ActError> {
    let NewReceipt { key, spec } = new;
    let receipt = WorkloadActionReceipt {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
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
