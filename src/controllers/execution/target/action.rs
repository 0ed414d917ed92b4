//! WorkloadActions for the target: created as the loop's account, observed through the store of all actions.

use std::sync::Arc;

use kube::Resource;
use serde_json::json;

use super::Actor;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::execution::{Claim, Execution};
use crate::api::marks;
use crate::api::workload_action::{WorkloadAction, WorkloadActionSpec};
use crate::controllers::execution::ExecutionController;
use crate::logic::closed_loop::execution::{ActionProgress, TargetState};
use crate::logic::facts::Key;
use crate::logic::world::Origin;
use crate::logic::world::loops::is_owned;
use crate::runtime::error::Error;

/// The progress of the claimed action. Without a claim there is no action.
///
/// # Errors
/// It could not be read.
pub async fn look(
    controller: &ExecutionController,
    actor: &Actor,
    claim: Option<&Claim>,
) -> Result<TargetState, Error> {
    let Some(name) = claim.and_then(|claim| claim.goal.workload_action.as_ref()) else {
        return Ok(TargetState::WorkloadAction(None));
    };
    let key = Key::new(actor.loop_key.namespace.clone(), name.clone());
    let known = controller.ctx.store.read(|world| world.action(&key).cloned());
    // The watch may lag behind, so a missing action is looked up.
    let found = match known {
        Some(known) => known,
        None => match controller.ctx.writer.get::<WorkloadAction>(&key).await? {
            Some(found) => take_in(controller, found),
            None => return Ok(TargetState::WorkloadAction(None)),
        },
    };
    if !is_owned(found.metadata.owner_references.as_ref(), &actor.uid) {
        let words = format!("WorkloadAction {name} exists and does not belong to this loop");
        return Ok(TargetState::Unfit(LoopReason::NotOwned, words));
    }
    Ok(TargetState::WorkloadAction(Some(end(&found))))
}

fn end(action: &WorkloadAction) -> ActionProgress {
    let Some(status) = &action.status else { return ActionProgress::Running("was made".to_owned()) };
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let words = ready.map_or_else(|| "was made".to_owned(), |ready| format!("{}: {}", ready.reason, ready.message));
    match (&status.finished_at, ready) {
        (None, _) => ActionProgress::Running(words),
        (Some(_), Some(ready)) if ready.status == "True" => ActionProgress::Succeeded(words),
        (Some(_), _) => ActionProgress::Failed(words),
    }
}

/// Creates the action. It is deleted together with the Execution.
///
/// # Errors
/// The action was not created, one of that name exists, or the outcome is unknown.
pub async fn act(
    controller: &ExecutionController,
    actor: &Actor,
    name: &str,
    spec: &WorkloadActionSpec,
) -> Result<Option<String>, Error> {
    let Key { namespace, name: loop_name } = &actor.loop_key;
    let mut action = WorkloadAction::new(name, spec.clone());
    action.metadata.namespace = Some(namespace.clone());
    action.metadata.labels = Some([(marks::LOOP.to_owned(), loop_name.clone())].into());
    let owner = json!([{
        "apiVersion": Execution::api_version(&()), "kind": Execution::kind(&()),
        "name": loop_name, "uid": actor.uid, "controller": true, "blockOwnerDeletion": false,
    }]);
    action.metadata.owner_references = serde_json::from_value(owner).ok();
    let url = WorkloadAction::url_path(&(), Some(namespace));
    let made = actor.account.create(&url, &action).await?;
    take_in(controller, made);
    Ok(None)
}

/// Stores the API server's answer at once, which also requeues the action.
fn take_in(controller: &ExecutionController, action: WorkloadAction) -> Arc<WorkloadAction> {
    controller.ctx.store.apply(action.clone(), Origin::Own);
    Arc::new(action)
}
