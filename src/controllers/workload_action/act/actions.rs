//! Writes to WorkloadActions: status, finalizers, deletion.

use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;

use super::{Done, WorkloadActions, api, merge, only, timed};
use crate::api::marks;
use crate::api::workload_action::{WorkloadAction, WorkloadActionStatus};
use crate::controllers::error::Error;
use crate::controllers::writes::{Head, StatusBody, applying};
use crate::logic::facts::Identity;
use crate::logic::world::{Kind, Object};

/// Writes the status by server-side apply, only if the action is still of the version that was planned on.
pub async fn record(ctx: &WorkloadActions, action: &Identity, status: &WorkloadActionStatus) -> Result<Done, Error> {
    let head = Head {
        namespace: &action.key.namespace,
        name: &action.key.name,
        uid: Some(&action.uid),
        resource_version: Some(&action.version),
    };
    let (body, params) = (StatusBody::of::<WorkloadAction>(head, status), applying(marks::STATUS_MANAGER));
    let api = api::<WorkloadAction>(ctx, action);
    let written = timed(ctx, api.patch_status(&action.key.name, &params, &Patch::Apply(&body))).await;
    match written {
        Err(Error::Gone(_)) => Ok(Done::gone(Kind::Action, action)),
        written => Ok(Done::changed(object(written?))),
    }
}

/// Replaces the finalizers, only if the action is still of the version that was planned on.
pub async fn set_finalizers(ctx: &WorkloadActions, action: &Identity, finalizers: &[String]) -> Result<Done, Error> {
    let patch = json!({"metadata": {
        "uid": action.uid, "resourceVersion": action.version, "finalizers": finalizers,
    }});
    match merge::<WorkloadAction>(ctx, action, &patch).await {
        Err(Error::Gone(_)) => Ok(Done::gone(Kind::Action, action)),
        written => Ok(Done::changed(object(written?))),
    }
}

/// Deletes the action.
pub async fn delete(ctx: &WorkloadActions, action: &Identity) -> Result<Done, Error> {
    let api = api::<WorkloadAction>(ctx, action);
    match timed(ctx, api.delete(&action.key.name, &only(action))).await {
        // Finalizers may keep it for now.
        Ok(answer) => match answer.left().filter(|left| !left.finalizers().is_empty()) {
            Some(left) => Ok(Done::changed(object(left))),
            None => Ok(Done::gone(Kind::Action, action)),
        },
        Err(Error::Gone(_)) => Ok(Done::gone(Kind::Action, action)),
        Err(error) => Err(error),
    }
}

/// The action without what nobody here reads.
pub fn object(mut action: WorkloadAction) -> Object {
    action.metadata.managed_fields = None;
    Object::Action(Box::new(action))
}
