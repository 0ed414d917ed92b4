//! Writes to WorkloadActions: status, finalizers, deletion.

use serde_json::json;

use super::{EffectOutcome, changed, gone, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::RefusalKind;
use ganglion_actions_plan::world::application_of;
use ganglion_api::marks;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::Identity;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Replaces the status if the action still has the version that was planned on.
pub async fn record(
    ctx: &Context,
    action: &Identity,
    status: &WorkloadActionStatus,
) -> Result<EffectOutcome, ActError> {
    let answer = ctx.writer.replace_status(marks::STATUS_MANAGER, action, status).await;
    written::<WorkloadAction, WorkloadAction>(ctx, action, answer)
}

/// Replaces the finalizers if the action still has the version that was planned on.
pub async fn set_finalizers(
    ctx: &Context,
    action: &Identity,
    finalizers: &[String],
) -> Result<EffectOutcome, ActError> {
    let patch = json!({"metadata": {
        "uid": action.uid, "resourceVersion": action.version, "finalizers": finalizers,
    }});
    written::<WorkloadAction, WorkloadAction>(ctx, action, merge(ctx, action, &patch).await)
}

/// Creates a move of a moveApplication. An existing action of this name counts as created if it belongs to the
/// moveApplication and has the same `move`.
pub async fn create_part(
    ctx: &Context,
    application: &Identity,
    part: &WorkloadAction,
) -> Result<EffectOutcome, ActError> {
    let namespace = &application.key.namespace;
    let message = match ctx.writer.create::<WorkloadAction>(marks::MANAGER, namespace, part).await {
        Ok(created) => return Ok(changed(ctx, created)),
        Err(Error::AlreadyExists(message)) => message,
        Err(Error::NotFound(message)) => return Err(ActError::refused(RefusalKind::Gone, message)),
        Err(error) => return Err(error.into()),
    };
    let name = part.metadata.name.as_deref().unwrap_or_default();
    let existing = ctx.writer.call(ctx.writer.api::<WorkloadAction>(namespace).get(name)).await?;
    let is_ours =
        application_of(&existing).as_ref() == Some(&application.uid) && existing.spec.move_ == part.spec.move_;
    let outcome = changed(ctx, existing);
    if is_ours { Ok(outcome) } else { Err(ActError::refused(RefusalKind::Taken, message)) }
}

pub async fn delete(ctx: &Context, action: &Identity) -> Result<EffectOutcome, ActError> {
    match ctx.writer.delete::<WorkloadAction>(action).await {
        // Finalizers may delay the deletion.
        Ok(Some(deleting)) => Ok(changed(ctx, deleting)),
        Ok(None) | Err(Error::NotFound(_)) => Ok(gone::<WorkloadAction>(ctx, action)),
        Err(error) => Err(error.into()),
    }
}
