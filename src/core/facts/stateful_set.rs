//! Facts about StatefulSets and their pods, and about the admission policy that pins these pods to a node.

use k8s_openapi::api::apps::v1::{StatefulSetOrdinals, StatefulSetStatus};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm, PersistentVolume, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use serde::Deserialize;

use super::workload::{scale, selector_text};
use super::{Identity, NodeName, Owner, ReplicaSetFact, TemplateFact};
use ganglion_api::foreign::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use ganglion_api::marks;
use std::sync::Arc;

/// A StatefulSet as the API server sends it: see [`super::ReplicaSet`].
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::apps::v1::StatefulSet")]
pub struct StatefulSet {
    pub metadata: ObjectMeta,
    pub spec: Option<StatefulSetSpec>,
    pub status: Option<StatefulSetStatus>,
}

/// See [`StatefulSet`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetSpec {
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub template: Option<TemplateFact>,
    pub ordinals: Option<StatefulSetOrdinals>,
    #[serde(default)]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    pub update_strategy: Option<UpdateStrategy>,
    pub min_ready_seconds: Option<i32>,
    pub persistent_volume_claim_retention_policy: Option<ClaimRetention>,
}

/// See [`StatefulSetFact::deletes_claims`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRetention {
    pub when_scaled: Option<String>,
}

/// A template of PersistentVolumeClaims, reduced to its name.
#[derive(Deserialize, Clone, Debug)]
pub struct ClaimTemplate {
    #[serde(default)]
    metadata: ClaimMetadata,
}

#[derive(Deserialize, Clone, Debug, Default)]
struct ClaimMetadata {
    name: Option<String>,
}

/// See [`StatefulSetFact::partition`].
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub rolling_update: Option<RollingUpdate>,
}

/// See [`StatefulSetFact::partition`].
#[derive(Deserialize, Clone, Debug)]
pub struct RollingUpdate {
    pub partition: Option<i32>,
}

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatefulSetFact {
    pub id: Identity,
    /// The facts that a StatefulSet shares with a ReplicaSet. Its `id` has no version; see `id` above.
    pub set: ReplicaSetFact,
    pub status_replicas: i32,
    /// Current revision and update revision of its pods.
    pub revisions: (Option<String>, Option<String>),
    /// Number of pods with the new template.
    pub updated_replicas: i32,
    /// Pods with a lower ordinal keep the old template. None for the strategy OnDelete.
    pub partition: Option<i32>,
    /// Ordinal of the first pod.
    pub first_ordinal: i32,
    /// Names of the volumeClaimTemplates.
    pub claims: Vec<String>,
    /// The claims of a replica are deleted when the set is scaled down (`whenScaled: Delete`).
    pub deletes_claims: bool,
    /// Selector of the pods, as text.
    pub selector: String,
    pub terminating: bool,
}

impl StatefulSetFact {
    /// Name of the pod with this ordinal.
    pub fn pod_name(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.id.key.name)
    }

    /// Ordinal of a pod of this StatefulSet; None for other names.
    pub fn ordinal(&self, pod: &str) -> Option<i32> {
        pod.strip_prefix(&self.id.key.name)?.strip_prefix('-')?.parse().ok()
    }

    /// Ordinal of the pod that one more replica would create.
    pub fn next_ordinal(&self) -> i32 {
        self.first_ordinal.saturating_add(self.set.scale.replicas)
    }

    /// Whether the StatefulSet wants a pod with this ordinal.
    pub fn keeps(&self, ordinal: i32) -> bool {
        (self.first_ordinal..self.next_ordinal()).contains(&ordinal)
    }

    /// Whether the operator's scheduling gate holds new pods.
    pub fn is_gated(&self) -> bool {
        self.set.template.as_ref().is_some_and(|template| template.gated)
    }

    /// Names of the PersistentVolumeClaims that the pod with this ordinal mounts.
    pub fn claims_of(&self, ordinal: i32) -> impl Iterator<Item = String> {
        self.own_claims_of(ordinal).chain(self.set.template.iter().flat_map(|template| template.claims.iter().cloned()))
    }

    /// Names of the PersistentVolumeClaims that belong to the pod with this ordinal alone.
    pub fn own_claims_of(&self, ordinal: i32) -> impl Iterator<Item = String> {
        self.claims.iter().map(move |claim| format!("{claim}-{}-{ordinal}", self.id.key.name))
    }

    /// Whether a change of the template has not reached all pods that it applies to.
    pub fn in_rollout(&self) -> bool {
        let (current, wanted) = &self.revisions;
        let updated = self.partition.map(|partition| self.set.scale.replicas.saturating_sub(partition.max(0)).max(0));
        self.set.behind || (current != wanted && updated.is_some_and(|updated| self.updated_replicas < updated))
    }
}

impl From<StatefulSet> for StatefulSetFact {
    fn from(StatefulSet { metadata: meta, spec, status }: StatefulSet) -> Self {
        let id = Identity::from(&meta);
        let observed = status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        let scale = scale(&meta, spec.as_ref().and_then(|spec| spec.replicas));
        let claims = spec.iter().flat_map(|spec| &spec.volume_claim_templates);
        let claims = claims.filter_map(|claim| claim.metadata.name.clone()).collect();
        let strategy = spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let on_delete = strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"));
        let partition = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).unwrap_or(0);
        let terminating = meta.deletion_timestamp.is_some();
        let retention = spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        Self {
            deletes_claims: retention.is_some_and(|policy| policy.when_scaled.as_deref() == Some("Delete")),
            status_replicas: status.as_ref().map_or(0, |status| status.replicas),
            updated_replicas: status.as_ref().and_then(|status| status.updated_replicas).unwrap_or(0),
            revisions: status.map(|status| (status.current_revision, status.update_revision)).unwrap_or_default(),
            partition: (!on_delete).then_some(partition),
            first_ordinal: spec.as_ref().and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or(0),
            claims,
            selector: selector_text(spec.as_ref().map(|spec| &spec.selector)),
            terminating,
            set: ReplicaSetFact {
                id: id.clone().unversioned(),
                labels: meta.labels.clone().unwrap_or_default(),
                scale,
                controller: Owner::controller_of(&meta),
                min_ready_seconds: spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0).max(0),
                behind: observed < meta.generation.unwrap_or(0),
                selector: spec.as_ref().map(|spec| (&spec.selector).into()).unwrap_or_default(),
                terminating,
                // Also for a StatefulSet without replicas: an action may create its first replica.
                template: spec.and_then(|spec| spec.template).map(Arc::new),
                ..ReplicaSetFact::default()
            },
            id,
        }
    }
}

/// Node that every required node affinity term of a pod names, as a pin does.
pub(super) fn pinned_to(pod: &Pod) -> Option<NodeName> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    pin_of(affinity.required_during_scheduling_ignored_during_execution.as_ref()?)
}

/// Node that every term names.
pub fn pin_of(required: &NodeSelector) -> Option<NodeName> {
    let terms = &required.node_selector_terms;
    let first = node_of(terms.first()?)?;
    terms.iter().all(|term| node_of(term) == Some(first)).then(|| first.into())
}

/// The only node that a term names. A later pin adds to an earlier one, so the last requirement counts.
fn node_of(term: &NodeSelectorTerm) -> Option<&str> {
    let fields = term.match_fields.as_deref()?.iter();
    let mut named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    match named.next_back()?.values.as_deref()? {
        [only] => Some(only),
        _ => None,
    }
}

/// Whether the gates contain the operator's scheduling gate.
pub(super) fn is_gated(gates: Option<&[k8s_openapi::api::core::v1::PodSchedulingGate]>) -> bool {
    gates.unwrap_or_default().iter().any(|gate| gate.name == marks::GATE)
}

/// The MutatingAdmissionPolicy that pins pods of StatefulSets to their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinPolicyFact {
    pub id: Identity,
}

impl From<MutatingAdmissionPolicy> for PinPolicyFact {
    fn from(policy: MutatingAdmissionPolicy) -> Self {
        Self { id: (&policy.metadata).into() }
    }
}

/// The MutatingAdmissionPolicyBinding of that policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinBindingFact {
    pub id: Identity,
    /// Name of the policy that the binding puts into effect.
    pub policy: String,
}

impl From<MutatingAdmissionPolicyBinding> for PinBindingFact {
    fn from(binding: MutatingAdmissionPolicyBinding) -> Self {
        Self { id: (&binding.metadata).into(), policy: binding.spec.policy_name }
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeFact {
    pub id: Identity,
    /// Nodes on which the volume can be used; None for all nodes.
    pub affinity: Option<NodeSelector>,
}

impl From<PersistentVolume> for VolumeFact {
    fn from(volume: PersistentVolume) -> Self {
        let affinity = volume.spec.and_then(|spec| spec.node_affinity?.required);
        Self { id: (&volume.metadata).into(), affinity }
    }
}
