//! Fields of the target that somebody else applies: the refusal to change them, and how a user hands them over.
//!
//! The rule is the same for replicas, resources in a template and patched fields. A field that is left out of a
//! manifest without being handed over goes back to its default: a Deployment of five replicas would have one.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::types::{ObjectVersion, OwnedField, RungAction, TargetState};
use crate::common::micro_time;
use crate::rung;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::{Bounds, Resize, Rung};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_api::marks;
use ganglion_core::facts::{ApplyMethod, FieldOwner, FieldPath, Uid, group, has_applied_since};
use ganglion_core::quantity;

/// Maximum number of remembered owners.
const SEEN_OWNERS: usize = 16;

/// Target of a loop, as the API server sent it.
#[derive(Clone, Copy, Debug)]
pub struct TargetObject<'a> {
    pub target: &'a TargetRef,
    pub namespace: &'a str,
    pub object: &'a DynamicObject,
}

impl TargetObject<'_> {
    /// The first of these fields that somebody else applies. `remembered`: owners of fields of this dimension that were
    /// seen before.
    pub fn owned_field(&self, dimension: &str, paths: &[String], remembered: &[SeenOwner]) -> Option<OwnedField> {
        let mut first = paths.iter().find_map(|path| self.owned_path(dimension, path, remembered))?;
        for path in paths.iter().filter(|path| **path != first.path) {
            let other = self.owned_path(dimension, path, remembered);
            if other.is_some_and(|other| other.owner.manager == first.owner.manager) {
                first.paths.push(path.clone());
            }
        }
        Some(first)
    }

    /// The field at this path, if somebody else applies it.
    fn owned_path(&self, dimension: &str, path: &str, remembered: &[SeenOwner]) -> Option<OwnedField> {
        let parts = rung::path_parts(path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (meta, field) = (&self.object.metadata, FieldPath::new(&self.object.data, &parts));
        let path = path.to_owned();
        if let Some(owner) = field.owner(meta) {
            let command = self.command(&owner, &parts);
            return Some(OwnedField { owner, paths: vec![path.clone()], path, taken_over_by: None, command });
        }
        let seen = remembered.iter().find(|seen| {
            seen.dimension == dimension
                && seen.uid == Uid::of(meta)
                && has_path(seen, &path)
                && !has_applied_since(meta, &seen.manager, seen.applied_at.0)
        })?;
        // If nobody has the field, or if it was handed over to the operator, its owner has left it out.
        let by = field.last_writer(meta).filter(|manager| !manager.starts_with(marks::MANAGERS))?;
        let owner = FieldOwner::server_side(&seen.manager, Some(seen.applied_at.0));
        Some(OwnedField { owner, paths: vec![path.clone()], path, taken_over_by: Some(by), command: None })
    }

    /// Field manager that last wrote one of these fields, unless it was a loop.
    pub fn last_writer(&self, paths: &[String]) -> Option<String> {
        paths.iter().find_map(|path| {
            let parts = rung::path_parts(path);
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            FieldPath::new(&self.object.data, &parts).last_writer(&self.object.metadata)
        })
    }

    /// Command that hands the field over; None if its value may be a secret, or if no manifest can contain only it.
    fn command(&self, owner: &FieldOwner, path: &[&str]) -> Option<String> {
        match owner.method {
            ApplyMethod::ClientSide => Some(edit_command(self.target, self.namespace)),
            ApplyMethod::ServerSide => apply_command(self.target, self.namespace, partial(&self.object.data, path)?),
        }
    }
}

/// The replicas of the target, if somebody else applies them.
pub fn owned_replicas(target: &TargetRef, namespace: &str, owner: &FieldOwner, replicas: i32) -> OwnedField {
    let command = match owner.method {
        ApplyMethod::ClientSide => Some(edit_command(target, namespace)),
        ApplyMethod::ServerSide => apply_command(target, namespace, json!({"spec": {"replicas": replicas}})),
    };
    let path = rung::REPLICAS_PATH.to_owned();
    OwnedField { owner: owner.clone(), paths: vec![path.clone()], path, taken_over_by: None, command }
}

/// Advice on the handover of `spec.replicas`, if somebody else applies it to this target.
pub fn replicas_advice(seen: TargetObject) -> Option<String> {
    let owner = FieldPath::replicas().owner(&seen.object.metadata)?;
    let replicas = seen.object.data["spec"]["replicas"].as_i64().and_then(|number| number.try_into().ok())?;
    Some(message(seen.target, &owned_replicas(seen.target, seen.namespace, &owner, replicas)))
}

/// Paths of the resources in the pod template that a resize changes: of the container at this index, or of the pod.
pub fn template_paths(resize: &Resize, index: Option<usize>) -> Vec<String> {
    let parts: &[&str] = match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => &["requests"],
        Bounds::Limits => &["limits"],
        Bounds::Both => &["requests", "limits"],
    };
    let resource = resize.resource.as_str();
    let container = index.map(|index| format!(".containers.{index}")).unwrap_or_default();
    let path = |part: &&str| format!("spec.template.spec{container}.resources.{part}.{resource}");
    parts.iter().map(path).collect()
}

fn edit_command(target: &TargetRef, namespace: &str) -> String {
    let kind = target.kind.to_lowercase();
    let kind = match group(&target.api_version) {
        "" => kind,
        group => format!("{kind}.{group}"),
    };
    format!("kubectl apply edit-last-applied {kind}/{} -n {namespace}", target.name)
}

fn apply_command(target: &TargetRef, namespace: &str, mut manifest: Value) -> Option<String> {
    let TargetRef { api_version, kind, name } = target;
    manifest["apiVersion"] = json!(api_version);
    manifest["kind"] = json!(kind);
    manifest["metadata"] = json!({"name": name, "namespace": namespace});
    let manifest = manifest.to_string();
    let manager = marks::HANDOVER_MANAGER;
    // The text is quoted for a shell.
    (!manifest.contains('\'')).then(|| {
        format!("echo '{manifest}' | kubectl apply --server-side --field-manager={manager} --validate=false -f -")
    })
}

/// The object with this field only. None if the value is not a number or a boolean, since a text may be a secret, or if
/// an item on the way has no name.
fn partial(object: &Value, path: &[&str]) -> Option<Value> {
    let Some((part, rest)) = path.split_first() else {
        let is_plain = match object {
            Value::Bool(_) | Value::Number(_) => true,
            Value::String(text) => quantity::number(text).is_ok(),
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        return is_plain.then(|| object.clone());
    };
    match object {
        Value::Array(items) => {
            let item = items.get(part.parse::<usize>().ok()?)?;
            let mut inner = partial(item, rest)?;
            inner.as_object_mut()?.insert("name".to_owned(), item.get("name")?.clone());
            Some(json!([inner]))
        }
        _ => Some(json!({*part: partial(object.get(part)?, rest)?})),
    }
}

/// Why the rung is not carried out, if somebody else applies the field that it changes.
pub fn refusal(target: &TargetRef, rung: &Rung, seen: &TargetState) -> Option<(LoopReason, String)> {
    let (_, owned) = owned(rung, seen)?;
    let is_replicas = seen.dimension(rung) == "replicas";
    let reason = if is_replicas { LoopReason::ReplicasOwnedElsewhere } else { LoopReason::FieldOwnedElsewhere };
    Some((reason, message(target, owned)))
}

/// The owner to remember, if the rung is refused because of it. The annotation of an owner that applies on the client
/// stays when somebody else changes the field, so such an owner is found again.
pub fn seen_owner(rung: &Rung, seen: &TargetState) -> Option<SeenOwner> {
    let (object, owned) = owned(rung, seen)?;
    Some(SeenOwner {
        dimension: seen.dimension(rung),
        paths: owned.paths.clone(),
        manager: owned.owner.manager.clone(),
        uid: object.uid.clone(),
        applied_at: micro_time(owned.owner.applied_at?),
    })
}

/// Whether the owner had the field at this path. An earlier version has stored no paths.
fn has_path(seen: &SeenOwner, path: &str) -> bool {
    seen.paths.is_empty() || seen.paths.iter().any(|known| rung::is_alike(known, path))
}

/// Owners to remember after a check: those that it has found, and earlier ones of fields that it has not read.
pub fn remembered(before: &[SeenOwner], read: impl Fn(&str) -> bool, found: &[SeenOwner]) -> Vec<SeenOwner> {
    let unread = before.iter().filter(|seen| !read(&seen.dimension));
    found.iter().chain(unread).take(SEEN_OWNERS).cloned().collect()
}

/// The field that the rung would change, if the rung yields to its owner.
fn owned<'a>(rung: &Rung, seen: &'a TargetState) -> Option<(&'a ObjectVersion, &'a OwnedField)> {
    let object = match (RungAction::from(rung), seen) {
        (RungAction::Scale(_), TargetState::Scale(object, _))
        | (RungAction::Patch(_), TargetState::Field(object, _))
        | (RungAction::WorkloadAction(_), TargetState::Workload(object, _)) => object,
        (RungAction::Resize(Resize { template: Some(true), .. }), TargetState::Resources(seen)) => &seen.target,
        _ => return None,
    };
    object.owned.as_deref().filter(|_| rung::yields(rung)).map(|owned| (object, owned))
}

fn message(target: &TargetRef, owned: &OwnedField) -> String {
    let TargetRef { kind, name, .. } = target;
    let OwnedField { owner, path, paths: _, taken_over_by, command } = owned;
    if let Some(by) = taken_over_by {
        let at = owner.applied_at.map(|at| format!(" at {at}")).unwrap_or_default();
        return format!(
            "{path} of {kind} {name} belongs to {owner}, which applied it{at}; {by} has changed it since, and {owner} \
             will set it again. If {owner} no longer has the field in its manifest, or ignores changes of it, set \
             onReplicaOwner: Force on the rung"
        );
    }
    let first = match (owner.method, command) {
        (ApplyMethod::ClientSide, Some(command)) => format!("run `{command}` and delete the field there"),
        (ApplyMethod::ServerSide, Some(command)) => format!("run `{command}`"),
        (_, None) => format!("apply its value with --server-side --field-manager={}", marks::HANDOVER_MANAGER),
    };
    // Otherwise they would not apply the object, and so not give the field up.
    let also = match owner.method {
        ApplyMethod::ClientSide => "",
        ApplyMethod::ServerSide => {
            " Flux and Argo CD apply only objects that differ, so change an annotation in the same commit."
        }
    };
    let fallback = match (path.as_str(), group(&target.api_version)) {
        ("spec.replicas", "apps") => "it goes back to 1",
        _ => "it is removed or goes back to its default",
    };
    format!(
        "{path} of {kind} {name} belongs to {owner}, which applies it. To leave it to the loop and keep its value, first \
         {first}; only then delete it from the manifest that {owner} applies, or {fallback}.{also} If {owner} ignores \
         changes of the field, set onReplicaOwner: Force on the rung instead"
    )
}
