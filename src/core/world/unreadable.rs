//! Objects whose newest version does not parse.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Map, Value};

use crate::facts::Identity;

/// An object that does not parse, reduced to the parts that do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unreadable {
    pub metadata: ObjectMeta,
    /// Path of the faulty field, and the error.
    pub error: String,
    /// Status as the API server sent it.
    pub status: Map<String, Value>,
}

impl Unreadable {
    pub fn id(&self) -> Identity {
        (&self.metadata).into()
    }

    /// Conditions of the status; empty if they do not parse.
    pub fn conditions(&self) -> Vec<Condition> {
        let conditions = self.status.get("conditions").cloned();
        conditions.and_then(|conditions| serde_json::from_value(conditions).ok()).unwrap_or_default()
    }
}
