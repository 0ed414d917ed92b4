//! Builds the pod that replaces a victim, from the ReplicaSet's template or from what admission makes of it. Pure.
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

/// Form of a spread constraint whose `matchLabelKeys` contain the label that is added later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadForm {
    /// The selector has the label, too. From Kubernetes 1.34 on, the API server changes pods of the ReplicaSet so.
    Merged,
    /// The selector has the label, and the keys do not. Older API servers refuse the other form: there, the scheduler
    /// evaluates the keys by the labels of the pod.
    Replaced,
}

/// The pod that the ReplicaSet would create from its template; None if the template does not have the structure of one.
pub fn sibling(template: &str, new: &NewPod) -> Option<Value> {
    let mut template: JsonObject = serde_json::from_str(template).ok()?;
    let mut metadata = copied_metadata(&mut template)?;
    metadata.insert("namespace".to_owned(), json!(new.key.namespace));
    metadata.insert("generateName".to_owned(), json!(format!("{}-", new.set.name)));
    let mut owner = set_owner(&new.set, true);
    // Some API servers demand a permission for this field, and nobody looks at it in a dry run.
    owner["blockOwnerDeletion"] = json!(false);
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    let spec = member(&mut template, "spec")?;
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Labels, annotations and finalizers: the ReplicaSet controller copies only these.
fn copied_metadata(model: &mut JsonObject) -> Option<JsonObject> {
    let given = member(model, "metadata")?;
    let copied = ["labels", "annotations", "finalizers"].map(|name| (name, given.remove(name)));
    Some(copied.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// Returns the replacement pod for this slot. `model` is the template, or the pod that a ReplicaSet would create from
/// it; None if it does not have the structure of one.
pub fn pod(model: &str, new: &NewPod, form: SpreadForm) -> Option<Value> {
    let mut model: JsonObject = serde_json::from_str(model).ok()?;
    let mut metadata = copied_metadata(&mut model)?;
    let labels = member(&mut metadata, "labels")?;
    let detached = labels.remove(&new.label);
    labels.insert(marks::ROLE.to_owned(), json!(marks::ROLE_REPLACEMENT));
    let annotations = member(&mut metadata, "annotations")?;
    annotations.insert(marks::SLOT.to_owned(), json!(new.slot));
    annotations.insert(marks::ROLE.to_owned(), json!(marks::ROLE_REPLACEMENT));
    metadata.insert("namespace".to_owned(), json!(new.key.namespace));
    metadata.insert("name".to_owned(), json!(new.key.name));
    metadata.insert("ownerReferences".to_owned(), json!([set_owner(&new.set, false)]));
    let spec = member(&mut model, "spec")?;
    // A node name in the template would bypass the scheduler and its checks.
    spec.remove("nodeName");
    if let Some(value) = &detached {
        merge_label(spec, &new.label, value, form)?;
    }
    restrict(spec, &new.place)?;
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Adds the label to the selectors that name it in `matchLabelKeys` or `mismatchLabelKeys`. The API server does so when
/// a pod is created, for the labels that the pod has; this one is added later.
fn merge_label(spec: &mut JsonObject, label: &str, value: &Value, form: SpreadForm) -> Option<()> {
    for constraint in spread_constraints(spec) {
        let is_named = has_key(constraint, "matchLabelKeys", label);
        add_requirement(constraint, "matchLabelKeys", "In", label, value)?;
        if is_named && form == SpreadForm::Replaced {
            constraint["matchLabelKeys"].as_array_mut()?.retain(|key| key != label);
        }
    }
    for term in pod_affinity_terms(spec) {
        add_requirement(term, "matchLabelKeys", "In", label, value)?;
        add_requirement(term, "mismatchLabelKeys", "NotIn", label, value)?;
    }
    Some(())
}

/// Whether the two forms of this template differ.
pub fn has_spread_key(template: &str, label: &str) -> bool {
    let Ok(mut template) = serde_json::from_str::<JsonObject>(template) else { return false };
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    spec.is_some_and(|spec| spread_constraints(spec).any(|one| has_key(one, "matchLabelKeys", label)))
}

fn spread_constraints(spec: &mut JsonObject) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Required and preferred terms of the affinity and the anti-affinity to pods.
fn pod_affinity_terms(spec: &mut JsonObject) -> impl Iterator<Item = &mut Value> {
    let affinity = spec.get_mut("affinity").and_then(Value::as_object_mut).into_iter().flatten();
    let to_pods = affinity.filter(|(kind, _)| matches!(kind.as_str(), "podAffinity" | "podAntiAffinity"));
    let lists = to_pods.flat_map(|(_, given)| given.as_object_mut().into_iter().flatten());
    lists.flat_map(|(when, terms)| {
        let is_preferred = when.starts_with("preferred");
        let terms = terms.as_array_mut().into_iter().flatten();
        terms.filter_map(move |term| if is_preferred { term.get_mut("podAffinityTerm") } else { Some(term) })
    })
}

fn has_key(term: &Value, keys: &str, label: &str) -> bool {
    term[keys].as_array().is_some_and(|keys| keys.iter().any(|key| key == label))
}

/// Adds a requirement on the label to the selector of this term, if `keys` has the label.
fn add_requirement(term: &mut Value, keys: &str, operator: &str, label: &str, value: &Value) -> Option<()> {
    let is_named = has_key(term, keys, label);
    if let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut).filter(|_| is_named) {
        list(selector, "matchExpressions")?.push(requirement(label, operator, value));
    }
    Some(())
}

fn requirement(label: &str, operator: &str, value: &Value) -> Value {
    json!({"key": label, "operator": operator, "values": [value]})
}

/// A pod as the API server returns it, in the form of a template: without the requirements that it has added for
/// `matchLabelKeys` and `mismatchLabelKeys`, and adds again when the pod is created. None if it is no pod.
pub fn as_template(mut pod: Value) -> Option<String> {
    let labels = pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let spec = pod.get_mut("spec")?.as_object_mut()?;
    spread_constraints(spec).for_each(|one| drop_merged(one, &labels));
    pod_affinity_terms(spec).for_each(|term| drop_merged(term, &labels));
    serde_json::to_string(&pod).ok()
}

/// Removes the added requirements. A term cannot have other requirements on these labels: the API server refuses them.
fn drop_merged(term: &mut Value, labels: &JsonObject) {
    let named = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")].map(|(keys, operator)| {
        let keys = term[keys].as_array().into_iter().flatten().filter_map(Value::as_str);
        keys.filter_map(|key| Some(requirement(key, operator, labels.get(key)?))).collect::<Vec<Value>>()
    });
    let selector = term.get_mut("labelSelector").and_then(Value::as_object_mut);
    let expressions = selector.and_then(|selector| selector.get_mut("matchExpressions")).and_then(Value::as_array_mut);
    if let Some(expressions) = expressions {
        expressions.retain(|one| !named.iter().flatten().any(|added| added == one));
    }
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
