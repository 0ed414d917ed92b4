//! Objects that may not parse: one object written by an older or newer version must not stop the watch of the others.
//! Custom resources that are too large to be kept count as such, and are not parsed.
//!
//! Works like `kube::core::DeserializeGuard`, which parses each object into a tree of values and copies it. With loops
//! that act every second, that took a tenth of the operator's CPU time.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use ganglion_core::facts::GROUP;
use ganglion_core::words::without_types;
use ganglion_core::world::{Unreadable, UnreadableCause, head};

/// The object, or its metadata and status if it does not parse.
#[derive(Clone, Debug)]
pub struct Guard<K>(pub Result<K, Unreadable>);

/// Maximum size of a custom resource as JSON, in bytes, without its status and managedFields.
pub const MAX_OBJECT: usize = 64 << 10;

/// Maximum length of an error, in characters. It may quote the value.
const MAX_ERROR: usize = 512;

/// Maximum size of a status as JSON, in bytes. The operator writes no status of this size.
const MAX_STATUS: usize = 512 << 10;

/// Fields that every object has.
#[derive(Deserialize)]
struct Head {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Map<String, Value>,
}

/// The parts of an object, as text.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

/// The parts of the metadata that are not kept.
#[derive(Deserialize)]
struct Dropped<'a> {
    #[serde(borrow, default, rename = "managedFields")]
    managed_fields: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<DroppedAnnotations<'a>>,
}

/// The annotation that is not kept: the manifest that `kubectl apply` last applied.
#[derive(Default, Deserialize)]
struct DroppedAnnotations<'a> {
    #[serde(borrow, default, rename = "kubectl.kubernetes.io/last-applied-configuration")]
    last_applied: Option<&'a RawValue>,
}

/// The conditions of a status.
#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl<'de, K: DeserializeOwned + Resource<DynamicType = ()>> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if let Some(object) = too_large::<K>(text.get()).map_err(D::Error::custom)? {
            return Ok(Self(Err(object)));
        }
        match serde_json::from_str::<K>(text.get()) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => unreadable::<K>(text.get(), &error).map(|object| Self(Err(object))).map_err(D::Error::custom),
        }
    }
}

/// Whether a status is too large to be kept. Nobody but its author needs it then.
pub fn is_status_too_large(status: &Map<String, Value>) -> bool {
    serde_json::to_string(status).map_or(true, |text| text.len() > MAX_STATUS)
}

/// The identity and conditions of an object of ours that is too large. Objects of other kinds are reduced to small
/// facts.
fn too_large<K: Resource<DynamicType = ()>>(text: &str) -> serde_json::Result<Option<Unreadable>> {
    if text.len() <= MAX_OBJECT || K::group(&()) != GROUP {
        return Ok(None);
    }
    let Parts { metadata, status } = serde_json::from_str(text)?;
    let Dropped { managed_fields, annotations } = serde_json::from_str(metadata.get())?;
    let last_applied = annotations.and_then(|annotations| annotations.last_applied);
    let [of_status, fields, applied] =
        [status, managed_fields, last_applied].map(|part| part.map_or(0, |part| part.get().len()));
    let rest = text.len().saturating_sub(of_status).saturating_sub(fields).saturating_sub(applied);
    let (part, bytes, most) = match (rest > MAX_OBJECT, of_status > MAX_STATUS) {
        (false, false) => return Ok(None),
        (true, _) => ("metadata and spec have", rest, MAX_OBJECT),
        (false, true) => ("the status has", of_status, MAX_STATUS),
    };
    let conditions =
        status.and_then(|status| serde_json::from_str::<Conditions>(status.get()).ok()).unwrap_or_default();
    let object = Unreadable {
        metadata: head(&serde_json::from_str(metadata.get())?),
        cause: UnreadableCause::TooLarge,
        error: format!("{part} {} KiB; at most {} KiB are read", bytes >> 10, most >> 10),
        ..Unreadable::default()
    };
    Ok(Some(object.with_conditions(&conditions.conditions)))
}

fn unreadable<K: DeserializeOwned>(text: &str, error: &serde_json::Error) -> serde_json::Result<Unreadable> {
    let Head { metadata, status } = serde_json::from_str(text)?;
    // Parses the object a second time to get the path of the faulty field, which costs time.
    let path = serde_path_to_error::deserialize::<_, K>(&mut serde_json::Deserializer::from_str(text)).err();
    let error = path.map_or_else(|| error.to_string(), |error| error.to_string());
    // Line and column refer to the text on the wire, which users do not see.
    let error = without_types(error.split(" at line ").next().unwrap_or_default()).chars().take(MAX_ERROR).collect();
    Ok(Unreadable { metadata: head(&metadata), error, status, ..Unreadable::default() })
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|object| &object.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|object| &mut object.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;
    use ganglion_api::receipt::WorkloadActionReceipt;
    use ganglion_core::world::StatusPart;

    type Event = WatchEvent<Guard<WorkloadActionReceipt>>;

    fn event(spec: serde_json::Value) -> Guard<WorkloadActionReceipt> {
        let metadata = json!({"name": "one"});
        let object = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt", "metadata": metadata,
            "spec": spec});
        let text = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let Ok(WatchEvent::Added(one)) = serde_json::from_str::<Event>(&text) else { panic!("{text}") };
        assert_eq!(one.meta().name.as_deref(), Some("one"));
        one
    }

    fn read(object: &serde_json::Value) -> Result<WorkloadActionReceipt, Box<Unreadable>> {
        serde_json::from_str::<Guard<WorkloadActionReceipt>>(&object.to_string()).unwrap().0.map_err(Box::new)
    }

    #[test]
    fn an_object_that_is_too_large_is_reduced_to_its_identity() {
        let mut object = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt",
            "metadata": {"name": "one", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": spec("2026-01-01T00:00:00Z"), "status": {"conditions": [{"type": "Ready", "status": "True",
            "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}], "slots": ["a"]}});
        // managedFields are dropped in any case.
        let fields = json!([{"manager": "m", "fieldsV1": {("a".repeat(MAX_OBJECT)): {}}}]);
        object["metadata"]["managedFields"] = fields;
        object["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": "a".repeat(MAX_OBJECT)});
        assert!(read(&object).is_ok());
        for place in ["labels", "annotations"] {
            let mut large = object.clone();
            large["metadata"][place] = json!({"a": "b".repeat(MAX_OBJECT)});
            let found = read(&large).unwrap_err();
            assert_eq!((found.cause, found.part), (UnreadableCause::TooLarge, StatusPart::Conditions));
            assert!(found.error.starts_with("metadata and spec have 64 KiB"), "{}", found.error);
            assert_eq!((found.metadata.generation, found.id().uid.as_str()), (Some(3), "u"));
            assert_eq!((found.conditions().len(), found.status.len()), (1, 1), "{:?}", found.status);
            assert!(found.bytes() < 4096, "{}", found.bytes());
        }
        object["status"]["slots"] = json!(["a".repeat(MAX_STATUS)]);
        let found = read(&object).unwrap_err();
        assert!(found.error.starts_with("the status has 512 KiB"), "{}", found.error);
    }

    fn spec(executed_at: &str) -> serde_json::Value {
        json!({"actionName": "a", "actionUid": "u", "specHash": "h", "executedAt": executed_at})
    }

    #[test]
    fn what_does_not_parse_still_has_a_name_and_the_field_is_known() {
        assert!(event(spec("2026-01-01T00:00:00Z")).0.is_ok());
        let odd = event(spec("2026-01-01T00:00:00+99:99")).0.unwrap_err();
        assert!(odd.error.starts_with("spec.executedAt: ") && !odd.error.contains("column"), "{}", odd.error);
    }
}
