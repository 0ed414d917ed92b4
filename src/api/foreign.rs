//! Kinds that the operator reads and never writes, with only the fields that it needs: KEDA's ScaledObject, the
//! VerticalPodAutoscaler, MutatingAdmissionPolicies and their bindings, which the API types in use do not include yet,
//! and ValidatingAdmissionPolicies and their bindings, whose specs are compared as a whole.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

/// Update policy of a VerticalPodAutoscaler; mode Off disables it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdatePolicy {
    pub update_mode: Option<String>,
}

/// Containers that the VerticalPodAutoscaler controls.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePolicy {
    pub container_policies: Vec<ContainerPolicy>,
}

/// Policy for one container, or for all other containers if the name is `*`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPolicy {
    pub container_name: String,
    pub mode: Option<String>,
    /// Default: cpu and memory.
    pub controlled_resources: Option<Vec<String>>,
}

/// A policy that changes objects at admission. The spec is kept as it was received, with fields of newer versions.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "admissionregistration.k8s.io",
    version = "v1",
    kind = "MutatingAdmissionPolicy",
    plural = "mutatingadmissionpolicies",
    schema = "disabled"
)]
pub struct MutatingAdmissionPolicySpec {
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Binding that activates such a policy.
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
    #[serde(skip_serializing_if = "Value::is_null")]
    pub param_ref: Value,
}

/// A policy that checks objects at admission. The spec is kept as it was received, with fields of newer versions.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "admissionregistration.k8s.io",
    version = "v1",
    kind = "ValidatingAdmissionPolicy",
    plural = "validatingadmissionpolicies",
    schema = "disabled"
)]
pub struct ValidatingAdmissionPolicySpec {
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Binding that activates such a policy.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "admissionregistration.k8s.io",
    version = "v1",
    kind = "ValidatingAdmissionPolicyBinding",
    plural = "validatingadmissionpolicybindings",
    schema = "disabled"
)]
pub struct ValidatingAdmissionPolicyBindingSpec {
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}
