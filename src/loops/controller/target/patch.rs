//! Reads and sets one field of the target, for kinds that the operator's settings allow.

use kube::api::DynamicObject;
use serde_json::Value;

use super::{Actor, Targets, discover, no_such_kind, patch_of, replicas_path, unknown_kind};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_core::json_patch::pointer_text;
use ganglion_loops_plan::execution::{ObjectVersion, TargetState, value_text};
use ganglion_loops_plan::rung::path_parts;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::error::Error;

/// Reads the value of the field.
pub async fn read(targets: &Targets, actor: &Actor, rung: &Rung, path: &str) -> Result<TargetState, Error> {
    let target = &actor.target;
    if !is_allowed(targets, target) {
        let words = format!(
            "fields of kind {} are not patched: setting closedLoops.patchableKinds of the operator does not list {}",
            target.kind,
            name(target),
        );
        return Ok(TargetState::Unfit(LoopReason::NotSupported, words));
    }
    let Some(found) = discover(targets, target).await? else { return Ok(unknown_kind(target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let object: DynamicObject =
        actor.account.get(ObjectPath { kind: &kind, name: &target.name, subresource: None }).await?;
    let unfit = |words: String| Ok(TargetState::Unfit(LoopReason::NotScalable, words));
    if object.metadata.generation.is_none() {
        return unfit(format!(
            "objects of kind {} have no generation, which is needed to detect other changes",
            target.kind
        ));
    }
    let parts = path_parts(path);
    let parent = parts.split_last().map_or(&[] as &[String], |(_, parent)| parent);
    if !object.data.pointer(&pointer(parent)).is_some_and(|parent| parent.is_object() || parent.is_array()) {
        return unfit(format!("{} {} has no field {}", target.kind, target.name, parent.join(".")));
    }
    let value = object.data.pointer(&pointer(&parts)).cloned();
    let known_path = replicas_path(&found, &object);
    Ok(TargetState::Field(actor.field_version(&object, rung, &[path.to_owned()], known_path.as_deref()), value))
}

fn is_allowed(targets: &Targets, target: &TargetRef) -> bool {
    let name = name(target);
    targets.patchable.contains(&name)
}

/// Name of the kind as in the settings, such as `apps/Deployment`; a kind of the core group is `/Service`.
fn name(target: &TargetRef) -> String {
    let group = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    format!("{group}/{}", target.kind)
}

/// Returns the JSON pointer of these names and indexes.
fn pointer(parts: &[String]) -> String {
    pointer_text(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Sets the field if the target still has this generation.
pub async fn act(
    targets: &Targets,
    actor: &Actor,
    target: &ObjectVersion,
    path: &str,
    value: &Value,
) -> Result<Option<String>, Error> {
    let Some(found) = discover(targets, &actor.target).await? else { return Err(no_such_kind(&actor.target)) };
    let kind = found.path(&actor.loop_key.namespace)?;
    let mut patch = patch_of(target);
    let names = path_parts(path);
    let parts: Vec<&str> = names.iter().map(String::as_str).collect();
    // In a list, `add` would insert an element.
    let in_list = parts.last().is_some_and(|last| last.parse::<usize>().is_ok());
    if in_list {
        patch.replace(&parts, value.clone());
    } else {
        patch.add(&parts, value.clone());
    }
    let object_path = ObjectPath { kind: &kind, name: &actor.target.name, subresource: None };
    let object: DynamicObject = actor.account.json(object_path, patch).await?;
    Ok(Some(value_text(object.data.pointer(&pointer(&names)))))
}
