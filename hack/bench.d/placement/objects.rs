//! A cluster of generated objects. They enter the cache through the same code as objects from watches.

use anyhow::Result;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{NodeFact, PodFact, SlimPod};
use ganglion_core::world::Origin;
use ganglion_runtime::store::Store;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub const NODES: usize = 5000;

/// Pods per node.
const PODS: usize = 20;

/// Name of the policy.
pub const POLICY: &str = "green";

pub fn node_name(at: usize) -> String {
    format!("node-{at:04}.region-a.example.com")
}

/// A node with 64 cores, like those of cloud providers: 50 images, no managedFields.
pub fn node(at: usize) -> Value {
    let image = |image: usize| {
        let names = [
            format!("registry.example.com/project-{image}/service@sha256:{:064x}", image * 7919),
            format!("registry.example.com/project-{image}/service:v1.{image}.0"),
        ];
        json!({"names": names, "sizeBytes": 100_000_000 + image})
    };
    let size = json!({"cpu": "64", "memory": "262144Mi", "pods": "110", "ephemeral-storage": "500Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": node_name(at), "uid": format!("node-{at}"), "resourceVersion": (at + 1).to_string(),
            "labels": {
                "kubernetes.io/hostname": node_name(at), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "a", "topology.kubernetes.io/zone": format!("zone-{}", at % 3),
            },
            "annotations": {
                "mean-used-cpu": (64_000 * (at * 37 % 100) / 120).to_string(), "std-used-cpu": (500 + at % 4000).to_string(),
                "mean-used-memory": (2_748_779_069_usize * (at * 53 % 100)).to_string(), "std-used-memory": "9000000000",
                "congestion-factor": (at * 31 % 100).to_string(), "ganglion.dev/usage-sampled-at": Timestamp::now().to_string(),
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("cloud://{at}")},
        "status": {
            "capacity": size, "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}],
            "addresses": [{"type": "InternalIP", "address": format!("10.{}.{}.1", at / 250, at % 250)}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Linux", "kernelVersion": "6.1.0"},
            "images": (0..50).map(image).collect::<Vec<_>>(),
        },
    })
}

fn pod(at: usize) -> Value {
    let requests = json!({"cpu": format!("{}m", 100 + at % 7 * 250), "memory": format!("{}Mi", 128 + at % 5 * 512)});
    json!({
        "metadata": {
            "namespace": format!("team-{}", at % 50), "name": format!("service-{}-7d6775d6cc-{at:05}", at % 500),
            "uid": format!("{at:036}"), "resourceVersion": (at + 1).to_string(), "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"app": format!("service-{}", at % 500), "pod-template-hash": "7d6775d6cc"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("service-{}", at % 500),
                                 "uid": format!("set-{:032}", at % 500), "controller": true}],
        },
        "spec": {
            "nodeName": node_name(at % NODES), "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "registry.example.com/service:v1", "resources": {"requests": requests}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:10Z"},
                           {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T00:00:01Z"}],
        },
    })
}

fn config(at: usize, until: Timestamp) -> Value {
    let reading = |value: String| json!({"value": value, "sampledAt": "2026-11-01T00:00:00Z"});
    let watts: Vec<String> = (0..21).map(|point| (80 + point * (4 + at % 11)).to_string()).collect();
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
        "metadata": {"namespace": "nodes", "name": node_name(at), "uid": format!("config-{at}"), "resourceVersion": "1"},
        "spec": {"nodeName": node_name(at)},
        "status": {
            "validUntil": until.to_string(), "cpu": reading((at % 90).to_string()),
            "inletTemperature": reading(format!("{}", 18 + at % 9)), "differentialPressure": reading("7.5".to_owned()),
            "power": reading("200".to_owned()),
            "powerCurve": {
                "watts": watts, "inletTemperature": "22", "differentialPressure": "7.4", "predictedAt": "2026-11-01T00:00:00Z",
            },
        },
    })
}

/// The policy of the benches.
pub fn policy() -> Result<PlacementPolicy> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": POLICY, "uid": POLICY, "generation": 1, "resourceVersion": "1"},
        "spec": {"maxAge": "24h", "agents": [
            {"name": "safe", "weight": 5, "safe": {}}, {"name": "congestion", "congestion": {}},
            {"name": "pack", "pigeon": {}}, {"name": "power", "weight": 20, "power": {}},
        ]},
    }))?)
}

/// Fills the cache with this number of nodes, and their pods.
pub fn fill(store: &Store, nodes: usize) -> Result<()> {
    let until = Timestamp::now() + SignedDuration::from_hours(24);
    for at in 0..nodes {
        store.apply(NodeFact::from(serde_json::from_value::<Node>(node(at))?), Origin::Watch);
        store.apply(serde_json::from_value::<NodeConfig>(config(at, until))?, Origin::Watch);
    }
    for at in 0..nodes * PODS {
        store.apply(PodFact::from(serde_json::from_value::<SlimPod>(pod(at))?), Origin::Watch);
    }
    store.apply(policy()?, Origin::Watch);
    Ok(())
}
