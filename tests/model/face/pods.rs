//! Requests for pods: creation, merge and JSON patches, eviction, deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_core::facts::{Key, requests};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod as Sent, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::asked::{Asked, MergePatch, What};
use super::json::AsJson;
use super::{HttpAnswer, answer, failure, merge, only, read, refusal, success};
use crate::cluster::api::{Api, If, Refused};
use crate::cluster::object::{Meta, OwnerRef, Pod, Template};

pub fn serve(api: &mut Api, asked: &Asked) -> HttpAnswer {
    let key = &asked.key;
    match &asked.what {
        What::Get => read::<Pod>(api, key),
        What::NewPod(sent) => create(api, asked, sent),
        // Admission changes nothing.
        What::DryPod(sent) => (201, json!(sent).to_string()),
        What::Merge(MergePatch { metadata, .. }) => answer(asked, merge::<Pod>(api, key, metadata, |_| ())),
        What::Json(patch) => json_patch(api, asked, patch),
        What::Evict(_) if std::mem::take(&mut api.interrupts_eviction) => {
            api.evict_half(key);
            failure(504, "Timeout", "the request did not complete within its time")
        }
        What::Evict(uid) => match api.evict(key, only(uid.as_ref())) {
            Ok(_) => success(201),
            Err(refused) => refusal(asked, &refused),
        },
        What::Delete(uid) => match api.delete_pod(key, only(uid.as_ref())) {
            Ok(Some(left)) => (200, left.json()),
            Ok(None) => success(200),
            Err(refused) => refusal(asked, &refused),
        },
        _ => panic!("{asked} is not supported by the model"),
    }
}

fn create(api: &mut Api, asked: &Asked, sent: &Sent) -> HttpAnswer {
    let fate = api.replacement_fate();
    match api.create_pod(Pod { fate, ..pod(&asked.key, sent) }) {
        Ok(pod) => (201, pod.json()),
        Err(refused) => refusal(asked, &refused),
    }
}

/// The pod that was sent, with the fields that the model reads.
fn pod(key: &Key, sent: &Sent) -> Pod {
    let (meta, spec) = (&sent.metadata, sent.spec.clone().unwrap_or_default());
    let template = Template {
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        requests: requests(&spec),
        grace: spec.termination_grace_period_seconds.unwrap_or(30),
        prioritized: spec.priority_class_name.is_some(),
        ..Template::default()
    };
    Pod {
        meta: Meta {
            key: key.clone(),
            labels: template.labels.clone(),
            annotations: template.annotations.clone(),
            owners: meta.owner_references.iter().flatten().map(owner).collect(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            ..Meta::default()
        },
        generated: meta.generate_name.is_some(),
        pin: nodes_by_name(&spec, "In").into_iter().next(),
        shuns: nodes_by_name(&spec, "NotIn"),
        wants: required_labels(&spec),
        node: spec.node_name,
        template: Arc::new(template),
        ..Pod::default()
    }
}

/// The only term of the pod's required node affinity.
fn required_term(spec: &PodSpec) -> Option<&NodeSelectorTerm> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let [term] = terms.as_slice() else { panic!("{} terms are not supported by the model", terms.len()) };
    Some(term)
}

/// Name of the node that the pod's required node affinity selects or excludes, by this operator.
fn nodes_by_name(spec: &PodSpec, operator: &str) -> Vec<String> {
    let fields = required_term(spec).into_iter().flat_map(|term| term.match_fields.iter().flatten());
    let by_name = fields.filter(|one| one.key == "metadata.name" && one.operator == operator);
    by_name.flat_map(|one| one.values.iter().flatten().cloned()).collect()
}

/// Labels of nodes that the pod's required node affinity names.
fn required_labels(spec: &PodSpec) -> BTreeMap<String, String> {
    let expressions = required_term(spec).into_iter().flat_map(|term| term.match_expressions.iter().flatten());
    let label = |one: &NodeSelectorRequirement| match one.values.as_deref() {
        Some([value]) if one.operator == "In" => (one.key.clone(), value.clone()),
        _ => panic!("{one:?} is not supported by the model"),
    };
    expressions.map(label).collect()
}

pub fn owner(sent: &OwnerReference) -> OwnerRef {
    OwnerRef {
        kind: sent.kind.clone(),
        name: sent.name.clone(),
        uid: sent.uid.clone(),
        controller: sent.controller.unwrap_or(false),
    }
}

/// Applies a JSON patch to labels and annotations; it cannot change anything else.
fn json_patch(api: &mut Api, asked: &Asked, patch: &[Value]) -> HttpAnswer {
    let Some(pod) = api.pods.get(&asked.key).cloned() else { return refusal(asked, &Refused::NotFound) };
    let Some(mut new) = patched(&pod, patch) else {
        return failure(422, "Invalid", "the server rejected our request due to an error in our request");
    };
    let result = api.update::<Pod>(&asked.key, If::any(), |object| {
        object.meta.labels = serde_json::from_value(new["metadata"]["labels"].take()).expect("labels");
        object.meta.annotations = serde_json::from_value(new["metadata"]["annotations"].take()).expect("annotations");
    });
    answer(asked, result)
}

/// The pod's metadata after the patch; None if a test fails. As on the API server, a test for `null` succeeds if the
/// value is absent; the library would require a `null`.
fn patched(pod: &Pod, patch: &[Value]) -> Option<Value> {
    let mut meta = json!({"uid": pod.meta.uid, "labels": pod.meta.labels});
    if !pod.meta.annotations.is_empty() {
        meta["annotations"] = json!(pod.meta.annotations);
    }
    if let Some(deleted) = pod.meta.deleted {
        meta["deletionTimestamp"] = json!(deleted);
    }
    let mut pod = json!({ "metadata": meta });
    let (absent, rest): (Vec<&Value>, Vec<&Value>) =
        patch.iter().partition(|step| step["op"] == "test" && step["value"].is_null());
    let there = |step: &&Value| step["path"].as_str().is_some_and(|path| pod.pointer(path).is_some());
    if absent.iter().any(there) {
        return None;
    }
    let rest: json_patch::Patch = serde_json::from_value(json!(rest)).expect("a JSON patch");
    json_patch::patch(&mut pod, &rest).ok().map(|()| pod)
}
