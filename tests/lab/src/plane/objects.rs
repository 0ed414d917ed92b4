//! The objects that stand for the nodes and pods of a run on a control plane.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use serde_json::{Value, json};
use testkit::NODE_OWNER;

use crate::cluster::facts::{pod_labels, service_name};
use crate::cluster::published::{MAX_PODS, SCHEDULER};
use crate::cluster::{LabNode, PodRequest, bytes, millis};
use crate::contender::FitStrategy;

/// Label of a node, and selector of a pod: the index of the site.
const SITE: &str = "lab.example.com/site";

/// Time for which the lab's lease is valid, in seconds: longer than any run.
const LEASE: i32 = 1_000_000;

/// Name of the node with this index.
pub fn node_name(namespace: &str, node: usize) -> String {
    format!("{namespace}-{node}")
}

/// A simulated node, which only pods of the namespace tolerate.
pub fn node(name: &str, namespace: &str, node: &LabNode) -> Result<Node, serde_json::Error> {
    let cpu = format!("{}m", millis(node.threads()));
    let size = json!({"cpu": cpu, "memory": bytes(node.memory()).to_string(), "pods": MAX_PODS.to_string()});
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                SITE: node.server.site.to_string(), NODE_OWNER: namespace, "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": format!("{namespace}-{}", node.server.site),
            },
        },
        "spec": {"taints": [{"key": NODE_OWNER, "value": namespace, "effect": "NoSchedule"}]},
        "status": {"capacity": size, "allocatable": size},
    }))
}

/// A pod of a site. Its kubelet waits for the image until [`started`] says that it runs.
pub fn pod(name: &str, namespace: &str, site: usize, request: &PodRequest) -> Result<Pod, serde_json::Error> {
    let requests = json!({"cpu": format!("{}m", millis(request.cpu)), "memory": bytes(request.memory).to_string()});
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": request.service.map(pod_labels).unwrap_or_default(),
            "annotations": {"kwok.ganglion.dev/behavior": "image-missing"},
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "nodeSelector": {SITE: site.to_string(), NODE_OWNER: namespace},
            "tolerations": [{"key": NODE_OWNER, "operator": "Equal", "value": namespace}],
            "containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}],
        },
    }))
}

/// Service with the pods of a service of the lab: without one, kube-scheduler does not spread its replicas.
pub fn service(service: usize) -> Result<Service, serde_json::Error> {
    let name = service_name(service);
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": pod_labels(service)},
    }))
}

/// Patch of a pod's status with the time at which it was bound.
pub fn bound(at: Timestamp) -> Value {
    json!({"status": {"conditions": [condition("PodScheduled", at)]}})
}

/// Patch of a pod's status: it runs, and is ready.
pub fn started(at: Timestamp) -> Value {
    let conditions = ["Initialized", "ContainersReady", "Ready"].map(|kind| condition(kind, at));
    json!({"status": {"phase": "Running", "conditions": conditions}})
}

fn condition(kind: &str, at: Timestamp) -> Value {
    json!({"type": kind, "status": "True", "reason": null, "message": null, "lastTransitionTime": at.to_string()})
}

/// Node of a pod, or why the scheduler has found none; None while it is not decided.
pub fn decision(pod: &Pod) -> Option<Result<String, String>> {
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Some(Ok(node));
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    let is_rejected = scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable");
    is_rejected.then(|| Err(scheduled.message.clone().unwrap_or_default()))
}

/// The lease of the operator, held by the lab: a standby replica answers schedulers and writes nothing, so the lab
/// writes the status of NodeConfigs.
pub fn lease(now: Timestamp) -> Result<Lease, serde_json::Error> {
    let spec = json!({"holderIdentity": "lab", "leaseDurationSeconds": LEASE, "renewTime": now.to_string()});
    serde_json::from_value(json!({"metadata": {"name": testkit::plane::install::ACCOUNT}, "spec": spec}))
}

/// Profile of the scheduler with this strategy, otherwise with default settings.
pub fn profile(strategy: FitStrategy) -> Value {
    match strategy {
        FitStrategy::LeastAllocated => json!([{"schedulerName": SCHEDULER}]),
        FitStrategy::MostAllocated => {
            let resources = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
            let args = json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}});
            json!([{"schedulerName": SCHEDULER, "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}])
        }
    }
}
