//! Writes to WorkloadActionReceipts.

use kube::api::ObjectMeta;
use serde_json::json;

use super::{Done, changed, gone, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::{NewReceipt, RefusalKind};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_core::facts::{Identity, ReceiptFact};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Creates the receipt. An existing receipt counts as created if it belongs to the same action; otherwise the action
/// ran before.
pub async fn write(ctx: &Context, new: &NewReceipt) -> Result<Done, ActError> {
    let NewReceipt { key, spec } = new;
    let receipt = WorkloadActionReceipt {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
    };
    let words = match ctx.writer.create::<WorkloadActionReceipt>(marks::MANAGER, &key.namespace, &receipt).await {
        Ok(made) => return Ok(changed(ctx, ReceiptFact::from(made))),
        Err(Error::AlreadyExists(words)) => words,
        Err(Error::NotFound(words)) => return Err(ActError::refused(RefusalKind::Gone, words)),
        Err(error) => return Err(error.into()),
    };
    let api = ctx.writer.api::<WorkloadActionReceipt>(&key.namespace);
    let found = ctx.writer.call(api.get(&key.name)).await?;
    let same = found.spec.action_uid == spec.action_uid;
    let done = changed(ctx, ReceiptFact::from(found));
    if same { Ok(done) } else { Err(ActError::refused(RefusalKind::Taken, words)) }
}

/// Records that the action did not fully succeed.
pub async fn fail(ctx: &Context, receipt: &Identity) -> Result<Done, ActError> {
    let patch = json!({
        "metadata": {"uid": receipt.uid, "resourceVersion": receipt.version},
        "spec": {"outcome": "Failed"},
    });
    written::<WorkloadActionReceipt, ReceiptFact>(ctx, receipt, merge(ctx, receipt, &patch).await)
}

pub async fn delete(ctx: &Context, receipt: &Identity) -> Result<Done, ActError> {
    match ctx.writer.delete::<WorkloadActionReceipt>(receipt).await {
        Ok(_) | Err(Error::NotFound(_)) => Ok(gone::<ReceiptFact>(ctx, receipt)),
        Err(error) => Err(error.into()),
    }
}
