//! The admission policies: whether each is installed, bound and unmodified, and the policies of components. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::facts::{ComponentSpecs, InstallationFacts};
use crate::operator::admission;
use ganglion_api::marks;
use ganglion_core::check::CheckReport;
use ganglion_core::policies::PolicyState;

/// Advice about a policy that is not in force.
const ADVICE: &str = "kubectl apply --server-side --force-conflicts -f kustomize/base/admission.yaml; then delete objects \
    of these kinds that untrusted users wrote in the meantime";

/// A component with a MutatingAdmissionPolicy.
struct MutatingComponent {
    /// Name of the policy and of its binding.
    policy: &'static str,
    name: &'static str,
    manifest: &'static str,
    /// Consequence if it is not installed.
    without: &'static str,
}

const COMPONENTS: [MutatingComponent; 2] = [
    MutatingComponent {
        policy: marks::PIN_POLICY,
        name: "pin-statefulsets",
        manifest: include_str!("../../../kustomize/components/pin-statefulsets/policy.yaml"),
        without: "StatefulSets need the scheduling gate in their template",
    },
    MutatingComponent {
        policy: marks::LABEL_POLICY,
        name: "placement-labels",
        manifest: include_str!("../../../kustomize/components/placement-labels/policy.yaml"),
        without: "new pods get no terms that read the labels of PlacementPolicies",
    },
];

/// Reports on all policies.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Admission policies");
    match &facts.policies {
        Ok(states) => add_states(states, &mut report),
        Err(error) => error.add_to(&mut report, "policies and their bindings"),
    }
    for component in &COMPONENTS {
        if let Some(specs) = facts.components.get(component.policy) {
            component.add_to(specs, &mut report);
        }
    }
    report
}

fn add_states(states: &BTreeMap<&'static str, PolicyState>, report: &mut CheckReport) {
    for (name, state) in states {
        let problem = match state {
            PolicyState::Present => continue,
            PolicyState::Missing => "is not installed",
            PolicyState::Unbound => "has no binding that denies all writes that it does not allow",
            PolicyState::Modified => "was edited",
            PolicyState::Outdated => "is of an older version of Ganglion",
            PolicyState::Unreadable => {
                report.unsure_with(format!("{name}: not read"), "get the permission to list admission policies");
                continue;
            }
        };
        let kinds = dependent_kinds(name);
        report.failed_with(format!("{name} {problem}: the operator does not act on {kinds}"), ADVICE);
    }
    if states.values().all(|state| *state == PolicyState::Present) {
        report.passed(format!("all {} policies are installed, bound with Deny, and unmodified", states.len()));
    }
}

/// Kinds that need the policy.
fn dependent_kinds(name: &str) -> String {
    let guards = admission::guards();
    let kinds: Vec<&str> =
        guards.kinds().filter(|(_, policies)| policies.contains(&name)).map(|(kind, _)| kind).collect();
    if kinds.len() == guards.kinds().count() { "any kind".to_owned() } else { kinds.join(", ") }
}

impl MutatingComponent {
    /// Specs of the policy and the binding in the manifest. Which namespaces a binding selects is up to the user.
    fn specs(&self) -> [Value; 2] {
        let documents: Vec<Value> = serde_saphyr::from_multiple(self.manifest).unwrap_or_default();
        let mut specs = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"].map(|kind| {
            let found = documents.iter().find(|document| document["kind"] == kind);
            found.map(|document| document["spec"].clone()).unwrap_or_default()
        });
        if let Some(binding) = specs[1].as_object_mut() {
            binding.remove("matchResources");
        }
        specs
    }

    fn add_to(&self, [policy, binding]: &ComponentSpecs, report: &mut CheckReport) {
        let name = self.policy;
        let (policy, binding) = match (policy, binding) {
            (Ok(policy), Ok(binding)) => (policy.as_ref(), binding.as_ref()),
            (Err(error), _) | (_, Err(error)) => return error.add_to(report, name),
        };
        let [own_policy, own_binding] = self.specs();
        let problem = match (policy, binding) {
            (None, None) => {
                report.passed(format!("the component {} is not installed: {}", self.name, self.without));
                return;
            }
            (None, Some(_)) => format!("{name} has a binding, and no policy"),
            (Some(_), None) => format!("{name} has no binding"),
            (Some(policy), Some(_)) if !contains(policy, &own_policy) => {
                format!("{name} was edited, or is of another version of Ganglion")
            }
            (Some(_), Some(binding)) if !contains(binding, &own_binding) => {
                format!("the binding of {name} was edited")
            }
            (Some(_), Some(_)) => {
                report.passed(format!("{name} is installed, bound, and unmodified"));
                return;
            }
        };
        let advice = format!(
            "list the component {} in your overlay, and apply it again with --force-conflicts; or delete policy and \
             binding",
            self.name
        );
        report.failed_with(problem, advice);
    }
}

/// Whether the stored value has everything of the manifest; the API server adds defaults.
fn contains(stored: &Value, own: &Value) -> bool {
    match (stored, own) {
        (Value::Object(stored), Value::Object(own)) => {
            // An empty selector may be stored as none.
            own.iter()
                .all(|(name, value)| stored.get(name).map_or_else(|| is_empty(value), |other| contains(other, value)))
        }
        (Value::Array(stored), Value::Array(own)) => {
            stored.len() == own.len() && stored.iter().zip(own).all(|(stored, own)| contains(stored, own))
        }
        (Value::String(stored), Value::String(own)) => stored.trim() == own.trim(),
        _ => stored == own,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    fn a_component_counts_if_it_is_whole_and_unmodified(#[values(0, 1)] index: usize) {
        let component = &COMPONENTS[index];
        let [policy, binding] = component.specs();
        assert!(policy["mutations"].is_array() && binding["policyName"].is_string());
        // Defaults of the API server.
        let mut stored = policy.clone();
        stored["matchConstraints"]["matchPolicy"] = json!("Equivalent");
        let mut edited = policy.clone();
        edited["matchConditions"][0]["expression"] = json!("true");
        let mut narrowed = binding.clone();
        narrowed["paramRef"]["parameterNotFoundAction"] = json!("Deny");
        for (policy, binding, expected) in [
            (None, None, 0),
            (Some(stored.clone()), Some(binding.clone()), 0),
            (Some(stored.clone()), None, 1),
            (None, Some(binding.clone()), 1),
            (Some(edited), Some(binding), 1),
            (Some(stored), Some(narrowed), 1),
        ] {
            let mut report = CheckReport::default();
            component.add_to(&[Ok(policy), Ok(binding)], &mut report);
            assert_eq!(report.count(ganglion_core::check::CheckState::Failed), expected, "{report:?}");
            assert_eq!(report.points.len(), 1, "{report:?}");
        }
    }

    #[test]
    fn the_kinds_that_a_policy_guards_are_named() {
        assert_eq!(dependent_kinds("ganglion-swarmpools-scale"), "SwarmPool");
        assert_eq!(dependent_kinds("ganglion-metadata"), "any kind");
    }
}
