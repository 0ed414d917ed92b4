//! Objects that are not kept: their newest version does not parse, is too large, or has no room in its namespace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Map, Value};

use super::occupancy;
use crate::facts::{Identity, Key};

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
                "delete other objects of ganglion.dev in this namespace, or pods, workloads, ConfigMaps, Services and \
                 budgets with long labels, selectors or templates, or have a cluster administrator raise \
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
    /// Status as the API server sent it, or a part of it.
    pub status: Map<String, Value>,
    pub part: StatusPart,
}

/// Part of the status that is kept of an object that is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusPart {
    #[default]
    Whole,
    Conditions,
    /// Nothing: the status is read before a condition is written.
    None,
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
        let status = Map::from_iter([("conditions".to_owned(), conditions)]);
        Self { status, part: StatusPart::Conditions, ..self }
    }

    /// The object without its status.
    #[must_use]
    pub fn stub(self) -> Self {
        Self { status: Map::new(), part: StatusPart::None, ..self }
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
        let size = size_of::<Self>().saturating_add(self.error.len());
        occupancy::estimate(size, occupancy::UNTYPED, &self.status)
    }
}

/// Memory of objects that are not kept, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreadableBytes {
    pub namespace: usize,
    pub in_all: usize,
}

impl UnreadableBytes {
    /// Maximum of one namespace. Beyond half of it, only stubs are added.
    const PER_NAMESPACE: usize = 8 << 20;

    /// Maximum of all namespaces, beyond which a namespace may use [`Self::SHARE`].
    const IN_ALL: usize = 32 << 20;

    const SHARE: usize = 256 << 10;

    /// The object, or its stub, if there is room for it; None if there is no room.
    pub fn admit(self, object: Unreadable) -> Option<Unreadable> {
        let fits = |object: &Unreadable, part: usize| {
            let bytes = object.bytes();
            let [namespace, in_all] = [self.namespace, self.in_all].map(|others| others.saturating_add(bytes));
            namespace <= Self::SHARE / part
                || (namespace <= Self::PER_NAMESPACE / part && in_all <= Self::IN_ALL / part)
        };
        if fits(&object, 2) {
            return Some(object);
        }
        Some(object.stub()).filter(|stub| fits(stub, 1))
    }

    /// The sum of both, for the same namespace.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            namespace: self.namespace.saturating_add(other.namespace),
            in_all: self.in_all.saturating_add(other.in_all),
        }
    }
}

/// The objects of one kind that are not kept.
#[derive(Debug, Default)]
pub struct UnreadableObjects {
    by_key: BTreeMap<Key, Arc<Unreadable>>,
    /// Bytes by namespace.
    bytes: HashMap<String, usize>,
    in_all: usize,
}

impl UnreadableObjects {
    pub fn by_key(&self) -> &BTreeMap<Key, Arc<Unreadable>> {
        &self.by_key
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Unreadable>> {
        self.by_key.get(key)
    }

    pub fn bytes(&self, namespace: &str) -> UnreadableBytes {
        UnreadableBytes { namespace: self.bytes.get(namespace).copied().unwrap_or(0), in_all: self.in_all }
    }

    pub fn insert(&mut self, object: Unreadable) {
        let key = object.id().key;
        self.remove(&key);
        let bytes = object.bytes();
        self.in_all = self.in_all.saturating_add(bytes);
        let here = self.bytes.entry(key.namespace.clone()).or_default();
        *here = here.saturating_add(bytes);
        self.by_key.insert(key, Arc::new(object));
    }

    pub fn remove(&mut self, key: &Key) {
        let Some(object) = self.by_key.remove(key) else { return };
        let bytes = object.bytes();
        self.in_all = self.in_all.saturating_sub(bytes);
        if let Some(here) = self.bytes.get_mut(&key.namespace) {
            *here = here.saturating_sub(bytes);
            if *here == 0 {
                self.bytes.remove(&key.namespace);
            }
        }
    }

    /// Removes all other objects.
    pub fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        for key in self.by_key.keys().filter(|key| !stays(key)).cloned().collect::<Vec<_>>() {
            self.remove(&key);
        }
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
