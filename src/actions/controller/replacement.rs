//! Builds the pod that replaces a victim from the ReplicaSet's template. Pure.
//!
//! The pod equals the pod that the ReplicaSet would create, with three exceptions: it lacks the label that ties it to
//! the set, so that the set does not count it yet; it has the requirements on nodes that the action names; and it has
//! our marks, with the set as a plain owner. The template is changed as JSON, which preserves fields that this program
//! does not know.

use serde_json::{Map, Value, json};

use ganglion_actions_plan::effect::{NewPod, PodPlace, set_owner};
use ganglion_api::marks;
use ganglion_core::facts::NodeName;

type JsonObject = Map<String, Value>;

/// Returns the replacement pod for this slot; None if the template does not have the structure of a pod template.
pub fn pod(template: &str, new: &NewPod) -> Option<Value> {
    let mut template: JsonObject = serde_json::from_str(template).ok()?;
    let given = member(&mut template, "metadata")?;
    // The ReplicaSet controller copies only these three.
    let copied = ["labels", "annotations", "finalizers"].map(|name| (name, given.remove(name)));
    let mut metadata: JsonObject =
        copied.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let labels = member(&mut metadata, "labels")?;
    let detached = labels.remove(&new.label);
    labels.insert(marks::ROLE.to_owned(), json!(marks::ROLE_REPLACEMENT));
    let annotations = member(&mut metadata, "annotations")?;
    annotations.insert(marks::SLOT.to_owned(), json!(new.slot));
    annotations.insert(marks::ROLE.to_owned(), json!(marks::ROLE_REPLACEMENT));
    metadata.insert("namespace".to_owned(), json!(new.key.namespace));
    metadata.insert("name".to_owned(), json!(new.key.name));
    metadata.insert("ownerReferences".to_owned(), json!([set_owner(&new.set, false)]));
    let spec = member(&mut template, "spec")?;
    // A node name in the template would bypass the scheduler and its checks.
    spec.remove("nodeName");
    if let Some(value) = &detached {
        merge_label(spec, &new.label, value)?;
    }
    restrict(spec, &new.place)?;
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Adds the label to the selectors that name it in `matchLabelKeys` or `mismatchLabelKeys`. The API server does so when
/// a pod is created, for the labels that the pod has; this one is added later. Before Kubernetes 1.34, the scheduler
/// evaluates the keys of spread constraints itself, with the same result.
fn merge_label(spec: &mut JsonObject, label: &str, value: &Value) -> Option<()> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let mut terms: Vec<&mut Value> = Vec::new();
    for (name, member) in spec.iter_mut() {
        match name.as_str() {
            "topologySpreadConstraints" => terms.extend(member.as_array_mut().into_iter().flatten()),
            "affinity" => {
                for (kind, affinity) in member.as_object_mut().into_iter().flatten() {
                    if !matches!(kind.as_str(), "podAffinity" | "podAntiAffinity") {
                        continue;
                    }
                    for (when, given) in affinity.as_object_mut().into_iter().flatten() {
                        let given = given.as_array_mut().into_iter().flatten();
                        match when.as_str() {
                            REQUIRED => terms.extend(given),
                            PREFERRED => terms.extend(given.filter_map(|one| one.get_mut("podAffinityTerm"))),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for term in terms {
        for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let is_named = term[keys].as_array().is_some_and(|keys| keys.iter().any(|key| key == label));
            if let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut).filter(|_| is_named) {
                list(selector, "matchExpressions")?
                    .push(json!({"key": label, "operator": operator, "values": [value]}));
            }
        }
    }
    Some(())
}

/// Returns a member that is an object, and creates it if it is missing. None if it has another type.
fn member<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut JsonObject> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Adds the nodes to the pod's required node affinity. Terms are alternatives, so each one is restricted. Nodes are
/// matched by the field `metadata.name`, since a hostname label may differ.
fn restrict(spec: &mut JsonObject, place: &PodPlace) -> Option<()> {
    let requirements = requirements(place);
    if requirements.is_empty() {
        return Some(());
    }
    let affinity = member(member(spec, "affinity")?, "nodeAffinity")?;
    let required = member(affinity, "requiredDuringSchedulingIgnoredDuringExecution")?;
    let terms = list(required, "nodeSelectorTerms")?;
    if terms.is_empty() {
        terms.push(json!({}));
    } else if terms.iter().all(is_empty) {
        return Some(());
    } else {
        // A term without requirements matches no node. With the pin it would match one.
        terms.retain(|term| !is_empty(term));
    }
    terms.iter_mut().try_for_each(|term| {
        let term = term.as_object_mut()?;
        for (list_name, requirement) in &requirements {
            list(term, list_name)?.push(requirement.clone());
        }
        Some(())
    })
}

/// Requirements on nodes: the list of a term in which each belongs, and the requirement.
fn requirements(place: &PodPlace) -> Vec<(&'static str, Value)> {
    let by = |key: &str, operator: &str, value: &str| json!({"key": key, "operator": operator, "values": [value]});
    let by_name = |operator: &str, node: &NodeName| ("matchFields", by("metadata.name", operator, node.as_str()));
    match place {
        PodPlace::On(node) => vec![by_name("In", node)],
        PodPlace::Any { labels, except } => {
            let labels = labels.iter().map(|(key, value)| ("matchExpressions", by(key, "In", value)));
            except.iter().map(|node| by_name("NotIn", node)).chain(labels).collect()
        }
    }
}

/// Returns a member that is a list, and creates it if it is missing. None if it has another type.
fn list<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut Vec<Value>> {
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
