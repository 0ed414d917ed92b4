//! WorkloadActions for the target: created as the loop's account, observed through the store of all actions.

use std::sync::Arc;

use kube::Resource;
use kube::api::DynamicObject;
use serde_json::json;

use super::scale::replicas;
use super::{Actor, Targets};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::{ActionTemplate, Rung};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{Claim, Execution};
use ganglion_api::marks;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionSpec};
use ganglion_core::facts::{DeploymentFact, Key, ReplicaSetFact, StatefulSetFact};
use ganglion_core::kind_path::KindPath;
use ganglion_core::owners::is_owned;
use ganglion_core::world::Origin;
use ganglion_loops_plan::execution::ownership::owned_replicas;
use ganglion_loops_plan::execution::{ObjectVersion, TargetState, WorkloadActionState};
use ganglion_loops_plan::rung;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::error::Error;
use ganglion_runtime::writer::AnswerBounds;

/// Kinds of Kubernetes that own pods without a ReplicaSet or a StatefulSet between, with their versions: no action
/// moves these pods.
const PODS_OF_THEIR_OWN: [(&str, &str); 5] = [
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
];

/// Returns the progress of the claimed action.
pub async fn read(targets: &Targets, actor: &Actor, claim: &Claim) -> Result<TargetState, Error> {
    let Some(name) = &claim.goal.workload_action else { return Ok(TargetState::WorkloadAction(None)) };
    let key = Key::new(actor.loop_key.namespace.clone(), name.clone());
    let known = targets.ctx.store.read(|world| world.table::<WorkloadAction>().get(&key).cloned());
    // The watch may lag behind, so a missing action is read from the API server.
    let found = match known {
        Some(known) => known,
        None => match targets.ctx.writer.get::<WorkloadAction>(&key).await? {
            Some(found) => take_in(targets, found),
            None => return Ok(TargetState::WorkloadAction(None)),
        },
    };
    if !is_owned(found.metadata.owner_references.as_ref(), &actor.uid) {
        let words = format!("WorkloadAction {name} exists and does not belong to this loop");
        return Ok(TargetState::Unfit(LoopReason::NotOwned, words));
    }
    Ok(TargetState::WorkloadAction(Some(WorkloadActionState::from(&*found))))
}

/// Returns the state of the workload before the action exists. Reads the cache, or the workload as the operator, so
/// that the account needs no permission for it.
pub async fn read_ahead(
    targets: &Targets,
    actor: &Actor,
    rung: &Rung,
    template: &ActionTemplate,
) -> Result<TargetState, Error> {
    let TargetRef { api_version, kind, name } = &actor.target;
    let namespace = &actor.loop_key.namespace;
    let key = Key::new(namespace.clone(), name.clone());
    let cached = targets.ctx.store.read(|world| match (api_version.as_str(), kind.as_str()) {
        ("apps/v1", "Deployment") => {
            let found = world.get::<DeploymentFact>(&key);
            Some(("deployments", found.map(|found| (found.id.clone(), found.scale.clone()))))
        }
        ("apps/v1", "ReplicaSet") => {
            let found = world.get::<ReplicaSetFact>(&key);
            Some(("replicasets", found.map(|found| (found.id.clone(), found.scale.clone()))))
        }
        ("apps/v1", "StatefulSet") => {
            let found = world.get::<StatefulSetFact>(&key);
            Some(("statefulsets", found.map(|found| (found.id.clone(), found.set.scale.clone()))))
        }
        _ => None,
    });
    let Some((plural, found)) = cached else {
        // Other kinds may own ReplicaSets. The action itself finds out whether it can move their replicas.
        let never_moves = PODS_OF_THEIR_OWN.contains(&(api_version.as_str(), kind.as_str()));
        if template.move_.is_some() && !never_moves {
            return Ok(TargetState::WorkloadAction(None));
        }
        let verb = if template.move_.is_some() { "move" } else { "create and delete" };
        let words = format!(
            "in a loop, WorkloadActions {verb} replicas of Deployments, ReplicaSets and StatefulSets of apps/v1, not \
             of {kind} of {api_version}: use another action, or correct spec.target"
        );
        return Ok(TargetState::Unfit(LoopReason::NotSupported, words));
    };
    let Some((id, scale)) = found else { return Ok(actor.not_found()) };
    if template.move_.is_some() {
        return Ok(TargetState::WorkloadAction(None));
    }
    // The cache has no managed fields.
    if actor.remembers(&rung::dimension(rung)) {
        let kind = KindPath::namespaced(api_version, namespace, plural)?;
        let path = ObjectPath { kind: &kind, name, subresource: None };
        let object = targets.ctx.writer.bounded(path.request()?, AnswerBounds::OBJECT).await;
        let object: DynamicObject = object.map_err(|error| match error {
            // The account lacks nothing.
            Error::Forbidden(refused) => Error::Doubtful(refused),
            error => error,
        })?;
        let path = rung::REPLICAS_PATH.to_owned();
        let thing = actor.field_version(&object, rung, std::slice::from_ref(&path), Some(&path));
        return Ok(TargetState::Workload(thing, replicas(&object)));
    }
    let owned = scale.owned_by.map(|owner| owned_replicas(&actor.target, namespace, &owner, scale.replicas));
    let thing = ObjectVersion {
        uid: id.uid,
        version: id.version,
        written_by: scale.written_by,
        owned: owned.map(Box::new),
        replicas_path: Some(rung::REPLICAS_PATH.to_owned()),
        ..ObjectVersion::default()
    };
    Ok(TargetState::Workload(thing, scale.replicas))
}

/// Creates the action. The garbage collector deletes it together with the Execution.
pub async fn act(
    targets: &Targets,
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
    let kind = KindPath::namespaced(&WorkloadAction::api_version(&()), namespace, &WorkloadAction::plural(&()))?;
    let made = actor.account.create(&kind, &action).await?;
    take_in(targets, made);
    Ok(None)
}

/// Stores the API server's answer at once, which also enqueues the action.
fn take_in(targets: &Targets, action: WorkloadAction) -> Arc<WorkloadAction> {
    targets.ctx.store.apply(action.clone(), Origin::Own);
    Arc::new(action)
}
