//! A pod on a node that is drained.

use k8s_openapi::api::core::v1::Pod;

use ganglion_api::marks;
use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::{Identity, NodeName, PodVolumes, Uid, group};

/// Maximum grace period that a drain waits for, in seconds: one day.
const MOST_GRACE: i64 = 86_400;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePod {
    pub id: Identity,
    pub node: NodeName,
    /// Its controller.
    pub owner: Option<WorkloadRef>,
    /// uid of its controller.
    pub controller: Option<Uid>,
    /// Whether the pod has the labels of the drain's pod selector.
    pub selected: bool,
    /// Whether the pod came after the node was cordoned.
    pub late: bool,
    pub finished: bool,
    pub termination: Option<Termination>,
    /// A static pod, which only its kubelet controls.
    pub mirror: bool,
    /// Whether an action works on the pod.
    pub in_motion: bool,
    pub volumes: PodVolumes,
}

/// The end of a pod that was deleted or evicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Termination {
    /// Grace period in seconds.
    pub grace_seconds: i64,
    /// The pod exists until its finalizers are removed.
    pub finalizers: Vec<String>,
}

impl NodePod {
    /// Whether its controller is of this kind of the API group `apps`. Other projects have kinds of the same names.
    pub fn is_of_apps(&self, kind: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == kind && group(&owner.api_version) == "apps")
    }
}

impl From<Pod> for NodePod {
    fn from(pod: Pod) -> Self {
        let meta = &pod.metadata;
        let annotated = |key: &str| meta.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            id: Identity::from(meta),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default().into(),
            owner: owner.map(|owner| WorkloadRef {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
            }),
            controller: owner.map(|owner| Uid::from(owner.uid.clone())),
            selected: true,
            late: false,
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            termination: meta.deletion_timestamp.as_ref().map(|_| Termination {
                grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(0).clamp(0, MOST_GRACE),
                finalizers: meta.finalizers.clone().unwrap_or_default(),
            }),
            mirror: annotated("kubernetes.io/config.mirror"),
            in_motion: annotated(marks::SLOT),
            volumes: pod.spec.as_ref().map(PodVolumes::from).unwrap_or_default(),
        }
    }
}
