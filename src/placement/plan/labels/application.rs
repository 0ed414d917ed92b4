//! Whether the API server adds terms that read the labels to new pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::MAX_NAME;
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
            Self::Installed if !is_default && policy.len() > MAX_NAME => {
                let message = format!(
                    "no pod gets terms: a label such as {POD_POLICY} has at most {MAX_NAME} characters, so pods cannot \
                     name this policy. Give it a shorter name, or make it the default ({DEFAULT_POLICY}: true); \
                     {scheduler}"
                );
                ("False", PolicyReason::NameTooLong, message)
            }
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use LabelApplication::{Edited, Installed, Missing, NotServed};
    use ganglion_core::facts::Identity;
    use ganglion_core::world::Origin;

    fn id(name: &str) -> Identity {
        Identity { key: Key::new("", name), uid: "u".into(), version: "1".into() }
    }

    fn world(policy: Option<bool>, binding: Option<(&str, bool)>) -> World {
        let mut world = World::default();
        if let Some(is_ours) = policy {
            world.apply(LabelPolicyFact { id: id(LABEL_POLICY), is_ours }, Origin::Watch);
        }
        if let Some((policy, is_whole)) = binding {
            world.apply(LabelBindingFact { id: id(LABEL_POLICY), policy: policy.to_owned(), is_whole }, Origin::Watch);
        }
        world
    }

    #[rstest]
    #[case::whole(Some(true), Some((LABEL_POLICY, true)), Installed)]
    #[case::absent(None, None, Missing)]
    #[case::unbound(Some(true), None, Missing)]
    #[case::only_bound(None, Some((LABEL_POLICY, true)), Missing)]
    #[case::edited(Some(false), Some((LABEL_POLICY, true)), Edited)]
    #[case::of_another(Some(true), Some(("other", true)), Edited)]
    #[case::narrowed(Some(true), Some((LABEL_POLICY, false)), Edited)]
    fn policy_and_binding_have_to_be_those_of_the_component(
        #[case] policy: Option<bool>,
        #[case] binding: Option<(&str, bool)>,
        #[case] expected: LabelApplication,
    ) {
        assert_eq!(LabelApplication::of(&world(policy, binding)), expected);
    }

    #[rstest]
    #[case(Installed, "green", false, ("True", "AppliedByAdmission"), "placement-policy: green get terms")]
    #[case(Installed, "green", true, ("True", "AppliedByAdmission"), "green, or without this label get terms")]
    #[case(Missing, "green", false, ("False", "NotInstalled"), "install kustomize/components/placement-labels")]
    #[case(NotServed, "green", false, ("False", "NotServed"), "from Kubernetes 1.36 on")]
    #[case(Edited, "green", true, ("Unknown", "Edited"), "apply kustomize/components/placement-labels again")]
    fn the_condition_says_what_to_do(
        #[case] application: LabelApplication,
        #[case] policy: &str,
        #[case] is_default: bool,
        #[case] expected: (&str, &str),
        #[case] words: &str,
    ) {
        let stamp = Stamp { generation: 1, now: Timestamp::UNIX_EPOCH };
        let found = application.condition(&[], policy, is_default, stamp);
        assert_eq!((found.status.as_str(), found.reason.as_str()), expected);
        assert!(found.message.contains(words), "{}", found.message);
    }

    #[test]
    fn a_policy_that_no_label_can_name_is_only_a_default() {
        let (stamp, name) = (Stamp { generation: 1, now: Timestamp::UNIX_EPOCH }, "n".repeat(MAX_NAME + 1));
        let reason = |name: &str, is_default| Installed.condition(&[], name, is_default, stamp).reason;
        assert_eq!(reason(&name, false), "NameTooLong");
        assert_eq!(reason(&name, true), "AppliedByAdmission");
        assert_eq!(reason(&name[1..], false), "AppliedByAdmission");
    }
}
