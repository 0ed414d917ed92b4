//! JSON Patches (RFC 6902) whose preconditions are `test` operations.
//!
//! The API server answers a failed `test` with 422 without a cause. A `test` for `null` holds if nothing exists at the
//! path (seen on a real control plane).

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde::Serialize;
use serde_json::{Map, Value};

use ganglion_api::identity::Uid;

/// A JSON Patch of one object. A path is the list of its parts, which are escaped here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JsonPatch(Vec<PatchOperation>);

impl JsonPatch {
    /// A patch that fails if the object has another uid.
    pub fn of(uid: &Uid) -> Self {
        let mut patch = Self(Vec::new());
        patch.test(&["metadata", "uid"], uid.as_str());
        patch
    }

    /// A patch that fails if the object has another uid or has been changed in any way since this resourceVersion.
    pub fn at_version(uid: &Uid, resource_version: &str) -> Self {
        let mut patch = Self::of(uid);
        patch.test(&["metadata", "resourceVersion"], resource_version);
        patch
    }

    /// A patch that fails if the object has another uid or another spec than that of this generation.
    pub fn at_generation(uid: &Uid, generation: i64) -> Self {
        let mut patch = Self::of(uid);
        patch.test(&["metadata", "generation"], generation);
        patch
    }

    /// Fails the patch if there is another value at the path.
    pub fn test(&mut self, path: &[&str], value: impl Into<Value>) {
        self.0.push(PatchOperation::Test(TestOperation { path: pointer(path), value: value.into() }));
    }

    /// Sets the member of an object, or inserts an element into a list. The parent must exist.
    pub fn add(&mut self, path: &[&str], value: impl Into<Value>) {
        self.0.push(PatchOperation::Add(AddOperation { path: pointer(path), value: value.into() }));
    }

    /// Replaces a value that exists.
    pub fn replace(&mut self, path: &[&str], value: impl Into<Value>) {
        self.0.push(PatchOperation::Replace(ReplaceOperation { path: pointer(path), value: value.into() }));
    }

    /// Removes a value that exists.
    pub fn remove(&mut self, path: &[&str]) {
        self.0.push(PatchOperation::Remove(RemoveOperation { path: pointer(path) }));
    }

    /// Sets an entry of a map. `is_bare`: the API server omits the map, because it is empty.
    pub fn add_entry(&mut self, map: &[&str], is_bare: bool, key: &str, value: impl Into<Value>) {
        if is_bare {
            self.add(map, Map::from_iter([(key.to_owned(), value.into())]));
        } else {
            self.add(&[map, &[key]].concat(), value);
        }
    }
}

impl From<JsonPatch> for json_patch::Patch {
    fn from(patch: JsonPatch) -> Self {
        Self(patch.0)
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// The JSON pointer of a path, with its parts escaped.
pub fn pointer_text(path: &[&str]) -> String {
    pointer(path).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_has_its_preconditions_first_and_escaped_paths() {
        let mut patch = JsonPatch::at_version(&"u".into(), "7");
        patch.test(&["metadata", "annotations", "a~b/c"], Value::Null);
        patch.add_entry(&["metadata", "labels"], false, "a/b", "c");
        patch.add_entry(&["data"], true, "a/b", "c");
        patch.replace(&["spec", "replicas"], 3);
        patch.remove(&["spec", "gates", "0"]);
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "test", "path": "/metadata/annotations/a~0b~1c", "value": null},
            {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
            {"op": "add", "path": "/data", "value": {"a/b": "c"}},
            {"op": "replace", "path": "/spec/replicas", "value": 3},
            {"op": "remove", "path": "/spec/gates/0"},
        ]);
        assert_eq!(serde_json::to_value(&patch).unwrap(), expected);
    }
}
