//! Kinds of other projects, with only the fields that the operator reads: KEDA's ScaledObject and the VerticalPodAutoscaler; and
//! kinds of Kubernetes that the API types in use are too old for: MutatingAdmissionPolicies and their bindings. Never written.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// KEDA's autoscaler.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(group = "keda.sh", version = "v1alpha1", kind = "ScaledObject", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub struct ScaledObjectSpec {
    pub scale_target_ref: ForeignTarget,
}

/// The vertical autoscaler.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(group = "autoscaling.k8s.io", version = "v1", kind = "VerticalPodAutoscaler", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerSpec {
    pub target_ref: ForeignTarget,
    pub update_policy: UpdatePolicy,
    pub resource_policy: ResourcePolicy,
}

/// The target of an autoscaler. Default kind: Deployment.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ForeignTarget {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub name: String,
}

/// Whether a VerticalPodAutoscaler acts: it does not if its mode is Off.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdatePolicy {
    pub update_mode: Option<String>,
}

/// The containers on which it acts.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePolicy {
    pub container_policies: Vec<ContainerPolicy>,
}

/// The policy for one container, or for all others if the name is `*`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPolicy {
    pub container_name: String,
    pub mode: Option<String>,
    /// Default: cpu and memory.
    pub controlled_resources: Option<Vec<String>>,
}

/// A policy that changes objects at their admission. Nothing of its spec is read.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "admissionregistration.k8s.io",
    version = "v1",
    kind = "MutatingAdmissionPolicy",
    plural = "mutatingadmissionpolicies",
    schema = "disabled"
)]
pub struct MutatingAdmissionPolicySpec {}

/// What puts such a policy in force.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "admissionregistration.k8s.io",
    version = "v1",
    kind = "MutatingAdmissionPolicyBinding",
    plural = "mutatingadmissionpolicybindings",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MutatingAdmissionPolicyBindingSpec {
    pub policy_name: String,
}
