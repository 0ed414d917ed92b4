//! From a ReplicaSet's template to the pod that takes a victim's place: pure.
//!
//! The pod is what the ReplicaSet would make, but for three things: it lacks the label that ties it to the set, so that
//! the set does not count it yet; it may run on one node only; and it bears our marks and the action as plain owner.

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::api::marks;
use crate::api::workload_action::WorkloadAction;
use crate::logic::facts::Identity;
use crate::logic::workload_action::effect::NewPod;

/// The pod for this slot.
#[must_use]
pub fn pod(template: &PodTemplateSpec, new: &NewPod) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.remove(&new.label);
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(marks::SLOT.to_owned(), new.slot.clone());
    annotations.insert(marks::ROLE.to_owned(), marks::ROLE_REPLACEMENT.to_owned());
    let mut spec = template.spec.clone().unwrap_or_default();
    // A node name in the template would bypass the scheduler and its checks.
    spec.node_name = None;
    pin(&mut spec, &new.node);
    Pod {
        metadata: ObjectMeta {
            namespace: Some(new.key.namespace.clone()),
            name: Some(new.key.name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner(&new.action)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn owner(action: &Identity) -> OwnerReference {
    OwnerReference {
        api_version: WorkloadAction::api_version(&()).into_owned(),
        kind: WorkloadAction::kind(&()).into_owned(),
        name: action.key.name.clone(),
        uid: action.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}

/// Adds the node to the pod's required node affinity. Terms are alternatives, so each gets it. It is matched by the
/// field `metadata.name`, since the hostname label may differ.
fn pin(spec: &mut PodSpec, node: &str) {
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(|| NodeSelector { node_selector_terms: vec![] });
    let only = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
        add(&mut required.node_selector_terms, &only);
    } else if required.node_selector_terms.iter().any(|term| !is_empty(term)) {
        // A term without any requirement matches no node; with the pin it would match one.
        required.node_selector_terms.retain(|term| !is_empty(term));
        add(&mut required.node_selector_terms, &only);
    }
}

fn add(terms: &mut [NodeSelectorTerm], only: &NodeSelectorRequirement) {
    for term in terms {
        term.match_fields.get_or_insert_default().push(only.clone());
    }
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_fields.as_ref().is_none_or(Vec::is_empty) && term.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests;
