//! Replicas, by the scale subresource.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::DynamicObject;
use serde_json::json;

use super::account::Path;
use super::{Actor, kinds, thing};
use crate::api::closed_loop::reasons::LoopReason;
use crate::controllers::closed_loop::ClosedLoops;
use crate::controllers::error::Error;
use crate::logic::closed_loop::execution::{Seen, Thing};
use crate::logic::facts::{holder, replicas_owner};

/// How often the target and its scale are read until both are of one version.
const READS: usize = 5;

/// The target's replicas.
///
/// # Errors
/// They could not be read.
pub async fn look(ctx: &ClosedLoops, actor: &Actor) -> Result<Seen, Error> {
    let target = &actor.target;
    let Some(place) = kinds::find(ctx, target).await? else { return Ok(kinds::unknown(target)) };
    if !place.scales {
        return Ok(Seen::Unfit(LoopReason::NotScalable, format!("{} has no scale subresource", target.kind)));
    }
    let url = place.url(&actor.loop_key.namespace);
    let whole = Path { url: &url, name: &target.name, subresource: None };
    for _ in 0..READS {
        let object: DynamicObject = actor.account.get(ctx, whole).await?;
        if let Some(manager) = replicas_owner(object.metadata.managed_fields.as_deref().unwrap_or_default()) {
            let words = format!(
                "spec.replicas of {} {} belongs to {manager}: leave it out of what that applies",
                target.kind, target.name
            );
            return Ok(Seen::Unfit(LoopReason::ReplicasOwnedElsewhere, words));
        }
        let fields = object.metadata.managed_fields.as_deref().unwrap_or_default();
        let thing = Thing { by: holder(fields, &["spec", "replicas"]), ..thing(&object.metadata) };
        if place.plain {
            return Ok(Seen::Scale(thing, replicas(&object)));
        }
        let scale: Scale = actor.account.get(ctx, Path { subresource: Some("scale"), ..whole }).await?;
        // Both of one version: the generation is that of these replicas.
        if scale.metadata.resource_version.as_ref() == Some(&thing.version) {
            return Ok(Seen::Scale(thing, scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)));
        }
    }
    Err(Error::Conflict(format!("{} {} does not hold still", target.kind, target.name)))
}

/// What the object's own spec says; one where it says nothing.
fn replicas(object: &DynamicObject) -> i32 {
    let replicas = object.data.pointer("/spec/replicas").and_then(serde_json::Value::as_i64);
    replicas.map_or(1, |replicas| i32::try_from(replicas).unwrap_or(i32::MAX))
}

/// Sets the replicas of exactly this version of the target.
///
/// # Errors
/// It did not happen, or nobody knows.
pub async fn act(ctx: &ClosedLoops, actor: &Actor, thing: &Thing, replicas: i32) -> Result<Option<String>, Error> {
    let target = &actor.target;
    let Some(place) = kinds::find(ctx, target).await? else { return Err(kinds::gone(target)) };
    let url = place.url(&actor.loop_key.namespace);
    let path = Path { url: &url, name: &target.name, subresource: Some("scale") };
    let body = json!({
        "metadata": {"uid": thing.uid, "resourceVersion": thing.version},
        "spec": {"replicas": replicas},
    });
    let scale: Scale = actor.account.merge(ctx, path, &body).await?;
    Ok(scale.spec.and_then(|spec| spec.replicas).map(|replicas| replicas.to_string()))
}
