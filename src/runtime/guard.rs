//! Objects that may not parse: one object written by an older or newer version must not stop the watch of the others.
//!
//! Works like `kube::core::DeserializeGuard`, which parses each object into a tree of values and copies it. With loops
//! that act every second, that took a tenth of the operator's CPU time.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use ganglion_core::world::Unreadable;

/// The object, or its metadata and status if it does not parse.
#[derive(Clone, Debug)]
pub struct Guard<K>(pub Result<K, Unreadable>);

/// Fields that every object has.
#[derive(Deserialize)]
struct Head {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Map<String, Value>,
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<K>(text.get()) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => unreadable::<K>(text.get(), &error).map(|object| Self(Err(object))).map_err(D::Error::custom),
        }
    }
}

fn unreadable<K: DeserializeOwned>(text: &str, error: &serde_json::Error) -> serde_json::Result<Unreadable> {
    let Head { mut metadata, status } = serde_json::from_str(text)?;
    metadata.managed_fields = None;
    // Parses the object a second time to get the path of the faulty field, which costs time.
    let path = serde_path_to_error::deserialize::<_, K>(&mut serde_json::Deserializer::from_str(text)).err();
    let error = path.map_or_else(|| error.to_string(), |error| error.to_string());
    // Line and column refer to the text on the wire, which users do not see.
    let error = error.split(" at line ").next().unwrap_or_default().to_owned();
    Ok(Unreadable { metadata, error, status })
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
