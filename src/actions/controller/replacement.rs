//! From a ReplicaSet's template to the pod that takes a victim's place: pure.
//!
//! The pod is what the ReplicaSet would make, but for three things: it lacks the label that ties it to the set, so that
//! the set does not count it yet; it may run on one node only; and it bears our marks and the action as plain owner.
//! The template is changed as JSON, which keeps the fields that this program does not know.

use serde_json::{Map, Value, json};

use ganglion_actions_plan::effect::{NewPod, action_owner};
use ganglion_api::marks;

type Object = Map<String, Value>;

/// The pod for this slot; None if the template has not the structure of a pod template.
#[must_use]
pub fn pod(template: &str, new: &NewPod) -> Option<Value> {
    let mut template: Object = serde_json::from_str(template).ok()?;
    let given = member(&mut template, "metadata")?;
    // The ReplicaSet controller copies these three only.
    let copied = ["labels", "annotations", "finalizers"].map(|name| (name, given.remove(name)));
    let mut metadata: Object = copied.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    member(&mut metadata, "labels")?.remove(&new.label);
    let annotations = member(&mut metadata, "annotations")?;
    annotations.insert(marks::SLOT.to_owned(), json!(new.slot));
    annotations.insert(marks::ROLE.to_owned(), json!(marks::ROLE_REPLACEMENT));
    metadata.insert("namespace".to_owned(), json!(new.key.namespace));
    metadata.insert("name".to_owned(), json!(new.key.name));
    metadata.insert("ownerReferences".to_owned(), json!([action_owner(&new.action)]));
    let spec = member(&mut template, "spec")?;
    // A node name in the template would bypass the scheduler and its checks.
    spec.remove("nodeName");
    pin(spec, &new.node)?;
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// A member that is an object; it is created where there is none. None if it is something else.
fn member<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Adds the node to the pod's required node affinity. Terms are alternatives, so each gets it. It is matched by the
/// field `metadata.name`, since the hostname label may differ.
fn pin(spec: &mut Object, node: &str) -> Option<()> {
    let affinity = member(member(spec, "affinity")?, "nodeAffinity")?;
    let required = member(affinity, "requiredDuringSchedulingIgnoredDuringExecution")?;
    let terms = list(required, "nodeSelectorTerms")?;
    if terms.is_empty() {
        terms.push(json!({}));
    } else if terms.iter().all(is_empty) {
        return Some(());
    } else {
        // A term without any requirement matches no node; with the pin it would match one.
        terms.retain(|term| !is_empty(term));
    }
    let only = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    terms.iter_mut().try_for_each(|term| {
        list(term.as_object_mut()?, "matchFields")?.push(only.clone());
        Some(())
    })
}

/// A member that is a list; it is created where there is none. None if it is something else.
fn list<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Vec<Value>> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut()
}

fn is_empty(term: &Value) -> bool {
    let has_none = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    term.as_object().is_none_or(|term| term.values().all(has_none))
}

#[cfg(test)]
mod tests;
