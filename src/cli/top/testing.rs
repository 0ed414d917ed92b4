//! Objects for the tests of the view.

use std::collections::BTreeMap;

use serde_json::{Value, from_value, json};

use super::facts::{TopId, TopObject};
use super::kinds::TopKind;

/// An object of this name in the namespace `shop`, one minute old at 2026-11-21T10:01:00Z.
pub fn object(kind: TopKind, name: &str, spec: Value, status: Value) -> TopObject {
    let mut metadata = json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-21T10:00:00Z"});
    if kind.is_namespaced() {
        metadata["namespace"] = json!("shop");
    }
    let all = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": kind.kind(), "metadata": metadata,
        "spec": spec, "status": status});
    TopObject::read(kind, &from_value(all).expect("the metadata of an object"))
}

pub fn place(objects: &mut BTreeMap<TopId, TopObject>, object: TopObject) {
    objects.insert(object.id.clone(), object);
}
