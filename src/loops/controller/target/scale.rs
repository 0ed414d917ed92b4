//! Reads and sets the replicas of the target, through the scale subresource.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::DynamicObject;
use serde_json::json;

use super::{Actor, Targets, discover, no_such_kind, replicas_path, unknown_kind};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::Claim;
use ganglion_core::facts::{DeploymentFact, Key};
use ganglion_core::json_patch::pointer_text;
use ganglion_core::world::Origin;
use ganglion_loops_plan::execution::ownership::owned_replicas;
use ganglion_loops_plan::execution::replicas::{unset_message, unset_replicas};
use ganglion_loops_plan::execution::{ObjectVersion, TargetState};
use ganglion_loops_plan::rung;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::error::{Error, failure};

/// Maximum number of attempts to read the target and its scale with the same resourceVersion.
const READS: usize = 5;

/// Reads the target's replicas. Without a claim, the cached Deployment is used: the write tests its resourceVersion.
///
/// If an owner of the replicas was seen before, the whole Deployment is read: the cache has no managed fields.
pub async fn read(targets: &Targets, actor: &Actor, rung: &Rung, claim: Option<&Claim>) -> Result<TargetState, Error> {
    let (target, namespace) = (&actor.target, &actor.loop_key.namespace);
    let is_cached = claim.is_none() && !actor.remembers(&rung::dimension(rung));
    if let Some(known) = known(targets, actor).filter(|_| is_cached) {
        let (id, scale) = (known.id, known.scale);
        let owned = scale.owned_by.map(|owner| owned_replicas(target, namespace, &owner, scale.replicas));
        let replicas_path = Some(rung::REPLICAS_PATH.to_owned());
        let thing = ObjectVersion {
            replicas_path,
            uid: id.uid,
            generation: known.generation,
            version: id.version,
            written_by: scale.written_by,
            owned: owned.map(Box::new),
        };
        return Ok(TargetState::Scale(thing, scale.replicas));
    }
    let Some(found) = discover(targets, target).await? else { return Ok(unknown_kind(target)) };
    if !found.has_scale {
        return Ok(TargetState::Unfit(
            LoopReason::NotScalable,
            format!("{} has no scale subresource: use another action, or correct spec.target", target.kind),
        ));
    }
    let kind = found.path(namespace)?;
    let whole = ObjectPath { kind: &kind, name: &target.name, subresource: None };
    for _ in 0..READS {
        let object: DynamicObject = actor.account.get(whole).await?;
        let known_path = replicas_path(&found, &object);
        let path = known_path.as_deref().unwrap_or(rung::REPLICAS_PATH);
        let thing = actor.field_version(&object, rung, &[path.to_owned()], known_path.as_deref());
        if found.replicas_in_spec {
            return Ok(TargetState::Scale(thing, replicas(&object)));
        }
        let scale: Scale = match actor.account.get(ObjectPath { subresource: Some("scale"), ..whole }).await {
            Ok(scale) => scale,
            Err(Error::Unavailable(error)) => match unset_path(&error, known_path, &object) {
                Some(path) => {
                    let words = unset_message(target, namespace, &path);
                    return Ok(TargetState::Unfit(LoopReason::NotScalable, words));
                }
                None => return Err(Error::Unavailable(error)),
            },
            Err(error) => return Err(error),
        };
        // Equal resourceVersions: the generation belongs to these replicas.
        if scale.metadata.resource_version.as_ref() == Some(&thing.version) {
            return Ok(TargetState::Scale(thing, scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)));
        }
    }
    Err(Error::Conflict(format!("{} {} keeps changing", target.kind, target.name)))
}

/// Returns the target from the cache. Only Deployments are cached with all fields that are needed.
fn known(targets: &Targets, actor: &Actor) -> Option<DeploymentFact> {
    let TargetRef { api_version, kind, name, .. } = &actor.target;
    let key = Key::new(actor.loop_key.namespace.clone(), name.clone());
    let is_deployment = api_version == "apps/v1" && kind == "Deployment";
    targets.ctx.store.read(|world| world.get::<DeploymentFact>(&key).filter(|_| is_deployment).cloned())
}

/// Path of the number of replicas, if the scale of a custom resource could not be read because its spec does not
/// contain the number: the API server then answers 500.
fn unset_path(error: &kube::Error, known_path: Option<String>, object: &DynamicObject) -> Option<String> {
    let is_unset = |path: &String| {
        let parts: Vec<&str> = path.split('.').collect();
        object.data.pointer(&pointer_text(&parts)).is_none()
    };
    unset_replicas(&failure(error)).or(known_path.filter(is_unset))
}

/// `spec.replicas` of the object; 1 if it is unset.
pub fn replicas(object: &DynamicObject) -> i32 {
    let replicas = object.data.pointer("/spec/replicas").and_then(serde_json::Value::as_i64);
    replicas.map_or(1, |replicas| i32::try_from(replicas).unwrap_or(i32::MAX))
}

/// Sets the replicas if the target still has this resourceVersion.
pub async fn act(
    targets: &Targets,
    actor: &Actor,
    thing: &ObjectVersion,
    replicas: i32,
) -> Result<Option<String>, Error> {
    let target = &actor.target;
    let Some(found) = discover(targets, target).await? else { return Err(no_such_kind(target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let path = ObjectPath { kind: &kind, name: &target.name, subresource: Some("scale") };
    let body = json!({
        "metadata": {"uid": thing.uid, "resourceVersion": thing.version},
        "spec": {"replicas": replicas},
    });
    let scale: Scale = actor.account.merge(path, &body).await?;
    take_in(targets, actor, thing, &scale);
    Ok(scale.spec.and_then(|spec| spec.replicas).map(|replicas| replicas.to_string()))
}

/// Stores the answer at once: the target may be read again before the watch reports the change.
fn take_in(targets: &Targets, actor: &Actor, thing: &ObjectVersion, scale: &Scale) {
    let Some(mut known) = known(targets, actor).filter(|known| known.id.uid == thing.uid) else { return };
    let Some(version) = scale.metadata.resource_version.clone() else { return };
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
    // The write tested the resourceVersion, so nobody else changed the target in between.
    known.generation = thing.generation + i64::from(version != thing.version);
    known.id.version = version;
    known.scale.replicas = replicas;
    known.scale.written_by = None;
    targets.ctx.store.apply(known, Origin::Own);
}
