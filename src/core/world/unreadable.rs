//! Objects that are not kept: their newest version does not parse, is too large, or has no room in its namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Map, Value};

use super::occupancy;
use crate::facts::Identity;

/// Cause why an object is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadableCause {
    /// It does not parse.
    #[default]
    Invalid,
    /// It is larger than one object may be.
    TooLarge,
    /// The objects of its namespace occupy the memory that one namespace may use.
    NoRoom,
}

impl UnreadableCause {
    /// Reason of the condition; None if the kind has its own.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Invalid => None,
            Self::TooLarge => Some("ObjectTooLarge"),
            Self::NoRoom => Some("NamespaceFull"),
        }
    }

    /// Advice that follows the error in the condition.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Invalid => {
                "correct the field, or delete the object and apply it again; changes have no effect until then"
            }
            Self::TooLarge => {
                "shorten its labels, annotations, finalizers or spec, or divide it into several objects; changes have \
                 no effect until then"
            }
            Self::NoRoom => {
                "delete other objects of ganglion.dev in this namespace, or have a cluster administrator raise \
                 objects.maxBytesPerNamespace in the operator's settings; the operator works on this object within a \
                 minute after there is room"
            }
        }
    }
}

/// An object that is not kept, reduced to its identity and status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unreadable {
    pub metadata: ObjectMeta,
    pub cause: UnreadableCause,
    /// Path of the faulty field, and the error.
    pub error: String,
    /// Status as the API server sent it.
    pub status: Map<String, Value>,
    /// `status` contains only the conditions of the object's status.
    pub is_partial: bool,
}

impl Unreadable {
    /// An object without room, reduced to its conditions.
    pub fn without_room(metadata: &ObjectMeta, conditions: Vec<Condition>, most: usize) -> Self {
        let error = format!("the objects of the namespace occupy {} MiB in each replica of the operator", most >> 20);
        Self { metadata: head(metadata), cause: UnreadableCause::NoRoom, error, ..Self::default() }
            .with_conditions(&conditions)
    }

    /// Replaces the status by these conditions.
    #[must_use]
    pub fn with_conditions(self, conditions: &[Condition]) -> Self {
        let conditions = serde_json::to_value(conditions).unwrap_or_default();
        Self { status: Map::from_iter([("conditions".to_owned(), conditions)]), is_partial: true, ..self }
    }

    pub fn id(&self) -> Identity {
        (&self.metadata).into()
    }

    /// Conditions of the status; empty if they do not parse.
    pub fn conditions(&self) -> Vec<Condition> {
        let conditions = self.status.get("conditions").cloned();
        conditions.and_then(|conditions| serde_json::from_value(conditions).ok()).unwrap_or_default()
    }

    /// Estimate of the memory that it occupies, in bytes.
    pub fn bytes(&self) -> usize {
        occupancy::estimate(size_of::<Self>(), occupancy::UNTYPED, &self.status)
    }
}

/// The part of the metadata that identifies the object and its state. Labels, annotations, owners and finalizers may be
/// as large as the object.
pub fn head(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}
