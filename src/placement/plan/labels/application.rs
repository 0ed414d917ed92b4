//! Whether the API server adds terms that read the labels to new pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_api::marks::{DEFAULT_POLICY, LABEL_POLICY, POD_POLICY};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::conditions::{Stamp, condition};
use ganglion_core::facts::{Key, LabelBindingFact, LabelPolicyFact};
use ganglion_core::world::{Fact, World};

/// Condition type: the API server adds the terms.
pub const LABELS_APPLIED: &str = "LabelsApplied";

/// State of the component placement-labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelApplication {
    Installed,
    Missing,
    /// The API server does not serve the kind, or the operator may not read it.
    NotServed,
    Edited,
}

impl LabelApplication {
    pub fn of(world: &World) -> Self {
        let key = Key::new("", LABEL_POLICY);
        match (world.get::<LabelPolicyFact>(&key), world.get::<LabelBindingFact>(&key)) {
            (Some(policy), Some(binding)) if policy.is_ours && binding.is_whole && binding.policy == LABEL_POLICY => {
                Self::Installed
            }
            (Some(_), Some(_)) => Self::Edited,
            _ if LabelPolicyFact::table(world).is_unavailable() => Self::NotServed,
            _ => Self::Missing,
        }
    }

    /// The condition LabelsApplied of a policy.
    pub fn condition(self, old: &[Condition], policy: &str, is_default: bool, stamp: Stamp) -> Condition {
        let scheduler = "a scheduler whose NodeAffinityArgs have the terms can read the labels as well";
        let (status, reason, message) = match self {
            Self::Installed => {
                let pods = if is_default {
                    format!("{POD_POLICY}: {policy}, or without this label")
                } else {
                    format!("{POD_POLICY}: {policy}")
                };
                let message =
                    format!("new pods with the label {pods} get terms, in the namespaces that the binding selects");
                ("True", PolicyReason::AppliedByAdmission, message)
            }
            Self::Missing => {
                let message = format!("no pod gets terms: install kustomize/components/placement-labels; {scheduler}");
                ("False", PolicyReason::NotInstalled, message)
            }
            Self::NotServed => {
                let message = format!(
                    "no pod gets terms: the API server does not serve MutatingAdmissionPolicies to the operator, as it \
                     does from Kubernetes 1.36 on; {scheduler}"
                );
                ("False", PolicyReason::NotServed, message)
            }
            Self::Edited => {
                let message = format!(
                    "MutatingAdmissionPolicy {LABEL_POLICY} or its binding was edited, so it is not known which pods get \
                     terms: apply kustomize/components/placement-labels again"
                );
                ("Unknown", PolicyReason::Edited, message)
            }
        };
        condition(old, LABELS_APPLIED, status, reason.as_str(), &message, stamp)
    }
}

/// Whether pods that name no policy use this one.
pub fn is_default(labels: Option<&std::collections::BTreeMap<String, String>>) -> bool {
    labels.and_then(|labels| labels.get(DEFAULT_POLICY)).is_some_and(|value| value == "true")
}
