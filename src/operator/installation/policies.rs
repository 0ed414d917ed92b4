//! The admission policies: whether each is installed, bound and unmodified, and the policy of the component
//! pin-statefulsets. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::facts::{InstallationFacts, ReadResult};
use crate::operator::admission;
use ganglion_api::marks;
use ganglion_core::check::CheckReport;
use ganglion_core::policies::PolicyState;

/// Manifest of the component.
const PIN: &str = include_str!("../../../kustomize/components/pin-statefulsets/policy.yaml");

/// Advice about a policy that is not in force.
const ADVICE: &str = "kubectl apply --server-side --force-conflicts -f kustomize/base/admission.yaml; then delete objects \
    of these kinds that untrusted users wrote in the meantime";

/// Advice about the policy of the component.
const PIN_ADVICE: &str = "list the component pin-statefulsets in your overlay, and apply it again with --force-conflicts; \
    or delete policy and binding";

/// Reports on all policies.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Admission policies");
    match &facts.policies {
        Ok(states) => add_states(states, &mut report),
        Err(error) => error.add_to(&mut report, "policies and their bindings"),
    }
    add_pin(&facts.pin, &mut report);
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

/// Specs of the policy and the binding in the manifest of the component.
fn pin_specs() -> [Value; 2] {
    let documents: Vec<Value> = serde_saphyr::from_multiple(PIN).unwrap_or_default();
    let spec = |kind: &str| {
        let found = documents.iter().find(|document| document["kind"] == kind);
        found.map(|document| document["spec"].clone()).unwrap_or_default()
    };
    ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"].map(spec)
}

fn add_pin([policy, binding]: &[ReadResult<Option<Value>>; 2], report: &mut CheckReport) {
    let name = marks::PIN_POLICY;
    let (policy, binding) = match (policy, binding) {
        (Ok(policy), Ok(binding)) => (policy.as_ref(), binding.as_ref()),
        (Err(error), _) | (_, Err(error)) => return error.add_to(report, name),
    };
    let [own_policy, own_binding] = pin_specs();
    match (policy, binding) {
        (None, None) => report.passed(
            "the component pin-statefulsets is not installed: StatefulSets need the scheduling gate in their template",
        ),
        (None, Some(_)) => report.failed_with(format!("{name} has a binding, and no policy"), PIN_ADVICE),
        (Some(_), None) => report.failed_with(format!("{name} has no binding"), PIN_ADVICE),
        (Some(policy), Some(_)) if !contains(policy, &own_policy) => {
            report.failed_with(format!("{name} was edited, or is of another version of Ganglion"), PIN_ADVICE);
        }
        (Some(_), Some(binding)) if !contains(binding, &own_binding) => {
            report.failed_with(format!("the binding of {name} was edited"), PIN_ADVICE);
        }
        (Some(_), Some(_)) => report.passed(format!("{name} is installed, bound, and unmodified")),
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
    use serde_json::json;

    use super::*;

    fn pin(policy: Option<Value>, binding: Option<Value>) -> CheckReport {
        let mut report = CheckReport::default();
        add_pin(&[Ok(policy), Ok(binding)], &mut report);
        report
    }

    #[test]
    fn the_component_counts_if_it_is_whole_and_unmodified() {
        let [policy, binding] = pin_specs();
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
            let report = pin(policy, binding);
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
