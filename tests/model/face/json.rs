//! Objects of the simulated cluster as the JSON of the API server, with the fields that our client reads.

use ganglion_api::receipt::WorkloadActionReceiptSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cluster::facts::time;
use crate::cluster::object::{Action, Deployment, Labels, Meta, OwnerRef, Phase, Pod, Receipt, Set};

/// A kind that the API server can send.
pub trait AsJson {
    fn json(&self) -> String;
}

fn text(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("an object that can be written")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a, Spec, Status> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Head<'a>,
    spec: Spec,
    status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: String,
    generation: i64,
    creation_timestamp: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generate_name: Option<&'static str>,
    labels: &'a Labels,
    annotations: &'a Labels,
    owner_references: Vec<Owner<'a>>,
    finalizers: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    api_version: &'static str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    controller: bool,
}

impl<'a> Owner<'a> {
    fn of(owner: &'a OwnerRef) -> Self {
        let api_version = if owner.kind == "WorkloadAction" { "ganglion.dev/v1alpha1" } else { "apps/v1" };
        Self { api_version, kind: &owner.kind, name: &owner.name, uid: &owner.uid, controller: owner.controller }
    }
}

impl<'a> Head<'a> {
    fn of(meta: &'a Meta) -> Self {
        Self {
            name: &meta.key.name,
            namespace: &meta.key.namespace,
            uid: &meta.uid,
            resource_version: meta.version.to_string(),
            generation: meta.generation,
            creation_timestamp: Time(time(meta.created)),
            deletion_timestamp: meta.deleted.map(|seconds| Time(time(seconds))),
            generate_name: None,
            labels: &meta.labels,
            annotations: &meta.annotations,
            owner_references: meta.owners.iter().map(Owner::of).collect(),
            finalizers: &meta.finalizers,
        }
    }
}

impl AsJson for Action {
    fn json(&self) -> String {
        text(&self.resource())
    }
}

impl AsJson for Receipt {
    fn json(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Sent<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: Head<'a>,
            spec: &'a WorkloadActionReceiptSpec,
        }
        let (api_version, kind) = ("ganglion.dev/v1alpha1", "WorkloadActionReceipt");
        text(&Sent { api_version, kind, metadata: Head::of(&self.meta), spec: &self.spec })
    }
}

impl AsJson for Deployment {
    fn json(&self) -> String {
        let spec = json!({"replicas": self.replicas, "selector": {}, "template": {}});
        let status = json!({
            "observedGeneration": self.status.observed, "replicas": self.status.replicas,
            "updatedReplicas": self.status.updated,
        });
        let metadata = Head::of(&self.meta);
        text(&Whole { api_version: "apps/v1", kind: "Deployment", metadata, spec, status })
    }
}

impl AsJson for Set {
    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Spec<'a> {
            replicas: i32,
            selector: Value,
            template: &'a RawValue,
        }
        let spec = Spec {
            replicas: self.replicas,
            selector: json!({"matchLabels": self.selector}),
            template: serde_json::from_str(&self.template.fact.json).expect("a pod template"),
        };
        let failure = self.status.failure.as_ref().map(
            |words| json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}),
        );
        let conditions: Vec<Value> = failure.into_iter().collect();
        let status = json!({
            "observedGeneration": self.status.observed, "replicas": self.status.replicas,
            "readyReplicas": self.status.ready, "conditions": conditions,
        });
        text(&Whole { api_version: "apps/v1", kind: "ReplicaSet", metadata: Head::of(&self.meta), spec, status })
    }
}

impl AsJson for Pod {
    fn json(&self) -> String {
        let metadata = Head { generate_name: self.generated.then_some("generated-"), ..Head::of(&self.meta) };
        let requests = &self.template.requests;
        let spec = json!({
            "nodeName": self.node, "terminationGracePeriodSeconds": self.template.grace,
            "priority": self.template.priority(),
            "containers": [{"name": CONTAINER, "resources": {"requests": {
                "cpu": format!("{}m", requests.cpu), "memory": requests.memory.to_string(),
            }}}],
        });
        text(&Whole { api_version: "v1", kind: "Pod", metadata, spec, status: pod_status(self) })
    }
}

/// Name of every pod's container.
const CONTAINER: &str = "main";

fn pod_status(pod: &Pod) -> Value {
    let mut conditions = Vec::new();
    if let Some(since) = pod.ready_since {
        conditions.push(json!({"type": "Ready", "status": "True", "lastTransitionTime": Time(time(since))}));
    }
    if let Some(words) = &pod.unschedulable {
        let reason = "Unschedulable";
        conditions.push(json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": words}));
    }
    let phase = match pod.phase {
        Phase::Pending => "Pending",
        Phase::Unknown => "Unknown",
        Phase::Running => "Running",
        Phase::Failed => "Failed",
    };
    let mut status = json!({"phase": phase, "conditions": conditions});
    if let Some((reason, message)) = pod.trouble.as_ref().and_then(|trouble| trouble.message.split_once(": "))
        && pod.phase == Phase::Failed
    {
        (status["reason"], status["message"]) = (json!(reason), json!(message));
    } else if let Some(trouble) = &pod.trouble {
        let word = trouble.message.rsplit(' ').next();
        status["containerStatuses"] = json!([{
            "name": CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": pod.restarts,
            "state": {"waiting": {"reason": word}},
        }]);
    }
    status
}
