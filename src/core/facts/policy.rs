//! Facts about ValidatingAdmissionPolicies and their bindings: what the operator needs to detect that one was edited.

use serde_json::{Value, json};

use super::Identity;
use crate::digest;
use ganglion_api::foreign::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
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
        // Each object of the namespace is a parameter.
        let all = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
        let is_whole = spec["matchResources"].is_null() && (spec["paramRef"].is_null() || spec["paramRef"] == all);
        Self {
            id: (&binding.metadata).into(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            denies: is_whole && actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny")),
        }
    }
}
