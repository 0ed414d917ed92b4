//! A pod on a node that is drained.

use k8s_openapi::api::core::v1::Pod;

use ganglion_api::marks;
use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::{Identity, Key, NodeName, PodVolumes};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePod {
    pub key: Key,
    pub node: NodeName,
    /// Its controller.
    pub owner: Option<WorkloadRef>,
    pub finished: bool,
    pub terminating: bool,
    /// A static pod, which only its kubelet controls.
    pub mirror: bool,
    /// Whether an action works on the pod.
    pub in_motion: bool,
    pub volumes: PodVolumes,
}

impl From<Pod> for NodePod {
    fn from(pod: Pod) -> Self {
        let meta = &pod.metadata;
        let annotated = |key: &str| meta.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            key: Identity::from(meta).key,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default().into(),
            owner: owner.map(|owner| WorkloadRef {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
            }),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            terminating: meta.deletion_timestamp.is_some(),
            mirror: annotated("kubernetes.io/config.mirror"),
            in_motion: annotated(marks::SLOT),
            volumes: pod.spec.as_ref().map(PodVolumes::from).unwrap_or_default(),
        }
    }
}
