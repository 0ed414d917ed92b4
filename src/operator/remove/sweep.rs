//! The marks of the operator on objects of others, and the patches that remove them. Pure.
//!
//! Every patch is for one version of one object: if anything has changed since it was read, the API server refuses it.
//! A patch changes nothing but labels and annotations with the operator's prefix or of its field manager, owner
//! references to its kinds, its scheduling gate on pods without a node, its value of the deletion cost, the cordon of
//! `ganglion drain`, and the switch of an autoscaler that `ganglion import` has turned off.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::operator::drain;
use ganglion_api::marks;
use ganglion_core::facts::{GROUP, Uid};
use ganglion_core::json_patch::JsonPatch;
use ganglion_loops_plan::import::{ImportedKind, ImportedScaler};

/// Kind of a swept object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum SweptKind {
    Pod,
    /// A workload that owns pods or ReplicaSets.
    Workload,
    Node,
    /// A ConfigMap that a SwarmPool wrote and that nothing deletes any more.
    ConfigMap,
    /// A HorizontalPodAutoscaler that an import has switched off.
    HorizontalPodAutoscaler,
    /// A ScaledObject that an import has paused.
    ScaledObject,
}

impl SweptKind {
    pub const ALL: [Self; 6] =
        [Self::Pod, Self::Workload, Self::Node, Self::ConfigMap, Self::HorizontalPodAutoscaler, Self::ScaledObject];
}

/// Removal of all marks of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepStep {
    /// Removed marks, as text: `annotation ganglion.dev/slot`.
    pub removed: Vec<String>,
    pub patch: JsonPatch,
    /// The controllers of the operator handle these marks themselves if they get the time: they give the pod back to
    /// its ReplicaSet, or let the scheduler have it.
    pub is_in_flight: bool,
    /// Advice to check the object, because a record is missing.
    pub unknown: Option<&'static str>,
}

/// The removal of the marks of an object; None if it has none.
pub fn step(kind: SweptKind, object: &DynamicObject) -> Option<SweepStep> {
    let meta = &object.metadata;
    let version = meta.resource_version.as_deref()?;
    let patch = JsonPatch::at_version(&Uid::of(meta), version);
    let mut step = SweepStep { removed: Vec::new(), patch, is_in_flight: false, unknown: None };
    step.remove_annotations(kind, meta);
    step.remove_labels(meta);
    step.remove_owners(meta);
    match kind {
        SweptKind::Pod => step.release(&object.data),
        SweptKind::Node => step.uncordon(object),
        SweptKind::HorizontalPodAutoscaler => step.switch_on(ImportedKind::HorizontalPodAutoscaler, object),
        SweptKind::ScaledObject => step.switch_on(ImportedKind::ScaledObject, object),
        SweptKind::Workload | SweptKind::ConfigMap => {}
    }
    (!step.removed.is_empty()).then_some(step)
}

impl SweepStep {
    fn remove_annotations(&mut self, kind: SweptKind, meta: &ObjectMeta) {
        let Some(annotations) = &meta.annotations else { return };
        let published = match kind {
            SweptKind::Node => managed_alone(meta, marks::USAGE_MANAGER, &["f:metadata", "f:annotations"]),
            _ => BTreeSet::new(),
        };
        let is_of_action = kind == SweptKind::Pod && annotations.contains_key(marks::SLOT);
        for (key, value) in annotations {
            // Other values of the deletion cost, and those beside no marks, belong to the user.
            let is_cost = is_of_action && key == marks::DELETION_COST && value == marks::LOWEST_COST;
            if is_ours(key) || published.contains(key.as_str()) || is_cost {
                self.patch.remove(&["metadata", "annotations", key]);
                self.removed.push(format!("annotation {key}"));
            }
        }
        let is_owned = meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
        self.unknown = (is_of_action && !is_owned).then_some(
            "which an action took out of its workload or created; nothing records where it belongs, so delete it if it is \
             not needed",
        );
        let of_actions = [marks::SLOT, marks::LEDGER];
        self.is_in_flight |= of_actions.iter().any(|key| annotations.contains_key(*key));
    }

    fn remove_labels(&mut self, meta: &ObjectMeta) {
        for key in meta.labels.iter().flatten().map(|(key, _)| key).filter(|key| is_ours(key)) {
            self.patch.remove(&["metadata", "labels", key]);
            self.removed.push(format!("label {key}"));
        }
    }

    /// Removes the references to owners of our kinds, the last one first, so that the positions stay right.
    fn remove_owners(&mut self, meta: &ObjectMeta) {
        let owners = meta.owner_references.iter().flatten().enumerate();
        let mut ours: Vec<_> = owners.filter(|(_, owner)| is_of_group(&owner.api_version)).collect();
        ours.reverse();
        for (index, owner) in ours {
            self.patch.remove(&["metadata", "ownerReferences", &index.to_string()]);
            self.removed.push(format!("owner {} {}", owner.kind, owner.name));
        }
    }

    /// Removes the scheduling gate of a pod. A pod on a node has none.
    fn release(&mut self, pod: &Value) {
        if let Some(index) = gate(&pod["spec"]) {
            self.patch.remove(&["spec", "schedulingGates", &index.to_string()]);
            self.removed.push(format!("scheduling gate {}", marks::GATE));
            self.is_in_flight = true;
        }
    }

    /// Switches an autoscaler on again that an import has switched off, unless somebody else has done so.
    fn switch_on(&mut self, kind: ImportedKind, object: &DynamicObject) {
        let Ok(restored) = (ImportedScaler { kind, object }).restored() else {
            self.unknown = Some("whose record of an import cannot be read, so check whether it is still switched off");
            return;
        };
        let behavior = |object: &DynamicObject| object.data["spec"].get("behavior").cloned();
        self.restore(&["spec", "behavior"], behavior(object), behavior(&restored));
        let pause = |object: &DynamicObject| object.annotations().get(marks::KEDA_PAUSED).cloned().map(Value::from);
        self.restore(&["metadata", "annotations", marks::KEDA_PAUSED], pause(object), pause(&restored));
    }

    fn restore(&mut self, path: &[&str], now: Option<Value>, before: Option<Value>) {
        if now == before {
            return;
        }
        self.removed.push("switch-off by ganglion import".to_owned());
        match before {
            Some(value) => self.patch.add(path, value),
            None => self.patch.remove(path),
        }
    }

    /// Uncordons a node that `ganglion drain` cordoned, and nobody since: the API server records who sets a field.
    fn uncordon(&mut self, node: &DynamicObject) {
        let by_us = managed_alone(&node.metadata, drain::MANAGER, &["f:spec"]);
        if node.data["spec"]["unschedulable"] == true && by_us.contains("unschedulable") {
            self.patch.remove(&["spec", "unschedulable"]);
            self.removed.push("cordon by ganglion drain".to_owned());
        }
    }
}

/// Whether a ConfigMap goes: job lists of a SwarmPool, which the garbage collector deletes with the pool if it still
/// knows the kind, and learned values of a PlacementPolicy. Job lists that were orphaned on purpose stay.
pub fn is_own_map(meta: &ObjectMeta) -> bool {
    let (label, value) = marks::MEMORY;
    let is_memory = meta.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|found| found == value);
    is_memory || meta.owner_references.iter().flatten().any(|owner| is_of_group(&owner.api_version))
}

/// Whether the template of a workload has the operator's scheduling gate.
pub fn has_gated_template(workload: &DynamicObject) -> bool {
    gate(&workload.data["spec"]["template"]["spec"]).is_some()
}

/// Position of the operator's scheduling gate in the spec of a pod.
fn gate(spec: &Value) -> Option<usize> {
    spec["schedulingGates"].as_array()?.iter().position(|gate| gate["name"] == marks::GATE)
}

/// Whether the name of a label or an annotation has a prefix of the operator.
fn is_ours(key: &str) -> bool {
    key.starts_with(marks::LABEL_DOMAIN) || key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP)
}

/// Whether an API version is of the operator's group.
pub fn is_of_group(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}

/// Names of the fields in this map that this field manager has set, and no other.
fn managed_alone(meta: &ObjectMeta, manager: &str, map: &[&str]) -> BTreeSet<String> {
    let names = |entry: &ManagedFieldsEntry| -> BTreeSet<String> {
        let mut fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        for part in map {
            fields = fields.and_then(|fields| fields.get(*part));
        }
        let keys = fields.and_then(Value::as_object).into_iter().flat_map(|fields| fields.keys());
        keys.filter_map(|key| key.strip_prefix("f:")).map(str::to_owned).collect()
    };
    let is_it = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
    let entries = || meta.managed_fields.iter().flatten();
    let mut own: BTreeSet<String> = entries().filter(is_it).flat_map(names).collect();
    for other in entries().filter(|entry| !is_it(entry)).flat_map(names) {
        own.remove(&other);
    }
    own
}

#[cfg(test)]
mod tests;
