//! Admission policies that refuse writes during a story.

use anyhow::Result;
use serde_json::{Value, json};

use super::Testbed;

/// Kinds of the objects of a guard, in the order of their deletion.
const KINDS: [&str; 2] = ["validatingadmissionpolicybinding", "validatingadmissionpolicy"];

/// A ValidatingAdmissionPolicy and its binding. It refuses writes in the namespace of the story, and of objects without
/// a namespace, until it is removed.
pub struct WriteGuard<'a> {
    testbed: &'a Testbed,
    name: String,
}

impl<'a> WriteGuard<'a> {
    /// Refuses writes that this rule selects and for which this expression is false. The API server enforces it a
    /// moment later.
    pub async fn place(testbed: &'a Testbed, rule: Value, expression: &str, message: &str) -> Result<Self> {
        let name = format!("{}-guard", testbed.ns);
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": message}],
            },
        });
        let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": testbed.ns}}});
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": here},
        });
        for object in [policy, binding] {
            testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        }
        Ok(Self { testbed, name })
    }

    /// Accepts the writes again.
    pub async fn remove(self) -> Result<()> {
        for kind in KINDS {
            self.testbed.kubectl(&["delete", kind, &self.name], None).await?;
        }
        Ok(())
    }
}
