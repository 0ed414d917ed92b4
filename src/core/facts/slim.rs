//! Objects of foreign kinds as they are watched: only the members that a fact is made from.
//!
//! The types of k8s-openapi have room for every member. A volume occupies 2 KB of memory, and 28 bytes of JSON: with
//! these types, one pod with a megabyte of volumes would cost 100 MB while it is read.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, NodeAffinity, NodeSelector, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity,
    PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{DeploymentFact, HpaFact, PodFact, PodMembership};

/// See [`PodFact`].
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct SlimPod {
    pub metadata: ObjectMeta,
    pub spec: Option<SlimPodSpec>,
    pub status: Option<PodStatus>,
}

/// The spec of a pod or template.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimPodSpec {
    containers: Option<Vec<SlimContainer>>,
    init_containers: Option<Vec<SlimContainer>>,
    affinity: Option<SlimAffinity>,
    host_network: Option<bool>,
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    overhead: Option<BTreeMap<String, Quantity>>,
    preemption_policy: Option<String>,
    priority: Option<i32>,
    resource_claims: Option<Vec<IgnoredAny>>,
    resources: Option<ResourceRequirements>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    scheduling_group: Option<IgnoredAny>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<SlimVolume>>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimContainer {
    ports: Option<Vec<SlimPort>>,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimPort {
    container_port: i32,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    host_port: Option<i32>,
    protocol: Option<String>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimAffinity {
    node_affinity: Option<SlimNodeAffinity>,
    pod_affinity: Option<SlimPodAffinity>,
    pod_anti_affinity: Option<SlimPodAffinity>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimPodAffinity {
    required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimVolume {
    persistent_volume_claim: Option<SlimClaim>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimClaim {
    claim_name: String,
}

/// A pod template, without what pods are created from.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct SlimTemplate {
    pub metadata: Option<ObjectMeta>,
    pub spec: Option<SlimPodSpec>,
}

impl SlimPodSpec {
    /// Names of the PersistentVolumeClaims among the volumes.
    pub fn claims(&self) -> Vec<String> {
        let claims = self.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.map(|claim| claim.claim_name.clone()).collect()
    }

    /// Reason why its pods are more than replicas. The types of k8s-openapi do not have all of it.
    pub fn membership(&self, meta: &ObjectMeta) -> Option<PodMembership> {
        let has_claims = self.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
        PodMembership::of(meta, self.scheduling_group.is_some(), has_claims)
    }
}

impl From<SlimContainer> for Container {
    fn from(SlimContainer { ports, resources, restart_policy }: SlimContainer) -> Self {
        let full = |SlimPort { container_port, host_ip, host_port, protocol }: SlimPort| ContainerPort {
            container_port,
            host_ip,
            host_port,
            protocol,
            ..ContainerPort::default()
        };
        let ports = ports.map(|ports| ports.into_iter().map(full).collect());
        Self { ports, resources, restart_policy, ..Self::default() }
    }
}

impl From<SlimPodSpec> for PodSpec {
    /// Volumes are left out.
    fn from(spec: SlimPodSpec) -> Self {
        let full = |containers: Vec<SlimContainer>| containers.into_iter().map(Container::from).collect();
        let affinity = |SlimAffinity { node_affinity, pod_affinity, pod_anti_affinity }: SlimAffinity| Affinity {
            node_affinity: node_affinity.map(|affinity| NodeAffinity {
                required_during_scheduling_ignored_during_execution: affinity
                    .required_during_scheduling_ignored_during_execution,
                ..NodeAffinity::default()
            }),
            pod_affinity: pod_affinity.map(|affinity| PodAffinity {
                required_during_scheduling_ignored_during_execution: affinity
                    .required_during_scheduling_ignored_during_execution,
                ..PodAffinity::default()
            }),
            pod_anti_affinity: pod_anti_affinity.map(|affinity| PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: affinity
                    .required_during_scheduling_ignored_during_execution,
                ..PodAntiAffinity::default()
            }),
        };
        Self {
            containers: spec.containers.map(full).unwrap_or_default(),
            init_containers: spec.init_containers.map(full),
            affinity: spec.affinity.map(affinity),
            host_network: spec.host_network,
            node_name: spec.node_name,
            node_selector: spec.node_selector,
            overhead: spec.overhead,
            preemption_policy: spec.preemption_policy,
            priority: spec.priority,
            resources: spec.resources,
            scheduler_name: spec.scheduler_name,
            scheduling_gates: spec.scheduling_gates,
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            tolerations: spec.tolerations,
            ..Self::default()
        }
    }
}

impl From<SlimPod> for Pod {
    fn from(SlimPod { metadata, spec, status }: SlimPod) -> Self {
        Self { metadata, spec: spec.map(PodSpec::from), status }
    }
}

impl From<SlimPod> for PodFact {
    fn from(pod: SlimPod) -> Self {
        let membership = pod.spec.as_ref().and_then(|spec| spec.membership(&pod.metadata));
        Self::new(&Pod::from(pod), membership)
    }
}

/// See [`DeploymentFact`].
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::apps::v1::Deployment")]
pub struct SlimDeployment {
    pub metadata: ObjectMeta,
    pub spec: Option<SlimDeploymentSpec>,
    pub status: Option<DeploymentStatus>,
}

/// See [`SlimDeployment`].
#[derive(Deserialize, Clone, Debug)]
pub struct SlimDeploymentSpec {
    replicas: Option<i32>,
    #[serde(default)]
    selector: LabelSelector,
    strategy: Option<DeploymentStrategy>,
    paused: Option<bool>,
}

impl From<SlimDeployment> for DeploymentFact {
    fn from(SlimDeployment { metadata, spec, status }: SlimDeployment) -> Self {
        let spec = spec.map(|SlimDeploymentSpec { replicas, selector, strategy, paused }| DeploymentSpec {
            replicas,
            selector,
            strategy,
            paused,
            ..DeploymentSpec::default()
        });
        Deployment { metadata, spec, status }.into()
    }
}

/// See [`HpaFact`].
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler")]
pub struct SlimAutoscaler {
    pub metadata: ObjectMeta,
    pub spec: Option<SlimAutoscalerSpec>,
}

/// See [`SlimAutoscaler`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct SlimAutoscalerSpec {
    scale_target_ref: CrossVersionObjectReference,
    min_replicas: Option<i32>,
    #[serde(default)]
    max_replicas: i32,
    behavior: Option<SlimBehavior>,
}

/// See [`SlimAutoscaler`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimBehavior {
    scale_up: Option<SlimRules>,
    scale_down: Option<SlimRules>,
}

/// See [`SlimAutoscaler`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct SlimRules {
    select_policy: Option<String>,
}

impl From<SlimBehavior> for HorizontalPodAutoscalerBehavior {
    fn from(SlimBehavior { scale_up, scale_down }: SlimBehavior) -> Self {
        let rules = |SlimRules { select_policy }| HPAScalingRules { select_policy, ..HPAScalingRules::default() };
        Self { scale_up: scale_up.map(rules), scale_down: scale_down.map(rules) }
    }
}

impl From<SlimAutoscaler> for HpaFact {
    fn from(SlimAutoscaler { metadata, spec }: SlimAutoscaler) -> Self {
        let spec = spec.map(|spec| HorizontalPodAutoscalerSpec {
            scale_target_ref: spec.scale_target_ref,
            min_replicas: spec.min_replicas,
            max_replicas: spec.max_replicas,
            behavior: spec.behavior.map(Into::into),
            ..HorizontalPodAutoscalerSpec::default()
        });
        HorizontalPodAutoscaler { metadata, spec, ..HorizontalPodAutoscaler::default() }.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slim_pod_has_the_fact_of_the_whole_one() {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let ports = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}]);
        let container = json!({"name": "c", "image": "i", "env": [{"name": "a"}], "ports": ports,
            "resources": {"requests": amounts}});
        let near = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["b"]});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": amounts}});
        let pinned = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n1"]},
        ]}]});
        let pod = json!({
            "metadata": {"namespace": "a", "name": "p", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": true},
                ]},
            "spec": {
                "nodeName": "n1", "schedulerName": "mine", "terminationGracePeriodSeconds": 7,
                "containers": [container], "initContainers": [sidecar], "overhead": {"cpu": "250m"},
                "schedulingGates": [{"name": "ganglion.dev/placement"}],
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned},
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]},
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]},
                },
                "hostNetwork": true, "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        });
        let slim: SlimPod = serde_json::from_value(pod.clone()).unwrap();
        let whole: Pod = serde_json::from_value(pod).unwrap();
        let fact = PodFact::from(slim);
        assert_eq!(fact, PodFact::new(&whole, fact.membership));
        assert_eq!((fact.hold.requests.cpu, fact.pin.is_some(), fact.gated), (1250, true, true));
        let constraints = fact.constraints.expect("constraints");
        assert_eq!((constraints.ports.len(), constraints.apart.len(), constraints.beside.len()), (1, 1, 1));
    }

    #[test]
    fn a_slim_deployment_and_autoscaler_have_the_facts_of_the_whole_ones() {
        let deployment = json!({
            "metadata": {"namespace": "a", "name": "d", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {"replicas": 4, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "Recreate"}, "paused": true,
                "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"replicas": 4, "observedGeneration": 3, "conditions": [
                {"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"},
            ]},
        });
        let whole: Deployment = serde_json::from_value(deployment.clone()).unwrap();
        let slim: SlimDeployment = serde_json::from_value(deployment).unwrap();
        let fact = DeploymentFact::from(slim);
        assert_eq!(fact, DeploymentFact::from(whole));
        assert!(fact.recreates && fact.paused && fact.stuck && fact.selector == "a=b");
        let scaler = json!({
            "metadata": {"namespace": "a", "name": "h", "uid": "u", "resourceVersion": "7"},
            "spec": {"minReplicas": 2, "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "behavior": {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Disabled"}}},
        });
        let whole: HorizontalPodAutoscaler = serde_json::from_value(scaler.clone()).unwrap();
        let slim: SlimAutoscaler = serde_json::from_value(scaler).unwrap();
        assert_eq!(HpaFact::from(slim), HpaFact::from(whole));
    }
}
