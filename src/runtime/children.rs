//! Children: objects that a controller creates for one of its own objects, the owner, and keeps up to date.
//!
//! A child belongs to the uid of its owner. The API server refuses to create it if somebody else's object has its name,
//! and a write to another object of that name fails on the uid. A write to an existing child contains only the fields
//! that the owner wants, and is refused as a whole if the CRD does not have one of them. The garbage
//! collector deletes children of a deleted owner; [`Context::delete_own`] deletes one that is no longer wanted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::writer::Kube;
use ganglion_core::facts::Uid;
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Fact;

/// How a controller writes children of one kind.
#[derive(Clone, Copy, Debug)]
pub struct ChildWriter {
    /// Field manager.
    pub manager: &'static str,
    /// Names of the writes in metrics and logs.
    pub create: &'static str,
    pub update: &'static str,
    /// Fields of the spec that others write.
    pub others: &'static [&'static str],
    /// Whether an update also restores the owner references, and removes finalizers: nobody else needs any.
    pub restores_metadata: bool,
}

/// Finalizers with which the garbage collector deletes dependents of an object, or keeps them.
const OF_GARBAGE_COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Whether the garbage collector waits for a child before it deletes the owner in the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerDeletion {
    Waits,
    DoesNotWait,
}

/// Returns the child with the namespace of its owner, these labels, and the owner as its controller.
pub fn owned_by<O, K>(owner: &O, deletion: OwnerDeletion, labels: BTreeMap<String, String>, mut child: K) -> K
where
    O: Resource<DynamicType = ()>,
    K: Resource,
{
    let reference = owner.controller_owner_ref(&()).map(|reference| OwnerReference {
        block_owner_deletion: (deletion == OwnerDeletion::Waits).then_some(true),
        ..reference
    });
    let meta = child.meta_mut();
    meta.namespace = owner.namespace();
    meta.labels = (!labels.is_empty()).then_some(labels);
    meta.owner_references = reference.map(|reference| vec![reference]);
    child
}

impl ChildWriter {
    /// Creates a child of the object that the controller of `O` reconciles.
    pub async fn create<O: Fact, K: Kube + Fact + Serialize>(&self, ctx: &Context, child: &K) -> Result<(), Error> {
        let namespace = child.namespace().unwrap_or_default();
        let created = ctx.writer.create_whole(self.manager, &namespace, child);
        ctx.write_own::<O, K>(self.create, child, created).await
    }

    /// Removes the finalizers that others have added to a child, so that it can be deleted.
    pub async fn drop_finalizers<O: Fact, K: Kube + Fact>(&self, ctx: &Context, stored: &K) -> Result<(), Error> {
        let Some(patch) = without_finalizers(JsonPatch::of(&Uid::of(stored.meta())), stored) else { return Ok(()) };
        let key = stored.id().key;
        let updated = ctx.writer.patch_json::<K>(self.manager, &key, patch);
        ctx.write_own::<O, K>(self.update, stored, updated).await
    }

    /// Sets the labels and the spec of the stored child to those of `desired`, if they differ.
    pub async fn update<O, K>(&self, ctx: &Context, stored: &K, desired: &K) -> Result<(), Error>
    where
        O: Fact,
        K: Kube + Fact + HasSpec<Spec: Serialize>,
    {
        let Some(patch) = self.changes(stored, desired)? else { return Ok(()) };
        let key = stored.id().key;
        let updated = ctx.writer.patch_whole::<K>(self.manager, &key, patch);
        ctx.write_own::<O, K>(self.update, stored, updated).await
    }

    /// JSON patch from one child to the other; None if they are equal.
    fn changes<K>(&self, stored: &K, desired: &K) -> Result<Option<JsonPatch>, Error>
    where
        K: Resource + HasSpec<Spec: Serialize>,
    {
        let unchanged = JsonPatch::of(&Uid::of(stored.meta()));
        let mut patch = unchanged.clone();
        if stored.labels().is_empty() && !desired.labels().is_empty() {
            patch.add(&["metadata", "labels"], json!(desired.labels()));
        } else {
            for (key, value) in desired.labels().iter().filter(|(key, value)| stored.labels().get(*key) != Some(*value))
            {
                patch.add(&["metadata", "labels", key], value.as_str());
            }
        }
        if self.restores_metadata {
            if stored.owner_references() != desired.owner_references() {
                patch.add(&["metadata", "ownerReferences"], json!(desired.owner_references()));
            }
            patch = without_finalizers(patch.clone(), stored).unwrap_or(patch);
        }
        let (from, to) = (to_object(stored.spec())?, to_object(desired.spec())?);
        for field in from.keys().filter(|field| !to.contains_key(*field) && self.is_ours(field)) {
            patch.remove(&["spec", field]);
        }
        for (field, value) in &to {
            if from.get(field) != Some(value) && self.is_ours(field) {
                patch.add(&["spec", field], value.clone());
            }
        }
        Ok((patch != unchanged).then_some(patch))
    }

    fn is_ours(&self, field: &str) -> bool {
        !self.others.contains(&field)
    }
}

/// Whether others have added finalizers to the object.
pub fn has_foreign_finalizers(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|name| !OF_GARBAGE_COLLECTOR.contains(&name.as_str()))
}

/// The patch, with the removal of the finalizers that others have added; None if there are none.
fn without_finalizers(mut patch: JsonPatch, object: &impl ResourceExt) -> Option<JsonPatch> {
    if !has_foreign_finalizers(object) {
        return None;
    }
    let kept = object.finalizers().iter().filter(|name| OF_GARBAGE_COLLECTOR.contains(&name.as_str()));
    let kept: Vec<&String> = kept.collect();
    patch.add(&["metadata", "finalizers"], json!(kept));
    Some(patch)
}

fn to_object(spec: &impl Serialize) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(spec).map_err(malformed)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Error::Malformed("the spec is no object".to_owned())),
    }
}

fn malformed(error: serde_json::Error) -> Error {
    Error::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use ganglion_api::monitoring::Sample;
    use ganglion_api::monitoring::{Monitoring, MonitoringSpec};

    use super::*;

    const WRITER: ChildWriter = ChildWriter {
        manager: "m",
        create: "CreateChild",
        update: "UpdateChild",
        others: &["sample"],
        restores_metadata: true,
    };

    fn child(labels: Value, spec: MonitoringSpec) -> Monitoring {
        let mut child = Monitoring::new("web", spec);
        child.metadata.uid = Some("u".to_owned());
        child.metadata.labels = serde_json::from_value(labels).unwrap();
        child
    }

    #[test]
    fn an_update_has_only_what_differs_and_tests_the_uid() {
        let test = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let plain = MonitoringSpec::default();
        let paused = MonitoringSpec { paused: true, ..plain.clone() };
        let sampled = MonitoringSpec { sample: Some(Sample::default()), ..plain.clone() };
        let labels = json!({"ganglion.dev/loop": "web"});
        let pause = json!({"op": "add", "path": "/spec/paused", "value": true});
        let label = json!({"op": "add", "path": "/metadata/labels/ganglion.dev~1loop", "value": "web"});
        let all_labels = json!({"op": "add", "path": "/metadata/labels", "value": labels});
        for (stored, stored_spec, desired_spec, expected) in [
            (labels.clone(), &plain, &plain, vec![]),
            (labels.clone(), &sampled, &plain, vec![]),
            (labels.clone(), &plain, &paused, vec![pause]),
            (json!({"a": "b"}), &plain, &plain, vec![label]),
            (json!({}), &plain, &plain, vec![all_labels]),
        ] {
            let desired = child(labels.clone(), desired_spec.clone());
            let changes = WRITER.changes(&child(stored, stored_spec.clone()), &desired).unwrap();
            let expected = (!expected.is_empty()).then(|| json!([vec![test.clone()], expected].concat()));
            assert_eq!(changes.map(|patch| json!(patch)), expected);
        }
        let changes = WRITER.changes(&child(labels.clone(), paused), &child(labels, plain)).unwrap();
        assert_eq!(json!(changes)[1]["path"], "/spec/paused");
    }

    #[test]
    fn an_update_restores_owner_references_and_removes_finalizers() {
        let mut owner = Monitoring::new("owner", MonitoringSpec::default());
        owner.metadata.uid = Some("o".to_owned());
        let new = || child(json!(null), MonitoringSpec::default());
        let desired = owned_by(&owner, OwnerDeletion::DoesNotWait, BTreeMap::new(), new());
        let operations = |stored: &Monitoring| {
            let changes = WRITER.changes(stored, &desired).unwrap();
            changes.map(|patch| json!(patch).as_array().cloned().unwrap_or_default().split_off(1))
        };
        assert_eq!(operations(&desired), None);
        let owners = json!({"op": "add", "path": "/metadata/ownerReferences", "value": desired.owner_references()});
        assert_eq!(operations(&new()), Some(vec![owners]));
        let mut blocked = desired.clone();
        blocked.metadata.finalizers = Some(vec!["foregroundDeletion".to_owned(), "example.com/mine".to_owned()]);
        let finalizers = json!({"op": "add", "path": "/metadata/finalizers", "value": ["foregroundDeletion"]});
        assert_eq!(operations(&blocked), Some(vec![finalizers]));
        let plain = ChildWriter { restores_metadata: false, ..WRITER };
        assert_eq!(plain.changes(&blocked, &new()).unwrap(), None, "others may write the metadata");
    }

    #[test]
    fn a_child_belongs_to_its_owner() {
        let mut owner = Monitoring::new("owner", MonitoringSpec::default());
        (owner.metadata.uid, owner.metadata.namespace) = (Some("o".to_owned()), Some("shop".to_owned()));
        let new = Monitoring::new("child", MonitoringSpec::default());
        let child = owned_by(&owner, OwnerDeletion::Waits, BTreeMap::new(), new);
        let reference = &child.owner_references()[0];
        assert_eq!((reference.uid.as_str(), reference.controller), ("o", Some(true)));
        assert_eq!((child.namespace().as_deref(), reference.block_owner_deletion), (Some("shop"), Some(true)));
    }
}
