//! Writes to WorkloadActions: status, finalizers, deletion.

use serde_json::json;

use super::{Done, changed, gone, merge, written};
use crate::error::ActError;
use ganglion_actions_plan::effect::RefusalKind;
use ganglion_api::marks;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::Identity;
use ganglion_core::world::application_of;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Replaces the status if the action still has the version that was planned on.
pub async fn record(ctx: &Context, action: &Identity, status: &WorkloadActionStatus) -> Result<Done, ActError> {
    let answer = ctx.writer.replace_status(marks::STATUS_MANAGER, action, status).await;
    written::<WorkloadAction, WorkloadAction>(ctx, action, answer)
}

/// Replaces the finalizers if the action still has the version that was planned on.
pub async fn set_finalizers(ctx: &Context, action: &Identity, finalizers: &[String]) -> Result<Done, ActError> {
    let patch = json!({"metadata": {
        "uid": action.uid, "resourceVersion": action.version, "finalizers": finalizers,
    }});
    written::<WorkloadAction, WorkloadAction>(ctx, action, merge(ctx, action, &patch).await)
}

/// Creates a move of a moveApplication. An existing action of this name counts as created if it belongs to the
/// moveApplication and has the same `move`.
pub async fn create_part(ctx: &Context, application: &Identity, part: &WorkloadAction) -> Result<Done, ActError> {
    let namespace = &application.key.namespace;
    let words = match ctx.writer.create::<WorkloadAction>(marks::MANAGER, namespace, part).await {
        Ok(made) => return Ok(changed(ctx, made)),
        Err(Error::AlreadyExists(words)) => words,
        Err(Error::NotFound(words)) => return Err(ActError::refused(RefusalKind::Gone, words)),
        Err(error) => return Err(error.into()),
    };
    let name = part.metadata.name.as_deref().unwrap_or_default();
    let found = ctx.writer.call(ctx.writer.api::<WorkloadAction>(namespace).get(name)).await?;
    let is_ours = application_of(&found) == Some(application.uid.as_str()) && found.spec.move_ == part.spec.move_;
    let done = changed(ctx, found);
    if is_ours { Ok(done) } else { Err(ActError::refused(RefusalKind::Taken, words)) }
}

pub async fn delete(ctx: &Context, action: &Identity) -> Result<Done, ActError> {
    match ctx.writer.delete::<WorkloadAction>(action).await {
        // Finalizers may delay the deletion.
        Ok(Some(left)) => Ok(changed(ctx, left)),
        Ok(None) | Err(Error::NotFound(_)) => Ok(gone::<WorkloadAction>(ctx, action)),
        Err(error) => Err(error.into()),
    }
}
