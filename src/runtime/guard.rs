//! An object that may not parse: one written by an older or newer version must not stop the watch of the others.
//!
//! Like `kube::core::DeserializeGuard`, which parses each object into a tree of values and copies it. For loops that act each
//! second that took a tenth of the operator's CPU time.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The object, or its metadata and a parse error.
#[derive(Clone, Debug)]
pub struct Guard<K>(pub Result<K, Invalid>);

/// An object that does not parse.
#[derive(Clone, Debug)]
pub struct Invalid {
    pub error: String,
    metadata: ObjectMeta,
}

/// The metadata that every object has.
#[derive(Deserialize)]
struct Head {
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<K>(text.get()) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let Head { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                Ok(Self(Err(Invalid { error: error.to_string(), metadata })))
            }
        }
    }
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
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;
    use crate::api::receipt::WorkloadActionReceipt;

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

    #[test]
    fn what_does_not_parse_still_has_a_name() {
        let good = json!({"actionName": "a", "actionUid": "u", "specHash": "h", "executedAt": "2026-01-01T00:00:00Z"});
        assert!(event(good).0.is_ok());
        assert!(event(json!({"actionName": 1})).0.is_err());
    }
}
