//! The pod to place, reduced to what agents read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Toleration};

use ganglion_api::placement_policy::DEFAULT_SCHEDULER;
use ganglion_core::facts::{
    Key, NodeName, Owner, ReplicaSetFact, Requests, SPREAD_RATE, TemplateFact, Uid, cores, default_requests, requests,
};

/// Key of the taint and of the label of control plane nodes.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The pod to place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedPod {
    pub key: Key,
    pub uid: Uid,
    pub labels: BTreeMap<String, String>,
    pub requests: Requests,
    /// CPU in millicores: the request of each container, or its limit if it requests none. Read by the agent `power`.
    pub cores: i64,
    pub controller: Option<Owner>,
    pub scheduler: String,
    pub tolerates_control_plane: bool,
    /// Annotation [`SPREAD_RATE`] of the pod.
    pub spread_rate: Option<String>,
    /// Node on which the scheduler has preempted pods for this pod (`status.nominatedNodeName`).
    pub nominated: Option<NodeName>,
}

impl From<&Pod> for PlacedPod {
    fn from(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).filter(|name| !name.is_empty());
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        Self {
            key: Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default()),
            uid: Uid::of(meta),
            labels: meta.labels.clone().unwrap_or_default(),
            requests: spec.map(requests).unwrap_or_default(),
            cores: spec.map(cores).unwrap_or_default(),
            controller: Owner::controller_of(meta),
            // Pod templates and manifest files may omit it; the API server sets the default on pods.
            scheduler: scheduler.unwrap_or(DEFAULT_SCHEDULER).to_owned(),
            tolerates_control_plane: tolerations.iter().any(tolerates_control_plane),
            spread_rate: meta.annotations.as_ref().and_then(|all| all.get(SPREAD_RATE)).cloned(),
            nominated: pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).map(NodeName::from),
        }
    }
}

impl PlacedPod {
    /// The pod that a ReplicaSet with this template would create.
    pub fn of_replica_set(set: &ReplicaSetFact, template: &TemplateFact) -> Self {
        // The template was parsed before, so this cannot fail.
        let parsed: PodTemplateSpec = serde_json::from_str(&template.json).unwrap_or_default();
        let mut pod = Pod { metadata: parsed.metadata.unwrap_or_default(), spec: parsed.spec, ..Pod::default() };
        pod.spec.iter_mut().for_each(default_requests);
        let mut placed = Self::from(&pod);
        placed.key.namespace.clone_from(&set.id.key.namespace);
        let (name, uid) = (set.id.key.name.clone(), set.id.uid.clone());
        placed.controller = Some(Owner { kind: "ReplicaSet".to_owned(), name, uid });
        placed
    }
}

/// Whether this is the exact toleration that WAO requires.
pub fn tolerates_control_plane(toleration: &Toleration) -> bool {
    toleration.key.as_deref() == Some(CONTROL_PLANE)
        && toleration.operator.as_deref() == Some("Exists")
        && toleration.effect.as_deref() == Some("NoSchedule")
}
