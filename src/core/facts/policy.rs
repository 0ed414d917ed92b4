//! Facts about admission policies and their bindings: what the operator needs to detect that one was edited.

use serde_json::{Value, json};

use super::Identity;
use crate::digest;
use ganglion_api::foreign::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use ganglion_api::marks;

/// Number of hexadecimal digits of a digest.
const DIGITS: usize = 32;

/// Digest of the spec of a policy or binding as the API server stores it. Members are sorted, so their order does not
/// matter.
pub fn spec_digest(spec: &Value) -> String {
    digest::digest(&[&spec.to_string()], DIGITS)
}

/// A ValidatingAdmissionPolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFact {
    pub id: Identity,
    /// Version of Ganglion that generated the policy, by its annotation.
    pub version: String,
    /// Digest of the spec, by its annotation.
    pub claimed: String,
    /// Digest of the spec.
    pub digest: String,
}

impl From<ValidatingAdmissionPolicy> for PolicyFact {
    fn from(policy: ValidatingAdmissionPolicy) -> Self {
        let annotation = |name: &str| {
            let annotations = policy.metadata.annotations.as_ref();
            annotations.and_then(|annotations| annotations.get(name)).cloned().unwrap_or_default()
        };
        Self {
            id: (&policy.metadata).into(),
            version: annotation(marks::POLICY_VERSION),
            claimed: annotation(marks::POLICY_DIGEST),
            digest: spec_digest(&Value::Object(policy.spec.fields)),
        }
    }
}

/// A ValidatingAdmissionPolicyBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyBindingFact {
    pub id: Identity,
    /// Name of the policy.
    pub policy: String,
    /// Whether the binding denies all writes that the policy does not allow.
    pub denies: bool,
}

impl From<ValidatingAdmissionPolicyBinding> for PolicyBindingFact {
    fn from(binding: ValidatingAdmissionPolicyBinding) -> Self {
        let spec = Value::Object(binding.spec.fields);
        let actions = spec["validationActions"].as_array();
        let is_whole =
            spec["matchResources"].is_null() && (spec["paramRef"].is_null() || has_all_parameters(&spec["paramRef"]));
        Self {
            id: (&binding.metadata).into(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            denies: is_whole && actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny")),
        }
    }
}

/// Whether each object of the kind (and of the namespace) is a parameter.
fn has_all_parameters(reference: &Value) -> bool {
    *reference == json!({"selector": {}, "parameterNotFoundAction": "Allow"})
}

/// The MutatingAdmissionPolicy that adds terms to pods, which read the labels of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPolicyFact {
    pub id: Identity,
    /// Whether the spec is that of the component.
    pub is_ours: bool,
}

impl From<MutatingAdmissionPolicy> for LabelPolicyFact {
    fn from(policy: MutatingAdmissionPolicy) -> Self {
        let annotations = policy.metadata.annotations.as_ref();
        let claimed = annotations.and_then(|annotations| annotations.get(marks::POLICY_DIGEST)).cloned();
        let digest = spec_digest(&Value::Object(policy.spec.fields));
        Self { id: (&policy.metadata).into(), is_ours: claimed == Some(digest) }
    }
}

/// The MutatingAdmissionPolicyBinding of that policy. Which namespaces it selects is up to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelBindingFact {
    pub id: Identity,
    /// Name of the policy that the binding puts into effect.
    pub policy: String,
    /// Whether each PlacementPolicy is a parameter.
    pub is_whole: bool,
}

impl From<MutatingAdmissionPolicyBinding> for LabelBindingFact {
    fn from(binding: MutatingAdmissionPolicyBinding) -> Self {
        Self {
            id: (&binding.metadata).into(),
            policy: binding.spec.policy_name,
            is_whole: has_all_parameters(&binding.spec.param_ref),
        }
    }
}
